"""Training on sampled neighbourhoods of some labelled nodes at a time, whose products estimate those of the graph."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch_geometric import typing as pyg_typing
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput

from oddnode._utils.random import borrowed, redirected, seeded
from oddnode.graph import CSRSampler, Graph, TrainingSet
from oddnode.graph.sampling import NodeNumbering
from oddnode.nn import Backbone, batch_norms, fit_batch_norm, receptive_hops, run_backbone, takes_edge_weight
from oddnode.objectives import Objective, validation_loss
from oddnode.ops import SparseMatrix
from oddnode.training.base import TrainingConfig, has_foreign_parts
from oddnode.training.full_batch import train
from oddnode.training.loop import TrainsInTurn
from oddnode.training.single import EXPOSURE_GRAPH, ID_GRAPH, NetworkTrainee, last_pass_statistics

_log = logging.getLogger("oddnode")


class _BatchSampler(CSRSampler):
    """Adds random nodes of the graph to the seeds of every batch; `rows` says where they are in the last one.

    If pyg-lib is installed, it draws the neighbours, with seeds that are drawn here.
    """

    rows: Tensor

    def __init__(self, offsets: Tensor, sources: Tensor, *arguments: Any, num_random: int):
        super().__init__(offsets, sources, *arguments)
        self._num_random = min(num_random, len(offsets) - 1)
        # pyg-lib wants numbers of one type, and copies of the sources might not fit into memory.
        fits = len(sources) <= torch.iinfo(sources.dtype).max
        self._for_pyg_lib = (offsets.to(sources.dtype), sources) if pyg_typing.WITH_PYG_LIB and fits else None
        _log.debug("neighbours are sampled by %s", "oddnode" if self._for_pyg_lib is None else "pyg-lib")

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        drawn = self._rng.choice(len(self.offsets) - 1, self._num_random, replace=False, shuffle=False)
        seeds = NodeNumbering(index.node.numpy())
        self.rows = torch.from_numpy(seeds.number(drawn))
        out = super().sample_from_nodes(NodeSamplerInput(None, torch.from_numpy(seeds.nodes)))
        out.metadata = (index.input_id, index.time)
        return out

    def draw(self, seeds: Tensor) -> SamplerOutput:
        if self._for_pyg_lib is None:
            return super().draw(seeds)
        offsets, sources = self._for_pyg_lib
        # Times of nodes and seeds, and in newer versions times and weights of edges: there are none.
        newer = pyg_typing.WITH_EDGE_TIME_NEIGHBOR_SAMPLE, pyg_typing.WITH_WEIGHTED_NEIGHBOR_SAMPLE
        nothing = [None] * (2 + sum(newer))
        is_csc, replace, directed, disjoint, returns_edges = True, False, True, False, True
        arguments = is_csc, replace, directed, disjoint, "uniform", returns_edges
        with borrowed(torch.Generator().manual_seed(int(self._rng.integers(2**62)))):
            row, col, nodes, edge, num_nodes, num_edges = torch.ops.pyg.neighbor_sample(
                offsets, sources, seeds.to(sources.dtype), list(self.num_neighbours), *nothing, *arguments
            )
        return SamplerOutput(nodes.long(), row.long(), col.long(), edge.long(), None, list(num_nodes), list(num_edges))


@dataclass(frozen=True)
class NeighbourBatch:
    """Some seeds with sampled edges around them."""

    graph: Graph  #: The sampled nodes, the seeds first, and edges. Its products estimate those of the whole graph.
    seeds: Tensor  #: Indices of the seeds among the nodes to batch ``[n]``.
    random: Tensor  #: Indices in ``graph`` of random nodes of the whole graph, with their own neighbourhoods ``[r]``.


class MiniBatches:
    r"""Mini-batches of the neighbourhoods of some nodes.

    An edge that is sampled among :math:`k` of the :math:`d` edges of a node has its weight times :math:`d / k`, so that
    sums and weighted means over neighbours estimate those of the whole graph. The graph convolution uses
    the degrees of the whole graph.

    Parameters
    ----------
    graph : Graph
        The whole graph.
    nodes : Tensor
        Indices of the nodes to batch ``[n]``, all different.
    num_neighbours : sequence of int
        As for `CSRSampler`.
    batch_size : int
        The number of seeds in a batch.
    num_random : int
        The number of random nodes in addition.
    seed : int
        Seed of the samples and of the order.
    shuffle : bool
        Whether every iteration draws a new order and new samples; if not, all are the same.
    weighted : bool
        Whether edges have weights. Networks that take none get plain edges, each of which counts as one.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Tensor,
        num_neighbours: Sequence[int],
        batch_size: int,
        num_random: int = 0,
        seed: int = 0,
        shuffle: bool = True,
        weighted: bool = True,
    ):
        self._graph, self._weighted, self._seed, self._shuffle = graph, weighted, seed, shuffle
        offsets, sources, order = graph.incoming
        self._counts = offsets.diff().to(graph.x)
        self._sampler = _BatchSampler(offsets, sources, num_neighbours, seed, order, num_random=num_random)
        # The loader takes edges from the sampler, so that those of a graph on disk need not be in memory.
        self._loader = NodeLoader(
            Data(x=graph.x, edge_index=torch.empty(2, 0, dtype=torch.long)),
            self._sampler,
            nodes.cpu(),
            batch_size=batch_size,
            shuffle=shuffle,
            generator=torch.Generator().manual_seed(seed),
            filter_per_worker=False,
        )

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[NeighbourBatch]:
        if not self._shuffle:
            self._sampler.set_seed(self._seed)
        for data in self._loader:
            yield NeighbourBatch(self._batch_graph(data), data.input_id, self._sampler.rows)

    def _batch_graph(self, data: Data) -> Graph:
        device = self._graph.device
        nodes, edges = data.n_id.to(device), data.edge_index.to(device)
        source, target = edges
        sampled = torch.bincount(target, minlength=len(nodes)).to(data.x)
        weight = (self._counts[nodes] / sampled)[target]
        if self._graph.edge_weight is not None:
            weight = weight * self._graph.edge_weight[data.e_id.to(device)]
        graph = Graph(data.x, edges, weight if self._weighted else None)
        scale, between = self._graph.gcn_scale[nodes], source != target
        values = (scale[source] * weight * scale[target])[between]
        row = torch.arange(len(nodes), device=device)
        matrix = SparseMatrix(
            torch.cat([target[between], row]),
            torch.cat([source[between], row]),
            torch.cat([values, self._graph.loop_weight[nodes] * scale * scale]),
            (len(nodes), len(nodes)),
        )
        graph.caches["edges"]["gcn_matrix"] = matrix
        return graph


@dataclass(frozen=True)
class MiniBatch(TrainsInTurn):
    """Trains on batches of labelled nodes with a sample of the nodes around them (GraphSAGE; Hamilton et al., 2017).

    The gradients of a step need memory for the sampled nodes only. An epoch passes over all labelled nodes once, or
    over some of them (``batches_per_epoch``), with a step for every batch. It is validated on sampled neighbourhoods of
    the validation nodes, the same in every epoch. Terms that need the logits of all nodes are refused.

    In training and validation, batch norm takes its statistics from random nodes of the graph that every batch has in
    addition: labelled nodes and those around them need not be representative. In the end it takes them from one exact
    pass over the whole ID graph, without gradients, and scores are computed on whole graphs as always.

    Parameters
    ----------
    num_neighbours : int
        How many incoming edges of every node to sample, at most; -1 for all.
    batch_size : int
        The number of labelled nodes in a batch.
    num_random : int
        The number of random nodes in a batch; 0 for networks without batch norm, which do not need them.
    num_hops : int, optional
        How many hops around these to sample; by default as many as the network has convolutions.
    batches_per_epoch : int, optional
        How many batches an epoch has at most; the next one continues with the other labelled nodes, and as many
        validation nodes, always the same ones, choose the epoch. By default an epoch has all of them.

    Examples
    --------
    >>> from oddnode import Detector, load_task
    >>> graph = load_task("digits/label").train
    >>> detector = Detector(backbone="gat", trainer=MiniBatch(num_neighbours=5, batch_size=64), epochs=3).fit(graph)
    >>> len(detector.history_)
    3
    """

    num_neighbours: int = 10
    batch_size: int = 512
    num_random: int = 512
    num_hops: int | None = None
    batches_per_epoch: int | None = None

    def _trainees(
        self, networks: Iterable[tuple[nn.Module, TrainingSet, int]], objective: Objective, config: TrainingConfig
    ) -> Generator[SampledTrainee, None, None]:
        self._check(objective)
        for module, data, seed in networks:
            # oddnode's parts draw from the stream; redirecting costs time, so only other parts are redirected.
            is_foreign = has_foreign_parts(module, objective)
            keeps_last = last_pass_statistics(module) if config.batch_norm == "id-graph" else nullcontext()
            with seeded(seed), redirected() if is_foreign else nullcontext(), keeps_last:
                prepared = objective.prepare(data, train)
                if isinstance(module, Backbone):
                    module.prepare(data)
                trainee = SampledTrainee(module, prepared, data, config, self, seed)
                with trainee.statistics_of_random_nodes():
                    yield trainee

    def _check(self, objective: Objective) -> None:
        if objective.needs_all_logits or objective.needs_hidden:
            raise ValueError(
                f"{objective} needs the outputs at all nodes, but mini-batches have those of a few; use "
                "trainer=FullBatch(), or an objective without propagated or hidden terms"
            )
        if self.batch_size < 1 or self.num_random < 2:
            raise ValueError(
                f"batch_size is {self.batch_size} and num_random {self.num_random}, expected 1 and 2 or more"
            )
        if self.batches_per_epoch is not None and self.batches_per_epoch < 1:
            raise ValueError(f"batches_per_epoch is {self.batches_per_epoch}, expected 1 or more, or None for all")


class SampledTrainee(NetworkTrainee[None]):
    """A network that is trained on mini-batches; a `oddnode.training.Trainee`."""

    capture_blocker = "mini-batches differ in size"

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        data: TrainingSet,
        config: TrainingConfig,
        settings: MiniBatch,
        seed: int,
    ):
        hops = receptive_hops(module) if settings.num_hops is None else settings.num_hops
        batches = partial(
            MiniBatches,
            num_neighbours=[settings.num_neighbours] * hops,
            batch_size=settings.batch_size,
            seed=seed,
            weighted=takes_edge_weight(module),
        )
        num_random = settings.num_random if batch_norms(module) else 0
        labelled = batches(data.graph, data.train, num_random=num_random)
        self.num_batches = min(settings.batches_per_epoch or len(labelled), len(labelled))
        self.batch_sizes: list[int] = []
        super().__init__(module, objective, data, config.batch_norm, seed, config.epochs)
        self._train = _repeated(labelled)
        some = _some_of(data.val, settings, seed)
        self._y_val = data.y_val[some]
        val = batches(data.graph, data.val[some], shuffle=False, num_random=num_random if self._from_id_graph else 0)
        # They are the same in every epoch; one is kept with its matrices, several might not fit into memory.
        self._val: Iterable[NeighbourBatch] = list(val) if len(val) == 1 else val
        self._exposure = None
        if objective.needs_exposure and data.exposure is not None and data.exposed is not None:
            self._exposure = _repeated(batches(data.exposure, data.exposed, num_random=num_random))
        self._random_rows: Tensor | None = None  # where the random nodes of the current batch are

    def shared_forward(self, epoch: int) -> None:
        """Batches of training and validation differ, so nothing is shared."""

    @torch.no_grad()
    def validation_loss(self, shared: None) -> Tensor:
        # Batch norm has the statistics of the current weights, as in the end.
        self._set_mode(training=False, norms=self._from_id_graph)
        parts = [(self._logits(batch), batch.seeds) for batch in self._val]
        logits, seeds = (torch.cat(each) for each in zip(*parts, strict=True))
        return validation_loss(self._pass(0, logits, self._y_val[seeds.to(logits.device)])).reshape(1)

    def loss(self, shared: None, epoch: int) -> Tensor:
        data, batch, step = self.data, next(self._train), len(self.batch_sizes)
        self.batch_sizes.append(len(batch.seeds))
        self._set_training(epoch, step, ID_GRAPH)
        logits = self._logits(batch)
        view = self._pass(epoch, logits, data.y_train[batch.seeds.to(logits.device)])
        if self._exposure is not None:
            # Exposed nodes are normalised as every later OOD node will be: by the ID graph's statistics.
            self._set_training(epoch, step, EXPOSURE_GRAPH, norms=not self._from_id_graph)
            view.exposure_graph, view.exposure_logits = data.exposure, self._logits(next(self._exposure))
            view.exposed = torch.arange(len(view.exposure_logits), device=logits.device)
        return self.objective(view).reshape(1)

    def _logits(self, batch: NeighbourBatch) -> Tensor:
        """Logits of the seeds."""
        self._random_rows = batch.random
        return run_backbone(self.module, batch.graph)[: len(batch.seeds)]

    def _fit_norms(self) -> None:
        self._random_rows = None
        if self.data.graph.is_on_disk:
            fit_batch_norm(self.module, self.data.graph)
        else:
            super()._fit_norms()

    @contextmanager
    def statistics_of_random_nodes(self) -> Iterator[None]:
        """Within the block, batch norm in training takes its statistics from the random nodes; it normalises all.

        Its ``forward`` is replaced, since a user's module calls batch norm itself and has no argument to pass rows by.
        """
        try:
            for norm in self._norms:
                norm.forward = partial(self._normalised, norm)  # type: ignore[method-assign]
            yield
        finally:
            for norm in self._norms:
                del norm.forward

    def _normalised(self, norm: _BatchNorm, values: Tensor) -> Tensor:
        rows = self._random_rows
        if not norm.training or rows is None:
            return type(norm).forward(norm, values)
        var, mean = torch.var_mean(values[rows.to(values.device)], dim=0, correction=0)
        if norm.running_mean is not None and norm.running_var is not None and norm.momentum is not None:
            with torch.no_grad():
                norm.running_mean.lerp_(mean.detach(), norm.momentum)
                norm.running_var.lerp_(var.detach() * len(rows) / max(len(rows) - 1, 1), norm.momentum)
        scaled = (values - mean) * (var + norm.eps).rsqrt()
        return scaled * norm.weight + norm.bias if norm.affine else scaled


def _some_of(nodes: Tensor, settings: MiniBatch, seed: int) -> Tensor:
    """Indices of as many of the nodes as an epoch has, determined by the seed."""
    most = len(nodes) if settings.batches_per_epoch is None else settings.batches_per_epoch * settings.batch_size
    if most >= len(nodes):
        return torch.arange(len(nodes), device=nodes.device)
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))
    return order[:most].sort().values.to(nodes.device)


def _repeated(batches: MiniBatches) -> Iterator[NeighbourBatch]:
    while True:
        yield from batches
