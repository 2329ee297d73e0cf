"""The words in which scorers say why a node is unusual. Every number in them can be recomputed from the graph.

Known nodes are the reference nodes, with which nodes are compared. A scorer chooses its words in
`oddnode.Scorer.reason`.
"""

from __future__ import annotations

import math

from torch import Tensor

from oddnode.scoring.findings import Finding


def general(found: Finding) -> str:
    """Say how a score compares with those of known nodes."""
    side = "higher" if found.is_high else "lower"
    return f"Its score by {found.kind} ({found.value:.3g}) is {side} than that of {_share(found.share)} known nodes."


def confidence(found: Finding) -> str:
    """Say how sure the classifier is."""
    value, median = _told_apart(100 * found.value, 100 * found.median)
    sure = "unusually sure" if found.is_high else "unsure"
    if found.around:
        return (
            f"Around it the classifier is {sure}: the highest probability is {value} % on average, around known nodes "
            f"{median} % in the median."
        )
    return (
        f"The classifier is {sure} of it: its highest probability is {value} %, that of known nodes {median} % in the "
        "median."
    )


def hidden_distance(found: Finding) -> str:
    """Say how far the hidden features are from those of the classes."""
    if found.around or found.median >= 0.0:
        return general(found)
    ratio = math.sqrt(max(0.0, found.value / found.median))
    only = "only " if found.is_high else ""
    return (
        f"Its hidden features are {only}{ratio:.3g} times as far from the nearest class as those of known nodes in the "
        "median."
    )


def links(found: Finding, against: Tensor) -> str:
    """Say how many links are implausible."""
    count, total = int(against.sum()), len(against)
    if not total:
        return general(found)
    whose = "The links around it" if found.around else "Its links"
    if not count:
        return f"{whose} are, taken together, less plausible than those of {_share(found.share)} known nodes."
    to = " of its neighbours" if found.around else f" (to {_listed(found, against)})"
    return (
        f"{whose} are unlike those seen in training: {_out_of(count, total, 'link')}{to} {_be(count)} less plausible "
        "than 95 % of the links there."
    )


def link_similarity(found: Finding, against: Tensor) -> str:
    """Say how many neighbours have other features."""
    count, total = int(against.sum()), len(against)
    if found.around or not total:
        return general(found)
    unlike = "Its features are unlike those of its neighbours:"
    if not count:
        return f"{unlike} {_share(found.share)} known nodes are more similar to theirs."
    return (
        f"{unlike} {_of_neighbours(found, against)} less similar to it than the nodes at 95 % of the links seen in "
        "training are to each other."
    )


def surrounding_similarity(found: Finding, against: Tensor) -> str:
    """Say around how many neighbours the features are other ones."""
    count, total = int(against.sum()), len(against)
    if found.around or not total:
        return general(found)
    if not count:
        return (
            "Its features are unlike those around its neighbours: "
            f"{_share(found.share)} known nodes are more similar to theirs."
        )
    return (
        f"Its features are unlike those around {_out_of(count, total, 'neighbour')} ({_listed(found, against)}): they "
        "are less similar than at 95 % of the links seen in training."
    )


def class_agreement(found: Finding, own: int, classes: Tensor) -> str:
    """Say how many neighbours are of another class than the node's features suggest."""
    other = classes != own
    if found.around or not len(classes):
        return general(found)
    if not bool(other.any()):
        return f"Its features and its neighbours agree less on a class than those of {_share(found.share)} known nodes."
    differing = classes[other].unique().tolist()
    predicted = f"as {found.names.of_class(differing[0])}" if len(differing) == 1 else "as other classes"
    return (
        f"Its own features suggest {found.names.of_class(own)}, but {_of_neighbours(found, other)} predicted "
        f"{predicted}."
    )


def neighbourhood(found: Finding) -> str:
    """Say how similar the surroundings are to those of the training graph."""
    value, median = _told_apart(found.value, found.median, fewest=2)
    where = "in the region around it" if found.around else "around it"
    return (
        f"The features {where} are unlike those in training: their cosine to the most similar ones there is {value}, "
        f"for known nodes {median} in the median."
    )


def feature_likelihood(found: Finding) -> str:
    """Say how well the features fit the class that they fit best."""
    whose, of = ("The features around it", "those around") if found.around else ("Its features", "those of")
    return f"{whose} fit no class well: {of} {_share(found.share)} known nodes fit one better."


def nonzeros(found: Finding) -> str:
    """Say how many features are not zero."""
    if found.around:
        return general(found)
    low, high = found.known_range()
    return f"It has {-found.value:.0f} non-zero features; 95 % of known nodes have {-high:.0f} to {-low:.0f}."


def feature_sum(found: Finding) -> str:
    """Say what the features sum to."""
    if found.around:
        return general(found)
    low, high = found.known_range()
    return f"Its features sum to {found.value:.4g}; those of 95 % of known nodes to between {low:.4g} and {high:.4g}."


def by_score_alone(score: float, own: float | None, share: float | None) -> str:
    """Say how a score came about, for a scorer that does not compare kinds of evidence."""
    text = f"Its score is {score:.4g}"
    text += "." if share is None else f", lower than that of {_share(share)} known nodes."
    if own is None:
        return text
    effect = "lowers" if score < own else "raises" if score > own else "does not change"
    return f"{text} Its own score is {own:.4g}; its neighbourhood {effect} it."


def _share(share: float) -> str:
    """A share of known nodes, rounded down so that the statement is true."""
    return "all" if share == 1.0 else f"{math.floor(1000 * share + 1e-9) / 10:g} % of"


def _of_neighbours(found: Finding, against: Tensor) -> str:
    """Such as "2 of 3 neighbours (n014, n077) are"."""
    count = int(against.sum())
    return f"{_out_of(count, len(against), 'neighbour')} ({_listed(found, against)}) {_be(count)}"


def _out_of(count: int, total: int, what: str) -> str:
    """Such as "3 of 4 links", "all 4 links" or "the only link"."""
    if total == 1:
        return f"the only {what}"
    return f"all {total} {what}s" if count == total else f"{count} of {total} {what}s"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _listed(found: Finding, against: Tensor) -> str:
    return found.names.of_nodes(found.links[0][against].tolist())


def _told_apart(value: float, median: float, fewest: int = 0) -> tuple[str, str]:
    """Two numbers with as few decimals as tell them apart."""
    for decimals in range(fewest, 7):
        first, second = f"{value:.{decimals}f}", f"{median:.{decimals}f}"
        if first != second:
            break
    return first, second
