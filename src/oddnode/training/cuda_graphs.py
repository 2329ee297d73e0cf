"""Steps captured as CUDA graphs and replayed: one launch instead of hundreds.

What a captured step allocates belongs to the memory pool of its graph, even after the step frees it. Everything else
that it reads or writes (parameters, matrices, counters) is held by the loop and its trainee, which live as long as the
graph. A graph is dropped only when its stream has nothing left to do.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from oddnode.training.base import TrainingHandle, TrainingResult
from oddnode.training.loop import TrainingLoop

_log = logging.getLogger("oddnode")

# Steps that run eagerly before one is captured: libraries set themselves up in the first one.
_EAGER_STEPS = 1


class CapturedSteps:
    """Takes the steps of a training loop on a separate CUDA stream, captured where possible.

    A step is captured once for every set of active terms. The CPU waits for the GPU only where a term becomes
    active. A capture that fails is logged once, and the steps run eagerly from then on.
    """

    def __init__(self, loop: TrainingLoop):
        self.loop = loop
        self.stream = torch.cuda.Stream(loop.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.can_capture = True
        self._eager_steps = 0
        self._replayed: Future[None] | None = None
        self._stopped = False

    def start(self, on_epoch: Callable[[int], None] | None = None) -> TrainingHandle[list[TrainingResult]]:
        """Enqueue all steps; the GPU may still be busy with them on return.

        What the steps cache for all users (matrices of the graph) is computed in eager steps, and the caller's stream
        waits for these.
        """
        try:
            self._take_steps(on_epoch)
        except BaseException:
            self.stream.synchronize()  # before the memory that it works on is freed
            raise
        return TrainingHandle(self._finish)

    def _take_steps(self, on_epoch: Callable[[int], None] | None) -> None:
        epochs = self.loop.epochs
        last_start = max((start for start in self.loop.trainee.starts if start < epochs), default=0)
        for epoch in range(epochs):
            if on_epoch is None and self.graph is not None and epoch > last_start:
                self._replay_in_background(epochs - epoch)
                return
            self.step(epoch)
            if on_epoch:
                on_epoch(epoch + 1)

    def step(self, epoch: int) -> None:
        """Take a step: replay the captured one, or capture it, or run it eagerly."""
        if epoch in self.loop.trainee.starts:  # the active terms change here
            self.stream.synchronize()  # before the memory of a graph that may still be replayed is freed
            self.graph, self._eager_steps = None, 0
        # The first step validates nothing, so the second one is the first that is like all others.
        if self.graph is None and self._eager_steps >= _EAGER_STEPS and epoch > 1 and self.can_capture:
            self.graph = self._capture(epoch)
        if self.graph is not None:
            with torch.cuda.stream(self.stream):
                self.graph.replay()
            return
        self._eager_steps += 1
        self.stream.wait_stream(torch.cuda.current_stream(self.loop.device))
        with torch.cuda.stream(self.stream):
            self.loop.step(epoch)
        torch.cuda.current_stream(self.loop.device).wait_stream(self.stream)

    def _capture(self, epoch: int) -> torch.cuda.CUDAGraph | None:
        device, graph = self.loop.device, torch.cuda.CUDAGraph()
        random_numbers = torch.cuda.get_rng_state(device)
        self.stream.wait_stream(torch.cuda.current_stream(device))
        collects = gc.isenabled()
        gc.disable()  # freeing CUDA memory that has nothing to do with the step would break the capture
        try:
            with torch.cuda.stream(self.stream):
                graph.capture_begin(capture_error_mode="thread_local")  # other threads may replay meanwhile
                try:
                    self.loop.step(epoch)
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            self.can_capture = False
            _renew_generator(device, random_numbers)
            # Lack of memory is worth a warning: it makes training slow that would be fast.
            level = logging.WARNING if isinstance(error, torch.OutOfMemoryError) else logging.INFO
            _log.log(level, "steps are not captured as a CUDA graph: %s", str(error).splitlines()[0])
            return None
        finally:
            if collects:
                gc.enable()
        return graph

    def _replay_in_background(self, times: int) -> None:
        """Replay from a worker thread, because ``replay()`` blocks once the launch queue is full."""

        def replay() -> None:
            assert self.graph is not None
            with torch.cuda.stream(self.stream):
                for _ in range(times):
                    if self._stopped:
                        break
                    self.graph.replay()
            self.stream.synchronize()  # so that nothing is freed under the GPU, even where nobody waits for the result

        thread = ThreadPoolExecutor(1, thread_name_prefix="oddnode-replay")
        self._replayed = thread.submit(replay)
        thread.shutdown(wait=False)

    def _finish(self) -> list[TrainingResult]:
        try:
            if self._replayed is not None:
                self._replayed.result()
        except BaseException:  # such as Ctrl-C
            self._stopped = True
            raise
        torch.cuda.current_stream(self.loop.device).wait_stream(self.stream)
        return self.loop.finish()


def _renew_generator(device: torch.device, state: Tensor) -> None:
    """Restore the random generator of a device, which a failed capture has left unusable."""
    fresh = torch.Generator(device)
    fresh.set_state(state)
    torch.cuda.default_generators[device.index].graphsafe_set_state(fresh.graphsafe_get_state())
