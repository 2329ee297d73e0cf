"""Damaged stores: `oddnode paper` always gets to its end, with the numbers of an undisturbed run and no row twice."""

from __future__ import annotations

import contextlib
import io
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from oddnode.cli.paper import paper
from soak.trial import Family, Trial, described

__all__ = ["Stores", "run_paper", "shorten_paper", "tables_of"]

_PAGE = 4096


def shorten_paper() -> None:
    """Let the smoke run of `oddnode paper` train a few networks for two epochs, and write no page."""
    import oddnode.paper.report
    import oddnode.paper.webpage
    from oddnode.paper.experiments import SCOPES

    SCOPES["smoke"] = replace(
        SCOPES["smoke"],
        citation=("digits/label",),
        others=(),
        details={},
        groups={"digits": ("digits/label",)},
        timed={},
        networks=("gcn",),
        epochs=2,
        seeds=1,
    )
    oddnode.paper.report.make_page = lambda store, plan: oddnode.paper.webpage.Page([])
    oddnode.paper.webpage.write_html = lambda page, path: path


def run_paper(folder: Path) -> None:
    """Run the command in this process."""
    with contextlib.redirect_stdout(io.StringIO()):
        paper(out=folder, only="table3", smoke=True, seeds=1, jobs=1, protocol="clean", device="cpu", as_json=True)


def tables_of(folder: Path) -> dict[str, str]:
    """The tables that the command has written, to the last digit."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((folder / "tables").glob("*.csv"))}


def _flip(raw: bytearray, rng: Random) -> None:
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)


def _flip_text(raw: bytearray, rng: Random) -> None:
    """Flip a bit of a text that the command reads."""
    words = [b'"best_epoch"', b'"seconds"', b'"fit"', b'"methods"', b"digits/label", b"clean", b'"auroc"', b"nodesafe"]
    word = rng.choice([word for word in words if word in raw])
    places = [place for place in range(len(raw)) if raw.startswith(word, place)]
    raw[rng.choice(places) + rng.randrange(len(word))] ^= 1 << rng.randrange(8)


def _harm_header(raw: bytearray, rng: Random) -> None:
    for _ in range(rng.choice([1, 1, 3])):
        raw[rng.randrange(100)] = rng.randrange(256)


def _empty_block(raw: bytearray, rng: Random) -> None:
    start = rng.randrange(0, len(raw), 512)
    raw[start : start + 512] = rng.choice([bytes(512), rng.randbytes(512)])


def _swap_pages(raw: bytearray, rng: Random) -> None:
    one, other = (_PAGE * rng.randrange(len(raw) // _PAGE) for _ in range(2))
    raw[one : one + _PAGE], raw[other : other + _PAGE] = raw[other : other + _PAGE], raw[one : one + _PAGE]


def _cut(raw: bytearray, rng: Random) -> None:
    if rng.random() < 0.7:
        del raw[rng.randrange(len(raw)) :]
    else:
        raw += rng.randbytes(rng.randrange(1, 3 * _PAGE))


_BYTES: dict[str, Callable[[bytearray, Random], None]] = {
    "flipped bit": _flip,
    "flipped bit of a text": _flip_text,
    "header": _harm_header,
    "block": _empty_block,
    "pages": _swap_pages,
    "length": _cut,
}


class Stores(Family):
    """Corruptions of ``runs.sqlite``."""

    name = "store"
    quota = 300
    kinds = (*_BYTES, "row")
    limit = 120.0
    batch = 7

    def prepare(self, folder: Path) -> None:
        shorten_paper()
        run_paper(folder / "run")

    def start(self, folder: Path) -> None:
        shorten_paper()
        self.run = folder / "run"
        self.tables = tables_of(self.run)
        self.rows = _identities(self.run)

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        store = work / "runs.sqlite"
        shutil.copyfile(self.run / "runs.sqlite", store)
        if kind == "row":
            _change_row(store, rng)
        else:
            raw = bytearray(store.read_bytes())
            _BYTES[kind](raw, rng)
            store.write_bytes(raw)
        shutil.copyfile(store, work / "as-damaged.sqlite")
        yield Trial(kind, self._judge(work))

    def _judge(self, folder: Path) -> str | None:
        for run in ("first", "second"):
            try:
                run_paper(folder)
            except (Exception, SystemExit) as error:
                return f"the {run} run after the damage raised {described(error)}"
            if tables_of(folder) != self.tables:
                return f"the tables of the {run} run after the damage are others"
            if sorted(_identities(folder)) != sorted(self.rows):
                return f"the store has other rows after the {run} run, or a row twice"
        return None


def _identities(folder: Path) -> list[Any]:
    with contextlib.closing(sqlite3.connect(folder / "runs.sqlite")) as db:
        return db.execute("SELECT identity, code FROM trainings NOT INDEXED").fetchall()


def _change_row(path: Path, rng: Random) -> None:
    """Change a column by SQL, so that the file is sound and its content is not."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        [count] = db.execute("SELECT count(*) FROM trainings").fetchone()
        number = rng.randrange(count)
        column = rng.choice(["task", "seed", "facts", "arrays", "training", "checksum", "backbone", "protocol"])
        columns = [row[1] for row in db.execute("PRAGMA table_info(trainings)")]
        column = column if column in columns else rng.choice(columns[2:])
        value = rng.choice(["", "{}", "[]", None, 7, b"\xff", "null", '{"seconds": 1}', "x" * 10_000])
        where = "rowid = (SELECT rowid FROM trainings ORDER BY rowid LIMIT 1 OFFSET ?)"
        with contextlib.suppress(sqlite3.IntegrityError):
            db.execute(f"UPDATE trainings SET {column} = ? WHERE {where}", (value, number))
        if rng.random() < 0.2:
            db.execute(f"DELETE FROM {rng.choice(['trainings', 'graphs'])}")
