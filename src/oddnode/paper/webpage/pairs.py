"""Pairs of methods that differ by the paper's own term, compared on the cells that both have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from oddnode.bench.paper_numbers import paper_number
from oddnode.evaluation import Result
from oddnode.paper.names import METHOD_NAMES

__all__ = ["Pair", "compare_pairs"]

_PAIRS = (("nodesafe", "gnnsafe"), ("nodesafe++", "gnnsafe++"))


@dataclass(frozen=True)
class Pair:
    """A pair of methods under one protocol: mean FPR95 over the cells that both have, and the paper's.

    Parameters
    ----------
    method, rival, protocol : str
        What is compared.
    cells : int
        Number of tasks that both methods were run on.
    ours : pair of float
        Mean FPR95 of the method and of its rival, in percent.
    wins : int
        Number of cells in which the method is better.
    printed : pair of float, optional
        What the paper prints, averaged over the cells that it has.
    printed_cells : int
        Number of these cells.
    """

    method: str
    rival: str
    protocol: str
    cells: int
    ours: tuple[float, float]
    wins: int
    printed: tuple[float, float] | None
    printed_cells: int

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
        where = f"{self.wins} of {self.cells} cells" if self.cells > 1 else f"{self.wins} of one cell"
        return f"{self.names[0]} lets fewer unknown nodes through than {self.names[1]} in {where}."

    @property
    def best(self) -> tuple[bool, bool]:
        """Which of the two has the lower mean, as far as the digits that are shown tell."""
        mine, other = (round(number, 1) for number in self.ours)
        return mine <= other, other <= mine


def compare_pairs(results: Sequence[Result]) -> list[Pair]:
    """Compare every pair of methods under every protocol that was run, in the order of the registry of protocols.

    Parameters
    ----------
    results : sequence of Result
        All results of the page.
    """
    from oddnode.protocols import PROTOCOLS

    found = []
    for method, rival in _PAIRS:
        for protocol in PROTOCOLS:
            by_cell = {(r.task, r.method): r for r in results if r.protocol == protocol}
            tasks = [t for t, m in by_cell if m == method and (t, rival) in by_cell]
            if tasks:
                found.append(_pair(method, rival, protocol, tasks, by_cell))
    return found


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
