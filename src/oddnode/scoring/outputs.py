"""What a trained network says of a graph, computed once for all scorers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import torch
from torch import Tensor, nn

from oddnode.graph import Graph
from oddnode.nn import Ensemble, embed_with, mean_log_probabilities, run_backbone

__all__ = ["Outputs"]


class Outputs:
    """What a trained network says of one graph, computed when first asked for and shared by all scorers.

    The first ``num_classes`` logits belong to the ID classes; any after them are spare. ``labelled`` are the positions
    of the nodes of this graph whose ID label is known (training and validation nodes); ``None`` where there are none.
    """

    def __init__(self, module: nn.Module, graph: Graph, num_classes: int, labelled: Tensor | None = None):
        self.module = module
        self.graph = graph
        self.num_classes = num_classes
        self.labelled = labelled

    @cached_property
    def members(self) -> list[Outputs]:
        """What each network of an ensemble says; nothing for a single network."""
        networks: Iterable[nn.Module] = self.module.members if isinstance(self.module, Ensemble) else ()
        return [Outputs(network, self.graph, self.num_classes, self.labelled) for network in networks]

    @cached_property
    def all_logits(self) -> Tensor:
        """Logits of every node, spare ones included."""
        if self.members:
            return mean_log_probabilities([member.all_logits for member in self.members])
        with torch.no_grad():
            return run_backbone(self.module, self.graph)

    @property
    def logits(self) -> Tensor:
        """Logits of the ID classes. Of an ensemble, the logarithms of its members' mean probabilities among these."""
        if self.members:
            return mean_log_probabilities([member.logits for member in self.members])
        return self.all_logits[:, : self.num_classes]

    @cached_property
    def hidden(self) -> Tensor:
        """Features before the last layer, ``[N, H]``."""
        with torch.no_grad():
            return embed_with(self.module, self.graph)
