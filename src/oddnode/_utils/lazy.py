"""Names and modules that are imported when they are first used, so that the command line starts without torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:
    import functools

    class cached_property(functools.cached_property):
        """As in Python 3.12: no lock of the class is held while a value is computed, so threads score side by side."""

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            if self.attrname not in instance.__dict__:
                instance.__dict__[self.attrname] = self.func(instance)
            return instance.__dict__[self.attrname]


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Build ``__getattr__``, ``__dir__`` and ``__all__`` of a package from what it imports for type checkers.

    The imports under ``if TYPE_CHECKING:`` are the one list of lazy names: type checkers follow them, and here they are
    read from the source. Names that the package has imported by then are exported as well.
    """
    module = sys.modules[package]
    tree = ast.parse(module.__loader__.get_source(package))  # type: ignore[union-attr]
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    home_of = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    imports = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(str(home_of[name])), name)
        setattr(module, name, value)
        return value

    names = sorted({*home_of, *(alias.asname for alias in imports if alias.asname)})
    return load, lambda: names, names


def is_instance(thing: object, module: str, kind: str) -> bool:
    """Whether an object's class is from a module that is slow to import.

    Such an object exists only once the module was imported, so that it need not be imported here.
    """
    imported = sys.modules.get(module)
    return imported is not None and isinstance(thing, getattr(imported, kind))


class LazyModule:
    """A module that is imported when one of its names is first used.

    Examples
    --------
    >>> LazyModule("math").floor(2.5)
    2
    """

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)  # a wide table uses some of them a million times
        return value
