"""Random streams that neither use nor move the caller's, and seeds that follow from seeds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["mixed_bits", "new_dropout_seed", "seeded"]

_MASK64 = 2**64 - 1


def new_dropout_seed() -> int:
    """A seed drawn from torch's random numbers, so that it follows from the seed that a network was made with."""
    return int(torch.randint(2**62, ()))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """A random stream of its own for the block: the caller's is neither used nor moved."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        _seed(seed, device)
        yield


def _seed(seed: int, device: torch.device) -> None:
    """As `torch.manual_seed`, which also turns to kinds of devices that are not there, and takes its time for that."""
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def mixed_bits(*parts: int) -> int:
    """64 bits that look random and follow from whole numbers."""
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
