"""Backbones against PyG's own layers and dense formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, MixHopConv

from oddnode.graph import Graph
from oddnode.nn import BACKBONES as ALL_BACKBONES
from oddnode.nn import GAT, GCN, MLP, JKNet, MixHop
from oddnode.nn.pyg_convs import PreparedGATConv
from oddnode.nn.stages import PreparedGCNConv
from oddnode.ops import DropoutStream

BACKBONES = {"gcn": GCN, "mlp": MLP, "gat": GAT, "jknet": JKNet, "mixhop": MixHop}
_NODES, _FEATURES, _HIDDEN, _CLASSES = 12, 40, 5, 3


def _graph(sparse: bool = False) -> Graph:
    """Twelve nodes, one of them alone; with few non-zero features where ``sparse`` says so."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(_NODES, _FEATURES, generator=generator, dtype=torch.float64)
    if sparse:
        x = x * (torch.rand(x.shape, generator=generator) < 0.08)
    source, target = torch.randint(_NODES - 1, (2, 20), generator=generator)
    edges = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    return Graph(x, edges[:, edges[0] != edges[1]])


def _dense_normalised(graph: Graph) -> Tensor:
    """``D^-1/2 (A + I) D^-1/2`` with loops over the edges."""
    adjacency = torch.eye(graph.num_nodes, dtype=torch.float64)
    for source, target in graph.edge_index.t().tolist():
        adjacency[target, source] += 1
    scale = adjacency.sum(dim=1).rsqrt()
    return scale[:, None] * adjacency * scale[None, :]


def _built(name: str, num_layers: int = 2) -> Any:
    torch.manual_seed(1)
    backbone: Any = BACKBONES[name](_FEATURES, _HIDDEN, _CLASSES, num_layers=num_layers, dropout=0.5).double()
    for norm in backbone.norms:  # statistics other than 0 and 1, so that forgetting the norm shows
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    return backbone.eval()


def _normed(norm: nn.Module, hidden: Tensor) -> Tensor:
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return (hidden - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", BACKBONES)
def test_logits_are_head_of_embed_and_forward_agrees_with_run(name: str, sparse: bool) -> None:
    graph, backbone = _graph(sparse), _built(name)
    assert (graph.sparse_x is not None) == sparse
    logits = backbone.run(graph)
    assert logits.shape == (_NODES, _CLASSES)
    torch.testing.assert_close(backbone.head(backbone.embed(graph), graph), logits)
    torch.testing.assert_close(backbone(graph.x, graph.edge_index), logits)


@pytest.mark.parametrize("name", BACKBONES)
def test_three_layers_run_and_one_hidden_layer_is_the_least(name: str) -> None:
    assert _built(name, num_layers=3).run(_graph()).shape == (_NODES, _CLASSES)
    with pytest.raises(ValueError, match="num_layers"):
        BACKBONES[name](_FEATURES, _HIDDEN, _CLASSES, num_layers=0)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    backbone = _built(name).train()
    backbone.run(_graph(sparse=True)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in backbone.parameters())


@pytest.mark.parametrize("sparse", [False, True])
def test_mlp_is_two_matrix_products(sparse: bool) -> None:
    graph, mlp = _graph(sparse), _built("mlp")
    first, [last] = mlp.first, mlp.lins
    hidden = _normed(mlp.norms[0], graph.x @ first.weight.T + first.bias).clamp_min(0)
    torch.testing.assert_close(mlp.run(graph), hidden @ last.weight.T + last.bias)


@pytest.mark.parametrize("sparse", [False, True])
def test_gcn_is_the_dense_formula(sparse: bool) -> None:
    graph, gcn = _graph(sparse), _built("gcn")
    a, (first, last) = _dense_normalised(graph), gcn.convs
    hidden = _normed(gcn.norms[0], a @ graph.x @ first.lin.weight.T + first.bias).clamp_min(0)
    torch.testing.assert_close(gcn.run(graph), a @ hidden @ last.lin.weight.T + last.bias)


def _weighted(seed: int = 2, whole: bool = False) -> Graph:
    graph, generator = _graph(), torch.Generator().manual_seed(seed)
    count = graph.edge_index.shape[1]
    weight = torch.randint(1, 4, (count,), generator=generator) if whole else torch.rand(count, generator=generator)
    return Graph(graph.x, graph.edge_index, weight.double() + (0.0 if whole else 0.01))


@pytest.mark.parametrize("name", ["gcn", "gat", "jknet", "mixhop", "evidential-gcn", "gpn"])
def test_an_edge_of_whole_weight_counts_as_so_many_edges(name: str) -> None:
    graph = _weighted(whole=True)
    assert graph.edge_weight is not None
    many = Graph(graph.x, graph.edge_index.repeat_interleave(graph.edge_weight.long(), dim=1))
    torch.manual_seed(1)
    backbone: Any = ALL_BACKBONES[name](_FEATURES, _HIDDEN, _CLASSES).double().eval()
    torch.testing.assert_close(backbone.run(graph), backbone.run(many))
    assert not torch.allclose(backbone.run(graph), backbone.run(Graph(graph.x, graph.edge_index)))


@pytest.mark.parametrize("name", BACKBONES)
def test_weights_of_one_change_no_bit_and_those_of_zero_are_no_edges(name: str) -> None:
    graph, backbone = _graph(), _built(name)
    count = graph.edge_index.shape[1]
    assert torch.equal(backbone(graph.x, graph.edge_index, torch.ones(count)), backbone.run(graph))
    half = (torch.arange(count) % 2).double()
    expected = backbone.run(Graph(graph.x, graph.edge_index[:, 1::2]))
    torch.testing.assert_close(backbone(graph.x, graph.edge_index, half), expected)
    with pytest.raises(ValueError, match=r"edge_weight has .* values that are negative"):
        backbone(graph.x, graph.edge_index, -torch.ones(count))


def test_weighted_attention_is_the_dense_formula() -> None:
    graph = _weighted()
    assert graph.edge_weight is not None
    torch.manual_seed(1)
    conv = PreparedGATConv(_FEATURES, _HIDDEN, heads=2).double()
    weight = torch.eye(_NODES, dtype=torch.float64)
    weight.index_put_((graph.edge_index[1], graph.edge_index[0]), graph.edge_weight, accumulate=True)
    transformed = graph.x @ conv.lin.weight.T
    values = transformed.view(_NODES, 2, _HIDDEN)
    expected = []
    for head in range(2):
        own = values[:, head]
        raw = F.leaky_relu((own @ conv.att_src[0, head])[None, :] + (own @ conv.att_dst[0, head])[:, None], 0.2)
        share = weight * raw.exp()
        expected.append(share / share.sum(dim=1, keepdim=True) @ own)
    found = conv(transformed, graph, lambda attention: attention)
    torch.testing.assert_close(found, torch.cat(expected, dim=1) + conv.bias)


def test_a_seed_gives_a_convolution_the_weights_that_it_gives_pygs() -> None:
    torch.manual_seed(3)
    pygs = [GCNConv(_FEATURES, _HIDDEN), GCNConv(_HIDDEN, _CLASSES)]
    torch.manual_seed(3)
    for layer, expected in zip(GCN(_FEATURES, _HIDDEN, _CLASSES).convs, pygs, strict=True):
        assert set(layer.state_dict()) == set(expected.state_dict())
        for name, tensor in expected.state_dict().items():
            assert torch.equal(layer.state_dict()[name], tensor)


def test_a_convolution_can_be_reset() -> None:
    torch.manual_seed(4)
    layer: Any = GCN(_FEATURES, _HIDDEN, _CLASSES).convs[0]
    before = layer.lin.weight.clone()
    nn.init.ones_(layer.bias)
    layer.reset_parameters()
    assert not torch.equal(layer.lin.weight, before)
    assert torch.equal(layer.bias, torch.zeros(_HIDDEN))


@pytest.mark.parametrize("sparse", [False, True])
def test_gat_is_pygs_layers_with_its_weights(sparse: bool) -> None:
    graph, gat = _graph(sparse), _built("gat")
    # An edge that is there twice counts twice, a self-loop as the one that every node has.
    more = torch.cat([graph.edge_index, graph.edge_index[:, :3], torch.tensor([[4, 4], [4, 4]])], dim=1)
    graph = Graph(graph.x, more)
    first = GATConv(_FEATURES, _HIDDEN, heads=2).double()
    last = GATConv(2 * _HIDDEN, _CLASSES, heads=1, concat=False).double()
    first.load_state_dict(gat.convs[0].state_dict())
    last.load_state_dict(gat.convs[1].state_dict())
    hidden = F.elu(_normed(gat.norms[0], first(graph.x, graph.edge_index)))
    torch.testing.assert_close(gat.embed(graph), hidden)
    torch.testing.assert_close(gat.run(graph), last(hidden, graph.edge_index))


@pytest.mark.parametrize("with_stream", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_gat_drops_features_hidden_features_and_attention_in_training(
    sparse: bool, with_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    gat = GAT(_FEATURES, _HIDDEN, _CLASSES, dropout=0.5).double().train()
    gat.stream = DropoutStream(3) if with_stream else None
    graph, kept = _graph(sparse), []
    whole = gat._drop

    def noted(values: Tensor, place: int) -> Tensor:
        dropped = whole(values, place)
        torch.testing.assert_close(dropped[dropped != 0], 2 * values[dropped != 0])
        kept.append((place, len(values), (dropped[values != 0] != 0).double().mean().item()))
        return dropped

    monkeypatch.setattr(gat, "_drop", noted)
    gat.run(graph)
    entries = len(graph.feature_pattern[1]) if sparse else _NODES
    edges = graph.edge_index.shape[1] + _NODES
    assert [k[:2] for k in kept] == [(0, entries), (2, edges), (1, _NODES), (3, edges)]
    assert all(0.2 < share < 0.8 for _, _, share in kept)


@pytest.mark.parametrize("sparse", [False, True])
def test_jknet_takes_the_maximum_over_pygs_convolutions(sparse: bool) -> None:
    graph, net = _graph(sparse), _built("jknet")
    first, second = GCNConv(_FEATURES, _HIDDEN).double(), GCNConv(_HIDDEN, _HIDDEN).double()
    first.load_state_dict(net.convs[0].state_dict())
    second.load_state_dict(net.convs[1].state_dict())
    one = _normed(net.norms[0], first(graph.x, graph.edge_index)).clamp_min(0)
    two = _normed(net.norms[1], second(one, graph.edge_index)).clamp_min(0)
    expected = torch.stack([one, two]).amax(dim=0)
    torch.testing.assert_close(net.embed(graph), expected)
    torch.testing.assert_close(net.run(graph), expected @ net.lin.weight.T + net.lin.bias)


@pytest.mark.parametrize("sparse", [False, True])
def test_mixhop_is_pygs_layers_with_its_weights(sparse: bool) -> None:
    graph, net = _graph(sparse), _built("mixhop")
    hidden = graph.x
    for conv, norm in zip(net.convs, net.norms, strict=True):
        layer = MixHopConv(hidden.shape[1], _HIDDEN, powers=[0, 1, 2]).double()
        layer.load_state_dict(conv.state_dict())
        hidden = _normed(norm, layer(hidden, graph.edge_index)).clamp_min(0)
    torch.testing.assert_close(net.embed(graph), hidden)
    torch.testing.assert_close(net.run(graph), hidden @ net.lin.weight.T + net.lin.bias)


#: Around the width up to which a CPU multiplies the other way round.
WIDTHS = [1, 2, 7, 10, 11, 64]


def pair(width: int) -> tuple[PreparedGCNConv, GCNConv]:
    ours, theirs = PreparedGCNConv(6, width).double(), GCNConv(6, width).double()
    torch.nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def gradients(loss: Tensor, conv: torch.nn.Module, hidden: Tensor) -> dict[str, Tensor]:
    inputs = {"hidden": hidden} | dict(conv.named_parameters())
    return dict(zip(inputs, torch.autograd.grad(loss, list(inputs.values())), strict=True))


@pytest.mark.parametrize("width", WIDTHS)
def test_values_and_gradients_are_those_of_pyg(width: int) -> None:
    data, (ours, theirs) = _graph(), pair(width)
    hidden = torch.randn(_NODES, 6, dtype=torch.float64, requires_grad=True)
    got, expected = ours(hidden, data), theirs(hidden, data.edge_index)
    torch.testing.assert_close(got, expected)
    direction = torch.randn(_NODES, width, dtype=torch.float64)
    found = gradients((got * direction).sum(), ours, hidden)
    torch.testing.assert_close(found, gradients((expected * direction).sum(), theirs, hidden))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("nodes", [[4, 11, 5], []])
def test_some_rows_are_rows_of_the_whole(width: int, nodes: list[int]) -> None:
    data, (ours, _) = _graph(), pair(width)
    hidden = torch.randn(_NODES, 6, dtype=torch.float64, requires_grad=True)
    chosen = torch.tensor(nodes, dtype=torch.long)
    rows, part = data.one_hop_subgraph(chosen)
    got, expected = ours(hidden[rows], part), ours(hidden, data)[chosen]
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradients(got.sum(), ours, hidden), gradients(expected.sum(), ours, hidden))
