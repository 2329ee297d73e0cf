"""The server of `oddnode serve`: uvicorn, but it ends after the log is closed, and waits for no client for ever."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


class Server(uvicorn.Server):
    """A server of an application; it listens until a signal or ``should_exit`` stops it.

    Parameters
    ----------
    app : FastAPI
        The application.
    host, port
        Where to listen.
    on_start : callable
        Called with the address, once it listens.
    seconds : float
        How long a connection may be without a whole request; then it is closed.
    """

    def __init__(self, app: Any, host: str, port: int, on_start: Callable[[str], None], seconds: float = 30.0):
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                timeout_keep_alive=30,
                timeout_graceful_shutdown=5,
            )
        )
        self._on_start, self._seconds = on_start, seconds
        self._idle: dict[Any, tuple[Any, float]] = {}  # connections without a request: the last one, and since when

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal; uvicorn would send itself the signal again at the end, before the log is closed."""
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and say where."""
        await super().startup(sockets)
        if not self.should_exit:  # otherwise the port is taken; uvicorn has said so
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_start(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def on_tick(self, counter: int) -> bool:
        """What happens ten times a second."""
        if counter % 10 == 0:
            self._close_idle()
        return await super().on_tick(counter)

    def _close_idle(self) -> None:
        """Close connections on which no request is complete yet: uvicorn has no time limit for headers."""
        now, idle = time.monotonic(), {}
        connections: Any = self.server_state.connections
        for each in connections:
            cycle = each.cycle
            if cycle is None or cycle.response_complete:
                last, since = self._idle.get(each, (cycle, now))
                idle[each] = cycle, since if last is cycle else now
                if now - idle[each][1] > self._seconds:
                    each.transport.close()
        self._idle = idle


def log_to_stderr() -> None:
    """Write what the service logs to standard error, with the time: answers refer to it."""
    handler, log = logging.StreamHandler(), logging.getLogger("oddnode.service")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
