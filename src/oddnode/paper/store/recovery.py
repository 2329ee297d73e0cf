"""Recovery of the readable records of a damaged file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from oddnode.paper.record import StoreError
from oddnode.paper.store.locks import open_elsewhere
from oddnode.paper.store.schema import FILE, readable_rows
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
    with Store(folder) as store:
        return store.copy_rows(readable_rows(aside))


def _is_sound(path: Path) -> bool:
    db = sqlite3.connect(path, timeout=120)
    try:
        return db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
    except sqlite3.DatabaseError:
        return False
    finally:
        db.close()


def _set_aside(path: Path) -> Path:
    number = next(n for n in range(1, 10_000) if not path.with_name(f"damaged-{n}.sqlite").exists())
    aside = path.with_name(f"damaged-{number}.sqlite")
    for ending in ("-wal", "-shm", ""):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(aside.with_name(aside.name + ending))
    return aside
