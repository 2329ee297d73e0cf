"""Rows for a person to look at: drawn so that the answers are worth something, and what follows from the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oddnode.functional import CalibrationError, share_interval
from oddnode.tables.edges import advice_on_id
from oddnode.tables.formats import as_target, check_target, write_table
from oddnode.tables.labels import read_marks
from oddnode.tables.reader import open_table
from oddnode.tables.reports import CheckedEstimates, SampleReport
from oddnode.tables.values import TableError, as_text, concatenated, missing_to_null, pa, quoted

_SHOWN = ("predicted", "score", "p_value", "is_ood", "why")
_ANSWER = "known"
_ANSWERS = dict.fromkeys(("known", "1", "true", "yes", "t", "y", "x"), True)
_ANSWERS |= dict.fromkeys(("unknown", "0", "false", "no", "f", "n"), False)
# Two intervals hold together with 95 % probability if each holds with this one.
_BOTH = 0.975


def sample_to_check(scores: Any, out: Any, id_column: str, n: int = 100, seed: int = 0) -> SampleReport:
    """Draw rows to look at from a table of scores: at random, half of them flagged if there are as many.

    Rows are drawn among those with a rank: the new ones or, if there are none, those that the model was not trained on.
    Fill in the column ``known`` (yes or no) of the file, and give it to `TableModel.calibrate` as ``checked``.

    Parameters
    ----------
    scores : path or table in memory
        As `TableModel.score` wrote it.
    out : path or DatabaseTable
        The table to write. Besides columns of the scores it has ``weight``, the number of rows that each drawn row
        stands for, and ``num_alike``, the number of rows that it was drawn from.
    id_column : str
        The column with the ids.
    n : int
        Number of rows to draw.
    seed : int
        Seed of the draw.
    """
    table, target = open_table(scores, "scores"), as_target(out)
    check_target(target, [])
    if isinstance(target, Path) and target.exists():
        raise FileExistsError(f"{target} exists already, perhaps with answers; give another `out`")
    names = [id_column, "rank", *(name for name in _SHOWN if name in table.columns)]
    table.require([*names, "is_ood"], "score")
    columns = _read(table, names)
    is_ood = read_marks(columns["is_ood"], table.name, "is_ood")
    candidates = missing_to_null(columns["rank"]).is_valid().to_numpy(zero_copy_only=False)
    if n < 2 or not candidates.any():
        raise TableError(f"`n` is {n} and {table.name} has {int(candidates.sum())} rows to draw from, expected more")
    order, weight, num_alike = draw_rows(is_ood, candidates, n, seed)
    shown = {name: array.take(pa.array(order)) for name, array in columns.items() if name != "rank"}
    shown |= {"weight": pa.array(weight), "num_alike": pa.array(num_alike)}
    write_table(pa.table(shown | {_ANSWER: pa.nulls(len(order), pa.string())}), target)
    return SampleReport(
        num_drawn=len(order),
        num_drawn_flagged=int(is_ood[order].sum()),
        num_flagged=int((candidates & is_ood).sum()),
        num_others=int((candidates & ~is_ood).sum()),
    )


def draw_rows(
    is_ood: np.ndarray, candidates: np.ndarray, n: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw rows at random among candidates, half of them flagged if there are as many.

    Returns their indices in random order, how many rows each stands for, and from how many it was drawn ``[n]``.
    """
    groups = [np.flatnonzero(candidates & flagged) for flagged in (is_ood, ~is_ood)]
    first = min(len(groups[0]), max(n // 2, n - len(groups[1])))
    counts = first, min(len(groups[1]), n - first)
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(rows, count, replace=False) for rows, count in zip(groups, counts, strict=True)]
    # In random order, so that flagged rows do not stand together.
    order = rng.permutation(np.concatenate(drawn))
    num_alike = np.where(is_ood[order], *map(len, groups))
    return order, num_alike / np.where(is_ood[order], *(max(count, 1) for count in counts)), num_alike


def _read(table: Any, names: list[str]) -> dict[str, Any]:
    batches = [batch.arrays for batch in table.batches(names)]
    return {name: concatenated(arrays) for name, *arrays in zip(names, *batches, strict=True)}


@dataclass(frozen=True)
class CheckedRows:
    """The rows of a graph that a person has looked at."""

    rows: np.ndarray  # Their indices `[n]`
    is_known: np.ndarray  # The answers `[n]`
    is_flagged: np.ndarray  # Whether they were flagged when they were drawn `[n]`
    num_alike: Mapping[bool, int]  # Number of rows, by whether they were flagged, that they were drawn from
    num_unanswered: int

    @classmethod
    def read(cls, source: Any, id_column: str, ids: Any) -> CheckedRows:
        """Read a table that `sample_to_check` wrote and a person has filled in."""
        table = open_table(source, "checked rows")
        names = [id_column, "is_ood", "num_alike", _ANSWER]
        table.require(names, "checked")
        columns = _read(table, names)
        words = [(text or "").lower() for text in as_text(columns[_ANSWER], table.name, _ANSWER).to_pylist()]
        wrong = next((word for word in words if word and word not in _ANSWERS), None)
        if wrong is not None:
            raise TableError(f"{table.name}: column {_ANSWER!r} has {quoted(wrong)}, expected yes, no or nothing")
        answered = np.array([bool(word) for word in words])
        flagged = read_marks(columns["is_ood"], table.name, "is_ood")
        sizes = columns["num_alike"].cast(pa.float64()).to_numpy(zero_copy_only=False)
        for kind, of_kind in (("flagged", flagged), ("not flagged", ~flagged)):
            if not (answered & of_kind).any() and (of_kind.any() or kind == "not flagged"):
                raise CalibrationError(
                    f"{table.name} has no answer for a row that was {kind}; answers for the others alone are no "
                    f"random draw. Fill in the column {_ANSWER} (yes or no) of both: `oddnode sample-to-check`"
                )
        places = {str(value): row for row, value in enumerate(ids.to_pylist())}
        rows = [places.get(text, places.get(text.removeprefix("'"), -1)) for text in map(str, columns[id_column])]
        lost = [text for text, row in zip(map(str, columns[id_column]), rows, strict=True) if row < 0]
        if lost:
            raise TableError(
                f"{len(lost)} of {len(rows)} rows of {table.name} are not in the table of nodes, first "
                f"{quoted(lost[0])}; {advice_on_id(lost[0], 'give the tables that the rows were drawn from')}"
            )
        alike = {kind: int(sizes[flagged == kind].max(initial=0)) for kind in (True, False)}
        is_known = np.array([_ANSWERS.get(word, False) for word in words])
        return cls(np.array(rows)[answered], is_known[answered], flagged[answered], alike, int((~answered).sum()))

    def weights(self) -> np.ndarray:
        """How many rows each stands for ``[n]``."""
        counts = {kind: max(int((self.is_flagged == kind).sum()), 1) for kind in (True, False)}
        return np.array([self.num_alike[kind] / counts[kind] for kind in self.is_flagged.tolist()])

    def estimates(self) -> CheckedEstimates:
        """Precision, recall and false alarms of the flags that the rows had when they were drawn.

        The numbers of unknown rows among the flagged and among the others are estimated apart. A ratio of both is as
        large as the bounds of both allow, so that its interval holds with at least 95 % probability.
        """
        (caught, low_caught, high_caught), (missed, low_missed, high_missed) = map(self._unknown, (True, False))
        flagged, others = self.num_alike[True], self.num_alike[False]
        precision, recall = _share(caught, flagged - caught), _share(caught, missed)
        low, high = share_interval(*self._counts(True)) if flagged else (0.0, 1.0)
        alarms = flagged - high_caught, others - low_missed, flagged - low_caught, others - high_missed
        return CheckedEstimates(
            num_checked=len(self.rows),
            num_unknown=int((~self.is_known).sum()),
            precision=precision,
            precision_interval=self._certain(True, low, high),
            recall=recall,
            recall_interval=(
                _share(low_caught, high_missed) or 0.0,
                1.0 if recall is None else _share(high_caught, low_missed) or 0.0,
            ),
            observed_false_alarm_rate=_share(flagged - caught, others - missed),
            observed_interval=(_share(*alarms[:2]) or 0.0, _share(*alarms[2:]) or 0.0),
        )

    def _counts(self, flagged: bool) -> tuple[int, int]:
        """Number of unknown rows, and of rows, that were checked."""
        answers = self.is_known[self.is_flagged == flagged]
        return int((~answers).sum()), len(answers)

    def _certain(self, flagged: bool, low: float, high: float) -> tuple[float, float]:
        """Bounds of a share of unknown rows, no wider than what the rows that were seen leave open."""
        (unknown, total), size = self._counts(flagged), max(self.num_alike[flagged], 1)
        return max(low, unknown / size), min(high, 1 - (total - unknown) / size)

    def _unknown(self, flagged: bool) -> tuple[float, float, float]:
        """The number of unknown rows, estimated, at least and at most."""
        (unknown, total), size = self._counts(flagged), self.num_alike[flagged]
        if not total:
            return 0.0, 0.0, 0.0
        low, high = self._certain(flagged, *share_interval(unknown, total, _BOTH))
        return size * unknown / total, size * low, size * high


def _share(part: float, rest: float) -> float | None:
    return part / (part + rest) if part + rest > 0 else None
