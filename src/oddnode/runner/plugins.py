"""Plugins in other processes, and in the key of a store."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

__all__ = ["file_plugins", "load_plugins", "plugin_files"]

_HOME = "oddnode._utils.plugins"


def file_plugins() -> tuple[Path, ...]:
    """The plugins that were given as files: what `load_plugins` needs to load the same in another process."""
    home = _home()
    return () if home is None else home.file_plugins()


def plugin_files() -> tuple[Path, ...]:
    """Every source file of the loaded plugins, for the key of a store."""
    home = _home()
    return () if home is None else home.plugin_files()


def load_plugins(files: Iterable[Path]) -> None:
    """Load the plugins of another process in this one.

    Parameters
    ----------
    files : iterable of Path
        What `file_plugins` returned there.
    """
    home = _home()
    if home is not None:
        home.load_plugins(files)


def _home() -> ModuleType | None:
    return import_module(_HOME) if find_spec(_HOME) else None
