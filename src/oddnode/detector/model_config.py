"""The schema of a saved model's ``config.json``: every field with its type and limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from oddnode.detector.calibration import CalibrationConfig
from oddnode.detector.checked_json import LARGEST_INT, Count, LayerCount, Number
from oddnode.detector.fitted import StateConfig
from oddnode.training import BatchNormStatistics

__all__ = ["ModelConfig", "Settings"]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The saved arguments of `Detector`, except for its parts; the device and the trainer are not saved.

    Parameters
    ----------
    hidden_channels, num_layers, dropout, num_spare_logits, epochs, lr, weight_decay, val_share
        As for `oddnode.Detector`.
    batch_norm, propagation, ensemble, seed
        As for `oddnode.Detector`.
    """

    hidden_channels: Count
    num_layers: LayerCount
    dropout: Number
    num_spare_logits: Annotated[int, Meta(ge=0, le=LARGEST_INT)]
    epochs: Count
    lr: Number
    weight_decay: Number
    val_share: Number
    batch_norm: BatchNormStatistics
    propagation: Literal["auto", "as-given"]
    ensemble: Annotated[int, Meta(ge=1, le=1000)]
    seed: int


class ModelConfig(StateConfig, frozen=True):
    """The schema of ``config.json``; callers check additional sections, such as that of tables, themselves.

    Parameters
    ----------
    num_features, num_classes, max_abs_feature, best_epoch, dtype, graph, advice, learnt
        As for `StateConfig`.
    oddnode_version : str
        The version that wrote it.
    backbone : str or dict
        A name, ``{"name": ..., "plugin": ...}``, or ``{"own": ...}`` for the user's own module.
    objective, scorer : dict or None
        As `oddnode.detector.part_config.encode` returns them.
    settings : Settings
        The other arguments of the detector.
    calibration : CalibrationConfig or None
        The calibration, if there is one.
    """

    oddnode_version: str
    backbone: str | dict[str, str]
    objective: dict[str, Any] | None
    scorer: dict[str, Any]
    settings: Settings
    calibration: CalibrationConfig | None
