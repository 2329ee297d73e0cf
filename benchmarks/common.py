"""What the speed benchmarks share: the machine in words, timers, synthetic graphs and where results go."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch_geometric
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


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def store(name: str, device: str, rows: list[dict[str, Any]], out: Path | None = None) -> Path:
    """Write results as ``results/NAME-DEVICE.json``, with the machine they come from."""
    folder = out or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{device}.json"
    content = {
        "benchmark": name,
        "device": device,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        "rows": rows,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


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
