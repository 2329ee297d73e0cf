"""What the page opens with: what a method finds on one cell, and the pairs that differ only by the paper's term."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from oddnode.bench.paper_numbers import paper_number
from oddnode.evaluation import Result
from oddnode.paper.experiments import METHOD_NAMES
from oddnode.paper.webpage.model import Cell, Method, Page, Scores

_PAIRS = (("nodesafe", "gnnsafe"), ("nodesafe++", "gnnsafe++"))
_ACCEPTED = 0.95


@dataclass(frozen=True)
class Opening:
    """A method on a cell, at the threshold that accepts 95 % of the known nodes."""

    index: int  # The index of the cell on the page
    cell: Cell
    test: str  # The test graph whose unknown nodes are counted
    method: str
    beside: str  # The method shown next to it
    caught: int  # Number of unknown nodes below the threshold
    false_alarms: int  # Number of known nodes below the threshold
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
            return f"None of the other methods ({others}) finds more."
        best = max(better, key=self.shares.__getitem__)
        share = f"{100 * self.shares[best]:.1f} %"
        verb = "finds" if len(better) == 1 else "find"
        return f"Of the other methods, {len(better)} of {others} {verb} more, {best} the most ({share})."

    @property
    def reason(self) -> str:
        """Why the example is flagged."""
        why = self.cell.methods[self.method][self.test].why
        return "" if self.example is None or why is None else str(why[self.example])

    @property
    def example_name(self) -> str:
        """What the example is."""
        if self.example is None:
            return ""
        nodes = self.cell.unknown[self.test]
        label = -1 if nodes.shown is None else int(nodes.shown[self.example])
        return f"Node {nodes.ids[self.example]}" + (f" (class {label})" if label >= 0 else "")


def choose_opening(page: Page) -> Opening | None:
    """Choose the first cell of unseen classes, or else the first, and the first two of the page's featured methods."""
    cells = [(index, cell) for index, cell in enumerate(page.cells) if cell.methods]
    if not cells:
        return None
    index, cell = next((pair for pair in cells if pair[1].task.endswith("/label")), cells[0])
    present = [method for method in page.featured if method in cell.methods]
    chosen = list(dict.fromkeys([*present, *cell.methods]))
    method, beside = chosen[0], chosen[1 % len(chosen)]  # the same twice if there is only one
    test = next(iter(cell.unknown))
    scores = cell.methods[method]
    threshold = _threshold(scores["id"].values)
    return Opening(
        index=index,
        cell=cell,
        test=test,
        method=method,
        beside=beside,
        caught=int(np.sum(scores[test].values < threshold)),
        false_alarms=int(np.sum(scores["id"].values < threshold)),
        shares=_shares(page, cell, test, method),
        example=_example(scores[test], threshold),
    )


def _shares(page: Page, cell: Cell, test: str, method: str) -> dict[str, float]:
    """The share that each method finds: methods with exposure if this one uses it, otherwise those without."""
    with_exposure = page.methods.get(method, Method()).needs_exposure
    return {
        name: float(np.mean(scores[test].values < _threshold(scores["id"].values)))
        for name, scores in cell.methods.items()
        if page.methods.get(name, Method()).needs_exposure == with_exposure
    }


def _threshold(known: np.ndarray) -> float:
    """The highest threshold that accepts enough of the known nodes."""
    needed = math.ceil(round(_ACCEPTED * len(known), 9))  # 0.95 is not a binary fraction
    return np.sort(known)[len(known) - needed]


def _example(scores: Scores, threshold: float) -> int | None:
    if scores.why is None:
        return None
    told = np.flatnonzero((scores.why != "") & (scores.values < threshold))
    return int(told[scores.values[told].argmin()]) if len(told) else None


@dataclass(frozen=True)
class Pair:
    """A pair of methods under one protocol: mean FPR95 over the cells that both have, and the paper's."""

    method: str
    rival: str
    protocol: str
    cells: int  # Number of tasks that both methods were run on
    ours: tuple[float, float]  # Mean FPR95 of the method and of its rival, in percent
    wins: int  # Number of cells in which the method is better
    printed: tuple[float, float] | None  # What the paper prints, averaged over the cells that it has
    printed_cells: int  # Number of these cells

    @property
    def names(self) -> tuple[str, str]:
        """The display names of both methods."""
        return METHOD_NAMES[self.method], METHOD_NAMES[self.rival]

    @property
    def kind(self) -> str:
        """A phrase that says whether both methods use exposure."""
        return "with exposure (++)" if self.method.endswith("++") else "without exposure"

    @property
    def sentence(self) -> str:
        """In how many cells the method is better."""
        where = f"{self.wins} of {self.cells} tasks" if self.cells > 1 else f"{self.wins} of one task"
        return f"{self.names[0]} lets fewer unknown nodes through than {self.names[1]} in {where}."

    @property
    def best(self) -> tuple[bool, bool]:
        """Which of the two has the lower mean, at the displayed precision."""
        mine, other = (round(number, 1) for number in self.ours)
        return mine <= other, other <= mine


def compare_pairs(results: Sequence[Result]) -> list[Pair]:
    """Compare every pair of methods under every protocol that was run, in the order of the registry of protocols."""
    from oddnode.protocols import PROTOCOLS

    pairs = []
    for method, rival in _PAIRS:
        for protocol in PROTOCOLS:
            by_cell = {(r.task, r.method): r for r in results if r.protocol == protocol}
            tasks = [t for t, m in by_cell if m == method and (t, rival) in by_cell]
            if tasks:
                pairs.append(_pair(method, rival, protocol, tasks, by_cell))
    return pairs


def _pair(method: str, rival: str, protocol: str, tasks: Sequence[str], by_cell: dict[tuple[str, str], Result]) -> Pair:
    pairs = [(by_cell[t, method], by_cell[t, rival]) for t in tasks]
    fprs = [(mine.mean("fpr95"), other.mean("fpr95")) for mine, other in pairs]
    printed = [(paper_number(t, method, "fpr95"), paper_number(t, rival, "fpr95")) for t in tasks]
    both = [(mine, other) for mine, other in printed if mine is not None and other is not None]
    return Pair(
        method=method,
        rival=rival,
        protocol=protocol,
        cells=len(tasks),
        ours=(fmean(mine for mine, _ in fprs), fmean(other for _, other in fprs)),
        wins=sum(mine < other for mine, other in fprs),
        printed=(fmean(mine for mine, _ in both), fmean(other for _, other in both)) if both else None,
        printed_cells=len(both),
    )
