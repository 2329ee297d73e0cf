"""The base class of scorers."""

from __future__ import annotations

import copy
import re
from typing import Any

from torch import Tensor

from oddnode.scoring import reasons
from oddnode.scoring.findings import Comparison, Finding
from oddnode.scoring.outputs import Outputs

__all__ = ["Scorer"]


class Scorer:
    """Base of all scorers: a dataclass whose fields are its settings, with a method ``score``.

    A scorer describes itself, so that no other code depends on its class: how it uses neighbours (`own_score`,
    `num_hops_used`, `limited_to`), what it needs (`needs_raw_logits`, `needs_labelled_nodes`, `needs_reference`,
    `needs_exposure`, `learns_from_training_graph`), whether high scores are unusual too (`two_sided`), and what it has
    found (`kind`, `reason`). The defaults suit a scorer that neither propagates nor learns.

    A scorer that learns overrides `fit`. It stores tensors, numbers or texts in attributes whose names end in ``_``;
    they are saved with a detector. To declare them, exclude them from the settings:
    ``mean_: Tensor = field(init=False, repr=False, compare=False)``.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A subclass with its own score does not inherit the promises of its base class.
        for name in ("is_row_wise", "supports_folders"):
            if "score" in cls.__dict__ and name not in cls.__dict__:
                setattr(cls, name, getattr(Scorer, name))

    def __repr__(self) -> str:
        settings = (f"{name}={value!r}" for name, value in vars(self).items() if not name.endswith("_"))
        return f"{type(self).__name__}({', '.join(settings)})"

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Scorer:
        """Learn from the training graph.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on the training graph of N nodes.
        train : Tensor
            Positions of the labelled training nodes ``[n]``.
        y : Tensor
            Their classes ``[n]``.

        Returns
        -------
        Scorer
            A fitted copy; the scorer itself is unchanged.
        """
        return copy.copy(self)

    def score(self, outputs: Outputs) -> Tensor:
        """Score every node of a graph.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.

        Returns
        -------
        Tensor
            Scores ``[N]``, higher = more in-distribution.
        """
        raise TypeError(f"{type(self).__name__} does not define a score")

    def score_at(self, outputs: Outputs, nodes: Tensor) -> Tensor:
        """Score some nodes of a graph.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        nodes : Tensor
            Positions ``[n]``.

        Returns
        -------
        Tensor
            Scores ``[n]``.
        """
        return outputs.scores_of(self)[nodes]

    def own_score(self, outputs: Outputs) -> Tensor:
        """Score every node without the scores of its neighbours.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.

        Returns
        -------
        Tensor
            Scores ``[N]``; the same as `score` unless the scorer propagates.
        """
        return outputs.scores_of(self)

    @property
    def is_row_wise(self) -> bool:
        """Whether a node's score follows from its own logits, hidden features and features.

        Such a score can be computed for some nodes at a time, and so on graphs of any size.
        """
        return False

    @property
    def supports_folders(self) -> bool:
        """Whether it can score graphs on disk (`oddnode.large`): it reads no ``edge_index`` and needs little memory."""
        return self.is_row_wise

    def propagated_score(self, outputs: Outputs) -> Tensor:
        """Score every node ``[N]`` as `score` does, but without a prior, which is no word of the network.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        """
        return outputs.scores_of(self)

    @property
    def num_hops_used(self) -> int:
        """Number of hops over which scores are propagated; 0 for a scorer that does not propagate."""
        return 0

    def limited_to(self, num_hops: int) -> Scorer:
        """Limit the propagation.

        Parameters
        ----------
        num_hops : int
            The maximum number of hops, 0 or more.

        Returns
        -------
        Scorer
            A copy whose `num_hops_used` is at most ``num_hops``.
        """
        return copy.copy(self)

    @property
    def supports_export(self) -> bool:
        """Whether `torch.export` can trace `score`: no operation and no shape depends on numbers."""
        return False

    @property
    def needs_raw_logits(self) -> bool:
        """Whether log-probabilities instead of logits would give every node the same score, as with energies."""
        return False

    @property
    def needs_labelled_nodes(self) -> bool:
        """Whether the scored graph should have labelled nodes (``train_mask``, ``val_mask``) as anchors."""
        return False

    def fit_reference(self, outputs: Outputs) -> Scorer:
        """Learn from the reference nodes, after `fit`.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on the training graph with the reference nodes in it; ``outputs.reference`` has their
            positions.

        Returns
        -------
        Scorer
            A fitted copy; the same scorer unless it `needs_reference`.
        """
        return self

    def fit_exposure(self, known: Outputs, nodes: Tensor, exposure: Outputs, exposed: Tensor) -> Scorer:
        """Learn from nodes that are known to be OOD, after `fit_reference`.

        Only scorers that `needs_reference` are fitted so.

        Parameters
        ----------
        known : Outputs
            The network's outputs on the training graph without the reference nodes.
        nodes : Tensor
            Positions ``[n]`` of known nodes in it that the network was not trained on.
        exposure : Outputs
            The network's outputs on the exposure graph.
        exposed : Tensor
            Positions ``[m]`` of the nodes in it that are known to be OOD.

        Returns
        -------
        Scorer
            A fitted copy; the same scorer unless it `needs_exposure`.
        """
        return self

    @property
    def needs_exposure(self) -> bool:
        """Whether it learns from nodes that are known to be OOD."""
        return False

    def informativeness(self, outputs: Outputs) -> float:
        """Measure how much the scores carry on the training graph, so that a combination can weigh them.

        Parameters
        ----------
        outputs : Outputs
            As for `fit_reference`.

        Returns
        -------
        float
            From 0 (nothing: the scores are noise on this graph) to 1, the default.
        """
        return 1.0

    @property
    def needs_reference(self) -> bool:
        """Whether it compares nodes with reference nodes: labelled nodes that nothing was learnt from."""
        return False

    @property
    def two_sided(self) -> bool:
        """Whether unusually high scores are evidence against a node, too."""
        return False

    @property
    def kind(self) -> str:
        """A short name for what its scores tell; by default the name of the class in words."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__).lower()

    def reason(self, found: Finding) -> str:
        """Say in a sentence why a node's score is unusual.

        Parameters
        ----------
        found : Finding
            The node's score, those of known nodes, and the graph.
        """
        return reasons.general(found)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of evidence that it combines, with different names; none by default."""
        return ()

    def comparisons(self, outputs: Outputs) -> list[Comparison]:
        """Compare every node with reference nodes by each of `kinds`.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.

        Returns
        -------
        list of Comparison
            One for each network; empty if there are no `kinds`.
        """
        return []

    @property
    def learns_from_training_graph(self) -> bool:
        """Whether `fit` reads the training graph; by default, whether the class overrides `fit`."""
        return type(self).fit is not Scorer.fit
