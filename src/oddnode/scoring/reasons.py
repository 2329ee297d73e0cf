"""Parts of the sentences in which scorers say why a node is unusual (`oddnode.Scorer.reason`).

Every number in a sentence can be recomputed from the graph. Known nodes are the reference nodes, with which nodes are
compared.
"""

from __future__ import annotations

import math

from torch import Tensor

from oddnode.scoring.findings import Finding


def by_score_alone(score: float, own: float | None, share: float | None) -> str:
    """Describe a score, for a scorer that does not compare kinds of evidence."""
    text = f"Its score is {score:.4g}"
    text += "." if share is None else f", lower than that of {share_of_known(share)}."
    if own is None:
        return text
    effect = "lowers" if score < own else "raises" if score > own else "does not change"
    return f"{text} Its own score is {own:.4g}; its neighbourhood {effect} it."


def share_of_known(share: float) -> str:
    """Such as "98.5 % of known nodes", rounded down so that the statement is true."""
    return "all known nodes" if share == 1.0 else f"{math.floor(1000 * share + 1e-9) / 10:g} % of known nodes"


def of_neighbours(found: Finding, against: Tensor) -> str:
    """Such as "2 of 3 neighbours (n014, n077) are"."""
    count = int(against.sum())
    return f"{out_of(count, len(against), 'neighbour')} ({listed(found, against)}) {be(count)}"


def out_of(count: int, total: int, what: str) -> str:
    """Such as "3 of 4 links", "all 4 links" or "the only link"."""
    if total == 1:
        return f"the only {what}"
    return f"all {total} {what}s" if count == total else f"{count} of {total} {what}s"


def be(count: int) -> str:
    """Return "is" or "are"."""
    return "is" if count == 1 else "are"


def listed(found: Finding, against: Tensor) -> str:
    """Such as "n014, n077"."""
    return found.names.of_nodes(found.links[0][against].tolist())


def told_apart(value: float, median: float, fewest: int = 0) -> tuple[str, str]:
    """Format two numbers with just enough decimals to tell them apart."""
    for decimals in range(fewest, 7):
        first, second = f"{value:.{decimals}f}", f"{median:.{decimals}f}"
        if first != second:
            break
    return first, second
