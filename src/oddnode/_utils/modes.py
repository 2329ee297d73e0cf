"""The gradient mode of this library's own work, whatever the caller's is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["gradients_enabled"]


@contextmanager
def gradients_enabled() -> Iterator[None]:
    """Work as outside of any `torch.no_grad` or `torch.inference_mode` of the caller; a decorator, too.

    Training and some scorers differentiate, and a tensor that was made in inference mode can never be differentiated.
    Both modes belong to a thread, so no other thread notices.
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield
