"""Where data files are looked for, and what to say when they are not there."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

__all__ = ["MissingDataError", "cache_dir", "data_dir_of", "find_files"]


class MissingDataError(FileNotFoundError):
    """Files of a data set are missing; the message says which, where they were looked for and how to get them."""


def data_dir_of(data_dir: str | os.PathLike | None) -> Path | None:
    """The directory the user named, by argument or by ``ODDNODE_DATA``. It is only ever read."""
    named = data_dir or os.environ.get("ODDNODE_DATA")
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_dir():
        raise MissingDataError(f"the data directory {path} does not exist or is not a directory")
    return path


def cache_dir() -> Path:
    """Where downloads are kept: ``ODDNODE_CACHE``, or the user's cache directory."""
    return Path(os.environ.get("ODDNODE_CACHE") or platformdirs.user_cache_dir("oddnode"))


def find_files(names: list[str], folders: list[Path]) -> dict[str, Path] | None:
    """All ``names`` in the first folder that has them all, or ``None``."""
    for folder in folders:
        found = {name: folder / name for name in names}
        if all(path.is_file() for path in found.values()):
            return found
    return None
