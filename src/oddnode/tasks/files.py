"""The search for data files, and the messages if they are missing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

__all__ = ["DataDir", "DataFiles", "MissingDataError", "cache_dir", "data_dir_of"]

#: The user's data directory; ``None`` stands for ``ODDNODE_DATA``, then the user's cache.
DataDir = str | os.PathLike | None


class MissingDataError(FileNotFoundError):
    """Files of a data set are missing; the message names them, the searched folders and how to get them."""


def data_dir_of(data_dir: DataDir) -> Path | None:
    """Resolve the user's data directory, given as an argument or by ``ODDNODE_DATA``. It is only ever read.

    Parameters
    ----------
    data_dir : path, optional
        The directory; by default ``ODDNODE_DATA``.

    Returns
    -------
    Path or None
        ``None`` if neither is given.
    """
    named = data_dir or os.environ.get("ODDNODE_DATA")
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_dir():
        raise MissingDataError(f"the data directory {path} does not exist or is not a directory")
    return path


def cache_dir() -> Path:
    """Resolve the folder for downloads: ``ODDNODE_CACHE``, or the user's cache directory."""
    return Path(os.environ.get("ODDNODE_CACHE") or platformdirs.user_cache_dir("oddnode"))


@dataclass(frozen=True)
class DataFiles:
    """The files of a data set: their names, the folders they are looked for in, and how to get them.

    Parameters
    ----------
    title : str
        The data set's name in messages.
    names : tuple of str
        Names of the files, which are all in one folder.
    how_to_get : str
        What to do if they are missing: "get ... and put it into <data dir>/...".
    folders_in_data_dir : tuple of str
        Folders of the user's data directory that are searched, in order; ``"."`` is the directory itself.
    folders_in_cache : tuple of str
        Folders of the cache that are searched next.
    """

    title: str
    names: tuple[str, ...]
    how_to_get: str
    folders_in_data_dir: tuple[str, ...] = (".",)
    folders_in_cache: tuple[str, ...] = ()

    def folders(self, data_dir: DataDir = None) -> list[Path]:
        """List the folders to search, in order.

        Parameters
        ----------
        data_dir : path, optional
            As for `load_task`.
        """
        named = data_dir_of(data_dir)
        own = [named / folder for folder in self.folders_in_data_dir] if named else []
        return own + [cache_dir() / folder for folder in self.folders_in_cache]

    def find(self, data_dir: DataDir = None) -> Path | None:
        """Find the first folder that has all the files; ``None`` if there is none.

        Parameters
        ----------
        data_dir : path, optional
            As for `load_task`.
        """
        for folder in self.folders(data_dir):
            if all((folder / name).is_file() for name in self.names):
                return folder
        return None

    def require(self, data_dir: DataDir = None) -> Path:
        """Find the first folder that has all the files; the error otherwise says how to get them.

        Parameters
        ----------
        data_dir : path, optional
            As for `load_task`.
        """
        folder = self.find(data_dir)
        if folder is None:
            raise MissingDataError(self.missing_message(data_dir))
        return folder

    def missing_message(self, data_dir: DataDir = None) -> str:
        """Name the missing files, the searched folders, and how to get the files.

        Parameters
        ----------
        data_dir : path, optional
            As for `load_task`.
        """
        folders = self.folders(data_dir)
        missing = [name for name in self.names if not any((folder / name).is_file() for folder in folders)]
        return (
            f"{self.title} is missing {_shortened(missing) or 'files in one folder'}; looked in "
            f"{', '.join(map(str, folders)) or 'no folder'}. {self.how_to_get[:1].upper()}{self.how_to_get[1:]}, then "
            "name <data dir> by `data_dir` or ODDNODE_DATA"
        )


def _shortened(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} more files"
