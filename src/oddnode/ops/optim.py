"""The optimiser: torch's Adam, called directly."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim.adam import adam

__all__ = ["Adam"]


class Adam:
    """`torch.optim.Adam` with its defaults, without what that does around a step.

    Its ``step`` also asks whether a CUDA graph is being recorded. In a process forked after
    ``torch.cuda.is_available()`` that question fails, even for training on a CPU.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, weight_decay: float):
        self.parameters = parameters
        self._means = [torch.zeros_like(parameter) for parameter in parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in parameters]
        device = parameters[0].device.type
        fused = device in ("cpu", "cuda")
        where = parameters[0].device if fused else "cpu"
        self._steps = [torch.zeros((), dtype=torch.float32, device=where) for _ in parameters]
        self._settings: dict[str, Any] = {
            "lr": lr,
            "weight_decay": weight_decay,
            "beta1": 0.9,
            "beta2": 0.999,
            "eps": 1e-8,
            "amsgrad": False,
            "maximize": False,
            "fused": fused,
            "capturable": device == "cuda",
        }

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        state = zip(self.parameters, self._means, self._squares, self._steps, strict=True)
        moved = [(p, p.grad, mean, square, step) for p, mean, square, step in state if p.grad is not None]
        if any(grad.is_sparse for _, grad, *_ in moved):
            raise ValueError("a gradient is sparse, which Adam does not take; use sparse=False in embeddings")
        if moved:
            parameters, grads, means, squares, steps = (list(column) for column in zip(*moved, strict=True))
            adam(parameters, grads, means, squares, [], steps, **self._settings)
