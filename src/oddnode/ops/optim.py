"""The optimiser: torch's Adam, called directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam


class Adam:
    """`torch.optim.Adam` with its defaults, reduced to the update itself.

    Torch's ``step`` also checks whether a CUDA graph is being captured. In a process forked after
    ``torch.cuda.is_available()`` that check fails, even for training on a CPU.

    By default a fused kernel does the update. Without it, parameters move bit for bit as by `torch.optim.Adam`.
    """

    def __init__(self, parameters: Sequence[Tensor], lr: float, weight_decay: float = 0.0, fused: bool = True):
        self.parameters = list(parameters)
        # Torch's CPU kernel is faster with contiguous tensors: a weight stored transposed is updated as its transpose.
        self._transposed = [
            p.device.type == "cpu" and p.dim() == 2 and not p.is_contiguous() and p.t().is_contiguous()
            for p in self.parameters
        ]
        pairs = zip(self.parameters, self._transposed, strict=True)
        self._contiguous = [p.detach().t() if transposed else p for p, transposed in pairs]
        self._means = [torch.zeros_like(values) for values in self._contiguous]
        self._squares = [torch.zeros_like(values) for values in self._contiguous]
        device = self.parameters[0].device
        fused = fused and device.type in ("cpu", "cuda")
        where = device if fused else "cpu"
        self._steps = [torch.zeros((), dtype=torch.float32, device=where) for _ in self.parameters]
        self._settings: dict[str, Any] = {
            "lr": lr,
            "weight_decay": weight_decay,
            "beta1": 0.9,
            "beta2": 0.999,
            "eps": 1e-8,
            "amsgrad": False,
            "maximize": False,
            "fused": fused or None,  # `None`: as torch chooses by itself
            "capturable": fused and device.type == "cuda",
        }

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        grads = [
            p.grad.t() if transposed and p.grad is not None else p.grad
            for p, transposed in zip(self.parameters, self._transposed, strict=True)
        ]
        if any(grad is not None and grad.is_sparse for grad in grads):
            raise ValueError("a gradient is sparse, which Adam does not take; use sparse=False in embeddings")
        state = zip(self._contiguous, grads, self._means, self._squares, self._steps, strict=True)
        moved = [row for row in state if row[1] is not None]
        if moved:
            values, present, means, squares, steps = (list(column) for column in zip(*moved, strict=True))
            adam(values, present, means, squares, [], steps, **self._settings)
