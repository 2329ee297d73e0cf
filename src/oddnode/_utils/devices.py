"""Names of devices."""

from __future__ import annotations

import os
from pathlib import Path

import torch


def resolve_device(device: str) -> torch.device:
    """Resolve the name of a device."""
    if device_type(device) == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {device}, but torch finds no CUDA GPU; use cpu or auto")
    return torch.device(device_type(device) if device == "auto" else device)


def device_type(device: str) -> str:
    """Return the type of a device, which this machine need not have."""
    if device == "auto":
        return _best_type()
    try:
        return torch.device(device).type
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}; expected auto, cpu or cuda") from None


def _best_type() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def is_gpu(device: str) -> bool:
    """Whether a device, ``"auto"`` included, is anything but the CPU."""
    return device_type(device) != "cpu"


def processes_share_gpu() -> bool:
    """Whether NVIDIA's Multi-Process Service runs, so that kernels of several processes run at the same time.

    Without it a GPU works for one process at a time and switches between them.
    """
    default = "/tmp/nvidia-mps"  # where CUDA looks; nothing is written or read there  # nosec B108
    return (Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", default)) / "control").exists()
