"""Recovery of the readable records of a damaged file."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from oddnode.paper.record import StoreError
from oddnode.paper.store.locks import open_elsewhere
from oddnode.paper.store.rows import readable_rows
from oddnode.paper.store.schema import FILE, FORMAT, UNREADABLE, connect, own_tables, tables_of
from oddnode.paper.store.writer import Store

__all__ = ["recover"]


def recover(folder: Path) -> int | None:
    """Check the store's file; if it is damaged, copy its readable records into a new one.

    Parameters
    ----------
    folder : Path
        The store's folder.

    Returns
    -------
    int or None
        Number of recovered records; ``None`` if the file is not damaged. The damaged file is kept under another name.

    Raises
    ------
    StoreError
        If the file is damaged and another process has it open.
    """
    path = folder / FILE
    if not path.exists() or _is_sound(path):
        return None
    if open_elsewhere(folder):
        raise StoreError(f"{path} is damaged, and another process has it open; stop that process first")
    aside = _set_aside(path)
    with Store(folder) as store, tempfile.TemporaryDirectory(dir=folder) as work:
        for readable in (aside, _with_new_first_page(aside, Path(work))):
            store.copy_rows(readable_rows(readable))
        return len(store.records())


def _is_sound(path: Path) -> bool:
    """Whether SQLite finds no fault in pages and indexes, and the tables are ours, or those of a newer format."""
    with closing(connect(path)) as db:
        try:
            if db.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                return False
            [version] = db.execute("PRAGMA user_version").fetchone()
            return version > FORMAT or tables_of(db) in ([], own_tables())
        except UNREADABLE:
            return False


def _set_aside(path: Path) -> Path:
    number = next(n for n in range(1, 10_000) if not path.with_name(f"damaged-{n}.sqlite").exists())
    aside = path.with_name(f"damaged-{number}.sqlite")
    for ending in ("-wal", "-shm", ""):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(aside.with_name(aside.name + ending))
    return aside


def _with_new_first_page(damaged: Path, work: Path) -> Path:
    """A copy of a file with the first page of a new store: the header, and where every table begins.

    Tables are always made in the same order, so they begin on the same pages in every store.
    """
    with Store(work / "new"):
        pass
    new = (work / "new" / FILE).read_bytes()
    size = int.from_bytes(new[16:18], "big")
    page = bytearray(new[:size])
    page[28:32] = (damaged.stat().st_size // size).to_bytes(4, "big")  # pages of the file
    page[32:40] = bytes(8)  # no list of free pages
    copy = work / "copy.sqlite"
    shutil.copyfile(damaged, copy)
    with copy.open("r+b") as file:
        file.write(page)
    return copy
