"""Names of devices."""

from __future__ import annotations

import torch

__all__ = ["is_gpu", "resolve_device"]


def resolve_device(device: str) -> torch.device:
    """Resolve the name of a device.

    Parameters
    ----------
    device : str
        ``"auto"`` (a CUDA GPU if there is one, else the CPU), or any name that torch knows.

    Returns
    -------
    torch.device
        The device.
    """
    if device != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def is_gpu(device: str) -> bool:
    """Whether a device, ``"auto"`` included, is anything but the CPU.

    Parameters
    ----------
    device : str
        As for `resolve_device`.

    Returns
    -------
    bool
        True for accelerators of any kind.
    """
    return resolve_device(device).type != "cpu"
