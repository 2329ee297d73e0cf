"""A `concurrent.futures` executor whose calls run in a Ray cluster. Needs the extra ``ray``.

Ray decides which machine runs a call, and starts and reuses processes there.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from oddnode._utils.plugins import file_plugins, load_plugins
from oddnode.runner.engine import WorkerDied
from oddnode.runner.source_key import store_key

_log = logging.getLogger("oddnode.runner")


class RayExecutor(ThreadPoolExecutor):
    """Runs calls in a Ray cluster.

    The cluster is the one that ``RAY_ADDRESS`` names, else the one that runs on this machine, else a new one on this
    machine only, which ends with the executor. Every machine needs the same version of oddnode, the same plugins under
    the same paths, and the data sets. A thread of this process waits for each running call.
    """

    def __init__(self, max_workers: int | None = None, threads: int = 1, on_gpu: bool = False):
        self._ray = _import_ray()
        self._is_connection_ours = not self._ray.is_initialized()
        if self._is_connection_ours:
            _connect(self._ray, None if max_workers is None else max_workers * threads)
        self.max_workers = max_workers or self._capacity(threads, on_gpu)
        super().__init__(self.max_workers, thread_name_prefix="oddnode-ray")
        options = {"num_cpus": threads, "num_gpus": int(on_gpu), "max_retries": 0, "num_returns": "streaming"}
        self._remote = self._ray.remote(**options)(_steps)
        self._needs = threads, file_plugins(), store_key()
        self._running: set[Any] = set()
        self._lock = Lock()
        self._is_cancelled = False

    def _capacity(self, threads: int, on_gpu: bool) -> int:
        """How many calls the cluster can run at a time."""
        resources = self._ray.cluster_resources()
        capacity = int(resources.get("CPU", 0) // threads)
        if on_gpu:
            capacity = min(capacity, int(resources.get("GPU", 0)))
        if capacity < 1:
            if self._is_connection_ours:
                self._ray.shutdown()
            needed = f"{threads} cores" + (" and a GPU" if on_gpu else "")
            raise ValueError(f"the Ray cluster has {resources}, but a training needs {needed}")
        return capacity

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule a call."""
        return super().submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls."""
        if cancel_futures:
            with self._lock:
                self._is_cancelled = True
                for steps in self._running:
                    self._ray.cancel(steps, force=True)
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait and self._is_connection_ours:
            self._ray.shutdown()

    def _call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call in the cluster and wait for its result."""
        errors = self._ray.exceptions
        with self._lock:
            if self._is_cancelled:
                raise CancelledError
            steps = self._remote.remote(*self._needs, fn, args, kwargs)
            self._running.add(steps)
        where = "a worker that had not started yet"
        try:
            host, pid = self._ray.get(next(steps))
            where = f"worker {pid} on {host}"
            _log.info("%s has started a call", where)
            return self._ray.get(next(steps))
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.TaskCancelledError:
            raise CancelledError from None
        except errors.RayError as error:
            raise WorkerDied(f"{where} died ({type(error).__name__})") from error
        finally:
            with self._lock:
                self._running.discard(steps)


def _steps(
    threads: int, plugins: tuple[Path, ...], source: str, fn: Callable[..., Any], args: tuple, kwargs: dict[str, Any]
) -> Iterator[Any]:
    """Yield who runs a call, then its result, if the source has the expected key; both reach the caller at once."""
    import torch

    yield socket.gethostname(), os.getpid()
    load_plugins(plugins)
    if store_key() != source:
        raise ValueError(
            f"{socket.gethostname()} has a different source of oddnode or its plugins (key {store_key()}) than the "
            f"machine that started the run (key {source}); install the same version on every machine"
        )
    torch.set_num_threads(threads)
    yield fn(*args, **kwargs)


def _import_ray() -> Any:
    # Ray sends usage statistics to its makers by default; users who want that can set this to 1.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise ValueError("the engine ray needs Ray; install it with: pip install 'oddnode[ray]'") from None
    return ray


def _connect(ray: Any, num_cpus: int | None) -> None:
    """Connect to a cluster, or start one on this machine."""
    address, quiet = os.environ.get("RAY_ADDRESS"), {"log_to_driver": False, "logging_level": "warning"}
    if address != "local":
        try:
            ray.init(address=address or "auto", **quiet)
            return
        except ConnectionError:
            if address:
                raise
    ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, **quiet)
