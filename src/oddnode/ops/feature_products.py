"""Products of sparse features with a weight, shared by the graphs of one training step."""

from __future__ import annotations

import torch
from torch import Tensor

from oddnode.ops.sparse import SparseMatrix

__all__ = ["FeatureProducts"]


class FeatureProducts:
    """The last product ``X W``, for graphs that have the same features and pass through a network in the same step.

    The product is the largest cost of a step on a CPU. The ID graph and an exposure graph often differ in their edges
    alone; they then share one product, forward and backward. An instance belongs to a single step: weights must not
    change while it is in use, and nothing of it may be kept for the next step.

    Examples
    --------
    >>> import torch
    >>> features = SparseMatrix.from_dense(torch.eye(2))
    >>> weight = torch.nn.Parameter(torch.ones(3, 2))
    >>> products = FeatureProducts()
    >>> products.linear(features, weight) is products.linear(features, weight)
    True
    """

    def __init__(self) -> None:
        self._last: tuple[SparseMatrix, Tensor, bool, Tensor] | None = None

    def linear(self, features: SparseMatrix, weight: Tensor) -> Tensor:
        """Compute ``X W^T``, or return it where the same objects were multiplied last.

        Parameters
        ----------
        features : SparseMatrix
            The features ``X``, ``[N, F]``.
        weight : Tensor
            Laid out as in `torch.nn.Linear`, ``[C, F]``.

        Returns
        -------
        Tensor
            Shape ``[N, C]``.
        """
        with_gradient = weight.requires_grad and torch.is_grad_enabled()
        if self._last is not None:
            known_features, known_weight, had_gradient, product = self._last
            if known_features is features and known_weight is weight and had_gradient == with_gradient:
                return product
        product = features @ weight.t()
        self._last = features, weight, with_gradient, product
        return product
