"""The terms of objectives; the Dirichlet losses against sampling and torch.distributions; GKDE."""

from __future__ import annotations

import math

import pytest
import scipy.sparse
import torch
import torch.nn.functional as F
from scipy.sparse.csgraph import shortest_path
from torch import Tensor, nn
from torch.distributions import Dirichlet, kl_divergence
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from oddnode import Backbone, Detector, SyntheticExposure, evaluate, load_task
from oddnode.detector import evidential_scorer
from oddnode.functional import dirichlet_entropy, dirichlet_kl, expected_cross_entropy, expected_squared_error, losses
from oddnode.graph import Graph, TrainingSet
from oddnode.nn import GCN, EvidentialGCN
from oddnode.objectives import (
    BoundUniform,
    CrossEntropy,
    EnergyHinge,
    ExpectedCrossEntropy,
    ExpectedSquaredError,
    KernelPrior,
    LogitNorm,
    NegativeEntropy,
    OutlierExposure,
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


def test_expected_cross_entropy_is_the_mean_over_samples(logits: Tensor) -> None:
    torch.manual_seed(0)
    samples = Dirichlet(logits.exp()).sample((200_000,))
    sampled = -samples[:, torch.arange(3), Y].log().mean(dim=0)
    torch.testing.assert_close(expected_cross_entropy(logits, Y), sampled, atol=1e-2, rtol=0)


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
    torch.manual_seed(0)
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


def one_pass(exposure: bool = False, epoch: int = 0) -> TrainingPass:
    generator = torch.Generator().manual_seed(0)
    graph = Graph(torch.ones(6, 1), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]))
    step = TrainingPass(
        epoch=epoch,
        num_classes=3,
        graph=graph,
        logits=torch.randn(6, 4, generator=generator),  # three classes and a spare logit
        train=torch.tensor([0, 2, 4]),
        y=torch.tensor([0, 1, 2]),
    )
    if exposure:
        step.exposure_graph = graph
        step.exposure_logits = torch.randn(6, 4, generator=generator)
        step.exposed = torch.tensor([1, 3, 5])
    return step


def test_sum_weighs_its_terms() -> None:
    step = one_pass()
    objective = CrossEntropy() + 5 * BoundUniform(0.25)
    z = step.logits[step.train]
    expected = F.cross_entropy(z, step.y) + 5 * (0.25 * losses.uniform_loss(z) + 0.75 * losses.bound_loss(z))
    torch.testing.assert_close(objective(step), expected)
    assert repr(objective) == "CrossEntropy() + 5 * BoundUniform(lambda1=0.25)"


def test_a_weighted_sum_can_be_weighed_again() -> None:
    step = one_pass()
    z = step.logits[step.train]
    of_unit_length = z / z.square().sum(1, keepdim=True).sqrt()
    expected = 2 * F.cross_entropy(z, step.y) + 6 * F.cross_entropy(of_unit_length / 0.5, step.y)
    torch.testing.assert_close((2 * (CrossEntropy() + 3 * LogitNorm(0.5)))(step), expected)


def test_late_term_waits_for_its_epoch() -> None:
    objective = CrossEntropy() + BoundUniform(start=3)
    torch.testing.assert_close(objective(one_pass(epoch=2)), CrossEntropy()(one_pass()))
    assert objective(one_pass(epoch=3)) > CrossEntropy()(one_pass())


def test_exposure_is_needed_where_a_term_needs_it() -> None:
    assert not (CrossEntropy() + BoundUniform()).needs_exposure
    assert (CrossEntropy() + EnergyHinge()).needs_exposure
    assert (CrossEntropy() + 0.5 * OutlierExposure()).needs_exposure


def test_bound_and_uniform_take_both_groups_separately() -> None:
    step = one_pass(exposure=True)
    assert step.exposure_logits is not None
    groups = [step.logits[step.train], step.exposure_logits[step.exposed]]
    expected = sum(0.1 * losses.uniform_loss(z) + 0.9 * losses.bound_loss(z) for z in groups)
    torch.testing.assert_close(BoundUniform(0.1)(step), expected)


def hinges(step: TrainingPass, m_in: float, m_out: float) -> torch.Tensor:
    """Both squared hinges on the energies of the three classes, written out."""
    assert step.exposure_logits is not None
    inside = -step.logits[step.train, :3].exp().sum(1).log()
    outside = -step.exposure_logits[step.exposed, :3].exp().sum(1).log()
    return (inside - m_in).clamp_min(0).pow(2).mean() + (m_out - outside).clamp_min(0).pow(2).mean()


def test_hinge_uses_energies_of_the_classes_alone() -> None:
    step = one_pass(exposure=True)
    torch.testing.assert_close(EnergyHinge(-3.0, 0.0)(step), hinges(step, -3.0, 0.0))


def test_hinge_without_margins_sets_them_itself() -> None:
    step = one_pass(exposure=True)
    mean_in = -step.logits[step.train, :3].exp().sum(1).log().mean().item()
    torch.testing.assert_close(EnergyHinge()(step), hinges(step, mean_in, -math.log(3)))


def test_hinge_propagates_first_where_asked() -> None:
    step = one_pass(exposure=True)
    scores = step.logits[:, :3].logsumexp(1)
    pairs = torch.tensor([1, 0, 3, 2, 4, 5])  # everybody's only neighbour; 4 and 5 are isolated and keep theirs
    energy_in, _ = step.energies(1, 0.5, "keep")
    torch.testing.assert_close(energy_in, -(0.5 * scores + 0.5 * scores[pairs])[step.train])


def test_only_objectives_add_up() -> None:
    with pytest.raises(TypeError, match="not an objective"):
        CrossEntropy() + 3  # type: ignore[operator]


def test_a_sum_of_which_nothing_has_started_is_zero_and_has_a_gradient() -> None:
    step = one_pass()
    step.logits.requires_grad_()
    loss = (1 * BoundUniform(start=5))(step)
    loss.backward()
    assert loss == 0


def _step(hidden: Tensor, y: Tensor, num_classes: int) -> TrainingPass:
    graph = Graph(hidden, torch.empty(2, 0, dtype=torch.long))
    return TrainingPass(0, num_classes, graph, 2 * hidden, torch.arange(len(y)), y, hidden=hidden, head=lambda h: 2 * h)


def test_every_channel_of_an_outlier_comes_from_one_of_two_nodes() -> None:
    torch.manual_seed(0)
    hidden = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])  # two nodes: the pair is known
    seen: list[Tensor] = []
    step = _step(hidden, torch.tensor([0, 1]), 2)

    def head(hidden: Tensor) -> Tensor:
        seen.append(hidden)
        return hidden

    step.head = head
    for _ in range(20):
        SyntheticExposure()(step)
    outliers = torch.cat(seen)
    assert bool(((outliers == hidden[0]) | (outliers == hidden[1])).all())
    assert len(outliers.unique(dim=0)) > 4


def test_the_loss_is_the_hinge_between_labelled_nodes_and_outliers() -> None:
    # All nodes alike, so that an outlier is any of them: energies are known.
    hidden = torch.tensor([[1.0, 1.0]]).repeat(4, 1)
    y = torch.tensor([0, 1, 0, 1])
    energy = -(2 + math.log(2))
    adaptive = SyntheticExposure()(_step(hidden, y, 2))  # m_in = the mean energy, m_out = -log 2
    assert adaptive.item() == pytest.approx((-math.log(2) - energy) ** 2)
    fixed = SyntheticExposure(m_in=-5.0, m_out=-1.0)(_step(hidden, y, 2))
    assert fixed.item() == pytest.approx((energy + 5) ** 2 + (-1 - energy) ** 2)


class _Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x)


def _data() -> Data:
    y = torch.arange(20) % 2
    x = torch.eye(4)[y] + 0.1 * torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    place = torch.arange(20)
    return Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long), y=y, train_mask=place < 10, val_mask=place >= 10)


def test_made_up_outliers_get_less_confident_logits_than_without() -> None:
    data = _data()
    energies = []
    for weight in (0.0, 1.0):
        objective = CrossEntropy() + weight * SyntheticExposure()
        detector = Detector("mlp", objective, hidden_channels=8, epochs=40, dropout=0.0, device="cpu").fit(data)
        module = detector.module_
        assert isinstance(module, Backbone)
        hidden = module.embed(Graph(data.x, data.edge_index)).detach()
        mask = torch.rand(hidden.shape, generator=torch.Generator().manual_seed(1)) < 0.5
        crossed = torch.where(mask, hidden, hidden.roll(1, dims=0))
        logits = module.head(crossed, Graph(crossed, data.edge_index))[:, :2]
        energies.append(torch.logsumexp(logits, dim=1).mean().item())
    assert energies[1] < energies[0]


def test_a_users_module_is_told_why_it_cannot() -> None:
    with pytest.raises(TypeError, match="_Own is not a Backbone"):
        Detector(_Own(), CrossEntropy() + SyntheticExposure(), epochs=1, device="cpu").fit(_data())
