"""Random streams that leave the caller's untouched, and seeds derived from other seeds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["mixed_bits", "new_dropout_seed", "seeded"]

_MASK64 = 2**64 - 1


def new_dropout_seed() -> int:
    """Draw a seed from torch's generator, so that the seed of a network determines its dropout too."""
    return int(torch.randint(2**62, ()))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Run a block with its own random stream; the caller's stream is restored afterwards.

    Parameters
    ----------
    seed : int
        The seed of the block's stream.
    device : torch.device
        The device that draws numbers, besides the CPU.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        _seed(seed, device)
        yield


def _seed(seed: int, device: torch.device) -> None:
    """Like `torch.manual_seed`, but seeds only the CPU and this device; the full call probes every backend."""
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def mixed_bits(*parts: int) -> int:
    """Hash integers into 64 bits that look random.

    Parameters
    ----------
    *parts : int
        The integers, in order; only the lowest 64 bits of each count.

    Returns
    -------
    int
        From 0 to ``2**64 - 1``.
    """
    state = 0
    for part in parts:
        state = _mix64(state ^ (part & _MASK64))
    return state


def _mix64(x: int) -> int:
    """The output function of splitmix64 (Steele et al., OOPSLA 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)
