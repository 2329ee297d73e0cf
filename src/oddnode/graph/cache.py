"""Checked graphs by the tensors they were made from, so that a graph that is used often is checked once."""

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
            Makes the value.
        device : torch.device
            The device of the value.
        *sources : object
            What the value is made from; compared by identity.

        Returns
        -------
        object
            The value.
        """
        key = (device, *(id(source) for source in sources))
        if key not in self._found:
            self._found[key] = make(), sources  # hold references, so that Python cannot reuse the ids in the key
        return self._found[key][0]


active_cache: ContextVar[GraphCache | None] = ContextVar("graph_cache", default=None)


@contextmanager
def graph_cache() -> Iterator[None]:
    """Check and prepare each graph only once within the block; the data must not change in the meantime."""
    token = active_cache.set(GraphCache())
    try:
        yield
    finally:
        active_cache.reset(token)
