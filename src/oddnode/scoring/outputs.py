"""A trained network's outputs on a graph, computed once for all scorers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from oddnode._utils.lazy import cached_property
from oddnode.graph import Graph
from oddnode.graph.positions import positions
from oddnode.nn import Backbone, Ensemble, embed_with, mean_log_probabilities, run_backbone

if TYPE_CHECKING:
    from oddnode.scoring.base import Scorer


class Anchors(NamedTuple):
    """The known nodes that no network holds out, and those that one does."""

    is_anchor: Tensor  # `[N]`
    held_out: Tensor  # Indices


T = TypeVar("T")
# Larger matrices of features, in bytes, are not kept.
_LARGE = 2**28


@dataclass(eq=False, repr=False)
class Outputs:
    """A trained network's outputs on one graph, computed on first use and shared by all scorers.

    Parameters
    ----------
    module : torch.nn.Module
        The trained network, or an `oddnode.nn.Ensemble`.
    graph : Graph
        A graph of N nodes to score.
    num_classes : int
        Number of ID classes, whose logits come first; any further logits are spare.
    labelled : Tensor, optional
        Indices of the nodes whose ID label is known (training and validation nodes) ``[n]``; ``None`` if there are
        none.
    references : sequence of Tensor
        Indices of the reference nodes ``[r]`` of each network; empty if they are not in this graph.
    far : Tensor, optional
        Indices of the nodes whose features were clipped, because they are far outside the range of training.
    seen : Tensor, optional
        Whether a node was in the training graph ``[N]``, reference nodes included; by default none was.
    uses_batch : bool
        Whether new nodes may be judged by what they have in common.
    """

    #: Whether scores of several scorers are averaged over the graph in one pass.
    averages_together: ClassVar[bool] = True

    module: nn.Module
    graph: Graph
    num_classes: int
    labelled: Tensor | None = None
    references: Sequence[Tensor] = ()
    far: Tensor | None = None
    seen: Tensor | None = None
    uses_batch: bool = True

    def __post_init__(self) -> None:
        self.references = tuple(self.references)
        # Of one of several networks: whether most of them find that the new nodes have drifted.
        self.has_drifted: bool | None = None
        self._cache: dict[tuple[int, str], tuple[object, Any]] = {}
        # Of all networks of an ensemble: what shared scorers compute.
        self._shared_cache: dict[tuple[int, str], tuple[object, Any]] = {}
        self._kept: dict[tuple[int, str], tuple[object, Any]] = {}
        # Of the outputs of one network on its training graph: those that shared scorers learn from, and labelled nodes.
        self.learns_shared: tuple[Outputs, Tensor, Tensor] | None = None
        self._fitted: list[tuple[Scorer, Tensor, Tensor, Scorer]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Outputs:
        # The graph is large and immutable, and torch cannot copy its sparse matrices.
        module = copy.deepcopy(self.module, memo)
        facts = (self.labelled, self.references, self.far, self.seen, self.uses_batch)
        return type(self)(module, self.graph, self.num_classes, *facts)

    def cached(self, owner: object, name: str, make: Callable[[], T]) -> T:
        """Compute a value once for an object, such as a scorer.

        Parameters
        ----------
        owner : object
            The owner of the value. It is stored with it, so that no other object can get the same id. Networks share
            the values of a tensor, and of a scorer that all of them can share.
        name : str
            The name of the value.
        make : callable
            Computes the value; called without arguments the first time.
        """
        key, cache = (id(owner), name), self._cache_of(owner)
        if key not in cache:
            cache[key] = owner, make()
        return cache[key][1]

    def has_cached(self, owner: object, name: str) -> bool:
        """Whether `cached` has computed a value.

        Parameters
        ----------
        owner, name
            As for `cached`.
        """
        return (id(owner), name) in self._cache_of(owner)

    def _cache_of(self, owner: object) -> dict[tuple[int, str], tuple[object, Any]]:
        is_shared = isinstance(owner, Tensor) or getattr(owner, "is_shared", False)
        return self._shared_cache if is_shared else self._cache

    def cached_values(self) -> Iterator[tuple[object, str, Any]]:
        """Yield the owner, the name and the value of everything that `cached` has computed."""
        for (_, name), (owner, value) in (self._cache | self._shared_cache).items():
            yield owner, name, value

    def kept(self, owner: object, name: str, make: Callable[[], T]) -> T:
        """Compute a value about as large as the features, and keep the last one, unless that takes much memory.

        For a graph on disk, such values are stored in files, and all are kept.

        Parameters
        ----------
        owner, name, make
            As for `cached`.
        """
        if self.graph.x.nbytes > _LARGE:
            return make()
        key = id(owner), name
        if key not in self._kept:
            self._kept.clear()
            self._kept[key] = owner, make()
        return self._kept[key][1]

    def shards(self, out: Tensor) -> Iterator[slice]:
        """Yield the rows of a result that are needed, as `oddnode.graph.Graph.shards` does.

        Parameters
        ----------
        out : Tensor
            The result, with a row for every node.
        """
        return self.graph.shards(out)

    def release(self) -> None:
        """Free large values; for a graph on disk, everything that was computed for all nodes."""
        self._kept.clear()

    def _fit(self, scorer: Scorer, train: Tensor, y: Tensor) -> Scorer:
        fitted = scorer.fit(self, train, y)
        if not hasattr(fitted, "score"):
            name, returned = type(scorer).__name__, type(fitted).__name__
            raise TypeError(f"{name}.fit returned {returned}, expected a fitted copy of the scorer (copy.copy(self))")
        return fitted

    def fitted(self, scorer: Scorer, train: Tensor, y: Tensor) -> Scorer:
        """Fit a scorer on these outputs, once: several scorers may change or propagate the scores of the same one.

        Parameters
        ----------
        scorer : Scorer
            The scorer.
        train, y : Tensor
            Indices of the training nodes and their classes, ``[n]`` each.
        """
        if self.learns_shared is not None and scorer.is_shared:
            shared, *data = self.learns_shared
            return shared.fitted(scorer, *data)
        for known, *data, fitted in self._fitted:
            is_same = known is scorer or (scorer.is_shared and repr(known) == repr(scorer))
            if is_same and data[0] is train and data[1] is y:
                return fitted
        self._fitted.append((scorer, train, y, self._fit(scorer, train, y)))
        return self._fitted[-1][3]

    @property
    def reference(self) -> Tensor | None:
        """Indices of the reference nodes of a single network; ``None`` if they are not in this graph."""
        return self.references[0] if self.references else None

    def scores_of(self, scorer: Scorer) -> Tensor:
        """Score every node ``[N]`` by a scorer, once; several scorers may change or propagate the same scores.

        Parameters
        ----------
        scorer : Scorer
            A fitted scorer.
        """
        return self.cached(scorer, "score", partial(scorer.score, self))

    @cached_property
    def members(self) -> list[Outputs]:
        """The outputs of each network of an ensemble; empty for a single network."""
        if not isinstance(self.module, Ensemble):
            return []
        own: list[tuple[Tensor, ...]] = [(each,) for each in self.references] or [()] * self.num_networks
        members = [
            type(self)(network, self.graph, self.num_classes, self.labelled, each, None, self.seen, self.uses_batch)
            for network, each in zip(self.module.members, own, strict=True)
        ]
        for member in members:
            vars(member)["anchors"] = self.anchors
        return self._sharing_with(members)

    @cached_property
    def anchors(self) -> Anchors | None:
        """The nodes that new nodes can be placed by; ``None`` if it is unknown which nodes are new."""
        if self.seen is None or not self.references:
            return None
        held_out = torch.cat(list(self.references)).unique()
        is_anchor = self.seen.clone()
        is_anchor[held_out] = False
        return Anchors(is_anchor, held_out)

    @property
    def positions(self) -> Tensor | None:
        """Where the anchors are in the graph (`oddnode.graph.positions`); ``None`` if that is unknown."""
        graph, anchors = self.graph, self.anchors
        if anchors is None:
            return None
        return self.cached(graph.x, "positions", lambda: positions(graph, anchors.is_anchor))

    def _sharing_with(self, others: list[Outputs]) -> list[Outputs]:
        for other in others:
            other._shared_cache, other._kept = self._shared_cache, self._kept
        return others

    @staticmethod
    def together(outputs: Sequence[Outputs], graph: Graph) -> list[Outputs]:
        """The outputs of several networks on another graph in memory, which share what does not depend on them.

        Parameters
        ----------
        outputs : sequence of Outputs
            Those of each network on the known graph.
        graph : Graph
            The other graph.
        """
        found = [Outputs(own.module, graph, own.num_classes, own.labelled) for own in outputs]
        for other in found:
            vars(other)["anchors"] = outputs[0].anchors
        return found[0]._sharing_with(found)

    @cached_property
    def without_edges(self) -> Outputs:
        """The outputs for the same nodes without edges, which depend on a node's own features only."""

        def without_edges() -> Graph:
            alone = Graph(self.graph.x, self.graph.edge_index[:, :0])
            alone.share_features(self.graph)
            if self.graph.sparse_x is None:
                alone.caches["graph"]["smoothed_x"] = self.graph.x
            return alone

        alone = self.graph.cached("alone", without_edges)
        return Outputs(self.module, alone, self.num_classes)

    def begin_with_hidden(self) -> None:
        """Compute the hidden features first, so that logits continue from them, where both are needed."""
        if isinstance(self.module, Backbone) and not self.graph.is_on_disk:
            self.__dict__.setdefault("hidden", self.hidden)

    @property
    def num_networks(self) -> int:
        """Number of networks: more than one for an ensemble."""
        return len(self.module.members) if isinstance(self.module, Ensemble) else 1

    @cached_property
    def all_logits(self) -> Tensor:
        """Logits of every node, spare ones included, ``[N, C + spare]``."""
        if self.members:
            return self._mean([member.all_logits for member in self.members])
        module = self.module
        with torch.no_grad():
            if "hidden" in self.__dict__ and isinstance(module, Backbone) and type(module).run is Backbone.run:
                return module.head(self.hidden, self.graph)
            return run_backbone(module, self.graph)

    def _mean(self, logits: list[Tensor]) -> Tensor:
        return mean_log_probabilities(logits)

    @property
    def logits(self) -> Tensor:
        """Logits of the ID classes ``[N, C]``; for an ensemble, the logarithms of its members' mean probabilities."""
        return self._members_mean if self.members else self.all_logits[:, : self.num_classes]

    @cached_property
    def _members_mean(self) -> Tensor:
        return self._mean([member.logits for member in self.members])

    @cached_property
    def hidden(self) -> Tensor:
        """Features before the last layer, ``[N, H]``."""
        with torch.no_grad():
            return embed_with(self.module, self.graph)

    def hidden_of(self, nodes: Tensor | slice) -> Tensor:
        """Return the hidden features of some nodes ``[n, H]``.

        Parameters
        ----------
        nodes : Tensor or slice
            Indices ``[n]``.
        """
        return self.hidden[nodes]
