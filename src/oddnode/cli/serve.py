"""The command `serve`: a live graph behind HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from oddnode._utils.plugins import load_plugins
from oddnode.cli.shared import Plugins, add_command, err
from oddnode.cli.tables import EdgeTables, Graph, NodeTables

# As `oddnode.service.guard` has it, which takes seconds to import.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def serve(
    model: Annotated[Path, typer.Argument(help="Folder that `oddnode fit` wrote.")],
    graph: Graph = None,
    nodes: NodeTables = None,
    edges: EdgeTables = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder for the log of changes; it is created.", show_default="no changes are taken"),
    ] = None,
    follow: Annotated[
        Path | None, typer.Option(help="The --state folder of another service: a read replica of it.")
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Raise at most this many alerts per day (UTC), for the oddest arrivals where possible.",
            show_default="every flagged arrival",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any other than this machine's needs ODDNODE_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 = any free one.")] = 8080,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name under which the service is asked, besides localhost. Can be repeated.",
            show_default="any, if ODDNODE_TOKEN is set",
        ),
    ] = None,
    compact_after: Annotated[
        int | None,
        typer.Option(
            min=1, help="Compute a new base in the background after so many changes.", show_default="when asked"
        ),
    ] = None,
    max_neighbours: Annotated[int, typer.Option(min=1, help="Maximum number of edges read per node.")] = 256,
    max_body: Annotated[int, typer.Option(min=1, help="Maximum request size in megabytes.")] = 64,
    plugin: Plugins = None,
) -> None:
    """Answer questions about nodes over HTTP, and take changes of the graph.

    With ODDNODE_TOKEN set, requests need the header Authorization: Bearer TOKEN; ODDNODE_READ_TOKEN is a second token
    that allows reading only. The address /docs lists what can be asked.
    """
    load_plugins(plugin or ())
    token, read_token = (os.environ.get(name) or None for name in ("ODDNODE_TOKEN", "ODDNODE_READ_TOKEN"))
    if host not in _LOOPBACK and token is None:
        raise ValueError(f"--host {host} can be reached from other machines: set ODDNODE_TOKEN to a long random text")
    if (graph is None) == (not nodes or not edges):
        raise ValueError("give --graph, or --nodes and --edges")
    if state is not None and follow is not None:
        raise ValueError("--state takes changes and --follow takes none; give one of them")
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import sse_starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ValueError("serve needs FastAPI and uvicorn; install them with: pip install 'oddnode[serve]'") from None
    from oddnode.service.app import Limits, create_app
    from oddnode.service.guard import Access
    from oddnode.service.state import Source, State

    hosts = () if token is not None and not allowed_host else (*_LOOPBACK, *(allowed_host or ()))
    access = Access(token, read_token, hosts)
    source = Source(
        model, graph, [Path(each) for each in nodes or ()], [Path(each) for each in edges or ()], max_neighbours
    )
    served = State(source, follow or state, follow=follow is not None, budget=budget, compact_after=compact_after)
    try:
        _run(create_app(served, access, Limits(body=max_body << 20)), served, host, port)
    finally:
        served.close()
    if served.failure is not None:
        raise served.failure


def _run(app: Any, state: Any, host: str, port: int) -> None:
    """Listen until a signal or a failure stops the server."""
    from oddnode.service.server import Server, log_to_stderr

    def start(address: str) -> None:
        err.print(f"serving at {address} (loading the graph)", highlight=False)
        state.on_ready = lambda: err.print("ready", highlight=False)
        state.start()

    def stop() -> None:
        server.should_exit = True

    log_to_stderr()
    server, state.on_failure = Server(app, host, port, start), stop
    try:
        server.run()
    except SystemExit:
        raise RuntimeError(
            f"cannot listen on {host}:{port}: the port is taken, or the address is not this machine's"
        ) from None


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    add_command(
        app,
        serve,
        "model --graph graph --state changes",
        "model --nodes nodes.csv --edges edges.csv --state changes --port 9000",
        "model --graph graph --follow changes --port 8081",
        panel="Your tables",
    )
