"""Services in a thread, and as processes of their own, forked from one that has imported everything."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import uvicorn

_PRELOAD = [
    "torch",
    "pandas",
    "pyarrow",
    "uvicorn",
    "oddnode.cli",
    "oddnode.service.app",
    "oddnode.tables",
    "oddnode.online",
]


def _serve(arguments: list[str], errors: str, environment: dict[str, str]) -> None:
    handle = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 2)
    os.environ.update(environment)
    sys.argv = ["oddnode", "serve", *arguments]
    from oddnode.cli import main

    main()


class Running:
    """An app on a free port of this machine, in a thread; it can be stopped and started again there."""

    def __init__(self, app: Any):
        self.app, self.port = app, 0
        self.start()

    def start(self) -> None:
        config = uvicorn.Config(self.app, port=self.port, log_level="error", ws="none", timeout_graceful_shutdown=0)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        until = time.monotonic() + 60
        while not self.server.started:
            assert self.thread.is_alive()
            assert time.monotonic() < until
            self.thread.join(0.02)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()


class Served:
    """A service on a free port of this machine."""

    def __init__(self, folder: Path, *arguments: Any, **environment: str):
        context = get_context("forkserver")
        context.set_forkserver_preload(_PRELOAD)
        self.errors = folder / f"errors-{time.monotonic_ns()}"
        listed = [*map(str, arguments), "--port", "0"]
        self.process = context.Process(target=_serve, args=(listed, str(self.errors), environment), daemon=True)
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def wait(self) -> Served:
        """Wait until it is ready."""
        until = time.monotonic() + 180  # the first one imports everything, perhaps beside other tests
        while "\nready" not in self.text:
            assert self.process.is_alive(), self.text
            assert time.monotonic() < until, self.text
            time.sleep(0.02)
        found = re.search(r"http://\S+", self.text)
        assert found is not None
        self.url = found.group()
        return self

    @property
    def text(self) -> str:
        """What it has written to standard error."""
        return self.errors.read_text(errors="replace") if self.errors.exists() else ""

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Ask: the status and the answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **named})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def kill(self) -> None:
        """End it without warning."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.join()

    def stop(self) -> int | None:
        """End it as an administrator does; its exit status."""
        self.process.terminate()
        self.process.join(60)
        return self.process.exitcode
