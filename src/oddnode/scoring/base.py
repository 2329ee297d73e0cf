"""The interface of scorers, with defaults that suit a scorer which neither propagates nor learns."""

from __future__ import annotations

import copy
import re
from typing import Any

from torch import Tensor

from oddnode.scoring.findings import Comparison, Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import share_of_known


class ScorerDefaults:
    """The part of the interface that only combinations of scorers override; see `Scorer` to write a scorer."""

    #: Whether `torch.export` can trace `score`: no operation and no shape depends on values.
    supports_export = False
    #: Whether the scored graph should have labelled nodes (``train_mask``, ``val_mask``) as anchors.
    needs_labelled_nodes = False
    #: Whether a node's score follows from its neighbourhood and from what was learnt, not from the rest of the scored
    #: graph; other scorers cannot score nodes as they arrive (`oddnode.online`).
    is_local = True
    #: Whether scores depend on the network; a scorer that does not use it needs no labels.
    uses_network = True
    #: Whether all networks can share it, because neither its scores nor what it learns depend on the network. It then
    #: learns from the training graph without the reference nodes of any network.
    is_shared = False
    #: Whether nodes of the training graph score otherwise than new ones because they are known, so that nothing can be
    #: learnt from comparing the two.
    tells_members = False
    #: Whether it compares nodes with reference nodes: labelled nodes that nothing was learnt from.
    needs_reference = False
    #: Whether it learns from nodes that are known to be OOD.
    needs_exposure = False
    #: The kinds of evidence that it combines, with different names.
    kinds: tuple[str, ...] = ()

    def fit_reference(self, outputs: Outputs) -> Any:
        """Learn from the reference nodes of the training graph, ``outputs.reference``, after `fit`: a fitted copy."""
        return self

    def fit_together(self, scorers: Any, outputs: Any) -> Any:
        """Learn what the scorers of all networks learn together, after `fit_reference`: a list of fitted copies."""
        return list(scorers)

    def fit_scores(self, outputs: Outputs) -> Any:
        """Learn from its own scores of the training graph, last of all: a fitted copy."""
        return self

    def rehearsing_without(self, names: Any) -> Any:
        """A copy that leaves some alterations out of its rehearsal."""
        return self

    def expecting_drift(self) -> Any:
        """A copy that uses what new nodes have in common only if most of them look known."""
        return self

    @property
    def forecast(self) -> dict[str, float]:
        """The share of altered known nodes that would be flagged at 5 %, by alteration; empty without a rehearsal."""
        return {}

    def notes(self, outputs: Outputs) -> list[str]:
        """Messages about how the nodes of a graph were scored."""
        return []

    def sees_drift(self, outputs: Outputs) -> bool:
        """Whether the new nodes of a graph as a whole differ from the known ones, so that they are judged alone."""
        return False

    def fit_exposure(self, known: Outputs, nodes: Tensor, exposure: Outputs, exposed: Tensor) -> Any:
        """Learn from nodes that are known to be OOD, after `fit_reference`, for scorers that need them: a fitted copy.

        ``nodes`` are held-out known nodes of the training graph without its reference nodes (``known``); ``exposed``
        are nodes of the exposure graph that are known to be OOD.
        """
        return self

    def score_at(self: Any, outputs: Outputs, nodes: Tensor) -> Tensor:
        """Score some nodes of a graph, ``[n]``."""
        return outputs.scores_of(self)[nodes]

    def propagated_score(self: Any, outputs: Outputs) -> Tensor:
        """Score every node ``[N]`` as `score` does, but before shrinkage towards a prior."""
        return outputs.scores_of(self)

    def limited_to(self, num_hops: int) -> Any:
        """A copy whose `num_hops_used` is at most ``num_hops``."""
        return copy.copy(self)

    def reading(self, counts: tuple[bool, ...], numbers: tuple[bool, ...]) -> Any:
        """A copy for features of which some ``[F]`` are counts, and some numbers of any kind, in the user's table."""
        return copy.copy(self)

    def informativeness(self, outputs: Outputs) -> float:
        """How informative the scores are on the training graph, from 0 (noise) to 1; combinations weight them by it."""
        return 1.0

    def comparisons(self, outputs: Outputs) -> list[Comparison]:
        """Compare every node with reference nodes by each of `kinds`, for each network."""
        return []

    @property
    def learns_from_training_graph(self: Any) -> bool:
        """Whether `fit` reads the training graph; by default, whether the class overrides `fit`."""
        return type(self).fit is not Scorer.fit


class Scorer(ScorerDefaults):
    """Base of all scorers: a dataclass whose fields are its settings, with a method `score`.

    A scorer that learns overrides `fit`. It stores tensors, numbers or strings in attributes whose names end in ``_``;
    they are saved with a detector. To declare them, exclude them from the settings:
    ``mean_: Tensor = field(init=False, repr=False, compare=False)``.

    Everything else describes the scorer, so that no other code depends on its class, and has a default: what it needs
    and supports (class attributes such as ``is_row_wise = True``), how it uses neighbours (`own_score`,
    `num_hops_used`), and how it explains itself (`kind`, `reason`). What only combinations of scorers override is in
    `ScorerDefaults`.
    """

    #: Whether a node's score follows from its own logits, hidden features and features. Such a score can be computed
    #: for some nodes at a time, and so on graphs of any size.
    is_row_wise = False
    #: Whether log-probabilities instead of logits would give every node the same score, as with energies.
    needs_raw_logits = False
    #: Whether unusually high scores are evidence against a node, too.
    two_sided = False
    #: Number of hops over which scores are propagated; 0 for a scorer that does not propagate.
    num_hops_used = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A subclass that overrides `score` does not inherit promises about that of its base class: the scores would be
        # computed for some rows at a time, on disk, or once for all networks, and be silently wrong.
        for name in ("is_row_wise", "supports_folders", "is_shared"):
            if "score" in cls.__dict__ and name not in cls.__dict__:
                setattr(cls, name, getattr(Scorer, name))

    def __repr__(self) -> str:
        settings = (f"{name}={value!r}" for name, value in vars(self).items() if not name.endswith("_"))
        return f"{type(self).__name__}({', '.join(settings)})"

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Scorer:
        """Learn from the training graph; returns a fitted copy, and leaves the scorer itself unchanged.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on the training graph of N nodes.
        train : Tensor
            Indices of the labelled training nodes ``[n]``.
        y : Tensor
            Their classes ``[n]``.
        """
        return copy.copy(self)

    def score(self, outputs: Outputs) -> Tensor:
        """Score every node of a graph ``[N]``, higher = more in-distribution.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        """
        raise TypeError(f"{type(self).__name__} does not define score(outputs)")

    def own_score(self, outputs: Outputs) -> Tensor:
        """Score every node ``[N]`` without the scores of its neighbours: as `score` does, unless it propagates.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        """
        return outputs.scores_of(self)

    @property
    def supports_folders(self) -> bool:
        """Whether it can score graphs on disk (`oddnode.large`): it reads no ``edge_index`` and needs little memory."""
        return self.is_row_wise

    @property
    def kind(self) -> str:
        """A short name for what it measures; by default the name of the class in words."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__).lower()

    def reason(self, found: Finding) -> str:
        """Say in a sentence why a node's score is unusual.

        Parameters
        ----------
        found : Finding
            The node's score, those of known nodes, and the graph.
        """
        side = "higher" if found.is_high else "lower"
        return f"Its score by {found.kind} ({found.value:.3g}) is {side} than that of {share_of_known(found.share)}."
