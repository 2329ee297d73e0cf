"""What each kind of evidence finds about a node: the facts that `oddnode.Scorer.reason` puts into words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from oddnode._utils.lazy import cached_property
from oddnode.graph import Graph
from oddnode.scoring.outputs import Outputs

if TYPE_CHECKING:
    from oddnode.scoring.base import Scorer


class Comparison(NamedTuple):
    """All nodes compared with the reference nodes by K kinds of evidence, for one network."""

    scorers: tuple[Scorer, ...]  #: The fitted scorer of every kind.
    outputs: Outputs  #: The network's outputs.
    scores: Tensor  #: The scores of all nodes ``[N, K]``.
    reference: Tensor  #: The scores of the reference nodes ``[r, K]``.
    surprises: Tensor  #: Minus the logarithms of the p-values ``[N, K]``.
    contributions: Tensor  #: What every kind adds to the evidence against a node ``[N, K]``.


class View(NamedTuple):
    """One node by one kind of evidence and one network."""

    scorer: Any  #: The fitted scorer.
    outputs: Outputs  #: The network's outputs.
    score: float  #: The node's score.
    known: Tensor  #: The scores of the reference nodes ``[r]``.


@dataclass(frozen=True)
class Names:
    """Names of nodes and classes in sentences."""

    nodes: Sequence[object] | None = None  #: A name for each of the N nodes; by default their numbers.
    classes: Sequence[object] | None = None  #: A name for each of the C classes; by default their numbers.
    features: Sequence[object] | None = None  #: A name for each of the F features; by default their numbers.

    def of_nodes(self, nodes: Sequence[int], most: int = 3) -> str:
        """List nodes by name, as in "n014, n077".

        Parameters
        ----------
        nodes : sequence of int
            Their indices.
        most : int
            How many to name; the others are counted.
        """
        shown = [node if self.nodes is None else self.nodes[node] for node in nodes[:most]]
        listed = ", ".join(map(str, shown)) + (f" and {len(nodes) - most} more" if len(nodes) > most else "")
        return listed if self.nodes is not None else f"{'node' if len(nodes) == 1 else 'nodes'} {listed}"

    def of_class(self, number: int) -> str:
        """Name a class.

        Parameters
        ----------
        number : int
            The class.
        """
        return f"class {number}" if self.classes is None else str(self.classes[number])

    def of_difference(self, kind: str, number: int, is_more: bool) -> str:
        """Name a difference, as in "more of `price`" or "fewer links to kitchen".

        Parameters
        ----------
        kind, number
            As in `oddnode.BatchDifference`.
        is_more : bool
            Whether there is more of it.
        """
        if kind == "feature":
            name = f"feature {number}" if self.features is None else f"`{self.features[number]}`"
            return f"{'more' if is_more else 'less'} of {name}"
        what = {"class": f"links to {self.of_class(number)}", "edges": "links", "features": "features that are not 0"}
        return f"{'more' if is_more else 'fewer'} {what[kind]}"


@dataclass(frozen=True, eq=False)
class Finding:
    """What one kind of evidence finds about one node."""

    kind: str  #: The kind of evidence, `oddnode.Scorer.kind`.
    node: int  #: The node.
    outputs: Outputs  #: The outputs of the network, or of the ensemble.
    views: tuple[View, ...]  #: The node as each network sees it.
    names: Names = field(default_factory=Names)  #: Names of nodes and classes.
    around: bool = False  #: Whether the scores are averages over the node's neighbourhood.

    @property
    def value(self) -> float:
        """The node's score, the mean over the networks."""
        return sum(view.score for view in self.views) / len(self.views)

    @cached_property
    def median(self) -> float:
        """The median score of the reference nodes, the mean over the networks."""
        return sum(float(view.known.quantile(0.5)) for view in self.views) / len(self.views)

    @property
    def is_high(self) -> bool:
        """Whether the score is unusually high, not unusually low."""
        return self.value > self.median

    @property
    def share(self) -> float:
        """The share of the reference nodes whose scores are on the other side: higher than a low score, or lower."""
        sign = -1.0 if self.is_high else 1.0
        shares = [float((sign * view.known > sign * view.score).double().mean()) for view in self.views]
        return sum(shares) / len(shares)

    def known_range(self, share: float = 0.95) -> tuple[float, float]:
        """The range of the reference nodes' scores, after dropping an equal number at both ends.

        Parameters
        ----------
        share : float
            At least this share of the reference nodes is within the range.
        """
        known = torch.cat([view.known for view in self.views]).sort().values
        left_out = int((1.0 - share) / 2 * len(known))
        return float(known[left_out]), float(known[-1 - left_out])

    def inside(self, around: bool = False) -> Finding:
        """The same finding for the scorer inside a wrapper.

        Parameters
        ----------
        around : bool
            Whether the wrapper averages over a node's neighbourhood.
        """
        views = tuple(view._replace(scorer=view.scorer.scorer) for view in self.views)
        return replace(self, views=views, around=around or self.around)

    @cached_property
    def links(self) -> Tensor:
        """The distinct edges ``[2, e]`` to the node, or to its neighbours if `around`; without self-loops."""
        neighbours = _neighbours(self.outputs.graph, self.node)
        if not self.around:
            return torch.stack([neighbours, torch.full_like(neighbours, self.node)])
        ends = [(_neighbours(self.outputs.graph, node), node) for node in neighbours.tolist()]
        found = [torch.stack([sources, torch.full_like(sources, node)]) for sources, node in ends]
        return torch.cat(found, dim=1) if found else neighbours.new_zeros(2, 0)

    def by_most(self, judge: Callable[[View], Tensor]) -> Tensor:
        """The majority vote of the networks, booleans ``[n]``.

        Parameters
        ----------
        judge : callable
            The booleans ``[n]`` of a network.
        """
        return torch.stack([judge(view) for view in self.views]).double().mean(dim=0) > 0.5


def _neighbours(graph: Graph, node: int) -> Tensor:
    """The sources of the edges that lead to a node, each once and without the node itself, ascending."""
    sources = graph.edges_to(torch.tensor([node], device=graph.device))[0].unique()
    return sources[sources != node]
