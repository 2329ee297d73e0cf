"""Registries, which plugins can add to: methods, backbones, data sets, protocols, table formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from oddnode._utils.suggestions import unknown

T = TypeVar("T")


class _Place(NamedTuple):
    """Where to import an item from that has not been imported."""

    path: str


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to items of one kind, in the order of registration.

    Looking up an unknown name raises an error that suggests the nearest known one.

    Parameters
    ----------
    kind : str
        The kind of the items, for messages: ``"method"``, ``"backbone"``, ...

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

    _every: ClassVar[list[Registry[Any]]] = []

    def __init__(self, kind: str):
        self.kind = kind
        self._items: dict[str, T | _Place] = {}
        Registry._every.append(self)

    def register(self, name: str, item: T, *, replace: bool = False) -> None:
        """Add an item under a new name; registering the same object again has no effect.

        Parameters
        ----------
        name : str
            The name. It must not contain spaces or commas, because lists of names are separated by commas.
        item : object
            The item.
        replace : bool
            Whether it may replace another item of the same name.
        """
        if not isinstance(name, str) or not name or "," in name or name.split() != [name]:
            raise ValueError(f"{name!r} cannot name a {self.kind}: expected a string without spaces or commas")
        if name in self._items and self._items[name] is not item and not replace:
            raise ValueError(f"there is a {self.kind} named {name!r} already; choose another name")
        self._items[name] = item

    def register_place(self, name: str, path: str) -> None:
        """Add an item under a new name without importing its module; looking it up does.

        Parameters
        ----------
        name : str
            As for `register`.
        path : str
            Where the item is, as for `pkgutil.resolve_name`: ``"package.module:name"``.
        """
        self.register(name, _Place(path))  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> T:
        if name not in self._items:
            raise unknown(self.kind, name, self._items)
        item = self._items[name]
        if isinstance(item, _Place):
            item = self._items[name] = resolve_name(item.path)
        return item

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {list(self._items)})"


@contextmanager
def undone_registrations(*, only_after_error: bool = False) -> Iterator[None]:
    """Undo every registration made inside the ``with`` block when the block ends, or only if it raises."""
    before = [(registry, dict(registry._items)) for registry in Registry._every]
    undo = True
    try:
        yield
        undo = not only_after_error
    finally:
        for registry, items in before if undo else ():
            registry._items = items


#: Modules of higher packages with objectives and scorers that a saved model may name; imported when one is needed.
PART_MODULES: Registry[Any] = Registry("module of parts")
