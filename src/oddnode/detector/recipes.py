"""The methods of the paper's tables, in their order: each is an objective, a scorer and the settings of both.

The settings are those of the clean protocol: each method has the same settings on every data set. ``docs/settings.md``
explains how they were chosen. A method can be looked up without torch, which is imported when one is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from oddnode._utils.lazy import LazyModule
from oddnode.detector.registry import Recipe, register_method

if TYPE_CHECKING:
    import oddnode.objectives as objectives
    import oddnode.scoring as scoring
    from oddnode.objectives import Objective
    from oddnode.scoring import Scorer
else:
    objectives, scoring = LazyModule("oddnode.objectives"), LazyModule("oddnode.scoring")

__all__ = ["ETA", "NUM_HOPS", "PRIOR_NODES", "SHARED", "Uncertainty", "evidential_scorer", "nodesafe_objective"]

#: Propagation, shared by every method that propagates.
NUM_HOPS = 32
ETA = 0.1
PRIOR_NODES = 10.0

# Margins and weight of the energy hinge, shared by every method with exposure.
_M_IN: float | None = None
_M_OUT: float | None = None
_ALPHA = 0.01

# Chosen by the lowest mean FPR95 on the validation tasks of benchmarks/selection.py (stages odin and mahalanobis with
# two seeds, logitnorm with three). Those contain no OOD test node of the benchmark's tasks except digits. The weight of
# outlier exposure is that of its paper.
_ODIN_T, _ODIN_EPSILON = 5.0, 0.0001
_SHRINKAGE = 0.01
_TAU = 1.0


def _msp() -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.MaxSoftmax()


def _odin(temperature: float = _ODIN_T, epsilon: float = _ODIN_EPSILON) -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.ODIN(temperature, epsilon)


def _mahalanobis(shrinkage: float = _SHRINKAGE) -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.Mahalanobis(shrinkage)


def _energy() -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.Energy()


def _gnnsafe(num_hops: int = NUM_HOPS, eta: float = ETA, prior_nodes: float = PRIOR_NODES) -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy(), scoring.Propagated(scoring.Energy(), num_hops, eta, prior_nodes=prior_nodes)


def _gnnsafe_logit_norm(
    tau: float = _TAU, num_hops: int = NUM_HOPS, eta: float = ETA, prior_nodes: float = PRIOR_NODES
) -> tuple[Objective, Scorer]:
    return objectives.LogitNorm(tau), scoring.Propagated(scoring.Energy(), num_hops, eta, prior_nodes=prior_nodes)


def nodesafe_objective(lambda1: float, lambda2: float, start: int) -> Objective:
    """Return the objective of NODESAFE without exposure.

    Parameters
    ----------
    lambda1, start
        As for `oddnode.BoundUniform`.
    lambda2 : float
        The weight of that term.
    """
    return objectives.CrossEntropy() + lambda2 * objectives.BoundUniform(lambda1, start=start)


def _nodesafe(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
    prior_nodes: float = PRIOR_NODES,
) -> tuple[Objective, Scorer]:
    objective = nodesafe_objective(lambda1, lambda2, start)
    return objective, scoring.Propagated(scoring.Energy(centred=True), num_hops, eta, prior_nodes=prior_nodes)


def _oe(weight: float = 0.5) -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy() + weight * objectives.OutlierExposure(), scoring.MaxSoftmax()


def _energy_ft(
    m_in: float | None = _M_IN, m_out: float | None = _M_OUT, alpha: float = _ALPHA
) -> tuple[Objective, Scorer]:
    return objectives.CrossEntropy() + alpha * objectives.EnergyHinge(m_in, m_out), scoring.Energy()


def _gnnsafe_pp(
    m_in: float | None = _M_IN,
    m_out: float | None = _M_OUT,
    alpha: float = _ALPHA,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
    prior_nodes: float = PRIOR_NODES,
) -> tuple[Objective, Scorer]:
    hinge = objectives.EnergyHinge(m_in, m_out, num_hops, eta)
    return objectives.CrossEntropy() + alpha * hinge, scoring.Propagated(
        scoring.Energy(), num_hops, eta, prior_nodes=prior_nodes
    )


def _gnnsafe_pp_logit_norm(
    tau: float = _TAU,
    m_in: float | None = _M_IN,
    m_out: float | None = _M_OUT,
    alpha: float = _ALPHA,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
    prior_nodes: float = PRIOR_NODES,
) -> tuple[Objective, Scorer]:
    hinge = objectives.EnergyHinge(m_in, m_out, num_hops, eta)
    return objectives.LogitNorm(tau) + alpha * hinge, scoring.Propagated(
        scoring.Energy(), num_hops, eta, prior_nodes=prior_nodes
    )


def _nodesafe_pp(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    m_in: float | None = _M_IN,
    m_out: float | None = _M_OUT,
    alpha: float = _ALPHA,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
    prior_nodes: float = PRIOR_NODES,
) -> tuple[Objective, Scorer]:
    objective, _ = _gnnsafe_pp(m_in, m_out, alpha, num_hops, eta)
    scorer = scoring.Propagated(scoring.Energy(centred=True), num_hops, eta, prior_nodes=prior_nodes)
    return objective + lambda2 * objectives.BoundUniform(lambda1, start=start), scorer


def _gkde(
    prior_weight: float = 0.001, ramp: int = 200, uncertainty: Uncertainty = "epistemic"
) -> tuple[Objective, Scorer]:
    objective = objectives.ExpectedSquaredError() + prior_weight * objectives.KernelPrior() + objectives.Teacher(ramp)
    return objective, evidential_scorer(uncertainty)


def _gpn(entropy_weight: float = 1e-4, uncertainty: Uncertainty = "aleatoric") -> tuple[Objective, Scorer]:
    return objectives.ExpectedCrossEntropy() + entropy_weight * objectives.NegativeEntropy(), evidential_scorer(
        uncertainty
    )


#: The cost of methods with plain cross-entropy, which share one training.
SHARED = "one training, shared with msp"
_LOGIT_NORM = "Wei et al., ICML 2022; Wu et al., ICLR 2023"

for _recipe in (
    Recipe(
        "msp",
        _msp,
        "Hendrycks and Gimpel, ICLR 2017",
        summary="The simplest baseline: how sure the classifier is. Sees a node's own neighbourhood only.",
    ),
    # The step on a node's features depends on its neighbours' predictions, which doubles the receptive field.
    Recipe(
        "odin",
        _odin,
        "Liang et al., ICLR 2018",
        transductive=True,
        cost=f"{SHARED}; a gradient per graph",
        summary="Baseline: msp after a small step on the features.",
    ),
    Recipe(
        "mahalanobis",
        _mahalanobis,
        "Lee et al., NeurIPS 2018",
        cost=SHARED,
        summary="Baseline: how far a node's hidden features are from every class. For single odd nodes.",
    ),
    Recipe(
        "energy",
        _energy,
        "Liu et al., NeurIPS 2020",
        cost=SHARED,
        summary="Baseline: how large the logits are. The start of gnnsafe and nodesafe.",
    ),
    Recipe(
        "gkde",
        _gkde,
        "Zhao et al., NeurIPS 2020",
        backbone="evidential-gcn",
        settings={"hidden_channels": 16, "weight_decay": 5e-4},
        cost="two trainings",
        summary="Baseline of the paper: a network that counts evidence. Small graphs only.",
    ),
    Recipe(
        "gpn",
        _gpn,
        "Stadler et al., NeurIPS 2021",
        backbone="gpn",
        settings={"dropout": 0.0},
        summary="Baseline of the paper: densities of hidden features, spread over the graph.",
    ),
    Recipe(
        "gnnsafe",
        _gnnsafe,
        "Wu et al., ICLR 2023",
        transductive=True,
        cost=SHARED,
        summary="Energy averaged over the graph. For unknown nodes that come in groups.",
    ),
    Recipe(
        "gnnsafe+logitnorm",
        _gnnsafe_logit_norm,
        _LOGIT_NORM,
        transductive=True,
        summary="gnnsafe, trained with normalised logits.",
    ),
    Recipe(
        "nodesafe",
        _nodesafe,
        "Yang et al., ICML 2024",
        transductive=True,
        summary="The paper's method: gnnsafe, with energies that training keeps even. For unknown nodes in groups.",
    ),
    Recipe(
        "oe",
        _oe,
        "Hendrycks et al., ICLR 2019",
        needs_exposure=True,
        summary="Baseline with known OOD nodes: the classifier learns to be unsure of them.",
    ),
    Recipe(
        "energy-ft",
        _energy_ft,
        "Liu et al., NeurIPS 2020",
        needs_exposure=True,
        summary="Baseline with known OOD nodes: energy that learns to tell them apart.",
    ),
    Recipe(
        "gnnsafe++",
        _gnnsafe_pp,
        "Wu et al., ICLR 2023",
        needs_exposure=True,
        transductive=True,
        summary="gnnsafe for when you have known OOD nodes.",
    ),
    Recipe(
        "gnnsafe+++logitnorm",
        _gnnsafe_pp_logit_norm,
        _LOGIT_NORM,
        needs_exposure=True,
        transductive=True,
        summary="gnnsafe++, trained with normalised logits.",
    ),
    Recipe(
        "nodesafe++",
        _nodesafe_pp,
        "Yang et al., ICML 2024",
        needs_exposure=True,
        transductive=True,
        summary="The paper's method for when you have known OOD nodes.",
    ),
):
    register_method(_recipe)


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
    return scoring.Energy() if uncertainty == "epistemic" else scoring.MaxSoftmax()
