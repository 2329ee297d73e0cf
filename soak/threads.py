"""Threads: the same bits as alone, and nothing of the caller's is moved."""

from __future__ import annotations

import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import torch
from torch_geometric.nn import GCNConv, GraphSAGE

from oddnode import Detector
from soak.bases import METHODS, fitted, small_graph
from soak.trial import Family, Trial

__all__ = ["Threads"]

_WORKERS = 4
_NAMES = ("nodesafe", "ensemble", "gat", "mixhop", "mahalanobis", "knn", "grasp", "gpn", "odin")
_MODES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "enable_grad": torch.enable_grad,
}


class _Waiting(GCNConv):
    """A layer during which other threads run, on a busy machine, too."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        time.sleep(1e-4)
        return super().forward(x, edge_index)


class _Keeping(torch.nn.Module):
    """A user's network that keeps what it computes in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = GCNConv(6, 8), _Waiting(8, 8), _Waiting(8, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        self.hidden = self.first(x, edge_index).relu()
        more = self.middle(self.hidden, edge_index)
        return self.last(self.hidden + more, edge_index)


class Threads(Family):
    """Fit, score and load in threads, beside a caller who draws random numbers."""

    name = "threads"
    quota = 120
    kinds: ClassVar[tuple[str, ...]] = ("fit", "score", "wrapped", "load", "caller's random numbers", "caller's modes")
    batch = 5

    def prepare(self, folder: Path) -> None:
        for name in _NAMES:
            fitted(name).save(folder / name)

    def start(self, folder: Path) -> None:
        sys.setswitchinterval(1e-5)  # threads meet within a small graph, too
        self.models = folder
        self.graph = small_graph(2)
        self.networks = GraphSAGE(6, 8, 2, 3), _Keeping()

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        name = rng.choice(_NAMES)
        filters, state = list(warnings.filters), _state()
        if kind == "fit":
            seeds = [rng.randrange(2**31) for _ in range(8)]
            violation = self._same(lambda seed: self._fit(name, seed), seeds)
        elif kind == "score":
            detector = Detector.load(self.models / name)
            violation = self._same(lambda _: detector.score_samples(self.graph), list(range(40)))
        elif kind == "wrapped":
            graphs = [small_graph(seed) for seed in range(4)]
            detector = Detector.wrap(rng.choice(self.networks), rng.choice(("knn", "energy", "mahalanobis")), graphs[0])
            violation = self._same(lambda item: detector.score_samples(graphs[item % 4]), list(range(80)))
        elif kind == "load":
            violation = self._same(
                lambda _: Detector.load(self.models / name).score_samples(self.graph), list(range(20))
            )
        elif kind == "caller's random numbers":
            violation = self._random_numbers(name, rng)
        else:
            violation = self._modes(name, rng)
        if violation is None and warnings.filters != filters:
            violation = f"the filters of warnings were changed: {[f for f in warnings.filters if f not in filters]}"
        if violation is None and kind != "caller's random numbers" and _state() != state:
            violation = "the caller's random numbers or modes were moved"
        yield Trial(kind, None if violation is None else f"{name}: {violation}")

    def _fit(self, name: str, seed: int) -> torch.Tensor:
        method, settings = METHODS[name]
        detector = Detector.from_recipe(method, seed=seed, epochs=5, hidden_channels=8, **settings)
        return detector.fit(self.graph).score_samples(self.graph)

    def _same(self, work: Callable[[int], torch.Tensor], items: list[int]) -> str | None:
        alone = [work(item) for item in items]
        with ThreadPoolExecutor(_WORKERS) as pool:
            together = list(pool.map(work, items))
        different = sum(not torch.equal(one, other) for one, other in zip(alone, together, strict=True))
        return f"{different} of {len(items)} differ in threads" if different else None

    def _random_numbers(self, name: str, rng: Random) -> str | None:
        """The caller draws from torch's generator while another thread fits and loads."""
        seed = rng.randrange(2**31)
        torch.manual_seed(seed)
        wanted = torch.rand(4000)
        torch.manual_seed(seed)
        done, errors = threading.Event(), []

        def disturb() -> None:
            try:
                while not done.is_set():
                    self._fit(name, 0)
                    Detector.load(self.models / name)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=disturb)
        thread.start()
        drawn = []
        for _ in range(40):
            drawn.append(torch.rand(100))
            done.wait(0.005)
        done.set()
        thread.join()
        if errors:
            raise errors[0]
        return None if torch.equal(torch.cat(drawn), wanted) else "the caller drew other random numbers"

    def _modes(self, name: str, rng: Random) -> str | None:
        seed, mode = rng.randrange(2**31), rng.choice(sorted(_MODES))
        wanted, dtype = self._fit(name, seed), torch.get_default_dtype()
        torch.set_default_dtype(rng.choice([torch.float32, torch.float64]))
        try:
            with _MODES[mode]():
                found = self._fit(name, seed)
                loaded = Detector.load(self.models / name)
                if not torch.equal(loaded.score_samples(self.graph), loaded.score_samples(self.graph)):
                    return f"a loaded model scores in two ways under {mode}"
        finally:
            torch.set_default_dtype(dtype)
        return None if torch.equal(found, wanted) else f"other scores under {mode}"


def _state() -> tuple[Any, ...]:
    numpy = np.random.get_state()  # noqa: NPY002
    return (
        torch.random.get_rng_state().numpy().tobytes(),
        random.getstate(),
        numpy[1].tobytes(),  # type: ignore[index]
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
    )
