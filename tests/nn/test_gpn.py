"""GPN: radial flows as densities, evidence, its spread over the graph, and the warm-up."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import to_undirected

from oddnode import Detector
from oddnode.graph import Graph, TrainingSet
from oddnode.nn import GPN, RadialFlows, personalised_page_rank
from oddnode.ops import DropoutStream
from oddnode.tasks import load_task


def layer(z: Tensor, centre: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """One radial layer as the paper writes it, on one point or many."""
    ray = z - centre
    return z + (b - a) / (a + ray.norm(dim=-1, keepdim=True)) * ray


def layers_of(flows: RadialFlows, flow: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    a, b = F.softplus(flows.raw_a), F.softplus(flows.raw_b)
    return [(flows.centre[i, flow], a[i, flow], b[i, flow]) for i in range(len(a))]


@pytest.fixture
def graph() -> Graph:
    generator = torch.Generator().manual_seed(0)
    edges = to_undirected(torch.randint(12, (2, 14), generator=generator), num_nodes=12)
    return Graph(torch.randn(12, 5, generator=generator, dtype=torch.float64), edges)


def test_log_density_agrees_with_the_jacobian_of_the_layers() -> None:
    torch.manual_seed(0)
    flows = RadialFlows(num_flows=2, dim=4).double()
    for parameter in flows.parameters():
        nn.init.normal_(parameter, std=1.5)  # far from the identity
    points = torch.randn(3, 4, dtype=torch.float64)

    def through(z: Tensor, flow: int) -> Tensor:
        for parameters in layers_of(flows, flow):
            z = layer(z, *parameters)
        return z

    for flow in range(2):
        for i, point in enumerate(points):
            jacobian = torch.autograd.functional.jacobian(lambda z, flow=flow: through(z, flow), point)
            normal = -0.5 * (through(point, flow).square().sum() + 4 * math.log(2 * math.pi))
            expected = normal + torch.linalg.slogdet(jacobian).logabsdet
            torch.testing.assert_close(flows.log_prob(points)[i, flow], expected)


def test_a_point_on_a_centre_has_a_finite_gradient() -> None:
    flows = RadialFlows(1, 3, num_layers=1)
    point = flows.centre[0].detach().clone().requires_grad_()
    flows.log_prob(point).sum().backward()
    assert point.grad is not None
    assert torch.isfinite(point.grad).all()


def test_page_rank_agrees_with_the_dense_sum(graph: Graph) -> None:
    values = torch.rand(12, 3, dtype=torch.float64)
    dense = graph.gcn_matrix.to_dense()
    power, expected = torch.eye(12, dtype=torch.float64), torch.zeros(12, 12, dtype=torch.float64)
    for _ in range(10):
        expected += 0.1 * power
        power = 0.9 * dense @ power
    torch.testing.assert_close(personalised_page_rank(values, graph.gcn_matrix), (expected + power) @ values)


def test_logits_are_the_logarithm_of_one_plus_spread_evidence(graph: Graph) -> None:
    torch.manual_seed(0)
    network = GPN(5, 8, 2, latent_channels=4).double().eval()
    latent = network.embed(graph)
    log_evidence = network.flows.log_prob(latent) + math.log(0.5) + 2 * math.log(4 * math.pi)
    beta = log_evidence.clamp(-30, 30).exp()
    torch.testing.assert_close(network.evidence(latent), beta)
    expected = (1 + personalised_page_rank(beta, graph.gcn_matrix)).log()
    torch.testing.assert_close(network(graph.x, graph.edge_index), expected)


def test_gradients_of_the_logits_agree_with_finite_differences(graph: Graph) -> None:
    torch.manual_seed(0)
    network = GPN(5, 8, 2, latent_channels=3, num_radial=2).double().eval()
    x = graph.x.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: network(x, graph.edge_index), x)


def test_evidence_is_clamped_far_from_everything() -> None:
    network = GPN(5, 8, 2, latent_channels=4)
    assert network.evidence(torch.full((1, 4), 1e3)).tolist() == [[pytest.approx(math.exp(-30))] * 2]


def test_priors_are_class_shares_and_a_spare_logit_has_no_evidence(graph: Graph) -> None:
    network = GPN(5, 8, 3).double().eval()
    train, y = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 1, 1])
    network.prepare(TrainingSet(graph, train, y, train, y, 2, num_spare_logits=1))
    torch.testing.assert_close(network.prior, torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64))
    torch.testing.assert_close(network.run(graph)[:, 2], torch.zeros(12, dtype=torch.float64), atol=1e-10, rtol=0)
    again = GPN(5, 8, 3).double().eval()
    again.load_state_dict(network.state_dict())
    torch.testing.assert_close(again.run(graph), network.run(graph))


def test_warm_up_trains_the_flows_alone(graph: Graph) -> None:
    network = GPN(5, 8, 2, warm_up=5).double().train()
    for epoch, learns in ((0, False), (4, False), (5, True)):
        network.zero_grad(set_to_none=True)
        network.begin_epoch(epoch)
        network.run(graph).sum().backward()
        assert network.flows.centre.grad is not None
        assert (network.first.weight.grad is not None) == learns


def test_scores_and_probabilities_are_those_of_the_dirichlet() -> None:
    task = load_task("digits/label")
    detector = Detector.from_recipe("gpn", epochs=8, num_spare_logits=0, uncertainty="epistemic").fit(task.train)
    alpha = detector.outputs(task.train).logits.exp().cpu()
    torch.testing.assert_close(detector.predict_proba(task.train), alpha / alpha.sum(dim=1, keepdim=True))
    torch.testing.assert_close(detector.score_samples(task.train), alpha.sum(dim=1).log())


def test_every_layer_has_dropout_of_its_own() -> None:
    torch.manual_seed(0)
    gpn = GPN(6, 40, 3, num_layers=3, dropout=0.5).double().train()
    gpn.stream, kept = DropoutStream(5), list[Tensor]()
    for layer in gpn.layers:
        layer.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0] != 0))
    for name, bias in gpn.named_parameters():
        if name.endswith("bias"):
            nn.init.constant_(bias, 10.0)  # so that nothing but dropout gives zeros
    gpn.run(Graph(torch.rand(50, 6, dtype=torch.float64), torch.empty(2, 0, dtype=torch.long)))
    assert len(kept) == 2 <= gpn.num_dropout_places
    assert all(0.4 < each.double().mean() < 0.6 for each in kept)
    assert not torch.equal(*kept)
