"""Methods beyond the paper's tables, and scores without a model, after those of `oddnode.detector.recipes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oddnode._utils.lazy import LazyModule
from oddnode.detector.recipes import ETA, NUM_HOPS, PRIOR_NODES, SHARED, nodesafe_objective
from oddnode.detector.registry import Recipe, register_method

if TYPE_CHECKING:
    import oddnode.objectives as objectives
    import oddnode.scoring as scoring
    from oddnode.objectives import Objective
    from oddnode.scoring import Scorer
else:
    objectives, scoring = LazyModule("oddnode.objectives"), LazyModule("oddnode.scoring")

__all__ = ["MODEL_FREE", "default_method"]

# Chosen as the settings of `oddnode.detector.recipes` were: stage knn with two seeds, gold with three. GRASP's settings
# are those of its paper.
_K = 1
_GOLD = 0.03


def _msp_prop(num_hops: int = NUM_HOPS, eta: float = ETA, prior_nodes: float = PRIOR_NODES) -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.Propagated(scoring.MaxSoftmax(), num_hops, eta, prior_nodes=prior_nodes)


def _nodesafe_msp(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
    prior_nodes: float = PRIOR_NODES,
) -> tuple[Objective, Scorer]:
    return nodesafe_objective(lambda1, lambda2, start), scoring.Propagated(
        scoring.MaxSoftmax(), num_hops, eta, prior_nodes=prior_nodes
    )


def _evidence_scorer(power: float, num_hops: int, eta: float, learns_weights: bool = False) -> Scorer:
    from oddnode.detector.evidence_recipes import evidence  # imports torch

    return evidence(power, num_hops, eta, learns_weights)


def _evidence(power: float = 2.0, num_hops: int = NUM_HOPS, eta: float = ETA) -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), _evidence_scorer(power, num_hops, eta)


def _nodesafe_evidence(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    power: float = 2.0,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
) -> tuple[Objective, Scorer]:
    return nodesafe_objective(lambda1, lambda2, start), _evidence_scorer(power, num_hops, eta)


def _nodesafe_evidence_pp(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    power: float = 2.0,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
) -> tuple[Objective, Scorer]:
    return nodesafe_objective(lambda1, lambda2, start), _evidence_scorer(power, num_hops, eta, learns_weights=True)


def _knn(k: int = _K) -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.KNN(k)


def _grasp(num_hops: int = 8, share: float = 0.05) -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.GRASP(scoring.MaxSoftmax(), num_hops, share)


def _gold(
    weight: float = _GOLD, num_hops: int = NUM_HOPS, eta: float = ETA, prior_nodes: float = PRIOR_NODES
) -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy() + weight * objectives.SyntheticExposure(), scoring.Propagated(
        scoring.Energy(), num_hops, eta, prior_nodes=prior_nodes
    )


def _non_zeros() -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.NonZeros()


def _degree() -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.Degree()


def _neighbour_cosine() -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.NeighbourCosine()


def _centred_cosine() -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.CentredCosine()


_ONE_OR_TWO = "one or two trainings"
# Model-free scores use the graph only; their network provides the ID accuracy of the tables.
_BASELINE, _NO_MODEL = "a baseline without a model", "no model"

for _recipe in (
    Recipe(
        "msp-prop",
        _msp_prop,
        "Hendrycks and Gimpel, ICLR 2017; Wu et al., ICLR 2023",
        transductive=True,
        cost=SHARED,
        summary="msp averaged over the graph. For unknown nodes that come in groups.",
    ),
    Recipe(
        "nodesafe-msp",
        _nodesafe_msp,
        "Yang et al., ICML 2024; Hendrycks and Gimpel, ICLR 2017",
        transductive=True,
        cost="one training, shared with nodesafe",
        summary="nodesafe that averages how sure the classifier is. For unknown nodes in groups.",
    ),
    # Chosen as the recommended method before any task of the benchmark was run; see docs/settings.md.
    Recipe(
        "nodesafe-ensemble",
        _nodesafe_msp,
        "Yang et al., ICML 2024; Lakshminarayanan et al., NeurIPS 2017",
        transductive=True,
        settings={"ensemble": 5},
        cost="five trainings",
        summary="Five networks of nodesafe-msp, steadier than one. For unknown nodes in groups.",
    ),
    Recipe(
        "evidence",
        _evidence,
        "this library",
        transductive=True,
        cost=_ONE_OR_TWO,
        summary="nodesafe-evidence with plain training.",
    ),
    Recipe(
        "nodesafe-evidence",
        _nodesafe_evidence,
        "this library; Yang et al., ICML 2024",
        transductive=True,
        cost=_ONE_OR_TWO,
        summary="Start here: the default of oddnode fit. Weighs several kinds of evidence and says why. "
        "For new nodes in a known graph, alone or in groups.",
    ),
    Recipe(
        "nodesafe-evidence++",
        _nodesafe_evidence_pp,
        "this library; Yang et al., ICML 2024",
        needs_exposure=True,
        transductive=True,
        cost=_ONE_OR_TWO,
        summary="Start here if you have known OOD nodes: the default of oddnode fit with exposure.",
    ),
    Recipe(
        "knn",
        _knn,
        "Sun et al., ICML 2022",
        cost=SHARED,
        summary="Baseline: how far a node's hidden features are from the nearest training node. For single odd nodes.",
    ),
    Recipe(
        "grasp",
        _grasp,
        "Ma et al., NeurIPS 2024",
        transductive=True,
        cost=SHARED,
        summary="Baseline: msp averaged over more edges, among labelled nodes, which the scored graph must have.",
    ),
    Recipe(
        "gold",
        _gold,
        "after Wang et al., ICLR 2025",
        transductive=True,
        summary="gnnsafe, trained against made-up OOD nodes. For unknown nodes in groups.",
    ),
    Recipe(
        "nonzeros",
        _non_zeros,
        _BASELINE,
        cost=_NO_MODEL,
        summary="How many features are not zero: what any method must beat.",
    ),
    Recipe(
        "degree",
        _degree,
        _BASELINE,
        cost=_NO_MODEL,
        summary="How many edges a node has: what any method must beat.",
    ),
    Recipe(
        "neighbour-cosine",
        _neighbour_cosine,
        _BASELINE,
        cost=_NO_MODEL,
        summary="How similar a node is to its neighbours: what any method must beat.",
    ),
    Recipe(
        "centred-cosine",
        _centred_cosine,
        _BASELINE,
        cost=_NO_MODEL,
        summary="The same after the mean is taken off: what any method must beat.",
    ),
):
    register_method(_recipe)

#: The model-free scores, printed below every table: a method that loses to them has learnt nothing.
MODEL_FREE = ("nonzeros", "degree", "neighbour-cosine", "centred-cosine")


def default_method(has_exposure: bool) -> str:
    """Name the method that tables are fitted with if the user chooses none.

    Parameters
    ----------
    has_exposure : bool
        Whether there are known OOD nodes to learn from.
    """
    return "nodesafe-evidence++" if has_exposure else "nodesafe-evidence"
