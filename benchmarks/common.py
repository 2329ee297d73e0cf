"""What the speed benchmarks share: the machine in words, timers, synthetic graphs and where results go."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch_geometric
from torch import Tensor
from torch_geometric.data import Data

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Hardware and versions."""
    info: dict[str, Any] = {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
    }
    if torch.cuda.is_available():
        info["gpu"] = torch.cuda.get_device_name()
    return info


def provenance() -> dict[str, Any]:
    """The date, the source that was measured, and the machine: what every stored result begins with."""
    from oddnode.runner.source_key import source_key  # here, because older sources that are compared with have none

    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _commit(),
        "source_key": source_key(),
        "machine": machine(),
    }


def _commit() -> str | None:
    """The commit that is checked out, with ``+`` where files have changed since; None in a copy without git."""
    git = ("git", "-C", str(Path(__file__).parent))
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = ["status", "--porcelain", "--untracked-files=no", "--", ":/src", ":/benchmarks/*.py"]
        changes = subprocess.run([*git, *changed], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changes else "")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def store(name: str, device: str, rows: list[dict[str, Any]], out: Path | None = None) -> Path:
    """Write results as ``results/NAME-DEVICE.json``, with the source and the machine they come from."""
    folder = out or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{device}.json"
    content = {"benchmark": name, "device": device, **provenance(), "rows": rows}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def whole_number(text: str) -> int:
    """Read a number of nodes or edges, which may be written as 1e8."""
    return int(float(text))


def wait(device: torch.device | str) -> None:
    """Until the device has done what it was asked to."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any], device: torch.device | str = "cpu", repeats: int = 5) -> float:
    """The shortest of several runs, after one that does not count."""
    work()
    times = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return min(times)


def medians(ways: Mapping[str, Callable[[], Any]], device: torch.device | str, rounds: int = 15) -> dict[str, float]:
    """Milliseconds per call of several ways to do one thing, the medians over rounds in which they take turns.

    Whatever else the machine does meets all of them. A way is called several times per round, so that a round of it
    takes at least five milliseconds.
    """
    calls = {name: max(1, min(200, int(0.005 / max(seconds(work, device, 3), 1e-6)))) for name, work in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            wait(device)
            start = time.perf_counter()
            for _ in range(calls[name]):
                work()
            wait(device)
            times[name].append((time.perf_counter() - start) / calls[name])
    return {name: 1e3 * median(taken) for name, taken in times.items()}


def works_under_vmap(function: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether `torch.vmap` gives the numbers and the gradients of a loop."""
    stacked = torch.stack([x, -x, 2 * x]).requires_grad_()
    try:
        together, alone = torch.vmap(function)(stacked), torch.stack([function(each) for each in stacked])
        direction = torch.randn_like(alone)
        pairs = [(together, alone)]
        pairs.append(tuple(torch.autograd.grad(out, stacked, direction)[0] for out in (together, alone)))  # type: ignore[arg-type]
        return all(torch.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in pairs)
    except Exception as error:  # whatever stops it is a no
        print(f"no vmap: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return False


def can_be_captured(function: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether a CUDA graph of forward and backward pass gives the right gradient for other values of ``x``."""
    held = x.clone().requires_grad_()
    direction = torch.randn_like(function(held))
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    try:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                torch.autograd.grad(function(held), held, direction)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            out = function(held)
            gradient = torch.autograd.grad(out, held, direction)[0]
        with torch.no_grad():
            held.mul_(-3.0)
        graph.replay()
        torch.cuda.synchronize()
        other = (-3.0 * x).requires_grad_()
        expected = function(other)
        pairs = [(out, expected), (gradient, torch.autograd.grad(expected, other, direction)[0])]
        return all(torch.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in pairs)
    except Exception as error:  # whatever stops it is a no
        print(f"no CUDA graph: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return False


def random_graph(nodes: int, edges: int, features: int, classes: int, seed: int = 0, train_share: float = 0.1) -> Data:
    """A graph with uniformly random edges in both directions, and random splits 1:1:8."""
    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(nodes, (2, edges // 2), generator=generator)
    order = torch.randperm(nodes, generator=generator)
    cut = max(int(train_share * nodes), classes)
    masks = torch.zeros(3, nodes, dtype=torch.bool)
    masks[0, order[:cut]] = masks[1, order[cut : 2 * cut]] = masks[2, order[2 * cut :]] = True
    y = torch.randint(classes, (nodes,), generator=generator)
    y[order[:classes]] = torch.arange(classes)
    return Data(
        x=torch.randn(nodes, features, generator=generator),
        edge_index=torch.cat([half, half.flip(0)], dim=1),
        y=y,
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
    )
