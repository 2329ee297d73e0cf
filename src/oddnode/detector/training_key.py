"""Keys that are equal for detectors that train the same network."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from oddnode.detector.adaptation import scorer_of
from oddnode.objectives import CrossEntropy

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["TrainingKey"]

# Parameters that take effect after training, or have their own field.
_EXCLUDED = {"backbone", "objective", "scorer", "propagation", "trainer", "device", "seed"}


@dataclass(frozen=True)
class TrainingKey:
    """Everything that the training of a detector depends on; equal keys give equal networks on the same data.

    Scorer and propagation take effect after training, so they are not included; but a scorer may need reference nodes,
    which are kept out of the training, or exposed nodes.

    Parameters
    ----------
    backbone : str
        The name of the network, or the repr of a module.
    weights : str or None
        A hash of a module's initial weights; ``None`` for a named backbone, and without the seed.
    objective : str
        The repr of the objective.
    settings : tuple of (str, str)
        All other settings, by name, as reprs.
    trainer : str
        The repr of the trainer; ``""`` for the default.
    device : str
        The device to train on.
    seed : int or None
        The seed; ``None`` if it is to be ignored.
    sets_reference_aside : bool
        Whether the scorer needs reference nodes, which are kept out of the training.
    needs_exposure : bool
        Whether the objective or the scorer learns from nodes that are known to be OOD.
    """

    backbone: str
    weights: str | None
    objective: str
    settings: tuple[tuple[str, str], ...]
    trainer: str
    device: str
    seed: int | None
    sets_reference_aside: bool = False
    needs_exposure: bool = False

    @classmethod
    def of(cls, detector: Detector, include_seed: bool) -> TrainingKey:
        """Compute the key of a detector.

        Parameters
        ----------
        detector : Detector
            A detector, fitted or not.
        include_seed : bool
            Whether the key includes the seed and the initial weights of a module.
        """
        backbone = detector.backbone
        params = detector.get_params(deep=False).items()
        return cls(
            backbone=backbone if isinstance(backbone, str) else repr(backbone),
            weights=_hash(backbone) if include_seed and isinstance(backbone, nn.Module) else None,
            objective=repr(detector.objective or CrossEntropy()),
            settings=tuple(sorted((name, repr(value)) for name, value in params if name not in _EXCLUDED)),
            trainer="" if detector.trainer is None else repr(detector.trainer),
            device=detector.device,
            seed=detector.seed if include_seed else None,
            sets_reference_aside=scorer_of(detector).needs_reference,
            needs_exposure=detector.needs_exposure,
        )


def _hash(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(-1).numpy().tobytes())
    return digest.hexdigest()
