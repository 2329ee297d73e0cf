"""Every part that is written by hand against what torch and PyG have for the same purpose.

    python benchmarks/hand_written.py                  # on a CPU; the real graphs where ODDNODE_DATA is set
    python benchmarks/hand_written.py --device cuda

Per part the ways to do one thing take turns in one process, and the table gives medians in milliseconds and the ratio
to oddnode's. Before they are timed, the ways are compared: their results must agree. Where products are concerned,
`torch.vmap` and the capture of forward and backward pass as a CUDA graph are tried, and the table says whether they
gave the right numbers. On a CPU one thread is used, as in the workers of a benchmark, so that other processes on the
machine do not slow one way more than another.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import can_be_captured, medians, random_graph, store, works_under_vmap
from measurements import hand_written_table
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.utils import add_self_loops, remove_self_loops

from oddnode.graph import Graph
from oddnode.nn.pyg_convs import PreparedGATConv
from oddnode.ops import (
    Adam,
    DropoutStream,
    NeighbourMean,
    SparseMatrix,
    relu_dropout,
    stacked_keys,
)
from oddnode.tasks.planetoid import planetoid_graph

OURS = "oddnode"
WIDTH, HEADS, HOPS, ETA = 64, 2, 32, 0.1
SIZES = {"cora": (2_708, 10_556, 1_433, 7), "pubmed": (19_717, 88_648, 500, 3)}
LARGE = (100_000, 10_000_000)

Way = Callable[[], Any]
Map = Callable[[Tensor], Tensor]


@dataclass
class Comparison:
    """Ways to do one thing; the first is oddnode's."""

    part: str
    graph: str
    ways: dict[str, Way]
    #: The same as functions of one tensor, where they can be vectorised and captured, and an example of that tensor.
    maps: dict[str, Map] = field(default_factory=dict)
    example: Tensor | None = None
    note: str = ""


def forward_and_backward(function: Map, x: Tensor, direction: Tensor) -> Way:
    """The gradient of ``<function(x), direction>`` with respect to ``x``."""
    x = x.detach().requires_grad_()
    return lambda: torch.autograd.grad(function(x), x, direction)


def differentiated(part: str, graph: str, maps: Mapping[str, Map], x: Tensor, note: str = "") -> Comparison:
    """A comparison of maps that must agree, forward and backward."""
    expected = maps[OURS](x)
    direction = torch.randn_like(expected)
    ways = {name: forward_and_backward(function, x, direction) for name, function in maps.items()}
    gradient = ways[OURS]()[0]
    for name, way in ways.items():
        torch.testing.assert_close(maps[name](x), expected, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(way()[0], gradient, rtol=1e-3, atol=1e-3)
    return Comparison(part, graph, ways, dict(maps), x, note)


def load(name: str, device: str) -> Data:
    """The real graph where there is one, else a random one of its size with as sparse features."""
    if os.environ.get("ODDNODE_DATA"):
        return planetoid_graph(name).to(device)
    data = random_graph(*SIZES[name])
    generator = torch.Generator().manual_seed(1)
    data.x = data.x * (torch.rand(data.x.shape, generator=generator) < (0.0127 if name == "cora" else 0.1))
    return data.to(device)


def torch_csr(matrix: SparseMatrix) -> Tensor:
    """The same as a plain tensor of torch, with 64-bit indices as it makes them by itself."""
    crow, col = matrix._csr.crow_indices().long(), matrix._csr.col_indices().long()
    return torch.sparse_csr_tensor(crow, col, matrix._csr.values(), matrix.shape, check_invariants=False)


def coordinates(csr: Tensor) -> Tensor:
    """Row and column of every entry, ``[2, E]``, in order."""
    row = torch.arange(csr.shape[0], device=csr.device).repeat_interleave(csr.crow_indices().diff())
    return torch.stack([row, csr.col_indices()])


def edge_index_product(csr: Tensor, dtype: torch.dtype) -> Map:
    """PyG's product, with the transpose cached."""
    edges = EdgeIndex(coordinates(csr).to(dtype), sparse_size=tuple(csr.shape), sort_order="row").fill_cache_()
    return lambda x: edges.matmul(x, input_value=csr.values())


def products(matrix: SparseMatrix) -> dict[str, Map]:
    """``M x``."""
    csr = torch_csr(matrix)
    maps: dict[str, Map] = {
        OURS: matrix.__matmul__,
        "PyG EdgeIndex.matmul": edge_index_product(csr, torch.long),
        "PyG EdgeIndex.matmul, 32-bit": edge_index_product(csr, torch.int),
        "torch CSR @": lambda x: csr @ x,
    }
    if matrix.shape[0] == matrix.shape[1]:
        conv = GCNConv(WIDTH, WIDTH, normalize=False, bias=False).to(csr.device)
        edges = coordinates(csr).flip(0)  # PyG's layers send from the first row
        maps["PyG message passing"] = lambda x: conv.propagate(edges, x=x, edge_weight=csr.values())
    return maps


def repeated(step: Map, x: Tensor) -> Tensor:
    for _ in range(HOPS):
        x = ETA * x + (1 - ETA) * step(x)
    return x


def sparse_products(name: str, data: Data) -> Iterator[Comparison]:
    graph = Graph(data.x, data.edge_index)
    hidden = torch.randn(graph.num_nodes, WIDTH, device=graph.device)
    yield differentiated(f"product with the adjacency, {WIDTH} wide", name, products(graph.gcn_matrix), hidden)

    features, weight = graph.sparse_features, torch.randn(data.num_features, WIDTH, device=graph.device)
    maps = products(features) | {"torch dense @": lambda w: graph.x @ w}
    yield differentiated(f"product with the features, {WIDTH} wide", name, maps, weight)

    walk, energies = graph.random_walk, torch.randn(graph.num_nodes, 1, device=graph.device)
    steps = {k: v for k, v in products(walk).items() if k != OURS}
    loops: dict[str, Map] = {k: partial(repeated, step) for k, step in steps.items()}
    ours: dict[str, Map] = {OURS: lambda x: walk.diffuse(x, ETA, HOPS)}
    yield differentiated(f"diffusion of energies, {HOPS} hops", name, ours | loops, energies)


def attention(name: str, data: Data) -> Iterator[Comparison]:
    graph, edges = Graph(data.x, data.edge_index), data.edge_index
    looped, _ = add_self_loops(remove_self_loops(edges)[0], num_nodes=graph.num_nodes)
    ours, theirs = (kind(WIDTH, WIDTH, HEADS).to(graph.device) for kind in (PreparedGATConv, GATConv))
    prepared = GATConv(WIDTH, WIDTH, HEADS, add_self_loops=False).to(graph.device)
    for other in (theirs, prepared):
        other.load_state_dict(ours.state_dict())
    maps: dict[str, Map] = {
        OURS: lambda x: ours(ours.lin(x), graph, lambda a: a),
        "PyG GATConv": lambda x: theirs(x, edges),
        "PyG GATConv, self-loops added before": lambda x: prepared(x, looped),
    }
    hidden = torch.randn(graph.num_nodes, WIDTH, device=graph.device)
    yield differentiated(f"graph attention, {HEADS} heads", name, maps, hidden)


def neighbour_means(name: str, edges: Tensor, nodes: int) -> Iterator[Comparison]:
    walk = NeighbourMean.from_edges(edges, nodes)
    value = walk.inverse_degree(torch.float32).repeat_interleave(walk.row_counts().long())
    matrix = SparseMatrix.from_csr(walk.offsets, walk.sources, value, (nodes, nodes))
    csr = torch_csr(matrix)
    scores = torch.randn(nodes, device=edges.device)
    ways: dict[str, Way] = {
        OURS: lambda: walk.diffuse(scores, 0.0, 1),
        "SparseMatrix": lambda: matrix @ scores,
        "torch CSR @": lambda: csr @ scores,
    }
    for way in ways.values():
        torch.testing.assert_close(way(), ways[OURS](), rtol=1e-4, atol=1e-4)
    note = f"{_megabytes(walk.offsets, walk.sources)} MB against {_megabytes(walk.offsets, walk.sources, value)}"
    yield Comparison("mean over neighbours without values, forward", name, ways, note=note)


def _megabytes(*tensors: Tensor) -> str:
    return f"{sum(t.numel() * t.element_size() for t in tensors) / 1e6:.3g}"


def dropouts(name: str, nodes: int, device: str) -> Iterator[Comparison]:
    for p in (0.5, 0.3):
        stream, rows = DropoutStream(0), torch.arange(nodes, device=device)
        if device != "cpu":
            stream.follow(torch.zeros(1, dtype=torch.long, device=device), 1, 1)
        x = torch.randn(nodes, WIDTH, device=device)
        direction = torch.randn_like(x)
        maps: dict[str, Map] = {
            OURS: lambda x, s=stream, r=rows, p=p: x * s.scales(r, WIDTH, p, 0, x.dtype),  # type: ignore[misc]
            "F.dropout": lambda x, p=p: F.dropout(x, p),  # type: ignore[misc]
        }
        ways = {key: forward_and_backward(function, x, direction) for key, function in maps.items()}
        yield Comparison(f"dropout by hash, p = {p}, {WIDTH} wide", name, ways)


def relu_dropouts(name: str, nodes: int) -> Iterator[Comparison]:
    """The kernel for ten networks at once, which takes its masks from the hash without storing them."""
    networks = 10
    values = torch.randn(nodes, networks, WIDTH, device="cuda")
    table = stacked_keys(list(range(networks)), 1, 1, 1).flatten(1, 2).cuda()
    count = torch.zeros(1, dtype=torch.long, device="cuda")
    ways: dict[str, Way] = {
        OURS: lambda: relu_dropout(values, None, table, count, 0, 0.5),
        "relu, F.dropout": lambda: F.dropout(values.relu()),
    }
    yield Comparison("ReLU and dropout of ten networks, forward", name, ways)


def optimisers(name: str, features: int, classes: int, device: str) -> Iterator[Comparison]:
    """A step over the weights of a GCN of two layers."""
    shapes = [(WIDTH, features), (WIDTH,), (WIDTH,), (WIDTH,), (classes, WIDTH), (classes,)]
    start, grads = ([torch.randn(shape, device=device) for shape in shapes] for _ in range(2))

    def step_of(make: Callable[[list[nn.Parameter]], Any]) -> Way:
        parameters = [nn.Parameter(each.clone()) for each in start]
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
        return make(parameters).step

    adam = partial(torch.optim.Adam, lr=0.01, weight_decay=0.01, capturable=device != "cpu")
    ways: dict[str, Way] = {
        OURS: step_of(lambda p: Adam(p, 0.01, 0.01)),
        "torch.optim.Adam(fused=True)": step_of(partial(adam, fused=True)),
        "torch.optim.Adam(foreach=True)": step_of(partial(adam, foreach=True)),
    }
    yield Comparison("a step of Adam", f"{name}'s weights", ways)


def comparisons(device: str) -> Iterator[Callable[[], Iterator[Comparison]]]:
    """Everything that is compared; each is set up only when its turn comes."""
    for name, (_, _, features, classes) in SIZES.items():
        data = load(name, device)
        nodes = data.num_nodes
        yield partial(sparse_products, name, data)
        yield partial(attention, name, data)
        yield partial(neighbour_means, name, data.edge_index, nodes)
        yield partial(dropouts, name, nodes, device)
        if device != "cpu":
            yield partial(relu_dropouts, name, nodes)
        yield partial(optimisers, name, features, classes, device)
    edges = torch.randint(LARGE[0], (2, LARGE[1]), device=device)
    yield partial(neighbour_means, f"{LARGE[0]:,} nodes, {LARGE[1]:,} edges", edges, LARGE[0])


def measure(comparison: Comparison, device: str, rounds: int) -> dict[str, Any]:
    """One row of the results."""
    taken = medians(comparison.ways, device, rounds)
    row: dict[str, Any] = {"part": comparison.part, "graph": comparison.graph, "ms": {}, "times ours": {}}
    for name, value in taken.items():
        row["ms"][name] = float(f"{value:.4g}")
        row["times ours"][name] = float(f"{value / taken[OURS]:.3g}")
    if comparison.example is not None:
        x, maps = comparison.example, comparison.maps
        row["vmap"] = {name: works_under_vmap(function, x) for name, function in maps.items()}
        if device == "cuda":
            row["CUDA graph"] = {name: can_be_captured(function, x) for name, function in maps.items()}
    if comparison.note:
        row["note"] = comparison.note
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="as the workers of a benchmark on a CPU have")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = []
    for group in comparisons(options.device):
        for comparison in group():
            rows.append(measure(comparison, options.device, options.rounds))
            print(rows[-1]["part"], rows[-1]["graph"], rows[-1]["ms"], flush=True)
    print(hand_written_table(rows))
    print(store("hand_written", options.device, rows, options.out))


if __name__ == "__main__":
    main()
