"""The methods of the library as one table: each is an objective, a scorer and the settings of both.

The settings are those of the clean protocol: each method has the same settings on every data set. ``docs/settings.md``
explains how they were chosen.
"""

from __future__ import annotations

from typing import Literal, get_args

from oddnode.detector.evidence_recipes import evidence
from oddnode.detector.registry import Recipe, register_method
from oddnode.objectives import (
    BoundUniform,
    CrossEntropy,
    EnergyHinge,
    ExpectedCrossEntropy,
    ExpectedSquaredError,
    KernelPrior,
    LogitNorm,
    NegativeEntropy,
    Objective,
    OutlierExposure,
    SyntheticExposure,
    Teacher,
)
from oddnode.scoring import (
    GRASP,
    KNN,
    ODIN,
    CentredCosine,
    Degree,
    Energy,
    Mahalanobis,
    MaxSoftmax,
    NeighbourCosine,
    NonZeros,
    Propagated,
    Scorer,
)

__all__ = ["MODEL_FREE", "Uncertainty", "evidential_scorer"]

# Propagation, shared by every method that propagates.
_HOPS = 32
_ETA = 0.1
_PRIOR_NODES = 10.0

# Margins and weight of the energy hinge, shared by every method with exposure.
_M_IN: float | None = None
_M_OUT: float | None = None
_ALPHA = 0.01

# Chosen by the lowest mean FPR95 on the validation tasks of benchmarks/selection.py (stages odin, mahalanobis and knn
# with two seeds, logitnorm and gold with three). Those contain no OOD test node of the benchmark's tasks except digits.
# GRASP's settings and the weight of outlier exposure are those of their papers.
_ODIN_T, _ODIN_EPSILON = 5.0, 0.0001
_SHRINKAGE = 0.01
_K = 1
_TAU = 1.0
_GOLD = 0.03


def _msp() -> tuple[Objective, Scorer]:
    return CrossEntropy(), MaxSoftmax()


def _odin(temperature: float = _ODIN_T, epsilon: float = _ODIN_EPSILON) -> tuple[Objective, Scorer]:
    return CrossEntropy(), ODIN(temperature, epsilon)


def _mahalanobis(shrinkage: float = _SHRINKAGE) -> tuple[Objective, Scorer]:
    return CrossEntropy(), Mahalanobis(shrinkage)


def _energy() -> tuple[Objective, Scorer]:
    return CrossEntropy(), Energy()


def _gnnsafe(num_hops: int = _HOPS, eta: float = _ETA, prior_nodes: float = _PRIOR_NODES) -> tuple[Objective, Scorer]:
    return CrossEntropy(), Propagated(Energy(), num_hops, eta, prior_nodes=prior_nodes)


def _gnnsafe_logit_norm(
    tau: float = _TAU, num_hops: int = _HOPS, eta: float = _ETA, prior_nodes: float = _PRIOR_NODES
) -> tuple[Objective, Scorer]:
    return LogitNorm(tau), Propagated(Energy(), num_hops, eta, prior_nodes=prior_nodes)


def _nodesafe(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    num_hops: int = _HOPS,
    eta: float = _ETA,
    prior_nodes: float = _PRIOR_NODES,
) -> tuple[Objective, Scorer]:
    objective = CrossEntropy() + lambda2 * BoundUniform(lambda1, start=start)
    return objective, Propagated(Energy(centred=True), num_hops, eta, prior_nodes=prior_nodes)


def _nodesafe_msp(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    num_hops: int = _HOPS,
    eta: float = _ETA,
    prior_nodes: float = _PRIOR_NODES,
) -> tuple[Objective, Scorer]:
    objective, _ = _nodesafe(lambda1, lambda2, start)
    return objective, Propagated(MaxSoftmax(), num_hops, eta, prior_nodes=prior_nodes)


def _oe(weight: float = 0.5) -> tuple[Objective, Scorer]:
    return CrossEntropy() + weight * OutlierExposure(), MaxSoftmax()


def _energy_ft(
    m_in: float | None = _M_IN, m_out: float | None = _M_OUT, alpha: float = _ALPHA
) -> tuple[Objective, Scorer]:
    return CrossEntropy() + alpha * EnergyHinge(m_in, m_out), Energy()


def _gnnsafe_pp(
    m_in: float | None = _M_IN,
    m_out: float | None = _M_OUT,
    alpha: float = _ALPHA,
    num_hops: int = _HOPS,
    eta: float = _ETA,
    prior_nodes: float = _PRIOR_NODES,
) -> tuple[Objective, Scorer]:
    hinge = EnergyHinge(m_in, m_out, num_hops, eta)
    return CrossEntropy() + alpha * hinge, Propagated(Energy(), num_hops, eta, prior_nodes=prior_nodes)


def _gnnsafe_pp_logit_norm(
    tau: float = _TAU,
    m_in: float | None = _M_IN,
    m_out: float | None = _M_OUT,
    alpha: float = _ALPHA,
    num_hops: int = _HOPS,
    eta: float = _ETA,
    prior_nodes: float = _PRIOR_NODES,
) -> tuple[Objective, Scorer]:
    hinge = EnergyHinge(m_in, m_out, num_hops, eta)
    return LogitNorm(tau) + alpha * hinge, Propagated(Energy(), num_hops, eta, prior_nodes=prior_nodes)


def _nodesafe_pp(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    m_in: float | None = _M_IN,
    m_out: float | None = _M_OUT,
    alpha: float = _ALPHA,
    num_hops: int = _HOPS,
    eta: float = _ETA,
    prior_nodes: float = _PRIOR_NODES,
) -> tuple[Objective, Scorer]:
    objective, _ = _gnnsafe_pp(m_in, m_out, alpha, num_hops, eta)
    scorer = Propagated(Energy(centred=True), num_hops, eta, prior_nodes=prior_nodes)
    return objective + lambda2 * BoundUniform(lambda1, start=start), scorer


def _gkde(
    prior_weight: float = 0.001, ramp: int = 200, uncertainty: Uncertainty = "epistemic"
) -> tuple[Objective, Scorer]:
    objective = ExpectedSquaredError() + prior_weight * KernelPrior() + Teacher(ramp)
    return objective, evidential_scorer(uncertainty)


def _gpn(entropy_weight: float = 1e-4, uncertainty: Uncertainty = "aleatoric") -> tuple[Objective, Scorer]:
    return ExpectedCrossEntropy() + entropy_weight * NegativeEntropy(), evidential_scorer(uncertainty)


def _msp_prop(num_hops: int = _HOPS, eta: float = _ETA, prior_nodes: float = _PRIOR_NODES) -> tuple[Objective, Scorer]:
    return CrossEntropy(), Propagated(MaxSoftmax(), num_hops, eta, prior_nodes=prior_nodes)


def _knn(k: int = _K) -> tuple[Objective, Scorer]:
    return CrossEntropy(), KNN(k)


def _grasp(num_hops: int = 8, share: float = 0.05) -> tuple[Objective, Scorer]:
    return CrossEntropy(), GRASP(MaxSoftmax(), num_hops, share)


def _gold(
    weight: float = _GOLD, num_hops: int = _HOPS, eta: float = _ETA, prior_nodes: float = _PRIOR_NODES
) -> tuple[Objective, Scorer]:
    return CrossEntropy() + weight * SyntheticExposure(), Propagated(Energy(), num_hops, eta, prior_nodes=prior_nodes)


def _evidence(power: float = 2.0, num_hops: int = _HOPS, eta: float = _ETA) -> tuple[Objective, Scorer]:
    return CrossEntropy(), evidence(power, num_hops, eta)


def _nodesafe_evidence(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    power: float = 2.0,
    num_hops: int = _HOPS,
    eta: float = _ETA,
) -> tuple[Objective, Scorer]:
    objective, _ = _nodesafe(lambda1, lambda2, start)
    return objective, evidence(power, num_hops, eta)


def _nodesafe_evidence_pp(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    power: float = 2.0,
    num_hops: int = _HOPS,
    eta: float = _ETA,
) -> tuple[Objective, Scorer]:
    objective, _ = _nodesafe(lambda1, lambda2, start)
    return objective, evidence(power, num_hops, eta, learns_weights=True)


def _centred_cosine() -> tuple[Objective, Scorer]:
    return CrossEntropy(), CentredCosine()


def _non_zeros() -> tuple[Objective, Scorer]:
    return CrossEntropy(), NonZeros()


def _degree() -> tuple[Objective, Scorer]:
    return CrossEntropy(), Degree()


def _neighbour_cosine() -> tuple[Objective, Scorer]:
    return CrossEntropy(), NeighbourCosine()


# The cost of methods with plain cross-entropy, which share one training.
_SHARED = "one training, shared with msp"
# Model-free scores use the graph only; their network provides the ID accuracy of the tables.
_NO_MODEL = "no model"

# The methods of the paper's tables in their order, later ones, and the model-free scores.
for _recipe in (
    Recipe("msp", _msp, "Hendrycks and Gimpel, ICLR 2017"),
    # The step on a node's features depends on its neighbours' predictions, which doubles the receptive field.
    Recipe("odin", _odin, "Liang et al., ICLR 2018", transductive=True, cost=f"{_SHARED}; a gradient per graph"),
    Recipe("mahalanobis", _mahalanobis, "Lee et al., NeurIPS 2018", cost=_SHARED),
    Recipe("energy", _energy, "Liu et al., NeurIPS 2020", cost=_SHARED),
    Recipe(
        "gkde",
        _gkde,
        "Zhao et al., NeurIPS 2020",
        backbone="evidential-gcn",
        settings={"hidden_channels": 16, "weight_decay": 5e-4},
        cost="two trainings",
    ),
    Recipe("gpn", _gpn, "Stadler et al., NeurIPS 2021", backbone="gpn", settings={"dropout": 0.0}),
    Recipe("gnnsafe", _gnnsafe, "Wu et al., ICLR 2023", transductive=True, cost=_SHARED),
    Recipe(
        "gnnsafe+logitnorm",
        _gnnsafe_logit_norm,
        "Wei et al., ICML 2022; Wu et al., ICLR 2023",
        transductive=True,
    ),
    Recipe("nodesafe", _nodesafe, "Yang et al., ICML 2024", transductive=True),
    Recipe("oe", _oe, "Hendrycks et al., ICLR 2019", needs_exposure=True),
    Recipe("energy-ft", _energy_ft, "Liu et al., NeurIPS 2020", needs_exposure=True),
    Recipe("gnnsafe++", _gnnsafe_pp, "Wu et al., ICLR 2023", needs_exposure=True, transductive=True),
    Recipe(
        "gnnsafe+++logitnorm",
        _gnnsafe_pp_logit_norm,
        "Wei et al., ICML 2022; Wu et al., ICLR 2023",
        needs_exposure=True,
        transductive=True,
    ),
    Recipe("nodesafe++", _nodesafe_pp, "Yang et al., ICML 2024", needs_exposure=True, transductive=True),
    Recipe(
        "msp-prop",
        _msp_prop,
        "Hendrycks and Gimpel, ICLR 2017; Wu et al., ICLR 2023",
        transductive=True,
        cost=_SHARED,
    ),
    Recipe(
        "nodesafe-msp",
        _nodesafe_msp,
        "Yang et al., ICML 2024; Hendrycks and Gimpel, ICLR 2017",
        transductive=True,
        cost="one training, shared with nodesafe",
    ),
    # Chosen as the recommended method before any task of the benchmark was run; see docs/settings.md.
    Recipe(
        "nodesafe-ensemble",
        _nodesafe_msp,
        "Yang et al., ICML 2024; Lakshminarayanan et al., NeurIPS 2017",
        transductive=True,
        settings={"ensemble": 5},
        cost="five trainings",
    ),
    Recipe("evidence", _evidence, "this library", transductive=True, cost="one or two trainings"),
    Recipe(
        "nodesafe-evidence",
        _nodesafe_evidence,
        "this library; Yang et al., ICML 2024",
        transductive=True,
        cost="one or two trainings",
    ),
    Recipe(
        "nodesafe-evidence++",
        _nodesafe_evidence_pp,
        "this library; Yang et al., ICML 2024",
        needs_exposure=True,
        transductive=True,
        cost="one or two trainings",
    ),
    Recipe("knn", _knn, "Sun et al., ICML 2022", cost=_SHARED),
    Recipe("grasp", _grasp, "Ma et al., NeurIPS 2024", transductive=True, cost=_SHARED),
    Recipe("gold", _gold, "after Wang et al., ICLR 2025", transductive=True),
    Recipe("nonzeros", _non_zeros, "a baseline without a model", cost=_NO_MODEL),
    Recipe("degree", _degree, "a baseline without a model", cost=_NO_MODEL),
    Recipe("neighbour-cosine", _neighbour_cosine, "a baseline without a model", cost=_NO_MODEL),
    Recipe("centred-cosine", _centred_cosine, "a baseline without a model", cost=_NO_MODEL),
):
    register_method(_recipe)

#: The model-free scores, printed below every table: a method that loses to them has learnt nothing.
MODEL_FREE = ("nonzeros", "degree", "neighbour-cosine", "centred-cosine")


#: ``epistemic``: a node is unlike those seen in training. ``aleatoric``: its class is ambiguous.
Uncertainty = Literal["epistemic", "aleatoric"]


def evidential_scorer(uncertainty: Uncertainty) -> Scorer:
    """Return the scorer that ranks nodes by one of two uncertainties.

    Parameters
    ----------
    uncertainty : {"epistemic", "aleatoric"}
        The uncertainty; certain nodes have high scores.
    """
    if uncertainty not in get_args(Uncertainty):
        raise ValueError(f"uncertainty is {uncertainty!r}, expected one of {', '.join(get_args(Uncertainty))}")
    return Energy() if uncertainty == "epistemic" else MaxSoftmax()
