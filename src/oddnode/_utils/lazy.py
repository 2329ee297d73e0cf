"""Names and modules that are imported when they are first used, so that the command line starts without torch.

Names of modules are written in full: `oddnode.runner.source_key` takes them for imports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["LazyModule", "lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Build ``__getattr__`` and ``__dir__`` of a package that exports names of modules which it has not imported.

    Parameters
    ----------
    package : str
        The package's name.
    homes : dict
        For each module, the names that it defines.

    Returns
    -------
    callable
        Imports the module of a name and returns what the name stands for.
    callable
        Lists the names that the package has, imported or not.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return load, lambda: sorted({*vars(sys.modules[package]), *home_of})


class LazyModule:
    """A module that is imported when one of its names is first used.

    Parameters
    ----------
    name : str
        The module's full name.

    Examples
    --------
    >>> LazyModule("math").floor(2.5)
    2
    """

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
