"""Named things that a plugin can add to: methods, backbones, data sets, protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from oddnode._utils.suggestions import unknown

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to things of one kind, in the order in which they were registered.

    Looking a name up that is not there raises an error that suggests the nearest one.

    Parameters
    ----------
    kind : str
        What the things are, for messages: ``"method"``, ``"backbone"``, ...

    Examples
    --------
    >>> shapes = Registry("shape")
    >>> shapes.register("circle", 1.0)
    >>> shapes["circle"]
    1.0
    >>> shapes["cirle"]
    Traceback (most recent call last):
    ...
    oddnode._utils.suggestions.UnknownNameError: unknown shape 'cirle'. Did you mean 'circle'? Known: circle.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._items: dict[str, T] = {}

    def register(self, name: str, item: T, *, replace: bool = False) -> None:
        """Add a thing under a name that is not taken yet.

        Parameters
        ----------
        name : str
            What it is called from now on.
        item : object
            The thing.
        replace : bool
            Whether it may take the place of another of the same name.
        """
        if name in self._items and not replace:
            raise ValueError(f"there is a {self.kind} named {name!r} already; choose another name")
        self._items[name] = item

    def __getitem__(self, name: str) -> T:
        if name not in self._items:
            raise unknown(self.kind, name, self._items)
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {list(self._items)})"
