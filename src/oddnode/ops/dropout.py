"""Dropout whose masks are a pure function of a seed, the epoch, the layer and the node; batch norm and ReLU before it.

The masks do not depend on what else is computed, in which order, for which nodes or on which device: a stacked network
drops what it would drop alone, and the rows of some nodes can be computed without the rest. On a CPU
this is also many times faster than ``torch.nn.functional.dropout``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oddnode._utils.random import _MASK64, mixed_bits
from oddnode.ops.triton_kernels import relu_dropout

_BITS = 32


@dataclass(eq=False)
class DropoutStream:
    """The dropout of one network in training; its masks follow from the epoch and graph that `at` has set."""

    seed: int
    _where: tuple[int, int] = (0, 0)
    _table: Tensor | None = None
    _epoch_counter: Tensor | None = None

    def follow(self, epoch_counter: Tensor, epochs: int, layers: int) -> None:
        """Read the epoch from a device-side counter from now on: no Python runs while a CUDA graph is replayed."""
        self._epoch_counter = epoch_counter
        self._table = stacked_keys([self.seed], epochs + 1, 2, layers).to(epoch_counter.device)

    def at(self, epoch: int, graph: int) -> None:
        """Set the epoch, and which of its graphs passes through the network."""
        self._where = epoch, graph

    def scales(self, nodes: Tensor, width: int, p: float, layer: int, dtype: torch.dtype) -> Tensor:
        """Compute the dropout factors of some nodes' hidden features."""
        epoch, graph = self._where
        if self._table is not None and self._epoch_counter is not None:
            key = self._table.index_select(0, self._epoch_counter)[0, graph, layer, 0]
        else:
            key = torch.tensor(dropout_keys(self.seed, epoch, graph, layer), dtype=torch.int32)
        return dropout_scales(key.to(nodes.device), nodes, width, p, dtype)

    def scales_like(self, values: Tensor, p: float, layer: int) -> Tensor:
        """Compute the dropout factors of values of any shape, by their flat index."""
        rows = torch.arange(-(-values.numel() // _BITS), device=values.device)
        return self.scales(rows, _BITS, p, layer, values.dtype).flatten()[: values.numel()].view(values.shape)


def dropout_keys(seed: int, epoch: int, graph: int, layer: int) -> tuple[int, int]:
    """Hash a seed, epoch, graph and layer to two signed 32-bit numbers."""
    bits = mixed_bits(seed, epoch, graph, layer)
    low, high = np.array([bits & 0xFFFFFFFF, bits >> 32], dtype=np.uint32).view(np.int32).tolist()
    return low, high


def dropout_scales(key: Tensor, nodes: Tensor, width: int, p: float, dtype: torch.dtype) -> Tensor:
    """Compute the dropout factors of nodes' features: 0 with probability ``p``, else ``1 / (1 - p)``."""
    if p == 0.5:  # one random bit per channel
        per_word, table = _BITS, _halves(dtype, key.device)
    else:  # sixteen
        per_word, table = 2, None
    words_per_node = -(-width // per_word)
    counter = (nodes.int() * words_per_node).unsqueeze(1) + torch.arange(
        words_per_node, dtype=torch.int32, device=key.device
    )
    leading = (slice(None), *[None] * (key.dim() - 1), slice(None))
    words = _random_words(counter[leading], key[..., :1], key[..., 1:])
    if table is not None:
        drawn = words.view(torch.uint8)[..., : -(-width // 8)]  # only the bytes that the channels need
        scales = F.embedding(drawn.int(), table).flatten(-2)
    else:
        lanes = words.view(torch.int16).int() & 0xFFFF
        scales = (lanes >= round(p * 65536)).to(dtype) * dropout_factor(p)
    return scales if scales.shape[-1] == width else scales[..., :width]


def dropout_factor(p: float) -> float:
    """Return the factor of features that are not dropped: 1 / (1 - p), for p in units of 1 / 65536."""
    return 65536 / max(65536 - round(p * 65536), 1)


@cache
def _halves(dtype: torch.dtype, device: torch.device) -> Tensor:
    """For every byte its eight bits, doubled."""
    byte, bit = torch.arange(256).unsqueeze(1), torch.arange(8)
    return (2 * ((byte >> bit) & 1)).to(device, dtype)


def _random_words(counter: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """A hash of the counter under a key: two rounds of an integer finaliser with little bias (Wellons' lowbias32)."""
    if counter.device.type != "cpu":
        return _finalise(_finalise(counter ^ low) ^ high)
    words = (counter ^ low).numpy().view(np.uint32)  # NumPy is faster for small arrays
    _finalise_in_place(words)
    words ^= high.numpy().view(np.uint32)
    _finalise_in_place(words)
    return torch.from_numpy(words.view(np.int32))


def _finalise_in_place(x: np.ndarray) -> None:
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)


def _finalise(x: Tensor) -> Tensor:
    # Torch's int32 wraps around; masks make its arithmetic shifts logical ones.
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x.mul_(0x7FEB352D)
    x = x.bitwise_xor_((x >> 15) & 0x1FFFF)
    x = x.mul_(0x846CA68B - 2**32)
    return x.bitwise_xor_((x >> 16) & 0xFFFF)


def stacked_keys(seeds: Sequence[int], epochs: int, graphs: int, layers: int) -> Tensor:
    """Compute all `dropout_keys` of stacked networks at once."""
    coordinates = np.ix_(np.arange(epochs), np.arange(graphs), np.arange(layers))
    state = _mix64_all(np.array([seed & _MASK64 for seed in seeds], dtype=np.uint64))
    for coordinate in coordinates:
        state = _mix64_all(state ^ coordinate[..., None].astype(np.uint64))
    low, high = state & np.uint64(0xFFFFFFFF), state >> np.uint64(_BITS)
    return torch.from_numpy(np.stack([low, high], axis=-1).astype(np.uint32).view(np.int32))


def _mix64_all(x: np.ndarray) -> np.ndarray:
    """splitmix64 of every number; unsigned ones wrap around by themselves."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(eq=False)
class PreNormActivations:
    """A layer's values before batch norm; with the values' own statistics they are normalised once."""

    values: Tensor
    _normalised: Tensor | None = None

    def activated(self, norm: nn.Module, rows: Tensor | None = None, scales: Tensor | None = None) -> Tensor:
        """Compute ``relu(norm(values)) * scales``, of all rows or of some."""
        if isinstance(norm, _BatchNorm) and norm.training:
            if self._normalised is None:  # once, because batch norm keeps track of the statistics
                with torch.enable_grad():  # an evaluation without gradients may come before the training pass
                    self._normalised = norm(self.values)
            hidden = self._normalised if rows is None else self._normalised.index_select(0, rows)
        else:
            hidden = norm(self.values if rows is None else self.values.index_select(0, rows))
        hidden = hidden.relu()
        return hidden if scales is None else hidden * scales


class ReluDropout(torch.autograd.Function):
    """ReLU and dropout of all rows or of some, as one Triton kernel; its masks are those of `dropout_scales`."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, rows: Tensor | None, keys: Tensor, epoch_counter: Tensor, place: int, p: float
    ) -> Tensor:
        values = values.contiguous()
        ctx.save_for_backward(values, rows, keys, epoch_counter)
        ctx.settings = place, p
        return relu_dropout(values, rows, keys, epoch_counter, place, p)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, rows, keys, epoch_counter = ctx.saved_tensors
        place, p = ctx.settings
        return relu_dropout(values, rows, keys, epoch_counter, place, p, grad), None, None, None, None, None
