"""OODGAT's network and its terms against dense formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.functional import auroc
from oddnode.graph import Graph
from oddnode.nn import OODGAT
from oddnode.objectives import (
    EntropyConsistency,
    KnownCrossEntropy,
    LayerAgreement,
    TrainingPass,
    UniformWhereUnknown,
)
from tests.scoring.random_graphs import random_graph


def dense_layer(hidden: Tensor, conv: torch.nn.Module, edges: Tensor) -> tuple[Tensor, Tensor]:
    """One layer, node by node and head by head."""
    n, (heads, width) = len(hidden), conv.att.shape  # type: ignore[misc]
    values = (hidden @ conv.lin.weight.t()).view(n, heads, width)  # type: ignore[union-attr, operator]
    q = torch.sigmoid(torch.einsum("nhd,hd->nh", values, conv.att))
    out = torch.zeros(n, heads, width, dtype=torch.float64)
    for node in range(n):
        near = [u for u in edges[0][edges[1] == node].tolist() if u != node] + [node]
        weight = torch.softmax(1 - (q[node] - q[near]).abs(), dim=0)
        out[node] = torch.einsum("uh,uhd->hd", weight, values[near])
    out = out.flatten(1) if conv.concat else out.mean(dim=1)
    return out + conv.bias, q.mean(dim=1)  # type: ignore[operator]


def dense_shares(data: Graph, network: OODGAT) -> tuple[Tensor, Tensor, Tensor]:
    """Class probabilities, and the shares of the first and of the last layer."""
    hidden, first = dense_layer(data.x, network.convs[0], data.edge_index)
    logits, last = dense_layer(torch.nn.functional.elu(hidden), network.last, data.edge_index)
    return logits.softmax(dim=1), first, last


def test_attention_keeps_to_nodes_with_a_similar_share() -> None:
    data = random_graph(40)
    torch.manual_seed(0)
    network = OODGAT(data.x.shape[1], 3, 5).double().eval()
    with torch.no_grad():
        probabilities, first, last = dense_shares(data, network)
        logits = network(data.x, data.edge_index)
    q = (first + last) / 2
    torch.testing.assert_close(logits[:, -1].exp(), q, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits[:, :-1].exp(), (1 - q).unsqueeze(1) * probabilities, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits.exp().sum(dim=1), torch.ones(40, dtype=torch.float64), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="out_channels is 1, expected 2 or more"):
        OODGAT(3, 4, 1)


def test_terms_are_those_of_the_paper() -> None:
    data = random_graph(40)
    torch.manual_seed(1)
    network = OODGAT(data.x.shape[1], 3, 5).double().eval()
    train = torch.arange(0, 40, 3)
    y = torch.arange(len(train)) % 4
    with torch.no_grad():
        hidden = network.embed(data)
        step = TrainingPass(50, 4, data, network.head(hidden, data), train, y, hidden=hidden)
        p, first, last = dense_shares(data, network)
    q, decay = (first + last) / 2, 0.9**0.5
    assert float(KnownCrossEntropy()(step)) == pytest.approx(float(-p[train, y].log().mean()), rel=1e-4)
    entropy = -(p * p.log()).sum(dim=1)
    target = 1 / (1 + torch.exp(-(entropy - entropy.mean()) / entropy.std()))
    cosine = float(q @ target / (q.norm() * target.norm()))
    assert float(EntropyConsistency()(step)) == pytest.approx(-decay * cosine, rel=1e-4)
    margin = float(q.median())
    uniform = -p[q >= margin].log().mean()
    assert float(UniformWhereUnknown(margin)(step)) == pytest.approx(decay * float(uniform), rel=1e-3)
    assert float(UniformWhereUnknown(2.0)(step)) == 0.0
    agreement = float(first @ last / (first.norm() * last.norm()))
    assert float(LayerAgreement()(step)) == pytest.approx(-decay * agreement, rel=1e-4)
    without = TrainingPass(0, 5, data, step.logits, train, y)
    with pytest.raises(ValueError, match="num_spare_logits of 1 or more"):
        EntropyConsistency()(without)
    at_first = TrainingPass(0, 4, data, step.logits, train, y)
    assert float(EntropyConsistency()(at_first)) == pytest.approx(-cosine, rel=1e-4)


def test_unlabelled_nodes_of_an_unknown_class_are_told_apart(two_groups: Data) -> None:
    data = two_groups.clone()
    unknown = data.y == 2
    data.train_mask, data.val_mask = data.train_mask & ~unknown, data.val_mask & ~unknown
    data.y[unknown] = 0  # never read
    data.x[unknown] = data.x[unknown][:, [3, 4, 5, 0, 1, 2]] * 0.3  # of neither class
    detector = Detector.from_recipe("oodgat", epochs=150, device="cpu").fit(data)
    scores = detector.score_samples(data)
    assert auroc(scores[data.test_mask & ~unknown], scores[unknown]) > 0.8
    assert bool((detector.predict(data)[data.test_mask & ~unknown] == data.y[data.test_mask & ~unknown]).all())
