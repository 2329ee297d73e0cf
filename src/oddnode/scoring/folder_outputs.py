"""The outputs of a network on a graph on disk, computed for some rows at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from oddnode._utils.lazy import cached_property
from oddnode.graph import Graph
from oddnode.large.graph import FolderGraph
from oddnode.nn import Layerwise, Neighbourhoods, in_blocks, mean_log_probabilities
from oddnode.nn.base import TwoLayers, network_blocker
from oddnode.scoring.outputs import Outputs

if TYPE_CHECKING:
    from oddnode.scoring.base import Scorer


T = TypeVar("T")


class RowOutputs(Outputs):
    """The outputs of one network for some nodes, for row-wise scorers."""

    def __init__(self, whole: Outputs, rows: slice):
        x = whole.graph.x[rows]
        super().__init__(whole.module, Graph(x, x.new_empty((2, 0), dtype=torch.long)), whole.num_classes)
        self._whole, self._rows = whole, rows

    @cached_property
    def all_logits(self) -> Tensor:
        return self._whole.all_logits[self._rows]

    @cached_property
    def hidden(self) -> Tensor:
        return self._whole.hidden_of(self._rows)


class FolderOutputs(Outputs):
    """As `oddnode.scoring.Outputs`, for a graph on disk.

    Logits of all nodes are in memory, or in a temporary file if there are many. Hidden features are computed again
    whenever some of them are needed. A row-wise scorer gets some nodes at a time.
    """

    graph: FolderGraph  # As for `oddnode.scoring.Outputs`; the graph is a `FolderGraph`

    @cached_property
    def _layers(self) -> TwoLayers | Layerwise | Neighbourhoods:
        module, device = self.module, self.graph.device
        if any(parameter.device != device for parameter in module.parameters()):
            module = copy.deepcopy(module).to(device)
        return TwoLayers.of(module) if network_blocker(module) is None else in_blocks(module, self.graph)

    def hidden_of(self, nodes: Tensor | slice) -> Tensor:
        layers = self._layers
        if isinstance(layers, TwoLayers):
            return layers.hidden(layers.inputs(self.graph)[nodes])
        return layers.hidden_of(nodes)

    @cached_property
    def hidden(self) -> Tensor:
        hidden = self.graph.empty(self.hidden_of(slice(0, 1)).shape[1])
        for rows in self.graph.shards(hidden):
            hidden[rows] = self.hidden_of(rows)
        return hidden

    @cached_property
    @torch.no_grad()
    def all_logits(self) -> Tensor:
        if self.members:
            return super().all_logits
        layers = self._layers
        if not isinstance(layers, TwoLayers):
            logits = self.graph.empty(layers.logits_of(slice(0, 1)).shape[1])
            for rows in self.graph.shards(logits):
                logits[rows] = layers.logits_of(rows)
            return logits
        products = self.graph.empty(len(layers.last_weight))
        for rows in self.graph.shards(products):
            own = self.hidden_of(rows) @ layers.last_weight.t()
            products[rows] = own if layers.uses_edges else own + layers.last_bias
        return self.graph.convolve(products, layers.last_bias) if layers.uses_edges else products

    def _mean(self, logits: list[Tensor]) -> Tensor:
        mean = self.graph.empty(logits[0].shape[1])
        for rows in self.graph.shards(mean):
            mean[rows] = mean_log_probabilities([part[rows] for part in logits])
        return mean

    def scores_of(self, scorer: Scorer) -> Tensor:
        return self.cached(scorer, "score", partial(self._scores, scorer))

    def _scores(self, scorer: Scorer) -> Tensor:
        if not scorer.is_row_wise:
            found = scorer.score(self)
            return self.graph.keep(found) if isinstance(found, Tensor) else found  # an error when it is used
        scores = self.graph.empty(None)
        for rows in self.graph.shards(scores):
            scores[rows] = scorer.score(RowOutputs(self, rows))
        return scores

    def kept(self, owner: object, name: str, make: Callable[[], T]) -> T:
        return self.cached(owner, name, make)

    def release(self) -> None:
        self._cache.clear()
        self._shared_cache.clear()
        self._fitted.clear()
        for name in ("_layers", "hidden", "all_logits", "_members_mean", "members", "without_edges"):
            self.__dict__.pop(name, None)
        self.graph.release()

    @cached_property
    def without_edges(self) -> Outputs:
        if isinstance(self._layers, TwoLayers):
            return _AloneOutputs(self.module, self.graph, self.num_classes)
        return FolderOutputs(self.module, self.graph.without_edges(), self.num_classes)


class _AloneOutputs(FolderOutputs):
    """The outputs of one network on the same nodes without edges, where a graph convolution is a linear layer."""

    @cached_property
    def _layers(self) -> TwoLayers:
        layers = super()._layers
        assert isinstance(layers, TwoLayers)
        return layers._replace(uses_edges=False)
