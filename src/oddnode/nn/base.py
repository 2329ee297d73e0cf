"""Backbones turn the nodes of a graph into logits.

A backbone is an ordinary PyG-style module, ``forward(x, edge_index, edge_weight=None) -> logits``. Those of this
library also take a prepared `Graph`, which caches what is the same in every step. Any other `torch.nn.Module` with that
``forward`` works too (`oddnode.nn.run_backbone`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode.graph import Graph, TrainingSet, positive_edges
from oddnode.large.graph import FolderGraph
from oddnode.large.moments import Moments
from oddnode.nn.stages import Activation, Linear, Stages, is_graph_convolution, run_stages
from oddnode.ops import DropoutStream, PreNormActivations, check_edge_weight


class Backbone(nn.Module):
    """Two steps: ``embed`` gives a node's hidden features, ``head`` turns them into logits."""

    #: Share of hidden features dropped in training.
    dropout: float = 0.0
    #: The source of dropout masks in training; torch's generator if ``None``. Backbones inside another one share its
    #: stream, so the places of their dropouts must differ.
    stream: DropoutStream | None = None
    #: From how many hops away nodes change a node's logits; ``None``: as `oddnode.nn.receptive_hops` counts.
    num_hops: int | None = None

    #: Whether a training pass may be captured as a CUDA graph and replayed: the same kernels on tensors of the same
    #: shapes in every epoch, without synchronisation, and no random numbers except from `stream`. A subclass does not
    #: inherit the promise; it must set ``supports_capture = True`` itself.
    supports_capture: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # If a subclass that changes with the epoch were captured, it would silently train on stale values.
        if "supports_capture" not in cls.__dict__:
            cls.supports_capture = False

    def stages(self) -> Stages:
        """List the stages up to the hidden features and those to the logits, to run in memory, in blocks and on disk.

        A backbone without stages defines ``embed`` and ``head``.
        """
        raise TypeError(
            f"{type(self).__name__} must define stages(), or both embed(graph) and head(hidden, graph); a module with "
            "nothing but a forward(x, edge_index) derives from torch.nn.Module"
        )

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Compute the logits ``[N, C]`` of every node.

        Parameters
        ----------
        x : Tensor
            Features ``[N, F]``.
        edge_index : Tensor
            Edges ``[2, E]``, from source to target.
        edge_weight : Tensor, optional
            Their weights ``[E]``, 0 or more; by default 1.
        """
        return self.run(checked_graph(x, edge_index, edge_weight))

    def run(self, graph: Graph) -> Tensor:
        """Compute the logits ``[N, C]`` of every node of a prepared graph.

        Parameters
        ----------
        graph : Graph
            The graph, with its features.
        """
        return self.head(self.embed(graph), graph)

    def embed(self, graph: Graph) -> Tensor:
        """Compute the features before the last layer ``[N, H]``, after activation and dropout.

        Parameters
        ----------
        graph : Graph
            The graph, with its features.
        """
        return run_stages(self.stages().hidden, None, graph, self)

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        """Apply the last layer, for logits ``[N, C]``.

        Parameters
        ----------
        hidden : Tensor
            Hidden features ``[N, H]``.
        graph : Graph
            The graph whose edges it uses.
        """
        return run_stages(self.stages().head, hidden, graph, self)

    def prepare(self, data: TrainingSet) -> None:
        """Read more than features from the data, once before training.

        Parameters
        ----------
        data : TrainingSet
            The data of the training.
        """

    def begin_epoch(self, epoch: int) -> None:
        """Change with the epoch, before every training pass; for backbones that learn in stages.

        Parameters
        ----------
        epoch : int
            The number of steps taken.
        """

    @property
    def num_dropout_places(self) -> int:
        """An upper bound on the numbers of the places of dropout."""
        return 2 * sum(1 for _ in self.modules())

    @property
    def _drops(self) -> bool:
        return self.training and self.dropout > 0.0

    def _drop(self, values: Tensor, place: int) -> Tensor:
        """Dropout of values of any shape; every dropout of a network has a different place."""
        if not self._drops:
            return values
        if self.stream is None:
            return F.dropout(values, self.dropout)
        return values * self.stream.scales_like(values, self.dropout, place)

    @property
    def is_deterministic(self) -> bool:
        """Whether two passes in training mode give the same logits; not assumed if ``self.dropout`` was never set."""
        return "dropout" in vars(self) and self.dropout == 0.0


def checked_graph(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Graph:
    """Make a graph from the arguments of a module's ``forward``."""
    if edge_weight is None:
        return Graph(x, edge_index)
    check_edge_weight(edge_weight, edge_index.shape[1])
    return Graph(x, *positive_edges(edge_index, edge_weight.to(x.dtype)))


def stages_of(module: nn.Module, any_head: bool = False) -> Stages | None:
    """List the stages of a backbone whose outputs, or hidden features, follow from them alone; ``None`` for others."""
    kind = type(module)
    if not isinstance(module, Backbone) or not issubclass(kind, Backbone) or kind.stages is Backbone.stages:
        return None
    follows = kind.run is Backbone.run and kind.embed is Backbone.embed
    return module.stages() if follows and (any_head or kind.head is Backbone.head) else None


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Find the batch norms of a network."""
    return [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]


class RegularLayers(NamedTuple):
    """A backbone of linear layers, or of graph convolutions, with an `Activation` after all but the last."""

    uses_edges: bool
    layers: list[Any]  # modules or convolutions, by `weight` and `bias`
    norms: list[nn.Module]

    @classmethod
    def of(cls, module: nn.Module) -> RegularLayers | None:
        """Take a network apart; ``None`` if it is not of this form, or changes with the data or the epoch."""
        stages, kind = stages_of(module), type(module)
        if stages is None or not issubclass(kind, Backbone) or not any(stages):
            return None
        every = [*stages.hidden, *stages.head]
        layers, activations = every[::2], every[1::2]
        uses_edges = is_graph_convolution(layers[0])
        is_layer = is_graph_convolution if uses_edges else lambda stage: type(stage) is Linear
        if not (
            len(layers) == len(activations) + 1
            and all(is_layer(layer) for layer in layers)
            and all(type(each) is Activation and each.place == place for place, each in enumerate(activations))
            and kind.prepare is Backbone.prepare
            and kind.begin_epoch is Backbone.begin_epoch
        ):
            return None
        return cls(uses_edges, layers, [each.norm for each in activations])  # type: ignore[attr-defined]


class TwoLayers(NamedTuple):
    """The parts, not copied, of a network that can be trained in full batches on graphs on disk.

    The first layer of a GCN is ``(A X) W^T + b``, that of an MLP ``X W^T + b``. Batch norm, ReLU and dropout work on
    rows, and the last layer is linear, so that its product with the edges can come last, when a row has few columns.
    """

    weight: Tensor  # of the first layer, `[H, F]`
    bias: Tensor  # `[H]`
    norm: nn.Module  # batch norm, or the identity
    last_weight: Tensor  # of the last layer, `[C, H]`
    last_bias: Tensor  # `[C]`
    uses_edges: bool  # whether both layers convolve

    @classmethod
    def of(cls, module: nn.Module) -> TwoLayers:
        parts, blocker = RegularLayers.of(module), network_blocker(module)
        if parts is None or blocker is not None:
            raise ValueError(
                f"{blocker}; full-batch training on a graph on disk needs two linear layers or graph convolutions "
                "with batch norm and ReLU between them; others train with trainer=MiniBatch()"
            )
        (first, last), [norm] = parts.layers, parts.norms
        return cls(first.weight, first.bias, norm, last.weight, last.bias, parts.uses_edges)

    def inputs(self, graph: Graph) -> Tensor:
        """The constant matrix that the first layer multiplies by, ``[N, F]``."""
        return graph.smoothed_x if self.uses_edges else graph.x

    def moments(self, graph: Graph) -> Moments:
        """Mean and covariance of the rows of `inputs`."""
        if isinstance(graph, FolderGraph):
            return graph.moments(self.uses_edges)
        return graph.cached(("moments", self.uses_edges), lambda: Moments.of(self.inputs(graph)))

    @torch.no_grad()
    def hidden(self, inputs: Tensor) -> Tensor:
        return self.norm(torch.addmm(self.bias, inputs, self.weight.t())).relu()


def network_blocker(module: nn.Module) -> str | None:
    """Return why a network cannot be taken apart into two layers."""
    parts = RegularLayers.of(module)
    norms: list[Any] = [] if parts is None else parts.norms
    if parts is None or not all(type(n) is nn.Identity or (type(n) is nn.BatchNorm1d and n.affine) for n in norms):
        return f"{type(module).__name__} has layers other than linear ones or graph convolutions"
    return None if len(parts.layers) == 2 else f"the network has {len(parts.layers)} layers"


def shared_layer(module: nn.Module, graph: Graph) -> PreNormActivations | None:
    """What a training pass and an evaluation of the same weights share: the first layer, up to batch norm.

    ``None`` if `rest_of` cannot compute the rest of the network.
    """
    stages = stages_of(module, any_head=True)  # an overridden head is called
    if stages is None or not isinstance(module, Backbone):
        return None
    (first, *rest), head = stages
    # The last layer must be computable for some nodes alone: from their rows, or by one graph convolution.
    convolving = [stage for stage in head if stage.num_hops]
    is_local = not convolving or (len(convolving) == 1 and is_graph_convolution(convolving[0]))
    if first.has_dropout or not rest or not rest[0].takes_pre_norm or not is_local:
        return None
    return PreNormActivations(first.run(None, graph, module))


def rest_of(
    module: Backbone, shared: PreNormActivations, graph: Graph, subset: tuple[Tensor, Graph] | None = None
) -> Tensor:
    """Compute logits of all nodes from the first layer.

    With a ``subset``, the rows that the last layer needs and the graph to apply it to, only for some nodes.
    """
    rows, part = (None, graph) if subset is None else subset
    return module.head(run_stages(module.stages().hidden[1:], shared, graph, module, rows), part)
