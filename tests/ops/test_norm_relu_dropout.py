from __future__ import annotations

import pytest
import torch
from torch import nn

from oddnode.ops import PreNormActivations


def values() -> torch.Tensor:
    return (3 + 2 * torch.randn(40, 5, dtype=torch.float64)).requires_grad_()


def norm(momentum: float = 0.1) -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(5, momentum=momentum).double()
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("some", [True, False])
@pytest.mark.parametrize("dropped", [True, False])
def test_values_and_all_gradients_are_those_of_torch(training: bool, some: bool, dropped: bool) -> None:
    torch.manual_seed(0)
    z, layer = values(), norm()
    layer(z + 1)  # running statistics that are not the values' own
    layer.train(training)
    rows = torch.tensor([3, 30, 7, 8]) if some else torch.arange(40)
    scales = 2.0 * torch.randint(2, (len(rows), 5)).double() if dropped else torch.ones(len(rows), 5).double()
    ours = PreNormActivations(z).activated(layer, rows if some else None, scales if dropped else None)
    whole = layer(z).relu()[rows] * scales
    torch.testing.assert_close(ours, whole)
    direction = torch.randn(len(rows), 5, dtype=torch.float64)
    inputs = (z, layer.weight, layer.bias)
    for a, b in zip(
        torch.autograd.grad((ours * direction).sum(), inputs),
        torch.autograd.grad((whole * direction).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("momentum", [0.1, 1.0])
def test_running_statistics_are_those_of_torch(momentum: float) -> None:
    torch.manual_seed(0)
    z, ours, theirs = values(), norm(momentum), norm(momentum)
    PreNormActivations(z).activated(ours, torch.tensor([1, 2]))
    theirs(z)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))


def test_an_evaluation_before_the_training_pass_shares_its_batch_norm() -> None:
    torch.manual_seed(0)
    z, layer, rows = values(), norm(), torch.tensor([0, 5])
    shared, expected = PreNormActivations(z), norm()
    expected.load_state_dict(layer.state_dict())
    with torch.no_grad():
        evaluated = shared.activated(layer, rows)
    trained = shared.activated(layer)
    assert not evaluated.requires_grad
    assert layer.num_batches_tracked == 1
    whole = expected(z).relu()
    torch.testing.assert_close(evaluated, whole[rows].detach())
    torch.testing.assert_close(trained, whole)
    direction = torch.randn(40, 5, dtype=torch.float64)
    found = torch.autograd.grad(trained, [z, *layer.parameters()], direction)
    torch.testing.assert_close(found, torch.autograd.grad(whole, [z, *expected.parameters()], direction))


def test_running_statistics_are_used_beside_the_values_own() -> None:
    torch.manual_seed(0)
    z, layer = values(), norm()
    shared = PreNormActivations(z)
    shared.activated(layer)
    layer.eval()
    torch.testing.assert_close(shared.activated(layer, torch.tensor([7, 3])), layer(z).relu()[[7, 3]])
