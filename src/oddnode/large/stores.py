"""PyG's interfaces to graphs that are not in memory, so that its loaders can read a folder."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

__all__ = ["MASKS", "ReadOnlyStores"]

#: The masks that a graph may have.
MASKS = ("train_mask", "val_mask", "calibration_mask", "reference_mask", "ood_mask")


class ReadOnlyStores(FeatureStore, GraphStore):
    """A `FeatureStore` and a `GraphStore` of one kind of nodes and edges; nothing can be put into them."""

    _arrays: dict[str, Tensor]

    @property
    @abstractmethod
    def num_nodes(self) -> int:
        """Number of nodes."""

    @property
    @abstractmethod
    def edge_index(self) -> Tensor:
        """Edges ``[2, E]``."""

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        values = self._arrays.get(attr.attr_name)
        index = attr.index
        return values if values is None or index is None else values[index]

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        values = self._get_tensor(attr)
        return None if values is None else tuple(values.shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """The attributes of the nodes: ``x``, ``y`` and the masks that there are."""
        names = [name for name in ("x", "y", *MASKS) if name in self._arrays]
        return [TensorAttr(group_name=None, attr_name=name) for name in names]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.layout == EdgeLayout.CSC:
            return self._arrays["sources"], self._arrays["offsets"]
        if edge_attr.layout != EdgeLayout.COO:
            return None
        source, target = self.edge_index
        return source, target

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """The edges, sorted by target."""
        size = self.num_nodes, self.num_nodes
        return [EdgeAttr(edge_type=None, layout=EdgeLayout.CSC, is_sorted=True, size=size)]

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        return False

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return False

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        return False

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        return False
