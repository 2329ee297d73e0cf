"""The headlines of the page, generated from the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from oddnode.bench.paper_numbers import paper_number
from oddnode.evaluation import Result
from oddnode.paper.names import METHOD_NAMES

__all__ = ["Headline", "headlines"]

_PAIRS = (("nodesafe", "gnnsafe"), ("nodesafe++", "gnnsafe++"))


@dataclass(frozen=True)
class Headline:
    """A pair of methods under one protocol: mean FPR95 over the cells that both have, and the paper's.

    Parameters
    ----------
    method, rival, protocol : str
        What is compared.
    cells : int
        Number of tasks that both methods were run on.
    seeds : int
        The smallest number of seeds among their results.
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
    seeds: int
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
        """The numbers, in one sentence."""
        (name, rival), (mine, other) = self.names, self.ours
        return f"{name} lets {mine:.1f} % of the unknown nodes through, {rival} {other:.1f} %."

    @property
    def terms(self) -> str:
        """A sentence on the metric, the cells, the protocol and the seeds."""
        where = f"mean of {self.cells} cells" if self.cells > 1 else "one cell"
        return f"FPR95, {where}, protocol {self.protocol}, {self.seeds} seed{'s' if self.seeds > 1 else ''}."

    @property
    def comparison(self) -> str:
        """Sentences that compare with the rival and with the paper."""
        verdict = f"{self.names[0]} is better in {self.wins} of {self.cells} cells." if self.cells > 1 else ""
        if self.printed is None:
            return f"{verdict} The paper has no numbers for this data.".strip()
        where = "" if self.printed_cells == self.cells else f" on the {self.printed_cells} of these cells that it has"
        mine, other = self.printed
        return f"{verdict} The paper prints {mine:.1f} % and {other:.1f} %{where}.".strip()


def headlines(results: Sequence[Result]) -> list[Headline]:
    """One headline for every pair of methods and every protocol that was run, protocols in the order of their registry.

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
                found.append(_headline(method, rival, protocol, tasks, by_cell))
    return found


def _headline(
    method: str, rival: str, protocol: str, tasks: Sequence[str], by_cell: dict[tuple[str, str], Result]
) -> Headline:
    pairs = [(by_cell[t, method], by_cell[t, rival]) for t in tasks]
    fprs = [(mine.mean("fpr95"), other.mean("fpr95")) for mine, other in pairs]
    printed = [(paper_number(t, method, "fpr95"), paper_number(t, rival, "fpr95")) for t in tasks]
    both = [(mine, other) for mine, other in printed if mine is not None and other is not None]
    return Headline(
        method=method,
        rival=rival,
        protocol=protocol,
        cells=len(tasks),
        seeds=min(r.seeds for pair in pairs for r in pair),
        ours=(fmean(mine for mine, _ in fprs), fmean(other for _, other in fprs)),
        wins=sum(mine < other for mine, other in fprs),
        printed=(fmean(mine for mine, _ in both), fmean(other for _, other in both)) if both else None,
        printed_cells=len(both),
    )
