"""What a `LiveGraph` answers, as data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from oddnode.detector.explanation import NOTABLE
from oddnode.tables.scores import evidence_column


class KindOfEvidence(Struct, frozen=True, gc=False):
    """One kind of evidence against a node."""

    kind: str  #: Its name.
    surprise: float  #: :math:`-\\log p`, the mean over the networks; 0 if it does not count for this node.
    contribution: float  #: What it adds to the evidence against the node, the mean over the networks.


class Judgement(Struct, frozen=True, kw_only=True, gc=False):
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


class KeptScores(Struct, frozen=True, kw_only=True):
    """What is kept of nodes of the graph, one entry for each in every list."""

    ids: list[int | str]  #: Their ids.
    score: list[float]  #: As in `Judgement`, and so are the next four.
    p_value: list[float | None]
    is_ood: list[bool | None]
    predicted: list[bool | int | str]
    confidence: list[float]
    exact: list[bool]  #: Whether this is the score in the graph as it is now; if not, `LiveGraph.rescore` is closer.
    is_new: list[bool]  #: Whether the node has been added to the base.
    version: int  #: The version of the graph.


class Neighbourhood(Struct, frozen=True, kw_only=True):
    """Some nodes around others, for a picture."""

    hops: list[int]  #: How far each node is from the nearest of those that were given, which come first.
    edges: list[tuple[int | str, int | str, float]]  #: Source, target and weight; an undirected edge once.
    truncated: bool  #: Whether there are more nodes within reach.
    nodes: KeptScores  #: The nodes, in the order of `hops`.


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


def surprise_columns(answers: Sequence[Judgement]) -> dict[str, np.ndarray]:
    """The surprises of several nodes as columns ``surprise_<kind>`` ``[n]``, for a model of one's own.

    Kinds that an answer does not have are NaN there.

    Parameters
    ----------
    answers : sequence of Judgement
        What `LiveGraph.score` answers, for example.

    Examples
    --------
    >>> kinds = (KindOfEvidence("links around", 2.5, 1.0),)
    >>> fields = {"score": -1.0, "p_value": 0.1, "is_ood": False, "predicted": 0, "confidence": 0.9, "reason": None}
    >>> more = {"exact": True, "num_neighbours": 1, "is_far": False, "unseen": {}, "version": 0}
    >>> surprise_columns([Judgement(id="a", evidence=kinds, **fields, **more)])
    {'surprise_links_around': array([2.5])}
    """
    columns: dict[str, np.ndarray] = {}
    for place, answer in enumerate(answers):
        for each in answer.evidence:
            name = evidence_column(each.kind, "surprise")
            if name not in columns:
                columns[name] = np.full(len(answers), np.nan)
            columns[name][place] = each.surprise
    return columns
