"""The Dirichlet losses against sampling and torch.distributions; GKDE's prior, teacher and network."""

from __future__ import annotations

import math

import pytest
import scipy.sparse
import torch
import torch.nn.functional as F
from scipy.sparse.csgraph import shortest_path
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch_geometric.utils import to_undirected

from oddnode import Detector, evaluate, load_task
from oddnode.detector import evidential_scorer
from oddnode.functional import dirichlet_entropy, dirichlet_kl, expected_cross_entropy, expected_squared_error
from oddnode.graph import Graph, TrainingSet
from oddnode.nn import GCN, EvidentialGCN
from oddnode.objectives import (
    ExpectedCrossEntropy,
    ExpectedSquaredError,
    KernelPrior,
    NegativeEntropy,
    Teacher,
    TrainingPass,
    hop_counts,
    kernel_prior,
)
from oddnode.protocols import published
from oddnode.scoring import Energy, MaxSoftmax
from oddnode.tasks import digits_graph, label_task
from oddnode.training import train

Y = torch.tensor([0, 2, 1])


@pytest.fixture
def logits() -> Tensor:
    return torch.tensor([[0.0, 0.5, 1.0], [2.0, 0.1, 3.0], [0.3, 0.0, 0.0]], dtype=torch.float64)


@pytest.fixture
def graph() -> Graph:
    """A random graph of 40 nodes in several components, some nodes on their own."""
    generator = torch.Generator().manual_seed(0)
    edges = to_undirected(torch.randint(40, (2, 35), generator=generator), num_nodes=40)
    return Graph(torch.randn(40, 6, generator=generator), edges)


@pytest.fixture
def training_set(graph: Graph) -> TrainingSet:
    train, val = torch.tensor([3, 7, 20, 31]), torch.tensor([5, 8])
    return TrainingSet(graph, train, torch.tensor([0, 1, 1, 0]), val, torch.tensor([0, 1]), 2, num_spare_logits=1)


def distances(graph: Graph) -> Tensor:
    source, target = graph.edge_index.numpy()
    matrix = scipy.sparse.coo_matrix(([1] * len(source), (source, target)), shape=(graph.num_nodes,) * 2)
    return torch.from_numpy(shortest_path(matrix.tocsr(), unweighted=True))


def a_pass(data: TrainingSet, logits: Tensor, epoch: int = 0) -> TrainingPass:
    return TrainingPass(epoch, data.num_classes, data.graph, logits, data.train, data.y_train)


def test_expected_squared_error_is_the_mean_over_samples(logits: Tensor) -> None:
    torch.manual_seed(0)
    samples = Dirichlet(logits.exp()).sample((200_000,))
    sampled = (F.one_hot(Y, 3) - samples).square().sum(dim=-1).mean(dim=0)
    torch.testing.assert_close(expected_squared_error(logits, Y), sampled, atol=4e-3, rtol=0)


def test_expected_cross_entropy_is_the_mean_over_samples(logits: Tensor) -> None:
    torch.manual_seed(0)
    samples = Dirichlet(logits.exp()).sample((200_000,))
    sampled = -samples[:, torch.arange(3), Y].log().mean(dim=0)
    torch.testing.assert_close(expected_cross_entropy(logits, Y), sampled, atol=1e-2, rtol=0)


def test_entropy_is_that_of_torch_distributions(logits: Tensor) -> None:
    torch.testing.assert_close(dirichlet_entropy(logits), Dirichlet(logits.exp()).entropy())


def test_divergence_is_that_of_torch_distributions(logits: Tensor) -> None:
    prior = torch.tensor([[1.0, 1.4, 2.0], [1.0, 1.0, 1.0], [3.0, 1.0, 1.2]], dtype=torch.float64)
    expected = kl_divergence(Dirichlet(logits.exp()), Dirichlet(prior))
    torch.testing.assert_close(dirichlet_kl(logits, prior), expected)


def test_gradients_agree_with_finite_differences(logits: Tensor) -> None:
    logits.requires_grad_()
    prior = torch.full((3, 3), 1.3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: expected_squared_error(z, Y), logits)
    assert torch.autograd.gradcheck(lambda z: expected_cross_entropy(z, Y), logits)
    assert torch.autograd.gradcheck(dirichlet_entropy, logits)
    assert torch.autograd.gradcheck(lambda z: dirichlet_kl(z, prior), logits)


def test_entropy_gradient_survives_enormous_evidence_in_single_precision() -> None:
    # For large evidence the entropy falls by (C - 1) / 2 for every factor e; single precision is off by millions.
    logits = torch.tensor([[30.0, 29.0, 28.0]], requires_grad=True)
    dirichlet_entropy(logits).sum().backward()
    assert logits.grad is not None
    assert logits.grad.sum().item() == pytest.approx(-1.0, abs=0.1)


def test_squared_error_of_overflowing_evidence_is_finite() -> None:
    logits = torch.tensor([[2000.0, 0.0]])
    assert expected_squared_error(logits, torch.tensor([0])).item() == 0.0


def test_terms_are_sums_over_the_labelled_nodes(training_set: TrainingSet) -> None:
    logits = torch.rand(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    step, y = a_pass(training_set, logits), training_set.y_train
    alpha = logits[training_set.train].exp()
    strength = alpha.sum(dim=1)
    dirichlet = Dirichlet(alpha)
    squared = (F.one_hot(y, 3) - dirichlet.mean).square() + dirichlet.variance
    torch.testing.assert_close(ExpectedSquaredError()(step), squared.sum())
    of_label = alpha.gather(1, y.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(ExpectedCrossEntropy()(step), (strength.digamma() - of_label.digamma()).sum())
    torch.testing.assert_close(NegativeEntropy()(step), -dirichlet.entropy().sum())


def test_hop_counts_agree_with_shortest_paths(graph: Graph, training_set: TrainingSet) -> None:
    counts = hop_counts(graph, training_set.train, training_set.y_train, 3)
    hops = distances(graph)[training_set.train]
    for d in range(11):
        for c in range(3):
            expected = (hops[training_set.y_train == c] == d).sum(dim=0)
            torch.testing.assert_close(counts[d, :, c], expected.float())


def test_hops_follow_the_direction_of_edges() -> None:
    one_way = Graph(torch.zeros(3, 1), torch.tensor([[0, 1], [1, 2]]))
    counts = hop_counts(one_way, torch.tensor([1]), torch.tensor([0]), 1)
    assert counts[:2, :, 0].tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert counts.sum() == 2


def test_kernel_prior_is_the_sum_of_kernels(graph: Graph, training_set: TrainingSet) -> None:
    prior = kernel_prior(graph, training_set.train, training_set.y_train, 3)
    kernel = (-distances(graph)[training_set.train].square() / 2).exp() / math.sqrt(2 * math.pi)
    one_hot = F.one_hot(training_set.y_train, 3).double()
    torch.testing.assert_close(prior.double(), 1 + kernel.t() @ one_hot)


def test_prior_term_vanishes_at_the_prior(training_set: TrainingSet) -> None:
    term = KernelPrior().prepare(training_set, train)
    assert term.prior is not None
    assert term(a_pass(training_set, term.prior.log())).item() == pytest.approx(0.0, abs=1e-5)
    assert term(a_pass(training_set, term.prior.log() + 1)).item() > 1.0


def test_teacher_divergence_grows_with_the_epochs(training_set: TrainingSet) -> None:
    taught = torch.full((40, 3), 1 / 3).log()
    term = Teacher(ramp=100, log_probabilities=taught)
    logits = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    mean = logits.softmax(dim=-1)
    full = (mean * (mean.log() - taught)).sum()
    for epoch, share in ((0, 0.0), (25, 0.25), (100, 1.0), (300, 1.0)):
        torch.testing.assert_close(term(a_pass(training_set, logits, epoch)), share * full)


def test_teacher_learns_the_labels(training_set: TrainingSet) -> None:
    term = Teacher(epochs=60, dropout=0.0).prepare(training_set, train)
    assert term.log_probabilities is not None
    assert term.log_probabilities.shape == (40, 3)
    assert torch.equal(term.log_probabilities[training_set.train].argmax(dim=-1), training_set.y_train)


def test_a_term_without_data_says_what_to_do(training_set: TrainingSet) -> None:
    for term in (KernelPrior(), Teacher()):
        with pytest.raises(RuntimeError, match="call prepare"):
            term(a_pass(training_set, torch.zeros(40, 3)))


def test_uncertainties_are_evidence_and_probability() -> None:
    assert evidential_scorer("epistemic") == Energy()
    assert evidential_scorer("aleatoric") == MaxSoftmax()
    with pytest.raises(ValueError, match="expected one of epistemic, aleatoric"):
        evidential_scorer("both")  # type: ignore[arg-type]


def test_evidential_gcn_gives_the_logarithm_of_one_plus_evidence(graph: Graph) -> None:
    torch.manual_seed(0)
    network = EvidentialGCN(6, 8, 3).eval()
    plain = GCN(6, 8, 3, batch_norm=False).eval()
    plain.load_state_dict(network.state_dict())
    torch.testing.assert_close(network.run(graph), plain.run(graph).exp().log1p())


def test_published_prior_starts_from_the_first_nodes_whatever_their_class() -> None:
    task = load_task("digits/label", protocol="published")
    prior = published.MisplacedPrior.of(task)
    count = int(task.train.train_mask.sum())
    data = TrainingSet(
        Graph.from_data(task.train), torch.tensor([0]), torch.tensor([0]), torch.tensor([1]), torch.tensor([0]), 5
    )
    nodes, labels = prior.labelled(data)
    assert nodes.tolist() == list(range(count))
    # Digits 0..4 are ID and 5..9 left out, and the first images show 0, 1, ..., 9 in turn.
    assert labels[:10].tolist() == list(range(10))


@pytest.mark.parametrize("method", ["gkde", "gpn"])
def test_finds_unseen_digits(method: str) -> None:
    task = load_task("digits/label")
    result = evaluate(Detector.from_recipe(method, epochs=100).fit(task.train), task)
    assert result["auroc"] > 80
    assert result["id_acc"] > 90


@pytest.mark.parametrize("method", ["gkde", "gpn"])
def test_one_class_is_enough(method: str) -> None:
    task = label_task("digits/one", digits_graph(), [0], [1], [2, 3, 4])
    detector = Detector.from_recipe(method, epochs=10).fit(task.train)
    assert evaluate(detector, task)["id_acc"] == 100


@pytest.mark.parametrize("method", ["gkde", "gpn"])
def test_published_settings_run(method: str) -> None:
    task = load_task("digits/label", protocol="published")
    detector = published.detector(method, task, epochs=10).fit(task.train)
    assert detector.outputs(task.train).all_logits.shape[1] == 10
    assert 0 <= evaluate(detector, task)["auroc"] <= 100
