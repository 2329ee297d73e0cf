"""What training minimises: the contract of a term, and sums of terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from oddnode.functional import Isolated, losses, negative_energy, propagate_to
from oddnode.graph import Graph, TrainingSet

__all__ = ["Objective", "Pass", "Sum", "Term", "Train", "validation_loss"]


#: Trains a module on data: ``train(module, objective, data, epochs=..., lr=..., weight_decay=...)``.
Train = Callable[..., object]


@dataclass
class Pass:
    """One forward pass in training: logits of all nodes of the ID graph and, with exposure, of the exposure graph.

    ``train`` and ``exposed`` are the positions of the labelled ID nodes and of the known OOD nodes. The first
    ``num_classes`` logits are the ID classes; any after them are spare. Objectives that need hidden features find those
    of the ID graph in ``hidden``, and in ``head`` the map from hidden features of lone nodes to logits.

    Where no term asks for all logits (`Objective.needs_all_logits`), ``logits`` holds those of the labelled nodes and
    ``exposure_logits`` those of the exposed nodes alone; ``train`` and ``exposed`` are then positions among these.
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
        """Whether known OOD nodes take part."""
        return self.exposure_logits is not None

    def energies(self, hops: int, eta: float, isolated: Isolated) -> tuple[Tensor, Tensor]:
        """Energies of the labelled and of the exposed nodes, propagated over their own graphs."""
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


def validation_loss(view: Pass) -> Tensor:
    """What an epoch is judged by, lower = better; ``view`` is a pass whose labelled nodes are the validation nodes."""
    return losses.cross_entropy(view.train_logits, view.y)


class Objective:
    """Anything that turns a `Pass` into a loss; objectives add up and take weights."""

    @property
    def needs_exposure(self) -> bool:
        """Whether known OOD nodes are needed."""
        return False

    @property
    def needs_hidden(self) -> bool:
        """Whether hidden features are needed."""
        return False

    @property
    def needs_all_logits(self) -> bool:
        """Whether the loss looks at other nodes than the labelled and the exposed ones; computing those costs time."""
        return True

    @property
    def is_pure(self) -> bool:
        """Whether the loss is the same function of the logits in every epoch (but for ``start``), nothing random.

        Only such losses can be recorded once and replayed on a GPU, and computed for several networks at once.
        """
        return False

    @property
    def starts(self) -> frozenset[int]:
        """Epochs with which the loss changes, because a term begins to count."""
        return frozenset()

    def __call__(self, step: Pass) -> Tensor:
        """The loss of one forward pass."""
        raise TypeError(f"{type(self).__name__} does not define a loss")

    def prepare(self, data: TrainingSet, train: Train) -> Objective:
        """The objective with whatever it computes once per training; called before the first step."""
        return self

    def __add__(self, other: Objective) -> Sum:
        return Sum((*_parts(self), *_parts(other)))

    def __rmul__(self, weight: float) -> Sum:
        return Sum(tuple((weight * w, term) for w, term in _parts(self)))

    __mul__ = __rmul__


@dataclass(frozen=True, repr=False)
class Sum(Objective):
    """A weighted sum of terms."""

    parts: tuple[tuple[float, Term], ...]

    @property
    def needs_exposure(self) -> bool:
        """Whether any term needs known OOD nodes."""
        return any(term.needs_exposure for _, term in self.parts)

    @property
    def needs_hidden(self) -> bool:
        """Whether any term needs hidden features."""
        return any(term.needs_hidden for _, term in self.parts)

    @property
    def needs_all_logits(self) -> bool:
        """Whether any term looks at other nodes than the labelled and the exposed ones."""
        return any(term.needs_all_logits for _, term in self.parts)

    @property
    def is_pure(self) -> bool:
        """Whether all terms are."""
        return all(term.is_pure for _, term in self.parts)

    @property
    def starts(self) -> frozenset[int]:
        """When its terms begin to count."""
        return frozenset(term.start for _, term in self.parts)

    def prepare(self, data: TrainingSet, train: Train) -> Sum:
        return Sum(tuple((weight, term.prepare(data, train)) for weight, term in self.parts))

    def __call__(self, step: Pass) -> Tensor:
        losses = [
            weight * term(step) if weight != 1 else term(step) for weight, term in self.parts if term.active(step)
        ]
        # A sum of which nothing has started yet still has a gradient.
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
    """One loss. ``start`` is the number of epochs that pass before it counts."""

    start: int = field(default=0, kw_only=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A loss of its own may do anything, whatever the term it derives from does.
        for name, careful in (("needs_all_logits", True), ("is_pure", False)):
            if "__call__" in cls.__dict__ and name not in cls.__dict__:
                setattr(cls, name, careful)

    def prepare(self, data: TrainingSet, train: Train) -> Term:
        return self

    def active(self, step: Pass) -> bool:
        """Whether the term counts in this epoch."""
        return step.epoch >= self.start

    def __repr__(self) -> str:
        shown = sorted(fields(self), key=lambda f: bool(f.kw_only))
        shown = [f for f in shown if not (f.kw_only and getattr(self, f.name) == f.default)]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"
