"""Detectors on weighted graphs, from fit to a saved model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN as PyGGCN

from oddnode import Detector, Energy, MaxSoftmax, Propagated
from oddnode.graph import GraphError
from tests.detector.networks import Sage
from tests.detector.test_detector import exposure_for

METHODS = ["msp", "gnnsafe", "nodesafe", "grasp", "gkde", "gpn", "mahalanobis", "nodesafe++", "nodesafe-evidence"]


def with_noise(data: Data, weight: float) -> Data:
    """The graph with about as many random edges as it has, all of one weight, and no more self-loops."""
    generator = torch.Generator().manual_seed(1)
    noise = torch.randint(data.num_nodes, (2, data.num_edges), generator=generator)
    noise = noise[:, noise[0] != noise[1]]
    data = data.clone()
    data.edge_weight = torch.cat([torch.ones(data.num_edges), torch.full((noise.shape[1],), weight)])
    data.edge_index = torch.cat([data.edge_index, noise], dim=1)
    return data


def scores(name: str, data: Data) -> Tensor:
    detector = Detector.from_recipe(name, epochs=8, device="cpu")
    return detector.fit(data, exposure_for(name, data)).score_samples(data)


@pytest.mark.parametrize("name", METHODS)
def test_weights_of_one_and_edges_of_weight_0_give_the_scores_of_no_weights(name: str, two_groups: Data) -> None:
    ones = two_groups.clone()
    ones.edge_weight = torch.ones(two_groups.num_edges)
    plain = scores(name, two_groups)
    assert torch.equal(scores(name, ones), plain)
    assert torch.equal(scores(name, with_noise(two_groups, 0.0)), plain)


@pytest.mark.parametrize("backbone", ["gcn", "gat", "jknet", "mixhop"])
def test_the_less_an_edge_weighs_the_less_it_changes(backbone: str, two_groups: Data) -> None:
    detector = Detector.from_recipe("nodesafe", epochs=8, device="cpu", backbone=backbone).fit(two_groups)
    clean = detector.score_samples(two_groups)
    noisy = [detector.score_samples(with_noise(two_groups, weight)) for weight in (1e-7, 1e-2, 1.0)]
    least, less, most = (float((each - clean).abs().mean()) for each in noisy)
    assert least < 1e-4 < less < most


def test_an_ensemble_on_a_weighted_graph_is_its_members(two_groups: Data) -> None:
    weighted = with_noise(two_groups, 0.2)
    detector = Detector.from_recipe("nodesafe", epochs=8, ensemble=2, device="cpu").fit(weighted)
    alone = Detector.from_recipe("nodesafe", epochs=8, device="cpu").fit(weighted)
    first = detector.outputs(weighted).members[0].logits
    torch.testing.assert_close(first, alone.outputs(weighted).logits, rtol=1e-4, atol=1e-4)


def test_a_saved_detector_scores_a_weighted_graph_as_before(two_groups: Data, tmp_path: Path) -> None:
    weighted = with_noise(two_groups, 0.2)
    detector = Detector.from_recipe("nodesafe-evidence", epochs=8, device="cpu").fit(weighted)
    detector.save(tmp_path / "model")
    loaded = Detector.load(tmp_path / "model", device="cpu")
    assert torch.equal(loaded.score_samples(weighted), detector.score_samples(weighted))
    assert not torch.equal(loaded.score_samples(two_groups), detector.score_samples(weighted))


def test_explanations_and_reasons_are_given_for_a_weighted_graph(two_groups: Data) -> None:
    weighted = with_noise(two_groups, 0.2)
    detector = Detector.from_recipe("nodesafe-evidence", epochs=8, device="cpu").fit(weighted)
    explanation = detector.explain(weighted)
    torch.testing.assert_close(
        explanation.own_score + explanation.neighbour_contribution, detector.score_samples(weighted)
    )
    assert len(detector.reasons(weighted, [0, 1])) == 2


def test_networks_of_the_user_are_trained_and_wrapped_with_weights(two_groups: Data) -> None:
    weighted = with_noise(two_groups, 0.2)
    torch.manual_seed(0)
    detector = Detector(backbone=PyGGCN(6, 8, 2, out_channels=3), epochs=5, num_spare_logits=0, device="cpu")
    module = detector.fit(weighted).module_
    expected = module(weighted.x, weighted.edge_index, weighted.edge_weight)
    torch.testing.assert_close(detector.outputs(weighted).all_logits, expected.detach())
    wrapped = Detector.wrap(module, scorer=Propagated(Energy()), data=weighted, device="cpu")
    torch.testing.assert_close(wrapped.outputs(weighted).all_logits, expected.detach())


def test_a_network_that_takes_no_weights_is_refused_before_it_is_trained(two_groups: Data) -> None:
    detector = Detector(backbone=Sage(), scorer=MaxSoftmax(), epochs=5, num_spare_logits=0, device="cpu")
    with pytest.raises(TypeError, match=r"edges have weights, which Sage.forward does not use"):
        detector.fit(with_noise(two_groups, 0.2))
    assert detector.fit(two_groups).score_samples(two_groups).shape == (60,)


def test_bad_weights_of_a_scored_graph_are_named(two_groups: Data) -> None:
    detector = Detector(epochs=2, device="cpu").fit(two_groups)
    bad = with_noise(two_groups, -1.0)
    with pytest.raises(GraphError, match=r"data.edge_weight has 47[0-9] values that are negative"):
        detector.score_samples(bad)
