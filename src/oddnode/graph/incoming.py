"""What mini-batches and computations in blocks of nodes read of a graph, in memory or on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oddnode.graph.features import NodeFeatures
from oddnode.ops import weighted_in_degree, with_self_loops

if TYPE_CHECKING:
    from oddnode.ops import SparseMatrix

__all__ = ["IncomingEdges"]


class IncomingEdges(NodeFeatures):
    """Base of `oddnode.graph.Graph`: the edges by target, and products whose rows need not be in memory.

    Parameters
    ----------
    x : Tensor
        Features ``[N, F]``, floating point.
    """

    edge_index: Tensor
    edge_weight: Tensor | None
    #: Whether the edges and features are on disk, so that no whole pass of a network fits into memory.
    is_on_disk = False

    @property
    def gcn_matrix(self) -> SparseMatrix:
        """``D^-1/2 (A + I) D^-1/2``."""
        raise NotImplementedError

    @property
    def incoming(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The edges in CSR form, on the CPU.

        Where the edges to every node begin ``[N + 1]``, their sources ``[E]``, and their positions in ``edge_index``
        ``[E]``; ``None`` for edges that are stored in this order.
        """
        return self.cached("incoming", self._make_incoming, "edges")

    def _make_incoming(self) -> tuple[Tensor, Tensor, Tensor | None]:
        source, target = self.edge_index.cpu()
        order = target.argsort(stable=True)
        counts = torch.bincount(target, minlength=self.num_nodes)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), source[order], order

    @property
    def gcn_scale(self) -> Tensor:
        """``D^-1/2`` of the graph convolution, in which every node has a self-loop, ``[N]``."""
        return self.cached("gcn_scale", self._make_gcn_scale, "edges")[0]

    @property
    def loop_weight(self) -> Tensor:
        """The weights of these self-loops ``[N]``."""
        return self.cached("gcn_scale", self._make_gcn_scale, "edges")[1]

    def _make_gcn_scale(self) -> tuple[Tensor, Tensor]:
        ones = torch.ones_like(self.edge_index[0], dtype=self.x.dtype)
        weight = ones if self.edge_weight is None else self.edge_weight
        edges, weight = with_self_loops(self.edge_index, self.num_nodes, weight)
        scale = weighted_in_degree(edges, self.num_nodes, weight).to(self.x.dtype).pow(-0.5)
        return scale, weight[-self.num_nodes :]

    def convolve(self, values: Tensor) -> Tensor:
        """Compute ``D^-1/2 (A + I) D^-1/2 V``, without a gradient.

        Parameters
        ----------
        values : Tensor
            Shape ``[N, C]``.

        Returns
        -------
        Tensor
            Shape ``[N, C]``; for a graph on disk in a temporary file if it is large.
        """
        return self.gcn_matrix @ values.detach()

    def empty(self, width: int) -> Tensor:
        """Make room for a row of every node, as `convolve` does.

        Parameters
        ----------
        width : int
            The number of columns.

        Returns
        -------
        Tensor
            Shape ``[N, width]``, not initialised.
        """
        return self.x.new_empty(self.num_nodes, width)
