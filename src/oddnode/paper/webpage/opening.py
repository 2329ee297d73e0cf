"""What the page opens with: a cell, two methods, and one sentence on what the first of them finds there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from oddnode.paper.webpage.model import Cell, Method, Page, Scores

__all__ = ["Opening", "choose_opening"]

_ACCEPTED = 0.95


@dataclass(frozen=True)
class Opening:
    """A method on a cell, at the threshold that accepts 95 % of the known nodes.

    Parameters
    ----------
    place : int
        The position of the cell among those of the page.
    cell : Cell
        The cell.
    test : str
        The test graph whose unknown nodes are counted.
    method, beside : str
        The method, and the one that is shown next to it.
    caught, false_alarms : int
        The number of unknown nodes, and of known ones, below the threshold.
    shares : dict of str to float
        The share of unknown nodes that comparable methods find at their own thresholds, this one included.
    example : int, optional
        The position of the unknown node with the lowest score among those that are flagged with a reason.
    """

    place: int
    cell: Cell
    test: str
    method: str
    beside: str
    caught: int
    false_alarms: int
    shares: dict[str, float]
    example: int | None = None

    @property
    def sentence(self) -> str:
        """What was found."""
        total, known = len(self.cell.unknown[self.test]), len(self.cell.known)
        alarms = "1 false alarm" if self.false_alarms == 1 else f"{self.false_alarms:,} false alarms"
        return (
            f"{self.method} finds {self.caught:,} of the {total:,} {self.cell.unknown_name}, "
            f"with {alarms} among {known:,} known ones."
        )

    @property
    def standing(self) -> str:
        """How the method compares with the others on this cell."""
        own, others = self.shares[self.method], len(self.shares) - 1
        better = [method for method, share in self.shares.items() if share > own]
        if not others:
            return ""
        if not better:
            return f"Other methods that find more: none of {others}."
        best = max(better, key=self.shares.__getitem__)
        share = f"{100 * self.shares[best]:.1f} %"
        return f"Other methods that find more: {len(better)} of {others}, most of all {best} with {share}."

    @property
    def reason(self) -> str:
        """Why the example is flagged."""
        why = self._scores.why
        return "" if self.example is None or why is None else str(why[self.example])

    @property
    def example_name(self) -> str:
        """What the example is."""
        if self.example is None:
            return ""
        nodes = self.cell.unknown[self.test]
        label = -1 if nodes.shown is None else int(nodes.shown[self.example])
        return f"Node {nodes.ids[self.example]}" + (f" (class {label})" if label >= 0 else "")

    @property
    def _scores(self) -> Scores:
        return self.cell.methods[self.method][self.test]


def choose_opening(page: Page) -> Opening | None:
    """Choose the first cell of unseen classes, or else the first, and the first two of the page's featured methods.

    Parameters
    ----------
    page : Page
        What is shown. Without cells there is nothing to open with.
    """
    cells = [(place, cell) for place, cell in enumerate(page.cells) if cell.methods]
    if not cells:
        return None
    place, cell = next((found for found in cells if found[1].task.endswith("/label")), cells[0])
    method, beside = _featured(page, cell)
    test = next(iter(cell.unknown))
    scores = cell.methods[method]
    threshold = _threshold(scores["id"].values)
    return Opening(
        place=place,
        cell=cell,
        test=test,
        method=method,
        beside=beside,
        caught=int(np.sum(scores[test].values < threshold)),
        false_alarms=int(np.sum(scores["id"].values < threshold)),
        shares=_shares(page, cell, test, method),
        example=_example(scores[test], threshold),
    )


def _featured(page: Page, cell: Cell) -> tuple[str, str]:
    """The two methods; the same twice if there is one only."""
    present = [method for method in page.featured if method in cell.methods]
    chosen = list(dict.fromkeys([*present, *cell.methods]))
    return chosen[0], chosen[1 % len(chosen)]


def _shares(page: Page, cell: Cell, test: str, method: str) -> dict[str, float]:
    """What every method finds that is told as much as this one: with exposure, or without."""
    told = page.methods.get(method, Method()).needs_exposure
    return {
        name: float(np.mean(scores[test].values < _threshold(scores["id"].values)))
        for name, scores in cell.methods.items()
        if page.methods.get(name, Method()).needs_exposure == told
    }


def _threshold(known: np.ndarray) -> float:
    """The highest threshold at or above which enough of the known nodes lie."""
    needed = math.ceil(round(_ACCEPTED * len(known), 9))  # 0.95 is no binary fraction
    return np.sort(known)[len(known) - needed]


def _example(scores: Scores, threshold: float) -> int | None:
    if scores.why is None:
        return None
    told = np.flatnonzero((scores.why != "") & (scores.values < threshold))
    return int(told[scores.values[told].argmin()]) if len(told) else None
