"""When two detectors train the same network."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from oddnode.objectives import CrossEntropy

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["TrainingKey"]

# What follows after training, or has a field of its own.
_APART = {"backbone", "objective", "scorer", "propagation", "trainer", "device", "seed"}


@dataclass(frozen=True)
class TrainingKey:
    """Everything about a detector that its training depends on; equal keys, equal networks on the same data.

    The scorer and the propagation are no part of it: they come after training. `dataclasses.replace` blanks fields
    that a caller keeps elsewhere.

    Parameters
    ----------
    backbone : str
        The name of the network, or the repr of a module.
    weights : str or None
        A hash of the weights that a module starts from; ``None`` for a named backbone, and without the seed.
    objective : str
        The repr of the objective.
    settings : tuple of (str, str)
        All other settings, by name, as reprs.
    trainer : str
        The repr of the trainer; ``""`` for the default.
    device : str
        Where it is trained.
    seed : int or None
        ``None`` if networks that differ in their seed only count as the same.
    """

    backbone: str
    weights: str | None
    objective: str
    settings: tuple[tuple[str, str], ...]
    trainer: str
    device: str
    seed: int | None

    @classmethod
    def of(cls, detector: Detector, include_seed: bool) -> TrainingKey:
        """The key of a detector.

        Parameters
        ----------
        detector : Detector
            Fitted or not.
        include_seed : bool
            Whether the seed, and with it the weights that a module starts from, are part of the key.
        """
        backbone = detector.backbone
        params = detector.get_params(deep=False).items()
        return cls(
            backbone=backbone if isinstance(backbone, str) else repr(backbone),
            weights=_hash(backbone) if include_seed and isinstance(backbone, nn.Module) else None,
            objective=repr(detector.objective or CrossEntropy()),
            settings=tuple(sorted((name, repr(value)) for name, value in params if name not in _APART)),
            trainer="" if detector.trainer is None else repr(detector.trainer),
            device=detector.device,
            seed=detector.seed if include_seed else None,
        )


def _hash(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(-1).numpy().tobytes())
    return digest.hexdigest()
