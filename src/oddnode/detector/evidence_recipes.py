"""The kinds of evidence that the recommended method combines."""

from __future__ import annotations

from oddnode.scoring import (
    CentredCosine,
    ClassAgreement,
    FeatureLikelihood,
    FeatureSum,
    LinkPrediction,
    Mahalanobis,
    MaxSoftmax,
    NeighbourhoodFeatures,
    NonZeros,
    Propagated,
    Scorer,
    TwoSided,
)

__all__ = ["kinds_of_evidence"]


def kinds_of_evidence(num_hops: int = 32, eta: float = 0.1) -> tuple[Scorer, ...]:
    """Return the scorers that look at different things: the classifier, the edges, the surroundings and the features.

    Parameters
    ----------
    num_hops, eta
        The long range over which one of them is averaged, as for `oddnode.Propagated`.
    """
    around = NeighbourhoodFeatures()
    return (
        MaxSoftmax(),
        TwoSided(Mahalanobis()),
        CentredCosine(),
        LinkPrediction(),
        Propagated(LinkPrediction()),
        ClassAgreement(),
        around,
        Propagated(around, num_hops, eta),
        Propagated(FeatureLikelihood()),
        TwoSided(NonZeros()),
        TwoSided(FeatureSum()),
    )
