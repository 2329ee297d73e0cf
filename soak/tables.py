"""Tables through fit, score and calibrate: an error of oddnode, or a score for every row, in the order of the table."""

from __future__ import annotations

import csv
import hashlib
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from oddnode.tables import TableModel
from soak.bases import save_table_model, small_tables
from soak.table_mutations import FORMS, MUTATIONS, Sheets, write
from soak.trial import Family, Trial, described, is_ours

__all__ = ["Tables"]


class Tables(Family):
    """Mutations of tables of nodes and edges."""

    name = "tables"
    quota = 2500
    kinds = tuple(MUTATIONS)
    limit = 60.0
    batch = 24

    def prepare(self, folder: Path) -> None:
        save_table_model(folder / "model")

    def start(self, folder: Path) -> None:
        self.model = folder / "model"
        logging.getLogger("oddnode").setLevel(logging.ERROR)

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        sheets = Sheets(*small_tables(rng), form=rng.choice(FORMS))
        if kind not in ("sound", "few rows") and rng.random() < 0.2:
            MUTATIONS[rng.choice(["odd values", "odd ids"])](sheets, rng)
        MUTATIONS[kind](sheets, rng)
        files = [write(sheets.nodes, work / "nodes", sheets.form), write(sheets.edges, work / "edges", sheets.form)]
        if kind == "bytes":
            sheets.ids_known = False
            _change_bytes(rng.choice(files), rng)
        before = [hashlib.sha256(path.read_bytes()).digest() for path in files]
        try:
            violation = self._use(rng.choice(["fit", "score", "score", "calibrate"]), files, sheets, rng, work)
            accepted = True
        except Exception as error:
            violation, accepted = (None if is_ours(error) else f"raised {described(error)}"), False
            if kind == "sound" and violation is None:
                violation = f"sound tables are refused: {error}"
        if [hashlib.sha256(path.read_bytes()).digest() for path in files] != before:
            violation = "an input file was changed"
        yield Trial(kind, violation, all(map(_parses, files)), accepted)

    def _use(self, what: str, files: list[Path], sheets: Sheets, rng: Random, work: Path) -> str | None:
        nodes, edges = files
        if what == "fit":
            model, _ = TableModel.fit(
                nodes, edges, id_column="id", label_column="topic", drop_columns=["known"], epochs=1, hidden_channels=4
            )
            model.save(work / "model")
            model = TableModel.load(work / "model")
        else:
            model = TableModel.load(self.model)
        if what == "calibrate":
            model.calibrate(nodes, edges, "known", rng.choice([None, 0.1, 0.5]), new_ids=True)
        out = work / rng.choice(["scores.csv", "scores.parquet"])
        report = model.score(nodes, edges, out, explain=rng.random() < 0.3, raw_text=True)
        rows = _rows(out)
        if report.num_nodes != len(rows):
            return f"{len(rows)} rows were written, but {report.num_nodes} reported"
        return _wrong_row(rows, model.detector.false_alarm_rate_) or self._wrong_ids(rows, files, sheets)

    def _wrong_ids(self, rows: list[dict[str, Any]], files: list[Path], sheets: Sheets) -> str | None:
        found = [str(row["id"]) for row in rows]
        if sheets.ids_known:
            wanted = [str(each).strip() for each in sheets.nodes["id"]]
            return None if found == wanted else "the ids of the rows are not those of the table"
        if len(set(found)) < len(found):
            return "an id was written twice"
        return None


def _rows(path: Path) -> list[dict[str, Any]]:
    """Read the written table without oddnode."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _wrong_row(rows: list[dict[str, Any]], rate: float) -> str | None:
    for row in rows:
        score, p_value = float(row["score"]), float(row["p_value"])
        if not math.isfinite(score):
            return f"the score of {row['id']!r} is {score}"
        if not 0 < p_value <= 1:
            return f"the p-value of {row['id']!r} is {p_value}"
        if (str(row["is_ood"]).lower() == "true") != (p_value <= rate):
            return f"{row['id']!r} has the p-value {p_value}, but is_ood is {row['is_ood']} at the rate {rate}"
    return None


def _change_bytes(path: Path, rng: Random) -> None:
    raw = bytearray(path.read_bytes())
    place, change = rng.randrange(len(raw)), rng.randrange(5)
    if change == 0:
        raw[place] ^= 1 << rng.randrange(8)
    elif change == 1:
        del raw[place:]
    elif change == 2:
        raw[place:place] = rng.choice([b"\x00", b"\xff", b'"', b"\n", b",,,", b"\r", rng.randbytes(20)])
    elif change == 3:
        del raw[place : place + rng.randrange(1, 40)]
    else:
        raw += rng.choice([b"\n\n\n", b"x", b"\x1a", bytes(raw[: len(raw) // 2])])
    path.write_bytes(raw)


def _parses(path: Path) -> bool:
    """Whether Arrow alone reads the file as a table."""
    try:
        if path.suffix == ".parquet":
            pq.read_table(path)
        else:
            pa_csv.read_csv(path, parse_options=pa_csv.ParseOptions(newlines_in_values=True))
    except Exception:
        return False
    return True
