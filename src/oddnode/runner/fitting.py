"""Fits the detectors of a group: seeds are stacked, and on a GPU several stacks train concurrently."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from oddnode.detector import Detector, start_fitting
from oddnode.runner.detectors import build_detector
from oddnode.runner.work import Training
from oddnode.tasks import Task
from oddnode.training import TrainingHandle


@dataclass
class Fitted:
    """A fitted detector, or the reason why there is none."""

    training: Training
    detector: Detector | None  # The fitted detector; `None` if the training failed
    seconds: float  # The time this process spent on the training: an equal share of the time of its stack
    error: Exception | None = None  # Why it failed


def fit_stacks(
    stacks: Sequence[Sequence[Training]], tasks: Mapping[int, Task], device: str = "auto", gpu_share: float = 1.0
) -> Iterator[Fitted]:
    """Fit stacks of trainings. On a GPU they train concurrently, as far as memory allows.

    If a stack fails, its trainings are run one by one, so that one failure does not affect the others.
    """
    memory, waiting = _Memory(device, gpu_share), deque[_Fit]()
    for stack in stacks:
        fit = _Fit(stack, tasks, device)
        if waiting and not memory.has_room():
            _wait_for_all(waiting)
        fit.start()
        if waiting and isinstance(fit.error, torch.OutOfMemoryError):
            _wait_for_all(waiting)
            fit.start()
        memory.note_training()
        waiting.append(fit)
    while waiting:
        yield from waiting.popleft().finish()


def _wait_for_all(fits: Iterable[_Fit]) -> None:
    for fit in fits:
        fit.wait()
    torch.cuda.empty_cache()


class _Fit:
    """The detectors of one stack, while they are fitted."""

    def __init__(self, trainings: Sequence[Training], tasks: Mapping[int, Task], device: str):
        self.trainings = trainings
        self.tasks = tasks
        self.device = device
        self.detectors: list[Detector] = []
        self.handle: TrainingHandle[None] | None = None
        self.error: Exception | None = None
        self.seconds = 0.0

    def start(self) -> None:
        self.error = None
        with self._timed():
            tasks = [self.tasks[training.seed] for training in self.trainings]
            self.detectors = [
                build_detector(training, training.methods[0], task, self.device)
                for training, task in zip(self.trainings, tasks, strict=True)
            ]
            exposed = self.detectors[0].needs_exposure
            exposures = [task.exposure if exposed else None for task in tasks]
            self.handle = start_fitting(self.detectors, [task.train for task in tasks], exposures)

    def wait(self) -> None:
        if self.handle is not None:
            with self._timed():
                self.handle.result()
            self.handle = None

    def finish(self) -> Iterator[Fitted]:
        self.wait()
        share = self.seconds / len(self.trainings)
        if self.error is None:
            for training, detector in zip(self.trainings, self.detectors, strict=True):
                yield Fitted(training, detector, share)
        elif len(self.trainings) == 1:
            yield Fitted(self.trainings[0], None, share, self.error)
        else:
            self.detectors, self.error = [], None  # frees their memory
            for training in self.trainings:
                alone = _Fit([training], self.tasks, self.device)
                alone.start()
                yield from alone.finish()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        except Exception as error:
            self.error = error
        finally:
            self.seconds += time.perf_counter() - began


class _Memory:
    """Estimates whether another training fits on a CUDA GPU, allowing twice the largest so far; true elsewhere."""

    def __init__(self, device: str, share: float):
        self._device = torch.device("cuda" if device == "auto" else device)
        self._share = share
        self._taken = self._now()
        if self._taken > self._limit() / 2:
            torch.cuda.empty_cache()  # memory that earlier tasks have left in the cache
            self._taken = self._now()
        self._largest = 0

    def _now(self) -> int:
        counts = self._device.type == "cuda" and torch.cuda.is_initialized()
        return torch.cuda.memory_reserved(self._device) if counts else 0

    def _limit(self) -> float:
        # Asking the driver for free memory would wait for the running steps.
        on_cuda = self._device.type == "cuda" and torch.cuda.is_available()
        return self._share * torch.cuda.get_device_properties(self._device).total_memory if on_cuda else float("inf")

    def note_training(self) -> None:
        """Update the largest memory of a training from the one that has just started."""
        now = self._now()
        self._largest, self._taken = max(self._largest, now - self._taken), now

    def has_room(self) -> bool:
        """Whether another training fits."""
        return self._now() + 2 * self._largest < self._limit()
