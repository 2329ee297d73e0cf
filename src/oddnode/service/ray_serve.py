"""Read replicas of a service on a Ray cluster (``pip install 'oddnode[ray-serve]'``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI

from oddnode.service.app import create_app
from oddnode.service.guard import Access
from oddnode.service.state import Source, State


def replicas(source: Source, folder: Path, num_replicas: int = 2, access: Access | None = None) -> Any:
    """Make an application for ``ray.serve.run``: replicas that follow the log of a service.

    The model, the graph and the log must be at the same paths on every machine that a replica runs on, and the log on a
    file system that SQLite supports there: machines share it over a network only if locks and shared memory work.

    Parameters
    ----------
    source : Source
        The model and the base of the service.
    folder : Path
        Its ``--state`` folder.
    num_replicas : int
        The number of replicas.
    access : Access, optional
        Who may ask; by default everybody on the machine of Ray's proxy.
    """
    try:
        from ray import serve
    except ImportError:
        raise ValueError("replicas need Ray Serve; install it with: pip install 'oddnode[ray-serve]'") from None

    def build() -> FastAPI:
        state = State(source, folder, follow=True)
        state.start()
        state.wait()
        return create_app(state, access)

    deployment = serve.deployment(serve.ingress(build)(), name="oddnode", num_replicas=num_replicas)
    return deployment.bind()
