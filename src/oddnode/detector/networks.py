"""The networks of a detector: new ones by name, and ensembles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from oddnode._utils.suggestions import unknown
from oddnode.nn import BACKBONES, Ensemble

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["as_module", "new_backbone", "reset_parameters"]


def new_backbone(detector: Detector, num_features: int, num_classes: int) -> nn.Module:
    """Make a backbone with a detector's settings, for training or loading.

    Parameters
    ----------
    detector : Detector
        A detector whose ``backbone`` is a name.
    num_features : int
        Number of features of a node.
    num_classes : int
        Number of ID classes; spare logits are added.
    """
    name = detector.backbone
    if not isinstance(name, str) or name not in BACKBONES:
        raise unknown("backbone", str(name), BACKBONES)
    width = num_classes + detector.num_spare_logits
    return BACKBONES[name](
        num_features, detector.hidden_channels, width, num_layers=detector.num_layers, dropout=detector.dropout
    )


def as_module(networks: list[nn.Module]) -> nn.Module:
    """Combine networks into one module.

    Parameters
    ----------
    networks : list of torch.nn.Module
        At least one.

    Returns
    -------
    torch.nn.Module
        The network itself if there is only one, otherwise an `oddnode.nn.Ensemble`.
    """
    return networks[0] if len(networks) == 1 else Ensemble(networks).eval()


def reset_parameters(module: nn.Module) -> None:
    """Give a user's network new weights, so that the members of an ensemble differ.

    Parameters
    ----------
    module : torch.nn.Module
        The network, which is changed in place.
    """
    resets: list[Any] = [layer.reset_parameters for layer in module.modules() if hasattr(layer, "reset_parameters")]
    if not resets:
        raise ValueError(
            f"no layer of {type(module).__name__} has reset_parameters, so all networks of an ensemble would start "
            "from the same weights; build it from layers that have one (torch.nn.Linear, a PyG convolution, ...)"
        )
    for reset in resets:
        reset()
