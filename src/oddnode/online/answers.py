"""What a `LiveGraph` answers, as data."""

from __future__ import annotations

from msgspec import Struct

from oddnode.detector.explanation import NOTABLE


class KindOfEvidence(Struct, frozen=True):
    """One kind of evidence against a node."""

    kind: str  #: Its name.
    surprise: float  #: :math:`-\\log p`, the mean over the networks; 0 if it does not count for this node.
    contribution: float  #: What it adds to the evidence against the node, the mean over the networks.


class Judgement(Struct, frozen=True, kw_only=True):
    """What a model says of one node."""

    id: int | str  #: The id of the node.
    score: float  #: Higher = more like the training distribution.
    #: The share of known nodes that score as low, or lower; ``None`` without a calibration, and for types of nodes
    #: without labels, which are never flagged.
    p_value: float | None
    is_ood: bool | None  #: Whether it is flagged at the calibrated false-alarm rate; ``None`` without a calibration.
    predicted: bool | int | str  #: The most likely class: its label in the tables, or its number.
    confidence: float  #: The probability of this class.
    evidence: tuple[KindOfEvidence, ...]  #: Every kind of evidence; empty if the method does not combine any.
    reason: str | None  #: The strongest kind of evidence, if it is notable: a surprise of at least :math:`-\\log 0.1`.
    #: Whether the score is that of the whole graph with the arrivals in it, up to rounding. If not,
    #: `LiveGraph.measure_error` says how far it may be off.
    exact: bool
    num_neighbours: int  #: Number of incoming edges that the score was computed from.
    is_far: bool  #: Whether its features are far outside the range of training; it then scores below all others.
    unseen: dict[str, str]  #: Categories that the model was not fitted on, by column.
    version: int  #: The version of the graph; every change adds one.
    why: str | None = None  #: The reasons in words, if they were asked for.


class ErrorReport(Struct, frozen=True):
    """Scores of arrivals by `LiveGraph.score`, compared with those of the whole graph with the arrivals in it."""

    num_arrivals: int  #: Number of arrivals.
    num_exact: int  #: How many of them are said to be exact.
    largest: float  #: The largest difference between the two scores of an arrival.
    mean: float  #: The mean difference.
    spread: float  #: The standard deviation of the scores of the whole graph, as a unit for these.
    rank_correlation: float  #: Spearman's, over the arrivals.
    num_other_decisions: (
        int | None
    )  #: How many are flagged by one and not by the other; ``None`` without a calibration.


def strongest(kinds: tuple[KindOfEvidence, ...]) -> str | None:
    """Name the strongest notable kind of evidence."""
    notable = [each for each in kinds if each.surprise >= NOTABLE]
    return max(notable, key=lambda each: each.contribution).kind if notable else None
