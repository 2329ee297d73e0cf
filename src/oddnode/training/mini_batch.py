"""The trainer that takes sampled neighbourhoods of some labelled nodes at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import isfinite

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode._utils.random import redirected, seeded
from oddnode.graph import TrainingSet
from oddnode.nn import Backbone, fit_batch_norm, receptive_hops, run_backbone, takes_edge_weight
from oddnode.objectives import Objective, Term, TrainingPass, validation_loss
from oddnode.ops import Adam, DropoutStream
from oddnode.training.base import TrainingConfig, TrainingError, TrainingHandle, TrainingResult
from oddnode.training.full_batch import train
from oddnode.training.sampling import MiniBatches, NeighbourBatch
from oddnode.training.single import last_pass_statistics
from oddnode.training.stacking import is_ours, terms_of

__all__ = ["MiniBatch"]

_ID, _EXPOSURE = 0, 1


@dataclass(frozen=True)
class MiniBatch:
    """Trains on batches of labelled nodes with a sample of the nodes around them (GraphSAGE; Hamilton et al., 2017).

    The gradients of a step need memory for the sampled nodes only. An epoch passes over all labelled nodes once, or
    over some of them (``batches_per_epoch``), with a step for every batch. It is validated on sampled neighbourhoods of
    the validation nodes, the same in every epoch. Terms that need the logits of all nodes are refused.

    In training and validation, batch norm takes its statistics from random nodes of the graph that every batch has in
    addition: labelled nodes and those around them need not be like the others. In the end it takes them from one exact
    pass over the whole ID graph, without gradients, and scores are computed on whole graphs as always.

    Parameters
    ----------
    num_neighbours : int
        How many incoming edges of every node to sample, at most; -1 for all.
    batch_size : int
        The number of labelled nodes in a batch.
    num_random : int
        The number of random nodes in a batch; of no use to networks without batch norm, where there are none.
    num_hops : int, optional
        How many hops around these to sample; by default as many as the network has convolutions.
    batches_per_epoch : int, optional
        How many batches an epoch has at most; the next one goes on with the other labelled nodes, and as many
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

    def start(
        self,
        modules: Sequence[nn.Module],
        objective: Objective,
        data: Sequence[TrainingSet],
        seeds: Sequence[int],
        config: TrainingConfig,
        on_epoch: Callable[[int], None] | None = None,
    ) -> TrainingHandle[list[TrainingResult]]:
        """Train one network after another, as `Trainer.start` says.

        Parameters
        ----------
        modules : sequence of torch.nn.Module
            The networks, with their initial weights.
        objective : Objective
            What each of them minimises.
        data : sequence of TrainingSet
            One for each network.
        seeds : sequence of int
            One for each network.
        config : TrainingConfig
            The settings.
        on_epoch : callable, optional
            Called with the number of epochs done, counted over all networks.

        Returns
        -------
        TrainingHandle
            Its ``result()`` has one `TrainingResult` for each network.
        """
        objective = 1.0 * objective if isinstance(objective, Term) else objective  # only a sum honours starts
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
        results = []
        for place, (module, own, seed) in enumerate(zip(modules, data, seeds, strict=True)):
            # Our own parts draw from the stream; redirecting costs time, so only what else there may be is redirected.
            is_foreign = not all(is_ours(part) for part in (module, *terms_of(objective)))
            keeps_last = last_pass_statistics(module) if config.batch_norm == "id-graph" else nullcontext()
            with seeded(seed), redirected() if is_foreign else nullcontext(), keeps_last:
                network = _SampledNetwork(module, objective, own, config, self, seed)
                for epoch in range(config.epochs):
                    network.epoch(epoch)
                    if on_epoch:
                        on_epoch(place * config.epochs + epoch + 1)
                results.append(network.finish())
        return TrainingHandle(lambda: results)


class _SampledNetwork:
    """One network in training."""

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        data: TrainingSet,
        config: TrainingConfig,
        settings: MiniBatch,
        seed: int,
    ):
        self._module, self._data, self._config = module, data, config
        self._objective = objective.prepare(data, train)
        if isinstance(module, Backbone):
            module.prepare(data)
        hops = receptive_hops(module) if settings.num_hops is None else settings.num_hops
        self._norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
        self._optimiser = Adam(list(module.parameters()), config.lr, config.weight_decay)
        batches = partial(
            MiniBatches,
            num_neighbours=[settings.num_neighbours] * hops,
            batch_size=settings.batch_size,
            seed=seed,
            weighted=takes_edge_weight(module),
        )
        self._from_id_graph = config.batch_norm == "id-graph"
        num_random = settings.num_random if self._norms else 0
        labelled = batches(data.graph, data.train, num_random=num_random)
        self._batches_per_epoch = min(settings.batches_per_epoch or len(labelled), len(labelled))
        self._train = _again_and_again(labelled)
        some = _some_of(data.val, settings, seed)
        self._y_val = data.y_val[some]
        num_random_val = num_random if self._from_id_graph else 0
        val = batches(data.graph, data.val[some], shuffle=False, num_random=num_random_val)
        # They are the same in every epoch; one is kept with its matrices, several might not fit into memory.
        self._val: Iterable[NeighbourBatch] = list(val) if len(val) == 1 else val
        self._exposure = None
        if self._objective.needs_exposure and data.exposure is not None and data.exposed is not None:
            self._exposure = _again_and_again(batches(data.exposure, data.exposed, num_random=num_random))
        self._counter = torch.zeros(1, dtype=torch.long, device=data.graph.device)
        self._stream = self._dropout_stream(seed)
        self._best = copy.deepcopy(module.state_dict())
        self._best_epoch, self._best_loss = 0, float("inf")
        self._history: list[dict[str, float]] = []

    def _dropout_stream(self, seed: int) -> DropoutStream:
        stream = DropoutStream(seed)
        backbones = [layer for layer in self._module.modules() if isinstance(layer, Backbone)]
        if backbones and self._counter.device.type != "cpu":
            places = max(backbone.num_dropout_places for backbone in backbones)
            stream.follow(self._counter, self._config.epochs * self._batches_per_epoch, places)
        for backbone in backbones:
            backbone.stream = stream
        return stream

    def epoch(self, epoch: int) -> None:
        """Take a step for every batch of labelled nodes, then validate."""
        losses, sizes = [], []
        for batch in islice(self._train, self._batches_per_epoch):
            loss = self._objective(self._training_pass(batch, epoch))
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()
            self._counter += 1
            losses.append(float(loss.detach()) * len(batch.seeds))
            sizes.append(len(batch.seeds))
        mean = sum(losses) / sum(sizes)
        if not isfinite(mean):
            raise TrainingError(
                f"the loss became {mean} in epoch {epoch + 1} of {self._config.epochs}; lower the learning rate or the "
                "weights of the objective, or check the scale of the features"
            )
        val_loss = self._validate()
        self._history.append({"epoch": epoch + 1, "loss": mean, "val_loss": val_loss})
        if val_loss < self._best_loss:
            self._best_epoch, self._best_loss = epoch + 1, val_loss
            self._best = copy.deepcopy(self._module.state_dict())

    def finish(self) -> TrainingResult:
        """Load the best weights, with the statistics of the whole ID graph in batch norm."""
        self._module.load_state_dict(self._best)
        self._module.eval()
        if self._from_id_graph and self._data.graph.is_on_disk:
            fit_batch_norm(self._module, self._data.graph)
        elif self._from_id_graph:
            with torch.no_grad():
                for norm in self._norms:
                    norm.train()
                run_backbone(self._module, self._data.graph)
        self._module.eval()
        for layer in self._module.modules():
            if isinstance(layer, Backbone):
                layer.stream = None
        return TrainingResult(self._best_epoch, self._best_loss, self._history)

    def _training_pass(self, batch: NeighbourBatch, epoch: int) -> TrainingPass:
        data = self._data
        self._module.train()
        if isinstance(self._module, Backbone):
            self._module.begin_epoch(epoch)
        self._stream.at(int(self._counter), _ID)
        logits = self._logits(batch)
        seeds = batch.seeds.to(logits.device)
        places = torch.arange(len(seeds), device=logits.device)
        step = TrainingPass(
            epoch, data.num_classes, data.graph, logits, places, data.y_train[seeds], has_all_logits=False
        )
        if self._exposure is not None:
            if self._from_id_graph:  # exposed nodes are normalised as every later OOD node will be
                for norm in self._norms:
                    norm.eval()
            self._stream.at(int(self._counter), _EXPOSURE)
            step.exposure_graph, step.exposure_logits = data.exposure, self._logits(next(self._exposure))
            step.exposed = torch.arange(len(step.exposure_logits), device=logits.device)
        return step

    @torch.no_grad()
    def _validate(self) -> float:
        self._module.eval()
        if self._from_id_graph:  # by the statistics that the present weights have, as in the end
            for norm in self._norms:
                norm.train()
        found = [(self._logits(batch), batch.seeds) for batch in self._val]
        logits, seeds = torch.cat([each for each, _ in found]), torch.cat([seeds for _, seeds in found])
        places = torch.arange(len(logits), device=logits.device)
        y = self._y_val[seeds.to(logits.device)]
        view = TrainingPass(0, self._data.num_classes, self._data.graph, logits, places, y, has_all_logits=False)
        return float(validation_loss(view))

    def _logits(self, batch: NeighbourBatch) -> Tensor:
        """Logits of the seeds."""
        with _statistics_of(self._norms, batch.random):
            return run_backbone(self._module, batch.graph)[: len(batch.seeds)]


def _some_of(nodes: Tensor, settings: MiniBatch, seed: int) -> Tensor:
    """As many of the nodes as an epoch has, by their positions, the same for a seed."""
    most = len(nodes) if settings.batches_per_epoch is None else settings.batches_per_epoch * settings.batch_size
    if most >= len(nodes):
        return torch.arange(len(nodes), device=nodes.device)
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))
    return order[:most].sort().values.to(nodes.device)


def _again_and_again(batches: MiniBatches) -> Iterator[NeighbourBatch]:
    while True:
        yield from batches


@contextmanager
def _statistics_of(norms: Sequence[_BatchNorm], rows: Tensor) -> Iterator[None]:
    """Within the block, batch norm in training takes its statistics from some rows; it normalises all."""
    try:
        for norm in norms:
            norm.forward = partial(_normalised, norm, rows)  # type: ignore[method-assign]
        yield
    finally:
        for norm in norms:
            del norm.forward


def _normalised(norm: _BatchNorm, rows: Tensor, values: Tensor) -> Tensor:
    if not norm.training:
        return type(norm).forward(norm, values)
    var, mean = torch.var_mean(values[rows.to(values.device)], dim=0, correction=0)
    if norm.running_mean is not None and norm.running_var is not None and norm.momentum is not None:
        with torch.no_grad():
            norm.running_mean.lerp_(mean.detach(), norm.momentum)
            norm.running_var.lerp_(var.detach() * len(rows) / max(len(rows) - 1, 1), norm.momentum)
    scaled = (values - mean) * (var + norm.eps).rsqrt()
    return scaled * norm.weight + norm.bias if norm.affine else scaled
