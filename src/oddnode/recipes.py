"""The methods, as one table: each is an objective, a scorer and the settings of both.

The settings here are those of the clean protocol: one per method, the same for every data set. How they were
chosen is told in ``docs/settings.md``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oddnode import gpn  # noqa: F401  (its network joins the backbones)
from oddnode.energy import Isolated
from oddnode.evidential import (
    ExpectedCrossEntropy,
    ExpectedSquaredError,
    NegativeEntropy,
    Uncertainty,
    evidential_scorer,
)
from oddnode.gkde import KernelPrior, Teacher
from oddnode.objectives import BoundUniform, CrossEntropy, EnergyHinge, Objective
from oddnode.scorers import Energy, MaxSoftmax, Propagated, Scorer
from oddnode.suggest import unknown

__all__ = ["RECIPES", "Recipe", "get_recipe"]

# Propagation, shared by every method that propagates.
_HOPS = 16
_ETA = 0.5
_ISOLATED: Isolated = "graph-mean"

# Margins and weight of the energy hinge, shared by every method with exposure.
_M_IN: float | None = None
_M_OUT: float | None = None
_ALPHA = 0.01


@dataclass(frozen=True)
class Recipe:
    """A method: how to build its objective and scorer, and where it comes from.

    ``build`` takes the method's hyper-parameters, all with defaults, and returns ``(objective, scorer)``. ``settings``
    are arguments of `Detector` that the method needs otherwise than by default; ``backbone`` is set where a method has
    a network of its own.
    """

    name: str
    build: Callable[..., tuple[Objective, Scorer]]
    reference: str
    needs_exposure: bool = False
    backbone: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """Names and default values."""
        return {name: p.default for name, p in inspect.signature(self.build).parameters.items()}


def _msp() -> tuple[Objective, Scorer]:
    return CrossEntropy(), MaxSoftmax()


def _energy() -> tuple[Objective, Scorer]:
    return CrossEntropy(), Energy()


def _gnnsafe(num_hops: int = _HOPS, eta: float = _ETA, isolated: Isolated = _ISOLATED) -> tuple[Objective, Scorer]:
    return CrossEntropy(), Propagated(Energy(), num_hops, eta, isolated)


def _nodesafe(
    lambda1: float = 0.001,
    lambda2: float = 5.0,
    start: int = 0,
    num_hops: int = _HOPS,
    eta: float = _ETA,
    isolated: Isolated = _ISOLATED,
) -> tuple[Objective, Scorer]:
    objective = CrossEntropy() + lambda2 * BoundUniform(lambda1, start=start)
    return objective, Propagated(Energy(), num_hops, eta, isolated)


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
    isolated: Isolated = _ISOLATED,
) -> tuple[Objective, Scorer]:
    hinge = EnergyHinge(m_in, m_out, num_hops, eta, isolated)
    return CrossEntropy() + alpha * hinge, Propagated(Energy(), num_hops, eta, isolated)


def _nodesafe_pp(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    m_in: float | None = _M_IN,
    m_out: float | None = _M_OUT,
    alpha: float = _ALPHA,
    num_hops: int = _HOPS,
    eta: float = _ETA,
    isolated: Isolated = _ISOLATED,
) -> tuple[Objective, Scorer]:
    objective, scorer = _gnnsafe_pp(m_in, m_out, alpha, num_hops, eta, isolated)
    return objective + lambda2 * BoundUniform(lambda1, start=start), scorer


def _gkde(
    prior_weight: float = 0.001, ramp: int = 200, uncertainty: Uncertainty = "epistemic"
) -> tuple[Objective, Scorer]:
    objective = ExpectedSquaredError() + prior_weight * KernelPrior() + Teacher(ramp)
    return objective, evidential_scorer(uncertainty)


def _gpn(entropy_weight: float = 1e-4, uncertainty: Uncertainty = "epistemic") -> tuple[Objective, Scorer]:
    return ExpectedCrossEntropy() + entropy_weight * NegativeEntropy(), evidential_scorer(uncertainty)


#: Every method by name, in the order of the paper's tables.
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("msp", _msp, "Hendrycks and Gimpel, ICLR 2017"),
        Recipe("energy", _energy, "Liu et al., NeurIPS 2020"),
        Recipe(
            "gkde",
            _gkde,
            "Zhao et al., NeurIPS 2020",
            backbone="evidential-gcn",
            settings={"hidden_channels": 16, "weight_decay": 5e-4},
        ),
        Recipe("gpn", _gpn, "Stadler et al., NeurIPS 2021", backbone="gpn", settings={"dropout": 0.0}),
        Recipe("gnnsafe", _gnnsafe, "Wu et al., ICLR 2023"),
        Recipe("nodesafe", _nodesafe, "Yang et al., ICML 2024"),
        Recipe("energy-ft", _energy_ft, "Liu et al., NeurIPS 2020", needs_exposure=True),
        Recipe("gnnsafe++", _gnnsafe_pp, "Wu et al., ICLR 2023", needs_exposure=True),
        Recipe("nodesafe++", _nodesafe_pp, "Yang et al., ICML 2024", needs_exposure=True),
    )
}


def get_recipe(name: str) -> Recipe:
    """The recipe of a method, or an error that suggests the nearest name."""
    if name not in RECIPES:
        raise unknown("method", name, RECIPES)
    return RECIPES[name]
