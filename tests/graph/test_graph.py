from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from oddnode.graph import Graph, GraphError, check_labels, check_mask, graph_cache
from oddnode.ops import FeatureProducts


def small(**changes: object) -> Data:
    """Four nodes: a triangle 0-1-2 with one edge given twice, a self-loop at 0, node 3 isolated."""
    edges = torch.tensor([[0, 1, 1, 2, 2, 0, 0, 0], [1, 0, 2, 1, 0, 2, 2, 0]])
    data = Data(x=torch.arange(8.0).reshape(4, 2), edge_index=edges, y=torch.tensor([0, 1, 0, 1]))
    for name, value in changes.items():
        data[name] = value
    return data


@pytest.mark.parametrize("unit", [None, 1e-9, 1.0, 1e9])
def test_a_graph_is_symmetric_if_every_edge_has_its_other_direction_with_the_same_weight(unit: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    pairs, x = torch.randint(500, (2, 3000), generator=generator), torch.zeros(500, 1)
    edges = torch.cat([pairs, pairs.flip(0)], dim=1)
    weight = None if unit is None else unit * (0.1 + torch.rand(3000, generator=generator)).repeat(2)
    assert Graph(x, edges, weight).is_symmetric
    assert Graph(x, edges[:, :0], None if weight is None else weight[:0]).is_symmetric
    place = int((pairs[0] != pairs[1]).nonzero()[0])
    if weight is None:
        edges = edges[:, torch.arange(6000) != place]
    else:
        weight[place] *= 1.5
    assert not Graph(x, edges, weight).is_symmetric
    assert not Graph(torch.zeros(3, 1), torch.tensor([[0, 1, 2], [1, 2, 0]])).is_symmetric


def test_edges_of_weight_0_count_as_none_and_others_by_their_weight() -> None:
    weight = torch.tensor([0.5, 3.0, 0.0, 0.0, 1.0, 1.0, 3.0, 0.0])  # node 1 keeps 0 -> 1, node 2 both 0 -> 2
    graph = Graph.from_data(small(edge_weight=weight))
    assert graph.edge_index.tolist() == [[0, 1, 2, 0, 0], [1, 0, 0, 2, 2]]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [0.5, 3.0, 1.0, 1.0, 3.0]
    assert graph.in_degree.tolist() == [4.0, 0.5, 4.0, 0.0]
    assert graph.effective_degree.tolist() == pytest.approx([16 / 10, 1.0, 16 / 10, 0.0])
    assert graph.random_walk.to_dense()[0].tolist() == [0.0, 0.75, 0.25, 0.0]
    none = Graph.from_data(small(edge_weight=torch.zeros(8)))
    assert none.edge_index.shape == (2, 0)
    assert torch.equal(none.gcn_matrix.to_dense(), torch.eye(4))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.float64, torch.bool])
def test_weights_of_any_type_get_the_precision_of_the_features(dtype: torch.dtype) -> None:
    graph = Graph.from_data(small(edge_weight=torch.ones(8).to(dtype)))
    assert graph.edge_weight is not None
    assert graph.edge_weight.dtype == torch.float32
    other = graph.with_features(graph.x.double())
    assert other.edge_weight is not None
    assert other.edge_weight.dtype == other.random_walk.dtype == torch.float64
    wide = small(edge_weight=torch.ones(8), edge_attr=torch.ones(8, 1))  # the weights are named, so this is no doubt
    assert torch.equal(Graph.from_data(wide).random_walk.to_dense(), graph.random_walk.to_dense())


def test_what_a_graph_gives_keeps_its_weights() -> None:
    graph = Graph.from_data(small(edge_weight=torch.arange(1.0, 9.0)))
    for other in (graph.with_features(torch.ones(4, 3)), graph.sharing_products(FeatureProducts())):
        assert other.edge_weight is graph.edge_weight
    rows, part = graph.one_hop_subgraph(torch.tensor([1]))
    torch.testing.assert_close(part.gcn_matrix.to_dense()[0], graph.gcn_matrix.to_dense()[1, rows])


def test_sums_over_neighbours_are_by_weight() -> None:
    edges, values = torch.tensor([[1, 2, 2, 0], [0, 0, 0, 1]]), torch.tensor([1.0, 10.0, 100.0])
    weight = torch.tensor([0.5, 2.0, 3.0, 4.0])
    assert Graph(torch.ones(3, 1), edges).neighbour_sums(values).tolist() == [210.0, 1.0, 0.0]
    found = Graph(torch.ones(3, 1), edges, weight).neighbour_sums(values)
    assert found.tolist() == pytest.approx([505.0, 4.0, 0.0])


def test_other_weights_of_the_same_edges_are_another_graph() -> None:
    one, other = small(), small()
    other.x, other.edge_index, other.edge_weight = one.x, one.edge_index, torch.arange(8.0)
    with graph_cache():
        assert Graph.from_data(one) is not Graph.from_data(other)
        assert Graph.from_data(other) is Graph.from_data(other)


def test_large_features_whose_sum_overflows_are_fine() -> None:
    data = Data(x=torch.full((4, 2), 3e38), edge_index=torch.zeros(2, 0, dtype=torch.long))
    assert torch.equal(Graph.from_data(data).x, data.x)


def test_within_a_block_the_same_data_is_one_graph_and_the_same_features_one_tensor() -> None:
    x = torch.rand(4, 2).int() + torch.eye(4, 2).int()  # converted, so that sharing it is not trivial
    one, other = (Data(x=x, edge_index=torch.tensor([[a], [2]])) for a in (0, 1))
    with graph_cache():
        first = Graph.from_data(one)
        assert Graph.from_data(one) is first
        second = Graph.from_data(other)
        assert second.x is first.x
        assert torch.equal(second.edge_index, other.edge_index)
    assert Graph.from_data(one) is not first


@pytest.mark.parametrize("share", [0.02, 0.9])
def test_products_with_features_are_the_same_sparse_or_dense(share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(30, 40, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(30, 40, generator=generator) < share)
    graph = Graph(x, torch.randint(30, (2, 60), generator=generator))
    assert (graph.sparse_x is not None) == (share < 0.15)
    weight = torch.randn(5, 40, dtype=torch.float64)
    torch.testing.assert_close(graph.times_features(weight), x @ weight.T)
    expected = graph.gcn_matrix.to_dense() @ x @ weight.T
    torch.testing.assert_close(graph.convolve_features(weight), expected)
    torch.testing.assert_close(graph.sharing_products(FeatureProducts()).convolve_features(weight), expected)


def test_graphs_of_one_step_share_products_with_the_same_features_and_later_ones_do_not() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(30, 40, generator=generator, dtype=torch.float64) * (torch.rand(30, 40, generator=generator) < 0.05)
    graph, other = (Graph(x, torch.randint(30, (2, 60), generator=generator)) for _ in range(2))
    other.share_features(graph)
    assert other.sparse_x is graph.sparse_x
    weight = torch.randn(5, 40, dtype=torch.float64)
    for _ in range(2):
        products = FeatureProducts()
        for each in (graph, other):
            found = each.sharing_products(products).convolve_features(weight)
            torch.testing.assert_close(found, each.gcn_matrix.to_dense() @ x @ weight.T)
        weight.data.mul_(2.0)  # in place, as an optimiser does


def test_a_value_is_computed_once() -> None:
    graph, calls = Graph.from_data(small()), list[int]()

    def make() -> int:
        calls.append(1)
        return 7

    assert [graph.cached("seven", make), graph.cached("seven", make)] == [7, 7]
    assert calls == [1]
    assert graph.with_features(torch.zeros(4, 3)).cached("seven", lambda: 8) == 8


def test_a_subgraph_of_one_hop_gives_those_rows_of_a_convolution() -> None:
    graph, nodes = Graph.from_data(small()), torch.tensor([3, 0])
    rows, part = graph.one_hop_subgraph(nodes)
    assert rows.tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(part.gcn_matrix.to_dense(), graph.gcn_matrix.to_dense()[nodes])
    alone, part = graph.one_hop_subgraph(torch.tensor([3]))
    assert alone.tolist() == [3]
    assert part.gcn_matrix.to_dense().tolist() == [[1.0]]


def test_other_features_share_the_matrices_of_the_edges_in_the_same_precision() -> None:
    graph = Graph.from_data(small())
    matrix, other = graph.gcn_matrix, graph.with_features(torch.zeros(4, 3))
    assert other.gcn_matrix is matrix
    assert other.random_walk is graph.random_walk  # also what is built later
    assert other.smoothed_x.shape == (4, 3)
    assert graph.with_features(graph.x.double()).smoothed_x.dtype == torch.float64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "data.x is NoneType"),
        ({"x": torch.ones(4)}, r"data.x has shape \[4\]"),
        ({"x": torch.ones(4, 0)}, "at least one feature"),
        ({"x": torch.ones(0, 2), "edge_index": torch.empty(2, 0, dtype=torch.long)}, "no nodes"),
        ({"x": torch.ones(4, 2, dtype=torch.complex64)}, "expected real numbers"),
        ({"x": torch.tensor([[1.0, 2], [3, 4], [5, float("nan")], [7, 8]])}, "1 NaN or infinite .* node 2, feature 1"),
        ({"x": torch.full((4, 2), float("inf"))}, "8 NaN or infinite"),
        ({"edge_index": None}, "data.edge_index is NoneType"),
        ({"edge_index": torch.zeros(5, 2, dtype=torch.long)}, r"did you mean edge_index.t\(\)"),
        ({"edge_index": torch.zeros(2, 3)}, "expected integers"),
        ({"edge_index": torch.tensor([[0], [4]])}, r"edge_index has node 4, but x has only 4 rows \(0..3\)"),
        ({"edge_index": torch.tensor([[0], [-1]])}, r"edge_index has node -1"),
        ({"x": torch.ones(4, 2, device="meta")}, "data.x is on the meta device"),
        ({"edge_index": torch.zeros(2, 3, dtype=torch.long, device="meta")}, "data.edge_index is on the meta device"),
        ({"edge_index": torch.zeros(2, 3, dtype=torch.long).to_sparse()}, "expected a dense tensor"),
        ({"edge_index": torch.zeros(2, 3, dtype=torch.uint64)}, "torch.uint64, expected integers"),
        ({"edge_weight": [1.0] * 8}, "data.edge_weight is list, expected a tensor"),
        ({"edge_weight": torch.ones(7)}, r"data.edge_weight is torch.float32 of shape \[7\], expected .* the 8 edges"),
        ({"edge_weight": torch.ones(8, 1)}, r"data.edge_weight is torch.float32 of shape \[8, 1\]"),
        ({"edge_weight": torch.tensor([1.0] * 7 + [-2.0])}, "1 values that are negative.* -2.0 at edge 7"),
        ({"edge_weight": torch.tensor([float("nan")] + [1.0] * 7)}, "data.edge_weight has 1 values .* nan at edge 0"),
        ({"edge_weight": torch.full((8,), float("inf"))}, "data.edge_weight has 8 values"),
        ({"edge_weight": torch.full((8,), 1e38)}, r"sums to 8e\+38.*divide the weights by their mean"),
        ({"edge_weight": torch.ones(8, device="meta")}, "data.edge_weight is on the meta device"),
        ({"edge_weight": torch.ones(8).to_sparse()}, "data.edge_weight has the layout"),
        ({"edge_attr": torch.ones(8, 1)}, r"data.edge_attr has one number per edge.*data.edge_weight = data.edge_attr"),
        ({"adj_t": torch.eye(4)}, "data.adj_t is set"),
    ],
)
def test_bad_graphs_are_refused_with_what_was_found(changes: dict, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_data(small(**changes))


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.uint8, torch.bool, torch.float64])
def test_features_of_any_type_and_layout_and_edges_of_other_integers_are_taken(dtype: torch.dtype) -> None:
    expected = dtype if dtype == torch.float64 else torch.float32
    assert Graph.from_data(small(x=torch.ones(4, 2).to(dtype))).x.dtype == expected
    assert torch.equal(Graph.from_data(small(x=torch.eye(4).to_sparse())).x, torch.eye(4))
    assert Graph.from_data(small(edge_index=small().edge_index.int())).edge_index.dtype == torch.long
    empty = Graph.from_data(small(edge_index=torch.empty(2, 0, dtype=torch.long)))
    assert torch.equal(empty.gcn_matrix.to_dense(), torch.eye(4))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (None, "data.train_mask is missing"),
        (torch.zeros(4, dtype=torch.bool), "selects no node"),
        (torch.ones(3, dtype=torch.bool), "each of the 4 nodes"),
        (torch.tensor([0, 1, 2]), "torch.int64"),
        ([True] * 4, "is list, expected a boolean tensor"),
        (torch.ones(4, dtype=torch.bool).to_sparse(), "expected a dense tensor"),
        (torch.ones(4, dtype=torch.bool, device="meta"), "data.train_mask is on the meta device"),
    ],
)
def test_bad_masks_are_refused(mask: torch.Tensor | None, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        check_mask(small(train_mask=mask), "train_mask")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "data.y is NoneType"),
        (torch.ones(4), "expected one integer"),
        (torch.ones(3, dtype=torch.long), "each of the 4 nodes"),
        (torch.tensor([0, -1, 0, 1]), "node 1 with label -1"),
        (torch.zeros(4, dtype=torch.cfloat), "torch.complex64 of shape"),
        (torch.ones(4, dtype=torch.long).to_sparse(), "expected a dense tensor"),
        (torch.zeros(4, dtype=torch.long, device="meta"), "data.y is on the meta device"),
    ],
)
def test_bad_labels_are_refused(y: torch.Tensor | None, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        check_labels(small(y=y), torch.arange(4), "training")
