"""The networks of a detector: new ones by name, and several as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from oddnode._utils.suggestions import unknown
from oddnode.nn import BACKBONES, Ensemble

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector

__all__ = ["as_module", "new_backbone", "reset_parameters"]


def new_backbone(detector: Detector, num_features: int, num_classes: int) -> nn.Module:
    """Make a backbone of the shape that a detector's settings say; training and loading both make theirs here.

    Parameters
    ----------
    detector : Detector
        Its ``backbone`` is a name.
    num_features : int
        How many features a node has.
    num_classes : int
        How many ID classes there are; spare logits come on top.
    """
    name = detector.backbone
    if not isinstance(name, str) or name not in BACKBONES:
        raise unknown("backbone", str(name), BACKBONES)
    width = num_classes + detector.num_spare_logits
    return BACKBONES[name](
        num_features, detector.hidden_channels, width, num_layers=detector.num_layers, dropout=detector.dropout
    )


def as_module(networks: list[nn.Module]) -> nn.Module:
    """Join networks to one module.

    Parameters
    ----------
    networks : list of torch.nn.Module
        At least one.

    Returns
    -------
    torch.nn.Module
        The only network, or an `oddnode.nn.Ensemble` of several.
    """
    return networks[0] if len(networks) == 1 else Ensemble(networks).eval()


def reset_parameters(module: nn.Module) -> None:
    """Give a user's network new weights: members of an ensemble that start alike may end alike.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place.
    """
    resets: list[Any] = [layer.reset_parameters for layer in module.modules() if hasattr(layer, "reset_parameters")]
    if not resets:
        raise ValueError(
            f"no layer of {type(module).__name__} has reset_parameters, so all networks of an ensemble would start "
            "from the same weights; build it from layers that have one (torch.nn.Linear, a PyG convolution, ...)"
        )
    for reset in resets:
        reset()
