"""Plugins: modules outside this package that register methods, backbones and data sets when they are imported.

A plugin is a file that the user names with `load_plugins`, or a module that an installed distribution lists in the
entry-point group ``oddnode.plugins``. Nothing else is ever imported: in particular, a saved model can name the plugin
that it needs, but never loads it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import module_from_spec, spec_from_file_location
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

from oddnode._utils.registry import undone_registrations

#: The group of entry points whose modules are imported as plugins.
ENTRY_POINT_GROUP = "oddnode.plugins"


class PluginError(ValueError):
    """A plugin that cannot be loaded; the message names its file and line, and what went wrong."""


@dataclass(frozen=True)
class Plugin:
    """A plugin that has been loaded."""

    name: str  # The stem of its file, or the name of its entry point. Saved models know it by this name
    module: str  # The module it was imported as
    path: Path  # The module's source file
    is_file: bool  # Whether the user named the file; otherwise an entry point named the module


_loaded: dict[str, Plugin] = {}


def load_plugins(files: Iterable[str | os.PathLike] = ()) -> None:
    """Import all installed plugins, then the given files. Plugins that are loaded already are skipped.

    If a plugin fails, its registrations are undone.

    Parameters
    ----------
    files : iterable of path
        Python files that register methods, backbones or data sets when they are imported.

    Raises
    ------
    PluginError
        If a file is missing or a plugin raises while it is imported, with the plugin's file and line.
    """
    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        _load_entry_point(entry)
    for file in files:
        _load_file(Path(file))


def attribute_of_file(file: str | os.PathLike, name: str) -> Any:
    """Load a file as a plugin, and return what it defines under a name."""
    load_plugins([file])
    path = Path(file).expanduser().resolve()
    module = sys.modules[next(plugin.module for plugin in _loaded.values() if plugin.path == path)]
    if not hasattr(module, name):
        own = sorted(key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
        raise PluginError(f"{file} defines no {name!r}; it defines {', '.join(own) or 'nothing'}")
    return getattr(module, name)


def file_plugins() -> tuple[Path, ...]:
    """List the files of loaded plugins that were given as files; another process loads them with `load_plugins`."""
    return tuple(plugin.path for plugin in _loaded.values() if plugin.is_file)


def plugin_files() -> tuple[Path, ...]:
    """List all source files of the loaded plugins; a plugin that belongs to a package has several."""
    return tuple(sorted({path for plugin in _loaded.values() for path in _sources(plugin)}))


def plugin_of(kind: Any) -> str | None:
    """Find the plugin that defines a class."""
    module, nearest, most = kind.__module__.split("."), None, 0
    for plugin in _loaded.values():
        shared = _num_shared(module, plugin.module.split("."))
        if shared > most:
            nearest, most = plugin.name, shared
    return nearest


def _num_shared(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _load_entry_point(entry: metadata.EntryPoint) -> None:
    known = _loaded.get(entry.name)
    if known is not None and known.module == entry.module:
        return
    where = f"plugin {entry.name!r} ({entry.value}{f' of {entry.dist.name}' if entry.dist else ''})"
    _refuse_second(entry.name, where)
    module = _imported(lambda: import_module(entry.module), where)
    _loaded[entry.name] = Plugin(entry.name, entry.module, Path(module.__file__ or ""), is_file=False)


def _load_file(file: Path) -> None:
    path = file.expanduser().resolve()
    if any(plugin.path == path for plugin in _loaded.values()):
        return
    if not path.is_file() or path.suffix != ".py":
        problem = "is not a Python file (.py)" if path.exists() else "does not exist"
        raise PluginError(f"plugin {file} {problem}; expected a file that registers methods, backbones or data sets")
    _refuse_second(path.stem, f"plugin {file}")
    name = f"oddnode_plugin_{path.stem}"
    _imported(lambda: _import_file(path, name), f"plugin {file}", path)
    _loaded[path.stem] = Plugin(path.stem, name, path, is_file=True)


def _refuse_second(name: str, where: str) -> None:
    if name in _loaded:
        raise PluginError(f"{where}: a plugin named {name!r} is loaded already, from {_loaded[name].path}; rename one")


def _import_file(path: Path, name: str) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module while it is executed
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _imported(load: Callable[[], ModuleType], where: str, path: Path | None = None) -> ModuleType:
    try:
        with undone_registrations(only_after_error=True):
            return load()
    except (Exception, SystemExit) as error:  # a plugin may raise anything
        raise PluginError(f"{where}{_line(error, path)}: {_description(error)}") from error


def _line(error: BaseException, path: Path | None) -> str:
    """The line of the plugin's file that failed; for an installed plugin also the file."""
    if isinstance(error, SyntaxError) and error.filename and (path is None or error.filename == str(path)):
        return f", line {error.lineno}" if path else f", {error.filename}, line {error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if path is None or f.filename == str(path)]
    frames = [f for f in frames if f.filename != __file__ and not f.filename.startswith("<frozen")]
    if not frames:
        return ""
    return f", line {frames[-1].lineno}" if path else f", {frames[-1].filename}, line {frames[-1].lineno}"


def _description(error: BaseException) -> str:
    text = (error.msg if isinstance(error, SyntaxError) else str(error)).splitlines()
    return ": ".join([type(error).__name__, *text[:1]])


def _sources(plugin: Plugin) -> list[Path]:
    package = sys.modules[plugin.module.split(".")[0]]
    folders = [Path(folder) for folder in getattr(package, "__path__", [])]
    return [path for folder in folders for path in folder.rglob("*.py")] or [plugin.path]
