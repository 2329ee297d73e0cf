"""A checked graph with the matrices that are computed once per graph.

The rest of the library works on `Graph`. `Graph.from_data` makes one from a user's `torch_geometric.data.Data`, and is
the only place where its tensors are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from oddnode.functional import support
from oddnode.graph.source import GraphSource, as_source
from oddnode.graph.validation import _checked_edges, _checked_features
from oddnode.ops import (
    FeatureProducts,
    SparseMatrix,
    SparsePattern,
    direction_sums,
    effective_degree,
    gcn_matrix,
    neighbour_mean_matrix,
    sums_agree,
    weighted_in_degree,
    with_self_loops,
)

# Features with a smaller share of non-zeros (bags of words) are multiplied as a sparse matrix on a CPU.
_SPARSE_BELOW = 0.15

T = TypeVar("T")
_Basis = Literal["graph", "edges", "features"]


def cached_in(derived_from: _Basis) -> Callable[[Callable[[Any], T]], Callable[[Any], T]]:
    """Compute a property once, as `Graph.cached` does."""

    def decorate(make: Callable[[Any], T]) -> Callable[[Any], T]:
        @wraps(make)
        def get(graph: Graph) -> T:
            cache = graph.caches[derived_from]
            if make.__name__ not in cache:
                cache[make.__name__] = make(graph)
            return cache[make.__name__]

        return get

    return decorate


# Checked features and graphs by device and by the ids of the user's tensors they come from. These are kept alive, so
# that Python cannot reuse their ids.
_active_cache: ContextVar[dict[tuple[Any, ...], tuple[Any, Any]] | None] = ContextVar("graph_cache", default=None)


@contextmanager
def graph_cache() -> Iterator[None]:
    """Check and prepare each graph only once within the block; the data must not change in the meantime."""
    token = _active_cache.set({})
    try:
        yield
    finally:
        _active_cache.reset(token)


def fractions(count: int, like: Tensor) -> Tensor:
    """Numbers between 0 and 1 without a pattern ``[count]``, in double precision, on the device of a tensor."""
    return (torch.arange(1, count + 1, device=like.device, dtype=torch.float64) * 0.6180339887498949).frac()


def feature_checksums(x: Tensor) -> Tensor:
    """A weighted sum of every row of features ``[n]``, with a different weight for each column."""
    return x.double() @ (1.0 + fractions(x.shape[1], x))


class CSR(NamedTuple):
    """Incoming edges sorted by target, then by source."""

    offsets: Tensor  # Where the edges to each node begin, `[N + 1]`
    sources: Tensor  # `[E]`
    weights: Tensor | None  # `[E]`, in the order of `sources`

    def edges_to(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Indices of the edges that lead to some nodes ``[e]``, and the index of each one's target in ``nodes``."""
        first = self.offsets[nodes]
        return ranges(first, self.offsets[nodes + 1])

    def equal_range(self, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Where each of ``[2, e]`` edges begins and ends among all edges, by bisection: equal if there is none."""
        source, target = edges
        bounds = []
        for is_last in (False, True):
            low, high = self.offsets[target], self.offsets[target + 1]
            while bool((low < high).any()):
                middle = (low + high) // 2
                here = self.sources[middle.clamp_max(len(self.sources) - 1)].long()
                is_before = (here <= source if is_last else here < source) & (low < high)
                low, high = torch.where(is_before, middle + 1, low), torch.where(is_before, high, middle)
            bounds.append(low)
        return bounds[0], bounds[1]


def ranges(first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """All integers in the ranges ``first..last - 1``, and the range that each is from."""
    counts = last - first
    owner = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    within = torch.arange(len(owner), device=counts.device) - (counts.cumsum(0) - counts)[owner]
    return within + first[owner], owner


class Graph:
    """Node features and edges, with the matrices that models and scorers multiply by.

    Each matrix is built on first use and cached, since it is used hundreds of times.

    A graph need not be in memory: `oddnode.large.GraphFolder.as_graph` returns one whose edges and features are on
    disk. Code that loops over `row_slices`, `shards` or `neighbour_means` works on both.

    Parameters
    ----------
    x : Tensor
        Features ``[N, F]``, floating point.
    edge_index : Tensor
        Edges ``[2, E]``, from source to target.
    edge_weight : Tensor, optional
        Their weights ``[E]``, above 0, in the dtype of ``x``; by default every edge counts as one.
    """

    #: Whether the edges and features are on disk, so that no whole pass of a network fits into memory.
    is_on_disk = False
    #: Number of nodes.
    num_nodes: int
    #: Number of edges.
    num_edges: int
    #: The device that holds the graph.
    device: torch.device
    #: Values that are computed once, by what they are derived from and their key; see `cached`.
    caches: dict[str, dict[Hashable, Any]]

    def __init__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None):
        self.x, self.edge_index, self.edge_weight = x, edge_index, edge_weight
        self.num_nodes, self.num_edges, self.device = x.shape[0], edge_index.shape[1], x.device
        self.caches = {"graph": {}, "edges": {}, "features": {}}
        self._products: FeatureProducts | None = None

    @classmethod
    def from_data(cls, data: GraphSource, device: torch.device | str = "cpu") -> Graph:
        """Make a graph from a PyG ``Data`` after checking it, without edges of weight 0.

        Parameters
        ----------
        data : GraphSource
            An object with ``x``, ``edge_index`` and, if the edges have weights, ``edge_weight``, or another graph that
            `oddnode.graph.as_source` takes.
        device : torch.device or str
            The device of the graph.
        """
        data = as_source(data)
        as_graph = getattr(data, "as_graph", None)
        if as_graph is not None:  # a source that is not in memory, such as a folder, makes a graph of its own
            return as_graph(device)
        device, cache = torch.device(device), _active_cache.get()
        cache = {} if cache is None else cache
        sources = data.x, data.edge_index, getattr(data, "edge_weight", None)
        key = device, *map(id, sources)
        if key not in cache:
            if key[:2] not in cache:
                cache[key[:2]] = _checked_features(data).to(device), data.x
            x = cache[key[:2]][0]
            edges, weight = _checked_edges(data, x.dtype)
            cache[key] = cls(x, edges.to(device), None if weight is None else weight.to(device)), sources
        return cache[key][0]

    def __repr__(self) -> str:
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges, {self.x.shape[1]} features, {self.device})"

    # --- cached values and graphs that share them ---

    def cached(self, key: Hashable, make: Callable[[], T], derived_from: _Basis = "graph") -> T:
        """Compute a value once and cache it in the graph.

        Parameters
        ----------
        key : hashable
            The key of the value.
        make : callable
            Computes the value; called without arguments if the key is new.
        derived_from : {"graph", "edges", "features"}
            What the value depends on. Graphs with the same edges and dtype (`with_features`) share values that depend
            on the edges.
        """
        cache = self.caches[derived_from]
        if key not in cache:
            cache[key] = make()
        return cache[key]

    def share_features(self, other: Graph) -> None:
        """Share values derived from the features with another graph, if it has the same tensor ``x``."""
        if self.x is other.x:
            self.caches["features"] = other.caches["features"]

    def with_features(self, x: Tensor) -> Graph:
        """Put other features on the same edges; both graphs share the matrices of the edges, now and later.

        Parameters
        ----------
        x : Tensor
            Features ``[N, F']``, floating point.
        """
        other = Graph(x, self.edge_index, None if self.edge_weight is None else self.edge_weight.to(x.dtype))
        if x.dtype == self.x.dtype:
            other.caches["edges"] = self.caches["edges"]
        return other

    def sharing_products(self, products: FeatureProducts) -> Graph:
        """View this graph for one training step, in which graphs share products with common features."""
        view = Graph(self.x, self.edge_index, self.edge_weight)
        view.caches, view._products = self.caches, products
        return view

    def without(self, nodes: Tensor) -> tuple[Graph, Tensor]:
        """Remove nodes with their edges.

        Parameters
        ----------
        nodes : Tensor
            Indices of the nodes to remove ``[n]``.

        Returns
        -------
        Graph
            The rest of the graph.
        Tensor
            The new index of every node ``[N]``; -1 for those removed.
        """
        keep, index = self._indices_without(nodes)
        edges = index[self.edge_index]
        inside = (edges >= 0).all(dim=0)
        weight = None if self.edge_weight is None else self.edge_weight[inside]
        return Graph(self.x[keep], edges[:, inside], weight), index

    def _indices_without(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        keep = torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)
        keep[nodes] = False
        return keep, torch.where(keep, keep.cumsum(0) - 1, -1)

    # --- features ---

    @property
    @cached_in("features")
    def density(self) -> float:
        """The share of non-zero features."""
        return torch.count_nonzero(self.x).item() / max(self.x.numel(), 1)

    @property
    def is_sparse(self) -> bool:
        """Whether few features are non-zero, and none of them requires a gradient."""
        return not self.x.requires_grad and self.density < _SPARSE_BELOW

    @property
    def sparse_x(self) -> SparseMatrix | None:
        """The features as a sparse matrix, if it is faster to multiply by; otherwise ``None``."""
        return self.sparse_features if self.device.type == "cpu" and self.is_sparse else None

    @property
    @cached_in("features")
    def sparse_features(self) -> SparseMatrix:
        return SparseMatrix.from_dense(self.x)

    @property
    @cached_in("features")
    def feature_pattern(self) -> tuple[SparsePattern, Tensor]:
        """The sparsity pattern of the features, and their values in its order."""
        row, col = self.x.nonzero(as_tuple=True)
        return SparsePattern(row, col, (self.x.shape[0], self.x.shape[1])), self.x[row, col]

    @property
    @cached_in("features")
    def max_abs_feature(self) -> float:
        """The largest magnitude of a feature."""
        return max(map(abs, torch.stack(self.x.aminmax()).tolist()))

    def times_features(self, weight: Tensor, rows: slice | Tensor = slice(None)) -> Tensor:
        """Compute ``X W^T`` at some nodes ``[n, C]``, for a weight laid out as in `torch.nn.Linear`, ``[C, F]``."""
        if self.sparse_x is not None:
            return (self.sparse_x @ weight.t())[rows]
        return self.x[rows] @ weight.t()

    # --- edges ---

    @property
    @cached_in("edges")
    def incoming(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The edges by target, else in the given order, on the CPU: offsets, sources, and indices in ``edge_index``.

        The latter are ``None`` if the edges are stored in this order. Samplers draw from this order, so that it is part
        of what a seed determines; `csr` sorts by source as well.
        """
        source, target = self.edge_index.cpu()
        order = target.argsort(stable=True)
        counts = torch.bincount(target, minlength=self.num_nodes)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), source[order], order

    @property
    @cached_in("edges")
    def csr(self) -> CSR:
        """The edges sorted by target, then by source."""
        source, target = self.edge_index
        pairs, order = (target * self.num_nodes + source).sort(stable=True)
        counts = torch.bincount(target, minlength=self.num_nodes)
        weights = None if self.edge_weight is None else self.edge_weight[order]
        return CSR(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), pairs % self.num_nodes, weights)

    def edges_at(self, indices: Tensor) -> Tensor:
        """Edges ``[2, n]`` by their indices in `csr`."""
        target = torch.searchsorted(self.csr.offsets, indices, right=True) - 1
        return torch.stack([self.csr.sources[indices].long(), target])

    def edges_to(self, nodes: Tensor) -> Tensor:
        """The edges ``[2, e]`` that lead to some nodes, each given once, in the order of `csr`."""
        nodes = nodes.sort().values
        edge, owner = self.csr.edges_to(nodes)
        return torch.stack([self.csr.sources[edge].long(), nodes[owner]])

    def sorted_edges(self) -> tuple[Tensor, Tensor | None]:
        """Edges and weights in an order that is the same in memory and on disk, repeated edges included, on the CPU."""
        offsets, sources, weights = (None if part is None else part[:].cpu() for part in self.csr)
        assert offsets is not None
        assert sources is not None
        targets = torch.arange(self.num_nodes).repeat_interleave(offsets.diff())
        if weights is None:
            return torch.stack([sources.long(), targets]), None
        order = weights.argsort(stable=True)
        order = order[(targets * self.num_nodes + sources)[order].argsort(stable=True)]
        return torch.stack([sources.long(), targets])[:, order], weights[order]

    def contains(self, edges: Tensor) -> Tensor:
        """Whether each of ``[2, e]`` pairs of a source and a target is an edge."""
        first, last = self.csr.equal_range(edges)
        return last > first

    def num_others(self) -> Tensor:
        """Count the edges that lead to each node from others ``[N]``."""
        source, target = self.edge_index
        counts = torch.zeros(self.num_nodes, dtype=torch.long, device=target.device)
        return counts.index_add_(0, target, (source != target).long())

    @property
    @cached_in("edges")
    def in_degree(self) -> Tensor:
        """Sum of the weights of the edges that lead to each node ``[N]``; without weights, the number of these edges.

        A repeated edge counts as often as it is repeated.
        """
        if self.edge_weight is None:
            return torch.bincount(self.edge_index[1], minlength=self.num_nodes)
        return weighted_in_degree(self.edge_index, self.num_nodes, self.edge_weight)

    @property
    @cached_in("edges")
    def effective_degree(self) -> Tensor:
        """Effective sample size (Kish) of each node's edge weights ``[N]``; without weights, the number of edges."""
        if self.edge_weight is None:
            return self.in_degree
        return effective_degree(self.edge_index, self.num_nodes, self.edge_weight)

    @property
    def mean_edge_weight(self) -> float:
        """Mean weight of an edge; 1 without weights or edges."""
        weight = self.edge_weight
        return 1.0 if weight is None or not len(weight) else float(weight.double().mean())

    @property
    @cached_in("edges")
    def is_symmetric(self) -> bool:
        """Whether every edge comes with the one in the other direction, as often and with the same weight."""
        weight = None if self.edge_weight is None else self.edge_weight.double()
        source, target = self.edge_index
        return sums_agree(direction_sums(source, target, None if weight is None else weight / weight.mean()))

    def weight_back(self, edges: Tensor) -> Tensor:
        """How many edges of equal weight the target of each edge ``[2, e]`` counts as around its source, if symmetric.

        Without weights, one. A repeated edge has the mean weight of its repetitions.
        """
        weights = self.csr.weights
        if weights is None:
            return torch.ones_like(edges[0])
        first, last = self.csr.equal_range(edges)
        edge, owner = ranges(first, last)
        total = torch.zeros(len(first), dtype=torch.float64, device=self.device)
        total.index_add_(0, owner, weights[edge].double())
        return total / (last - first) * (self.effective_degree / self.in_degree)[edges[0]]

    # --- matrices ---

    @property
    @cached_in("edges")
    def gcn_matrix(self) -> SparseMatrix:
        """``D^-1/2 (A + I) D^-1/2``, with missing self-loops added."""
        return gcn_matrix(self.random_walk, self.edge_index, self.edge_weight)

    @property
    def gcn_scale(self) -> Tensor:
        """``D^-1/2`` of the graph convolution, in which every node has a self-loop, ``[N]``."""
        return self._gcn_scale[0]

    @property
    def loop_weight(self) -> Tensor:
        """The weights of these self-loops ``[N]``."""
        return self._gcn_scale[1]

    @property
    @cached_in("edges")
    def _gcn_scale(self) -> tuple[Tensor, Tensor]:
        ones = torch.ones_like(self.edge_index[0], dtype=self.x.dtype)
        weight = ones if self.edge_weight is None else self.edge_weight
        edges, weight = with_self_loops(self.edge_index, self.num_nodes, weight)
        scale = weighted_in_degree(edges, self.num_nodes, weight).to(self.x.dtype).pow(-0.5)
        return scale, weight[-self.num_nodes :]

    @property
    def attention(self) -> SparsePattern:
        """The nodes that a node attends to: the source of each incoming edge, and itself once."""
        return self._attention[0]

    @property
    def attention_bias(self) -> Tensor | None:
        """The logarithms of the weights of these edges, and 0 for the node itself; ``None`` without weights."""
        return self._attention[1]

    @property
    @cached_in("edges")
    def _attention(self) -> tuple[SparsePattern, Tensor | None]:
        kept = self.edge_index[0] != self.edge_index[1]
        nodes = torch.arange(self.num_nodes, device=self.device)
        source, target = torch.cat([self.edge_index[:, kept], nodes.expand(2, -1)], dim=1)
        pattern = SparsePattern.of_unsorted(target, source, (self.num_nodes, self.num_nodes))
        if self.edge_weight is None:
            return pattern, None
        weight = torch.cat([self.edge_weight[kept], self.edge_weight.new_ones(self.num_nodes)])
        return pattern, weight[target.argsort(stable=True)].log()

    @property
    @cached_in("edges")
    def random_walk(self) -> SparseMatrix:
        """``D^-1 A`` without added self-loops: the mean over a node's neighbours."""
        return neighbour_mean_matrix(self.edge_index, self.num_nodes, self.x.dtype, self.edge_weight)

    def walk_without_return(self, count: Tensor, counts_return: bool) -> Any:
        """The random walk of a symmetric graph with weights, for means around a source that leave the target out.

        ``count`` ``[N]`` is the size of a node's neighbourhood with no node left out. With ``counts_return``, entries
        are multiplied by `weight_back`, which is what is left out.
        """
        target, source, share = self.random_walk.coordinates()
        back = self.weight_back(torch.stack([source, target])).to(share)
        return self.random_walk.with_values(without_return(count[source], back, share, counts_return))

    def support(self, num_hops: int, eta: float) -> Tensor:
        """Effective number of nodes in each propagated score ``[N]`` (see `oddnode.functional.energy.support`)."""
        key = ("support", num_hops, eta)
        return self.cached(key, lambda: support(self.random_walk, num_hops, eta), "edges")

    @property
    @cached_in("graph")
    def smoothed_x(self) -> Tensor:
        """``D^-1/2 (A + I) D^-1/2 X``: the part of the first graph convolution without weights."""
        return self.gcn_matrix @ self.x

    def convolve(self, values: Tensor) -> Tensor:
        """Compute ``D^-1/2 (A + I) D^-1/2 V`` for ``[N, C]`` values, without a gradient."""
        return self.gcn_matrix @ values.detach()

    def convolve_features(self, weight: Tensor) -> Tensor:
        """Compute ``D^-1/2 (A + I) D^-1/2 X W^T``, ``[N, C]``, in the cheaper order.

        Parameters
        ----------
        weight : Tensor
            Laid out as in `torch.nn.Linear`, ``[C, F]``. Within a training step, graphs with the same features share
            their product with the same tensor object, such as a parameter.
        """
        features = self.sparse_x
        if features is None:
            return self.smoothed_x @ weight.t()
        if self._products is None:
            return self.gcn_matrix @ (features @ weight.t())
        return self.gcn_matrix @ self._products.linear(features, weight)

    def one_hop_subgraph(self, nodes: Tensor) -> tuple[Tensor, Graph]:
        """What a graph convolution at ``n`` nodes needs.

        That is the ``m`` nodes and neighbours, and a graph whose ``gcn_matrix``, ``[n, m]``, maps these to the nodes.
        """
        matrix, rows = self.gcn_matrix.rows(nodes)
        part = Graph(self.x, self.edge_index, self.edge_weight)
        part.caches["edges"]["gcn_matrix"] = matrix
        return rows, part

    # --- results for every node, some rows at a time if the graph is on disk ---

    def row_slices(self) -> Iterator[slice]:
        """Yield the nodes whose features are handled together: all of them; of a graph on disk, some at a time."""
        yield slice(None)

    def empty(self, width: int | None, dtype: torch.dtype | None = None, is_factor: bool = False) -> Tensor:
        """Allocate ``[N, width]`` or ``[N]`` values; of a graph on disk, in a temporary file if they are large.

        Parameters
        ----------
        width : int or None
            The number of columns; ``None`` for one number per node and no second dimension.
        dtype : torch.dtype, optional
            By default that of the features.
        is_factor : bool
            Whether a product reads them next, at random, so that they should be in memory if they fit.
        """
        shape = (self.num_nodes,) if width is None else (self.num_nodes, width)
        return self.x.new_empty(shape, dtype=dtype or self.x.dtype)

    def shards(self, out: Tensor) -> Iterator[slice]:
        """Yield the rows of a result to compute; after the last of them it is complete.

        Parameters
        ----------
        out : Tensor
            From `empty`. Of a graph on disk several ranks may divide the rows, and have all of them in the end.

        Examples
        --------
        >>> graph = Graph(torch.ones(3, 2), torch.tensor([[0, 1], [1, 2]]))
        >>> out = graph.empty(None)
        >>> for rows in graph.shards(out):
        ...     out[rows] = graph.x[rows].sum(dim=1)
        >>> out
        tensor([2., 2., 2.])
        """
        yield slice(None)

    def neighbour_means(
        self,
        values: Tensor,
        out: Tensor,
        walk: SparseMatrix | None = None,
        num_hops: int = 1,
        eta: float = 0.0,
        in_place: bool = False,
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield rows of a result to compute, as `shards` does, with the means over these nodes' neighbours.

        With several hops, or a share of its own value that a node keeps, the means are those of
        `oddnode.functional.energy.propagate`.

        Parameters
        ----------
        values : Tensor
            What is averaged, ``[N, C]``.
        out : Tensor
            The result, from `empty`; a graph on disk does not keep the means.
        walk : SparseMatrix, optional
            The averaging matrix; by default `random_walk`.
        num_hops : int
            Number of hops.
        eta : float
            Share of its own value that a node keeps in every hop.
        in_place : bool
            Whether ``values`` may be overwritten; a graph on disk then needs less memory.
        """
        walk = self.random_walk if walk is None else walk
        if num_hops == 1 and not eta:
            yield slice(None), walk @ values
        else:
            yield slice(None), walk.diffuse(values, eta, num_hops) if num_hops else values

    def keep(self, values: Tensor) -> Tensor:
        """Return ``[N]`` values that are kept for later; a graph on disk moves many of them to a temporary file."""
        return values.contiguous()

    def own_copy(self, values: Tensor) -> Tensor:
        """Return a result that the caller may change; of a graph on disk, a copy if ranks share it."""
        return values

    def neighbour_sums(self, values: Tensor) -> Tensor:
        """Sum ``[N]`` values, times the weights of edges, over the sources of the edges that lead to each node."""
        if self.edge_weight is not None:
            return self.in_degree.to(values) * (self.random_walk @ values)
        source, target = self.edge_index
        return torch.zeros_like(values).index_add_(0, target, values[source])


def without_return(count: Tensor, back: Tensor, share: Tensor, counts_return: bool) -> Tensor:
    """Entries ``[e]`` of `Graph.walk_without_return`, from those of the random walk."""
    entries = share * (count / (count + 1 - back))
    return entries * back if counts_return else entries
