"""The contract of objectives, which training minimises: terms and their weighted sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from oddnode.functional import Isolated, losses, negative_energy, propagate_to
from oddnode.graph import Graph, TrainingSet

#: Trains a module on data: ``train(module, objective, data, epochs=..., lr=..., weight_decay=...)``.
Train = Callable[..., object]


@dataclass
class TrainingPass:
    """One forward pass in training: logits of the ID graph and, with exposure, of the exposure graph.

    If no term needs all logits (`Objective.needs_all_logits`), ``logits`` has only those of the labelled nodes and
    ``exposure_logits`` only those of the exposed nodes; ``train`` and ``exposed`` are then indices into these.

    Parameters
    ----------
    epoch : int
        Number of previous steps.
    num_classes : int
        Number of ID classes, whose logits come first; any others are spare.
    graph : Graph
        The ID graph.
    logits : Tensor
        Its logits, ``[N, C]``.
    train : Tensor
        Indices ``[n]`` of the labelled nodes among the logits.
    y : Tensor
        Their classes, ``[n]``.
    exposure_graph : Graph, optional
        The exposure graph.
    exposure_logits : Tensor, optional
        Its logits, ``[M, C]``.
    exposed : Tensor, optional
        Indices ``[m]`` of the known OOD nodes among them.
    hidden : Tensor, optional
        Hidden features ``[N, H]`` of the ID graph, for objectives that need them.
    head : callable, optional
        Maps hidden features of isolated nodes to their logits, for objectives that need hidden features.
    has_all_logits : bool
        Whether the logits are those of all nodes.
    """

    epoch: int
    num_classes: int
    graph: Graph
    logits: Tensor
    train: Tensor
    y: Tensor
    exposure_graph: Graph | None = None
    exposure_logits: Tensor | None = None
    exposed: Tensor | None = None
    hidden: Tensor | None = None
    head: Callable[[Tensor], Tensor] | None = None
    has_all_logits: bool = True

    @property
    def train_logits(self) -> Tensor:
        """Logits of the labelled nodes."""
        return self.logits[self.train] if self.has_all_logits else self.logits

    @property
    def exposed_logits(self) -> Tensor:
        """Logits of the known OOD nodes."""
        assert self.exposure_logits is not None
        return self.exposure_logits[self.exposed] if self.has_all_logits else self.exposure_logits

    @property
    def has_exposure(self) -> bool:
        """Whether there are known OOD nodes."""
        return self.exposure_logits is not None

    def energies(self, hops: int, eta: float, isolated: Isolated) -> tuple[Tensor, Tensor]:
        """Compute energies of the labelled ``[n]`` and of the exposed nodes ``[m]``, propagated over their own graphs.

        Parameters
        ----------
        hops : int
            Number of hops; 0 for no propagation.
        eta : float
            Share of its own energy that a node keeps in every hop.
        isolated : {"keep", "shrink"}
            How a node without incoming edges is treated; see `oddnode.functional.energy.propagate`.
        """
        assert self.exposure_graph is not None
        assert self.exposure_logits is not None
        if not hops:
            logits = self.train_logits, self.exposed_logits
            inside, outside = (-negative_energy(z[:, : self.num_classes]) for z in logits)
            return inside, outside
        inside = negative_energy(self.logits[:, : self.num_classes])
        outside = negative_energy(self.exposure_logits[:, : self.num_classes])
        inside = propagate_to(inside, self.graph.random_walk, self.train, hops, eta, isolated)
        outside = propagate_to(outside, self.exposure_graph.random_walk, self.exposed, hops, eta, isolated)
        return -inside, -outside


def validation_loss(view: TrainingPass) -> Tensor:
    """Compute the loss by which the best epoch is chosen: the cross-entropy of the validation nodes.

    Parameters
    ----------
    view : TrainingPass
        A pass whose labelled nodes are the validation nodes.
    """
    return losses.cross_entropy(view.train_logits, view.y)


class Objective:
    """A map from a `TrainingPass` to a loss; objectives can be added and weighted."""

    #: Whether known OOD nodes are needed.
    needs_exposure = False
    #: Whether hidden features are needed.
    needs_hidden = False
    #: Whether the loss reads logits of nodes other than the labelled and the exposed ones, which is slower.
    needs_all_logits = True
    #: Whether the loss may be captured in a CUDA graph, and run under `torch.vmap` for stacked networks. This requires
    #: the same sequence of tensor operations in every epoch (apart from ``start``): the loss draws no random numbers,
    #: reads neither ``step.epoch`` nor ``step.hidden``, and no shape or Python branch depends on the values of a tensor
    #: (``item()``, boolean masks). If a loss claims this wrongly, it is computed eagerly and one network at a time,
    #: where the mistake raises its own error.
    supports_capture = False
    #: The epochs in which a term takes effect, so that the loss changes.
    starts: frozenset[int] = frozenset()

    def __call__(self, step: TrainingPass) -> Tensor:
        """Compute the loss of one forward pass."""
        raise TypeError(f"{type(self).__name__} does not define a loss")

    def prepare(self, data: TrainingSet, train: Train) -> Objective:
        """Compute what is constant during training, before the first step; returns this objective or a copy with it.

        Parameters
        ----------
        data : TrainingSet
            The training data.
        train : callable
            Trains another module, such as a teacher; see `oddnode.training.train`.
        """
        return self

    def __add__(self, other: Objective) -> Sum:
        return Sum((*_parts(self), *_parts(other)))

    def __rmul__(self, weight: float) -> Sum:
        return Sum(tuple((weight * w, term) for w, term in _parts(self)))

    __mul__ = __rmul__


@dataclass(frozen=True, repr=False)
class Sum(Objective):
    """A weighted sum of terms.

    Parameters
    ----------
    parts : tuple of tuple of float and Term
        The terms with their weights.
    """

    parts: tuple[tuple[float, Term], ...]

    def __post_init__(self) -> None:
        # It needs what any of its terms needs, and supports what all of them do.
        facts = vars(self)
        for name in ("needs_exposure", "needs_hidden", "needs_all_logits"):
            facts[name] = any(getattr(term, name) for _, term in self.parts)
        facts["supports_capture"] = all(term.supports_capture for _, term in self.parts)
        facts["starts"] = frozenset(term.start for _, term in self.parts)

    def prepare(self, data: TrainingSet, train: Train) -> Sum:
        return Sum(tuple((weight, term.prepare(data, train)) for weight, term in self.parts))

    def __call__(self, step: TrainingPass) -> Tensor:
        losses = [
            weight * term(step) if weight != 1 else term(step) for weight, term in self.parts if term.active(step)
        ]
        # Before any term takes effect, the loss is zero but still has a gradient.
        return sum(losses[1:], start=losses[0]) if losses else 0.0 * step.logits.sum()

    def __repr__(self) -> str:
        return " + ".join(f"{term!r}" if w == 1 else f"{w:g} * {term!r}" for w, term in self.parts)


def _parts(objective: Objective) -> tuple[tuple[float, Term], ...]:
    if isinstance(objective, Sum):
        return objective.parts
    if isinstance(objective, Term):
        return ((1.0, objective),)
    raise TypeError(f"{objective!r} is not an objective; use terms like CrossEntropy() + 5 * BoundUniform()")


@dataclass(frozen=True, repr=False)
class Term(Objective):
    """One loss.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    start: int = field(default=0, kw_only=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A subclass with its own loss inherits no promises: with too few logits, or replayed from a CUDA graph, it
        # would train on wrong numbers, and nothing would fail.
        for name, careful in (("needs_all_logits", True), ("supports_capture", False)):
            if "__call__" in cls.__dict__ and name not in cls.__dict__:
                setattr(cls, name, careful)

    def prepare(self, data: TrainingSet, train: Train) -> Term:
        return self

    def active(self, step: TrainingPass) -> bool:
        """Whether the term has taken effect.

        Parameters
        ----------
        step : TrainingPass
            A pass of the current epoch.
        """
        return step.epoch >= self.start

    def __repr__(self) -> str:
        settings, others = [], []
        for each in fields(self):
            value = getattr(self, each.name)
            if not each.kw_only:
                settings.append(f"{each.name}={value!r}")
            elif value != each.default:
                others.append(f"{each.name}={value!r}")
        return f"{type(self).__name__}({', '.join(settings + others)})"
