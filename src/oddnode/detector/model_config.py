"""The schema of a saved model's ``config.json``: every field with its type and limits. Imports no slow module."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from oddnode.detector.checked_json import LARGEST_INT, Count, LayerCount, Number

__all__ = ["CalibrationConfig", "ModelConfig", "ProfileConfig", "Settings", "StateConfig"]


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
    batch_norm: Literal["id-graph", "running"]
    propagation: Literal["auto", "as-given"]
    ensemble: Annotated[int, Meta(ge=1, le=1000)]
    seed: int


_Size = Annotated[int, Meta(ge=0, le=2**53)]


class ProfileConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The section of ``config.json`` on the training graph.

    Parameters
    ----------
    num_nodes, num_edges, mean_degree, isolated_share, labelled_edges, homophily, chance
        As for `oddnode.graph.GraphProfile`.
    """

    num_nodes: _Size
    num_edges: _Size
    mean_degree: Number
    isolated_share: Number
    labelled_edges: _Size
    homophily: Number | None
    chance: Number | None


class StateConfig(Struct, frozen=True):
    """The fields of ``config.json`` on a fitted state.

    Parameters
    ----------
    num_features, num_classes, max_abs_feature, best_epoch, advice
        As for `oddnode.detector.FittedState`.
    dtype : {"float32", "float64"}
        The precision of the network.
    graph : ProfileConfig
        Size, degrees and homophily of the training graph.
    num_networks : int
        Number of networks; more than the setting ``ensemble`` if they were cross-fitted.
    learnt : dict
        Values that the scorer learnt, apart from tensors, by path.
    """

    num_features: Count
    num_classes: Count
    max_abs_feature: Annotated[float, Meta(ge=0, le=1e300)]
    best_epoch: _Size
    dtype: Literal["float32", "float64"]
    graph: ProfileConfig
    advice: list[str]
    num_networks: Count
    learnt: dict[str, bool | int | Number | str | None]


class CalibrationConfig(Struct, frozen=True):
    """The section of ``config.json`` on a calibration.

    Parameters
    ----------
    false_alarm_rate, threshold : float
        As for `oddnode.detector.Calibration`; the threshold is computed again and compared.
    num_nodes : int
        Number of calibration nodes.
    """

    false_alarm_rate: Number
    threshold: Number
    num_nodes: Count


class ModelConfig(StateConfig, frozen=True):
    """The schema of ``config.json``; callers check additional sections, such as that of tables, themselves.

    Parameters
    ----------
    num_features, num_classes, max_abs_feature, best_epoch, dtype, graph, advice, learnt
        As for `StateConfig`.
    oddnode_version : str
        The version that wrote it.
    method : str or None
        The method that the detector was made of; ``None`` if its parts were chosen one by one.
    hyper_parameters : dict
        The plain ones of its hyper-parameters that were given.
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
    method: str | None
    hyper_parameters: dict[str, bool | int | Number | str | None]
    backbone: str | dict[str, str]
    objective: dict[str, Any] | None
    scorer: dict[str, Any]
    settings: Settings
    calibration: CalibrationConfig | None
