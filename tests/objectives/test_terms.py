from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from oddnode.functional import losses
from oddnode.graph import Graph
from oddnode.objectives import BoundUniform, CrossEntropy, EnergyHinge, LogitNorm, OutlierExposure, TrainingPass


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
