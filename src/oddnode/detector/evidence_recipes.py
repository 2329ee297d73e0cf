"""The kinds of evidence that the recommended method combines."""

from __future__ import annotations

from oddnode.scoring import (
    ClassAgreement,
    Evidence,
    FeatureLikelihood,
    FeatureSum,
    LinkPrediction,
    Mahalanobis,
    MaxSoftmax,
    NeighbourhoodCosine,
    NeighbourhoodFeatures,
    NonZeros,
    Propagated,
    Scorer,
    TwoSided,
)

__all__ = ["evidence", "kinds_of_evidence"]


# What rests on the network or on a long average counts half as much as what a node's own edges and features say. The
# last, which rests on both, counts in full, but only where the known nodes are not in the graph: regions differ there.
_WEIGHTS = (0.5, 0.5, 1.0, 1.0, 1.0, 0.5, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0)
# Unknown nodes that were in the training graph all the time shaped what was learnt from edges and features. What rests
# on the labels counts in full for them, the links that were learnt, surroundings and words not at all.
_SEEN_WEIGHTS = (1.0, 1.0, 0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.5, 1.0)


def evidence(power: float, num_hops: int, eta: float, learns_weights: bool = False) -> Evidence:
    """Return the scorer of the recommended method.

    Parameters
    ----------
    power, learns_weights
        As for `oddnode.Evidence`.
    num_hops, eta
        As for `kinds_of_evidence`.
    """
    kinds = kinds_of_evidence(num_hops, eta)
    return Evidence(kinds, power, _WEIGHTS, 1, _SEEN_WEIGHTS, learns_weights)


def kinds_of_evidence(num_hops: int = 32, eta: float = 0.1) -> tuple[Scorer, ...]:
    """Return the scorers that look at different things: the classifier, the edges, the surroundings and the features.

    The last of them, the long average of the confidence, is for graphs that do not contain the known nodes.

    Parameters
    ----------
    num_hops, eta
        The long range over which some of them are averaged, as for `oddnode.Propagated`.
    """
    around = NeighbourhoodFeatures()
    return (
        MaxSoftmax(),
        TwoSided(Mahalanobis()),
        NeighbourhoodCosine(),
        LinkPrediction(),
        Propagated(LinkPrediction()),
        ClassAgreement(),
        around,
        Propagated(around, num_hops, eta),
        Propagated(FeatureLikelihood()),
        TwoSided(NonZeros()),
        TwoSided(FeatureSum()),
        TwoSided(Propagated(MaxSoftmax(), num_hops, eta)),
    )
