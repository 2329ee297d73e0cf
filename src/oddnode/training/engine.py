"""The training engine: full batch, and the epoch with the lowest validation loss wins."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from oddnode._utils.random import new_dropout_seed, seeded
from oddnode.graph import TrainingSet
from oddnode.nn import Backbone
from oddnode.objectives import Objective, Term
from oddnode.ops import Adam
from oddnode.training.base import TrainingConfig, TrainingError, TrainingHandle, TrainingResult
from oddnode.training.single import Network
from oddnode.training.stacked_gcn import Networks, why_not_side_by_side

__all__ = ["FullBatch", "Loop", "train"]

_log = logging.getLogger("oddnode")

# Steps that run as they are before one is recorded: libraries set themselves up in the first one.
_EAGER_STEPS = 1


class FullBatch:
    """Trains on whole graphs at once, each step over all labelled nodes.

    On a GPU several GCNs on one graph train stacked, and steps are captured as CUDA graphs where that is possible.

    Parameters
    ----------
    stacked : bool, optional
        Whether to stack networks that can be stacked; if left out, on a GPU only: a CPU gains nothing from it.
    """

    def __init__(self, stacked: bool | None = None):
        self.stacked = stacked

    def start(
        self,
        modules: Sequence[nn.Module],
        objective: Objective,
        data: Sequence[TrainingSet],
        seeds: Sequence[int],
        config: TrainingConfig,
        on_epoch: Callable[[int], None] | None = None,
    ) -> TrainingHandle[list[TrainingResult]]:
        """Start a training, as `Trainer.start` says.

        Stacked networks on a GPU train in the background, so that several trainings can share the GPU; all others are
        trained when this returns. Each network becomes what it would have become alone, up to the order of
        floating-point sums. The caller's random numbers are neither used nor moved.
        """
        if isinstance(objective, Term):
            objective = 1.0 * objective  # a sum minds when its terms start
        device = data[0].graph.device
        hindrance = why_not_side_by_side(modules, objective, data, config.batch_norm)
        if hindrance and len(modules) > 1 and device.type == "cuda":
            _log.info("training %d networks one after another: %s", len(modules), hindrance)
        settings = config.epochs, config.lr, config.weight_decay
        if hindrance is None and (device.type == "cuda" if self.stacked is None else self.stacked):
            return Loop(Networks(modules, objective, data, seeds, config.epochs), *settings).start(on_epoch)
        outcomes = []
        for place, (module, own, seed) in enumerate(zip(modules, data, seeds, strict=True)):
            with seeded(seed, device):  # for whatever is random beside dropout
                prepared = objective.prepare(own, train)
                if isinstance(module, Backbone):
                    module.prepare(own)
                network = Network(module, prepared, own, config.batch_norm, seed, config.epochs)
                handle = Loop(network, *settings).start(_counted_on(on_epoch, place * config.epochs))
                outcomes += handle.result()
        return TrainingHandle(lambda: outcomes)


def train(
    module: nn.Module,
    objective: Objective,
    data: TrainingSet,
    *,
    on_epoch: Callable[[int], None] | None = None,
    **settings: Any,
) -> TrainingResult:
    """Train one module in place, full batch; it keeps the weights of its best epoch and is in evaluation mode then.

    Parameters
    ----------
    module : torch.nn.Module
        The network, with its initial weights.
    objective : Objective
        What to minimise.
    data : TrainingSet
        What to train on.
    on_epoch : callable, optional
        Called with the number of epochs done.
    **settings
        As for `TrainingConfig`.

    Returns
    -------
    TrainingResult
        Which epoch was kept, and all losses.
    """
    handle = FullBatch().start([module], objective, [data], [new_dropout_seed()], TrainingConfig(**settings), on_epoch)
    [outcome] = handle.result()
    return outcome


def _counted_on(on_epoch: Callable[[int], None] | None, before: int) -> Callable[[int], None] | None:
    return None if on_epoch is None else lambda epochs: on_epoch(before + epochs)


class Loop:
    """Steps of training, with the best weights kept on the way. No step waits for the device.

    On a GPU a step is recorded once for every set of terms that counts, and replayed: one launch instead of hundreds.
    Only where a term begins to count the last recording is waited for.
    """

    def __init__(self, network: Network | Networks, epochs: int, lr: float, weight_decay: float):
        self.network = network
        self.epochs = epochs
        parameters = network.parameters()
        self.device = device = parameters[0].device
        dtype, size = parameters[0].dtype, network.size
        self.on_cpu = device.type == "cpu"
        on_gpu = device.type == "cuda"
        self.trained = [(parameter, _contiguous(parameter)) for parameter in parameters]
        self.optimiser = Adam([leaf for _, leaf in self.trained], lr, weight_decay)
        self.losses = torch.full((epochs, size), float("nan"), dtype=dtype, device=device)
        self.val_losses = torch.full((epochs + 1, size), float("nan"), dtype=dtype, device=device)
        self.best_loss = torch.full((size,), float("inf"), dtype=dtype, device=device)
        self.best_epoch = torch.zeros(size, dtype=torch.long, device=device)
        self.best_state = [tensor.clone() for tensor in network.state()]
        self.stream: torch.cuda.Stream | None = None
        self.recorded: torch.cuda.CUDAGraph | None = None
        self.replayed: Future[None] | None = None
        self.stopped = False
        self.records = on_gpu
        if self.records and network.hindrance:
            _log.info("steps are not recorded as a CUDA graph: %s", network.hindrance)
            self.records = False

    def start(self, on_epoch: Callable[[int], None] | None = None) -> TrainingHandle[list[TrainingResult]]:
        """Take all steps, which a GPU may still be busy with then; what comes back waits for it and tells the outcome.

        On a GPU the steps are on a stream of their own. Whatever they prepare and others may use too (matrices of the
        graph) is made in steps that are not replayed, and the caller's stream waits for these.
        """
        try:
            self._take_steps(on_epoch)
        except BaseException:
            if self.stream is not None:
                self.stream.synchronize()  # before the memory that it works on is given back
            raise
        return TrainingHandle(self._finish)

    def _take_steps(self, on_epoch: Callable[[int], None] | None) -> None:
        step = self._recorded_step() if self.records else self.step
        last_start = max((start for start in self.network.objective.starts if start < self.epochs), default=0)
        for epoch in range(self.epochs):
            if on_epoch is None and self.recorded is not None and epoch > last_start:
                self._replay_in_background(self.epochs - epoch)
                return
            step(epoch)
            if on_epoch:
                on_epoch(epoch + 1)

    def step(self, epoch: int) -> None:
        """Judge the present weights, then take a step from them."""
        self._judge(epoch)
        loss = self.network.loss(epoch)
        for parameter, _ in self.trained:
            parameter.grad = None
        loss.sum().backward()
        self.network.forget()
        for parameter, leaf in self.trained:
            if leaf is not parameter:
                leaf.grad = None if parameter.grad is None else parameter.grad.t()
        self.optimiser.step()
        self.losses.index_copy_(0, self.network.count, loss.detach().to(self.losses).unsqueeze(0))
        self.network.count.add_(1)
        if self.on_cpu:
            self._check_finite(epoch + 1)

    def _recorded_step(self) -> Callable[[int], None]:
        """A step that records itself when it has run a few times, and is replayed from then on."""
        starts = {0, *self.network.objective.starts}
        stream = self.stream = torch.cuda.Stream(self.device)
        since = 0

        def step(epoch: int) -> None:
            nonlocal since
            if epoch in starts:  # other terms count from here on
                stream.synchronize()  # before the memory of a recording that may still be replayed is given back
                self.recorded, since = None, 0
            # The first step of all judges nothing yet, so the second is the first whole one.
            if self.recorded is None and since >= _EAGER_STEPS and epoch > 1 and self.records:
                self.recorded = self._record(epoch, stream)
            if self.recorded is not None:
                with torch.cuda.stream(stream):
                    self.recorded.replay()
                return
            since += 1
            stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(stream):
                self.step(epoch)
            torch.cuda.current_stream(self.device).wait_stream(stream)

        return step

    def _replay_in_background(self, times: int) -> None:
        """Replay what is recorded on a thread of its own: a GPU that has a lot to do lets its caller wait."""

        def replay() -> None:
            assert self.stream is not None
            assert self.recorded is not None
            with torch.cuda.stream(self.stream):
                for _ in range(times):
                    if self.stopped:
                        break
                    self.recorded.replay()
            self.stream.synchronize()  # whoever forgets to wait must not free what the GPU works on

        thread = ThreadPoolExecutor(1, thread_name_prefix="oddnode-replay")
        self.replayed = thread.submit(replay)
        thread.shutdown(wait=False)

    def _record(self, epoch: int, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph | None:
        graph = torch.cuda.CUDAGraph()
        random_numbers = torch.cuda.get_rng_state(stream.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        collects = gc.isenabled()
        gc.disable()  # freeing something while a step is recorded would spoil it
        try:
            with torch.cuda.stream(stream):
                graph.capture_begin(capture_error_mode="thread_local")  # others may replay meanwhile
                try:
                    self.step(epoch)
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            self.records = False
            self.network.forget()  # what a recording has computed is not there
            _renew_generator(stream.device, random_numbers)
            slow_for_want_of_memory = isinstance(error, torch.OutOfMemoryError)
            level = logging.WARNING if slow_for_want_of_memory else logging.INFO
            _log.log(level, "steps are not recorded as a CUDA graph: %s", str(error).splitlines()[0])
            return None
        finally:
            if collects:
                gc.enable()
        return graph

    def _judge(self, epoch: int) -> None:
        """The weights after ``epoch`` steps; those before the first one are no candidates."""
        self.network.look(epoch)
        if epoch == 0:
            return
        loss, count = self.network.judge().to(self.best_loss), self.network.count
        self.val_losses.index_copy_(0, count, loss.unsqueeze(0))
        better = loss < self.best_loss
        if self.on_cpu and not bool(better.any()):
            return
        self.best_loss.copy_(torch.where(better, loss, self.best_loss))
        self.best_epoch.copy_(torch.where(better, count, self.best_epoch))
        self.network.keep(better, self.best_state)

    def _finish(self) -> list[TrainingResult]:
        """Judge the last weights, restore the best ones and tell how it went."""
        try:
            if self.replayed is not None:
                self.replayed.result()
        except BaseException:  # Ctrl-C, say
            self.stopped = True
            raise
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
        self._judge(self.epochs)
        losses, val_losses = self.losses.cpu(), self.val_losses[1:].cpu()
        self._check_finite(self.epochs)
        self.network.restore(self.best_state)
        self.network.forget()
        outcomes = []
        for place, (epoch, best) in enumerate(zip(self.best_epoch.tolist(), self.best_loss.tolist(), strict=True)):
            rows = zip(losses[:, place].tolist(), val_losses[:, place].tolist(), strict=True)
            history = [{"epoch": n, "loss": loss, "val_loss": val} for n, (loss, val) in enumerate(rows, 1)]
            outcomes.append(TrainingResult(epoch, best, history))
        return outcomes

    def _check_finite(self, epochs: int) -> None:
        # On a CPU this is asked after every step, so one row is enough.
        losses = self.losses[epochs - 1 : epochs] if self.on_cpu else self.losses.cpu()
        bad = ~losses.isfinite()
        if not bool(bad.any()):
            return
        row = int(bad.any(dim=1).nonzero()[0])
        raise TrainingError(
            f"the loss became {losses[row][bad[row]][0].item()} in epoch {epochs - len(losses) + row + 1} of "
            f"{self.epochs}; lower the learning rate or the weights of the objective, or check the scale of the "
            "features"
        )


def _contiguous(parameter: nn.Parameter) -> nn.Parameter:
    """The same numbers as a parameter that lies in memory row by row, where the optimiser is faster with that."""
    if parameter.device.type != "cpu" or parameter.dim() != 2 or not parameter.t().is_contiguous():
        return parameter
    return parameter if parameter.is_contiguous() else nn.Parameter(parameter.detach().t())


def _renew_generator(device: torch.device, state: Tensor) -> None:
    """Give a device its random numbers back, which a recording that failed has left unusable."""
    fresh = torch.Generator(device)
    fresh.set_state(state)
    torch.cuda.default_generators[device.index].graphsafe_set_state(fresh.graphsafe_get_state())
