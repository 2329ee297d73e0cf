"""The network of the figure of two-dimensional logits."""

from __future__ import annotations

from torch import Tensor, nn

from oddnode._utils.random import new_weights, seeded
from oddnode.graph import Graph
from oddnode.nn import GAT, Backbone
from oddnode.tasks import Task

__all__ = ["PlanarGAT", "new_planar_gat"]


class PlanarGAT(Backbone):
    r"""A GAT with a two-dimensional bottleneck before the logits, :math:`R^D \to R^2 \to R^C`; ``embed`` returns it.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Numbers of features, hidden units and logits.
    dropout : float
        Dropout probability.
    """

    supports_capture = True

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, dropout: float = 0.0):
        super().__init__()
        self.body = GAT(in_channels, hidden_channels, hidden_channels, dropout=dropout)
        self.dropout = dropout
        self.to_plane = nn.Linear(hidden_channels, 2)
        self.to_logits = nn.Linear(2, out_channels)

    def embed(self, graph: Graph) -> Tensor:
        """Run all layers but the last.

        Parameters
        ----------
        graph : Graph
            The graph, with ``N`` nodes.

        Returns
        -------
        Tensor
            A point in the plane for every node ``[N, 2]``.
        """
        return self.to_plane(self.body.run(graph))

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        """Turn points into logits.

        Parameters
        ----------
        hidden : Tensor
            The points ``[N, 2]``.
        graph : Graph
            The graph they belong to.

        Returns
        -------
        Tensor
            Logits ``[N, C]``.
        """
        return self.to_logits(hidden)


def new_planar_gat(task: Task, seed: int) -> PlanarGAT:
    """Build a network for a task, with initial weights determined by the seed.

    Parameters
    ----------
    task : Task
        Determines the number of features and classes.
    seed : int
        Seed of the weights.

    Returns
    -------
    PlanarGAT
        The network, on the CPU.
    """
    with seeded(seed), new_weights():
        return PlanarGAT(task.train.x.shape[1], 64, task.num_classes, dropout=0.5)
