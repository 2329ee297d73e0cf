"""The methods: each is an objective, a scorer and the settings of both, registered by name.

The settings are those of the clean protocol: each method has the same settings on every data set
(``docs/measurements/settings.md`` explains how they were chosen). A method can be looked up without torch, which is
imported when one is built.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

from msgspec import Meta, Struct

from oddnode._utils.checked_json import LARGEST_INT, Count, LayerCount, Number
from oddnode._utils.lazy import LazyModule
from oddnode._utils.registry import Registry

if TYPE_CHECKING:
    import oddnode.objectives as objectives
    import oddnode.scoring as scoring
    from oddnode.objectives import Objective
    from oddnode.scoring import Scorer

    Parts = tuple[Objective, Scorer]
else:
    objectives, scoring = LazyModule("oddnode.objectives"), LazyModule("oddnode.scoring")


@dataclass(frozen=True)
class Recipe:
    """A method: a function that builds its objective and scorer, and facts about it.

    Parameters
    ----------
    name : str
        Its name on the command line and in tables.
    build : callable
        Takes the method's hyper-parameters, all with defaults, and returns ``(objective, scorer)``.
    reference : str
        Authors, venue and year.
    needs_exposure : bool
        Whether it learns from known OOD nodes.
    needs_labels : bool
        Whether it learns from labels.
    transductive : bool
        Whether the score of a node depends on more of the scored graph than the network's own receptive field.
    cost : str
        The cost of the method, such as its number of trainings.
    backbone : str, optional
        The backbone, if the method requires one.
    settings : dict
        Arguments of `Detector` that differ from the defaults.
    summary : str
        What it is and when to use it, for users who choose a method.
    """

    name: str
    build: Callable[..., tuple[Objective, Scorer]]
    reference: str
    needs_exposure: bool = False
    needs_labels: bool = True
    transductive: bool = False
    cost: str = "one training"
    backbone: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    summary: str = ""

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """The hyper-parameters by name, with their default values."""
        return {name: p.default for name, p in inspect.signature(self.build).parameters.items()}

    @property
    def hyper_parameter_types(self) -> dict[str, Any]:
        """The types of the hyper-parameters by name: as annotated, or else those of the default values."""
        parameters = inspect.signature(self.build).parameters.items()
        annotated = {name: p.annotation for name, p in parameters if p.annotation is not inspect.Parameter.empty}
        names = getattr(inspect.unwrap(self.build), "__globals__", {})
        try:
            # Without the annotation of the return value, which would need torch.
            hints = get_type_hints(SimpleNamespace(__annotations__=annotated), names, include_extras=True)
        except NameError:  # a plugin may name types that only a type checker imports
            hints = {}
        return {name: type(p.default) for name, p in parameters} | hints


#: Every method by name.
RECIPES: Registry[Recipe] = Registry("method")


def get_recipe(name: str) -> Recipe:
    """Look up a method by name; the error for an unknown name suggests the nearest one.

    Parameters
    ----------
    name : str
        The method's name.
    """
    return RECIPES[name]


def register_method(recipe: Recipe) -> None:
    """Add a method, so that it can be named in `Detector.from_recipe`, `benchmark` and on the command line.

    Parameters
    ----------
    recipe : Recipe
        The method.
    """
    without = [name for name, value in recipe.hyper_parameters.items() if value is inspect.Parameter.empty]
    if without:
        raise ValueError(f"the method {recipe.name!r} has no default for {', '.join(without)}; give it one in build")
    RECIPES.register(recipe.name, recipe)


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `Detector` that are numbers or strings, with limits; they are saved with a model."""

    hidden_channels: Count
    num_layers: LayerCount
    dropout: Number
    num_spare_logits: Annotated[int, Meta(ge=0, le=LARGEST_INT)]
    epochs: Count
    lr: Number
    weight_decay: Number
    val_share: Number
    batch_norm: Literal["id-graph", "running"]
    propagation: Literal["auto", "as-given"]
    ensemble: Annotated[int, Meta(ge=1, le=1000)]
    seed: int


#: The types of the arguments of `Detector` that any method can have; the seed is a separate argument.
DETECTOR_SETTINGS = {
    name: kind for name, kind in get_type_hints(Settings, include_extras=True).items() if name != "seed"
}


def setting_types(recipe: Recipe) -> dict[str, Any]:
    """Return the type of every setting of a method, its hyper-parameters first.

    Parameters
    ----------
    recipe : Recipe
        The method.
    """
    return recipe.hyper_parameter_types | DETECTOR_SETTINGS


#: Propagation, shared by every method that propagates.
NUM_HOPS = 32
ETA = 0.1
PRIOR_NODES = 10.0

# Margins and weight of the energy hinge, shared by every method with exposure.
_M_IN: float | None = None
_M_OUT: float | None = None
_ALPHA = 0.01

# Chosen by the lowest mean FPR95 on the validation tasks of benchmarks/selection.py (stages odin, mahalanobis and knn
# with two seeds, logitnorm and gold with three). Those contain no OOD test node of the benchmark's tasks except digits.
# The settings of outlier exposure and of GRASP are those of their papers.
_ODIN_T, _ODIN_EPSILON = 5.0, 0.0001
_SHRINKAGE = 0.01
_TAU = 1.0
_K = 1
_GOLD = 0.03

_SHARED = "one training, shared with msp"  # the cost of methods with plain cross-entropy
_ONE_OR_TWO = "one or two trainings"
_LOGIT_NORM = "Wei et al., ICML 2022; Wu et al., ICLR 2023"

#: ``epistemic``: a node is unlike those seen in training. ``aleatoric``: its class is ambiguous.
Uncertainty = Literal["epistemic", "aleatoric"]


def _method(name: str, reference: str, **facts: Any) -> Callable[[Callable[..., Parts]], Callable[..., Parts]]:
    """Register the function that builds a method; its docstring is the summary."""

    def register(build: Callable[..., Parts]) -> Callable[..., Parts]:
        register_method(Recipe(name, build, reference, summary=" ".join((build.__doc__ or "").split()), **facts))
        return build

    return register


def _propagated(scorer: Scorer, num_hops: int, eta: float, prior_nodes: float) -> Scorer:
    return scoring.Propagated(scorer, num_hops, eta, prior_nodes=prior_nodes)


def _nodesafe_objective(lambda1: float, lambda2: float, start: int) -> Objective:
    return objectives.CrossEntropy() + lambda2 * objectives.BoundUniform(lambda1, start=start)


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


class _Kind(NamedTuple):
    """A kind of evidence, and its weight for new nodes, in other graphs, and for nodes that training has seen.

    Evidence from the network, from a long average or from edges alone has half the weight of that from a node's edges
    and features. Unknown nodes in the training graph influenced what was learnt from edges and features. For them,
    evidence from labels has full weight, and learnt links, neighbourhoods and words have none.
    """

    scorer: Scorer
    new: float
    elsewhere: float
    seen: float


def evidence(
    power: float, num_hops: int, eta: float, learns_weights: bool = False, uses_batch: bool = True
) -> scoring.Evidence:
    """Return the scorer of the recommended method."""
    scorers, new, elsewhere, seen = zip(*_weighted_kinds(num_hops, eta), strict=True)
    return scoring.Evidence(
        scorers, power, new, elsewhere, seen, learns_weights, rehearses=True, uses_batch=uses_batch, around_hops=12
    )


def kinds_of_evidence(num_hops: int = 32, eta: float = 0.1) -> tuple[Scorer, ...]:
    """Return the scorers that look at different things: the classifier, the edges, the neighbourhood and the features.

    The last of them, the long average of the confidence, is for graphs that do not contain the known nodes.
    """
    return tuple(kind.scorer for kind in _weighted_kinds(num_hops, eta))


def _weighted_kinds(num_hops: int, eta: float) -> tuple[_Kind, ...]:
    around = scoring.NeighbourhoodFeatures()
    return (
        _Kind(scoring.MaxSoftmax(), 0.5, 0.5, 1.0),
        _Kind(scoring.TwoSided(scoring.Mahalanobis()), 0.5, 0.5, 1.0),
        _Kind(scoring.NeighbourhoodCosine(), 1.0, 1.0, 0.5),
        _Kind(scoring.LinkPrediction(), 1.0, 1.0, 0.0),
        _Kind(scoring.Propagated(scoring.LinkPrediction()), 1.0, 1.0, 0.0),
        _Kind(scoring.ClassAgreement(), 0.5, 0.5, 1.0),
        _Kind(around, 1.0, 1.0, 0.0),
        _Kind(scoring.Propagated(around, num_hops, eta), 0.5, 0.5, 0.0),
        _Kind(scoring.Propagated(scoring.FeatureLikelihood()), 1.0, 1.0, 0.0),
        _Kind(scoring.TwoSided(scoring.NonZeros()), 1.0, 1.0, 0.5),
        _Kind(scoring.TwoSided(scoring.FeatureSum()), 1.0, 1.0, 0.5),
        _Kind(scoring.TwoSided(scoring.Degree()), 0.5, 0.0, 0.0),
        _Kind(scoring.NeighbourCloseness(), 0.5, 0.0, 0.0),
        _Kind(scoring.NeighbourDegree(), 0.5, 0.0, 0.0),
        _Kind(scoring.TwoSided(scoring.Propagated(scoring.MaxSoftmax(), num_hops, eta)), 0.0, 1.0, 1.0),
    )


@_method("msp", "Hendrycks and Gimpel, ICLR 2017")
def _msp() -> Parts:
    """The simplest baseline: how sure the classifier is. Sees a node's own neighbourhood only."""
    return objectives.CrossEntropy(), scoring.MaxSoftmax()


# The step on a node's features depends on its neighbours' predictions, which doubles the receptive field.
@_method("odin", "Liang et al., ICLR 2018", transductive=True, cost=f"{_SHARED}; a gradient per graph")
def _odin(temperature: float = _ODIN_T, epsilon: float = _ODIN_EPSILON) -> Parts:
    """Baseline: msp after a small step on the features."""
    return objectives.CrossEntropy(), scoring.ODIN(temperature, epsilon)


@_method("mahalanobis", "Lee et al., NeurIPS 2018", cost=_SHARED)
def _mahalanobis(shrinkage: float = _SHRINKAGE) -> Parts:
    """Baseline: how far a node's hidden features are from every class. For single odd nodes."""
    return objectives.CrossEntropy(), scoring.Mahalanobis(shrinkage)


@_method("energy", "Liu et al., NeurIPS 2020", cost=_SHARED)
def _energy() -> Parts:
    """Baseline: how large the logits are. The start of gnnsafe and nodesafe."""
    return objectives.CrossEntropy(), scoring.Energy()


@_method(
    "gkde",
    "Zhao et al., NeurIPS 2020",
    backbone="evidential-gcn",
    settings={"hidden_channels": 16, "weight_decay": 5e-4},
    cost="two trainings",
)
def _gkde(prior_weight: float = 0.001, ramp: int = 200, uncertainty: Uncertainty = "epistemic") -> Parts:
    """Baseline of the paper: an evidential network. For small graphs only."""
    objective = objectives.ExpectedSquaredError() + prior_weight * objectives.KernelPrior() + objectives.Teacher(ramp)
    return objective, evidential_scorer(uncertainty)


@_method("gpn", "Stadler et al., NeurIPS 2021", backbone="gpn", settings={"dropout": 0.0})
def _gpn(entropy_weight: float = 1e-4, uncertainty: Uncertainty = "aleatoric") -> Parts:
    """Baseline of the paper: density estimates of hidden features, averaged over the graph."""
    objective = objectives.ExpectedCrossEntropy() + entropy_weight * objectives.NegativeEntropy()
    return objective, evidential_scorer(uncertainty)


@_method("gnnsafe", "Wu et al., ICLR 2023", transductive=True, cost=_SHARED)
def _gnnsafe(num_hops: int = NUM_HOPS, eta: float = ETA, prior_nodes: float = PRIOR_NODES) -> Parts:
    """Energy averaged over the graph. For unknown nodes that come in groups."""
    return objectives.CrossEntropy(), _propagated(scoring.Energy(), num_hops, eta, prior_nodes)


@_method("gnnsafe+logitnorm", _LOGIT_NORM, transductive=True)
def _gnnsafe_logit_norm(
    tau: float = _TAU, num_hops: int = NUM_HOPS, eta: float = ETA, prior_nodes: float = PRIOR_NODES
) -> Parts:
    """gnnsafe, trained with normalised logits."""
    return objectives.LogitNorm(tau), _propagated(scoring.Energy(), num_hops, eta, prior_nodes)


@_method("nodesafe", "Yang et al., ICML 2024", transductive=True)
def _nodesafe(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
    prior_nodes: float = PRIOR_NODES,
) -> Parts:
    """The paper's method: gnnsafe, trained to keep energies bounded. For unknown nodes that come in groups."""
    objective = _nodesafe_objective(lambda1, lambda2, start)
    return objective, _propagated(scoring.Energy(centred=True), num_hops, eta, prior_nodes)


@_method("oe", "Hendrycks et al., ICLR 2019", needs_exposure=True)
def _oe(weight: float = 0.5) -> Parts:
    """Baseline with known OOD nodes: the classifier learns to be unsure of them."""
    return objectives.CrossEntropy() + weight * objectives.OutlierExposure(), scoring.MaxSoftmax()


@_method("energy-ft", "Liu et al., NeurIPS 2020", needs_exposure=True)
def _energy_ft(m_in: float | None = _M_IN, m_out: float | None = _M_OUT, alpha: float = _ALPHA) -> Parts:
    """Baseline with known OOD nodes: trained to give them a different energy."""
    return objectives.CrossEntropy() + alpha * objectives.EnergyHinge(m_in, m_out), scoring.Energy()


@_method("gnnsafe++", "Wu et al., ICLR 2023", needs_exposure=True, transductive=True)
def _gnnsafe_pp(
    m_in: float | None = _M_IN,
    m_out: float | None = _M_OUT,
    alpha: float = _ALPHA,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
    prior_nodes: float = PRIOR_NODES,
) -> Parts:
    """gnnsafe, trained with known OOD nodes."""
    hinge = objectives.EnergyHinge(m_in, m_out, num_hops, eta)
    return objectives.CrossEntropy() + alpha * hinge, _propagated(scoring.Energy(), num_hops, eta, prior_nodes)


@_method("gnnsafe+++logitnorm", _LOGIT_NORM, needs_exposure=True, transductive=True)
def _gnnsafe_pp_logit_norm(
    tau: float = _TAU,
    m_in: float | None = _M_IN,
    m_out: float | None = _M_OUT,
    alpha: float = _ALPHA,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
    prior_nodes: float = PRIOR_NODES,
) -> Parts:
    """gnnsafe++, trained with normalised logits."""
    hinge = objectives.EnergyHinge(m_in, m_out, num_hops, eta)
    return objectives.LogitNorm(tau) + alpha * hinge, _propagated(scoring.Energy(), num_hops, eta, prior_nodes)


@_method("nodesafe++", "Yang et al., ICML 2024", needs_exposure=True, transductive=True)
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
) -> Parts:
    """The paper's method, trained with known OOD nodes."""
    objective, _ = _gnnsafe_pp(m_in, m_out, alpha, num_hops, eta)
    scorer = _propagated(scoring.Energy(centred=True), num_hops, eta, prior_nodes)
    return objective + lambda2 * objectives.BoundUniform(lambda1, start=start), scorer


@_method("msp-prop", "Hendrycks and Gimpel, ICLR 2017; Wu et al., ICLR 2023", transductive=True, cost=_SHARED)
def _msp_prop(num_hops: int = NUM_HOPS, eta: float = ETA, prior_nodes: float = PRIOR_NODES) -> Parts:
    """msp averaged over the graph. For unknown nodes that come in groups."""  # noqa: D403, the name of a method
    return objectives.CrossEntropy(), _propagated(scoring.MaxSoftmax(), num_hops, eta, prior_nodes)


@_method(
    "nodesafe-msp",
    "Yang et al., ICML 2024; Hendrycks and Gimpel, ICLR 2017",
    transductive=True,
    cost="one training, shared with nodesafe",
)
def _nodesafe_msp(
    lambda1: float = 0.001,
    lambda2: float = 1.0,
    start: int = 20,
    num_hops: int = NUM_HOPS,
    eta: float = ETA,
    prior_nodes: float = PRIOR_NODES,
) -> Parts:
    """nodesafe, with confidence averaged instead of energy. For unknown nodes that come in groups."""
    return _nodesafe_objective(lambda1, lambda2, start), _propagated(scoring.MaxSoftmax(), num_hops, eta, prior_nodes)


# Chosen as the recommended method before any task of the benchmark was run; see docs/measurements/settings.md.
register_method(
    Recipe(
        "nodesafe-ensemble",
        _nodesafe_msp,
        "Yang et al., ICML 2024; Lakshminarayanan et al., NeurIPS 2017",
        transductive=True,
        settings={"ensemble": 5},
        cost="five trainings",
        summary="The average of five nodesafe-msp networks. For unknown nodes that come in groups.",
    )
)


@_method("evidence", "this library", transductive=True, cost=_ONE_OR_TWO)
def _evidence(power: float = 2.0, num_hops: int = NUM_HOPS, eta: float = ETA) -> Parts:
    """nodesafe-evidence with plain training."""
    return objectives.CrossEntropy(), evidence(power, num_hops, eta)


def _nodesafe_evidence(**kinds: bool) -> Callable[..., Parts]:
    """Evidence on networks that are trained with NODESAFE's loss."""

    def build(
        lambda1: float = 0.001,
        lambda2: float = 1.0,
        start: int = 20,
        power: float = 2.0,
        num_hops: int = NUM_HOPS,
        eta: float = ETA,
    ) -> Parts:
        return _nodesafe_objective(lambda1, lambda2, start), evidence(power, num_hops, eta, **kinds)

    return build


for _name, _kinds, _summary in (
    (
        "nodesafe-evidence",
        {},
        "Start here: the default of oddnode fit. Weighs several kinds of evidence and says why. For new nodes in a "
        "known graph, alone or in groups.",
    ),
    (
        "nodesafe-evidence-alone",
        {"uses_batch": False},
        "nodesafe-evidence that judges every node alone: no score depends on the other new nodes.",
    ),
    (
        "nodesafe-evidence++",
        {"learns_weights": True},
        "Start here if you have known OOD nodes: the default of oddnode fit with exposure.",
    ),
):
    register_method(
        Recipe(
            _name,
            _nodesafe_evidence(**_kinds),
            "this library; Yang et al., ICML 2024",
            needs_exposure="learns_weights" in _kinds,
            transductive=True,
            cost=_ONE_OR_TWO,
            summary=_summary,
        )
    )


@_method(
    "evidence-unlabelled",
    "this library",
    needs_labels=False,
    transductive=True,
    cost="no training",
    backbone="mlp",
    settings={"hidden_channels": 1, "dropout": 0.0, "epochs": 1},
)
def _evidence_unlabelled(power: float = 2.0, num_hops: int = NUM_HOPS, eta: float = ETA) -> Parts:
    """Start here if you have no labels: the default of oddnode fit without a label column. Weighs evidence from edges
    and features, and says why.
    """
    kinds = [kind for kind in _weighted_kinds(num_hops, eta) if not kind.scorer.uses_network]
    scorers, new, elsewhere, seen = zip(*kinds, strict=True)
    scorer = scoring.Evidence(scorers, power, new, elsewhere, seen, rehearses=True, uses_batch=True)
    return objectives.CrossEntropy(), scorer


@_method("adadetect", "Marandon et al., 2022", transductive=True)
def _adadetect() -> Parts:
    """Baseline: a classifier of old against new nodes. Says nothing of fewer than 100 new nodes."""
    scorer = scoring.Evidence((scoring.MaxSoftmax(),), weights=(0.0,), uses_batch=True)
    return objectives.CrossEntropy(), scorer


@_method("knn", "Sun et al., ICML 2022", cost=_SHARED)
def _knn(k: int = _K) -> Parts:
    """Baseline: how far a node's hidden features are from the nearest training node. For single odd nodes."""
    return objectives.CrossEntropy(), scoring.KNN(k)


@_method("grasp", "Ma et al., NeurIPS 2024", transductive=True, cost=_SHARED)
def _grasp(num_hops: int = 8, share: float = 0.05) -> Parts:
    """Baseline: msp averaged over the graph with added edges. The scored graph must contain labelled nodes."""
    return objectives.CrossEntropy(), scoring.GRASP(scoring.MaxSoftmax(), num_hops, share)


@_method("gebm", "Fuchsgruber et al., NeurIPS 2024", transductive=True, cost=_SHARED)
def _gebm(weight: float = 1.0, num_hops: int = 10, alpha: float = 0.5) -> Parts:
    """Energies of a node, of its neighbourhood and around it, from a classifier that sees no edges."""
    return objectives.CrossEntropy(), scoring.GEBM(weight, num_hops, alpha)


@_method("oodgat", "Song and Wang, KDD 2022", backbone="oodgat", settings={"hidden_channels": 16, "weight_decay": 5e-4})
def _oodgat(consistency: float = 2.0, uniform: float = 0.05, agreement: float = 0.005, margin: float = 0.6) -> Parts:
    """Attention that tells unknown nodes apart. For unlabelled unknown nodes in the training graph."""
    objective = objectives.KnownCrossEntropy() + consistency * objectives.EntropyConsistency()
    objective = objective + uniform * objectives.UniformWhereUnknown(margin)
    return objective + agreement * objectives.LayerAgreement(), scoring.Energy()


@_method("gold", "after Wang et al., ICLR 2025", transductive=True)
def _gold(weight: float = _GOLD, num_hops: int = NUM_HOPS, eta: float = ETA, prior_nodes: float = PRIOR_NODES) -> Parts:
    """gnnsafe, trained with synthetic OOD nodes. For unknown nodes that come in groups."""
    objective = objectives.CrossEntropy() + weight * objectives.SyntheticExposure()
    return objective, _propagated(scoring.Energy(), num_hops, eta, prior_nodes)


def _model_free(name: str, scorer: str, what: str) -> str:
    def build() -> Parts:
        return objectives.CrossEntropy(), getattr(scoring, scorer)()

    summary = f"{what}. A method that does not beat it has learnt nothing."
    register_method(Recipe(name, build, "a baseline without a model", cost="no model", summary=summary))
    return name


#: The model-free scores, printed below every table: a method that loses to them has learnt nothing. They use the graph
#: only; their network provides the ID accuracy of the tables.
MODEL_FREE = (
    _model_free("nonzeros", "NonZeros", "How many features are not zero"),
    _model_free("degree", "Degree", "How many edges a node has"),
    _model_free("neighbour-cosine", "NeighbourCosine", "How similar a node is to its neighbours"),
    _model_free("centred-cosine", "CentredCosine", "The same, with the mean subtracted"),
)


def default_method(has_exposure: bool, has_labels: bool = True) -> str:
    """Name the method that tables are fitted with if the user chooses none.

    Parameters
    ----------
    has_exposure : bool
        Whether there are known OOD nodes to learn from.
    has_labels : bool
        Whether there are labels to learn from.
    """
    if not has_labels:
        return "evidence-unlabelled"
    return "nodesafe-evidence++" if has_exposure else "nodesafe-evidence"
