"""The cache that checks and prepares a user's graph once, for callers that use the same graph many times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

__all__ = ["GraphCache", "active_cache", "graph_cache"]


class GraphCache:
    """Checked features and graphs by device and by the user's tensors they come from."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def get(self, make: Callable[[], Any], device: torch.device, *sources: Any) -> Any:
        """Call ``make`` once for the same sources.

        Parameters
        ----------
        make : callable
            Makes the value, without arguments.
        device : torch.device
            The device of the value.
        *sources
            The user's tensors that it comes from.

        Returns
        -------
        object
            The value.
        """
        key = (device, *(id(source) for source in sources))
        if key not in self._found:
            self._found[key] = make(), sources  # hold references, so that Python cannot reuse the ids in the key
        return self._found[key][0]


_active_cache: ContextVar[GraphCache | None] = ContextVar("graph_cache", default=None)


@contextmanager
def graph_cache() -> Iterator[None]:
    """Check and prepare each graph only once within the block; the data must not change in the meantime."""
    token = _active_cache.set(GraphCache())
    try:
        yield
    finally:
        _active_cache.reset(token)


def active_cache() -> GraphCache:
    """Return the cache of the innermost `graph_cache`, or else an empty one."""
    return _active_cache.get() or GraphCache()
