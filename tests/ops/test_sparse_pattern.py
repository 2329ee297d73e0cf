"""Products by a matrix with changing values, against dense ones written out with loops."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oddnode.ops import SparsePattern


def _dense(pattern: SparsePattern, values: Tensor) -> Tensor:
    matrix = torch.zeros(pattern.shape, dtype=values.dtype)
    for row, col, value in zip(pattern.row.tolist(), pattern.col.tolist(), values, strict=True):
        matrix[row, col] = matrix[row, col] + value
    return matrix


@st.composite
def _patterns(draw: st.DrawFn) -> SparsePattern:
    """Patterns with repeated entries, empty rows and empty columns."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    entry = st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1))
    entries = draw(st.lists(entry, max_size=20))
    row, col = torch.tensor(entries, dtype=torch.long).reshape(-1, 2).t()
    return SparsePattern.of_unsorted(row, col, (rows, columns))


@settings(max_examples=60, deadline=None)
@given(_patterns(), st.integers(1, 3))
def test_products_equal_the_dense_ones(pattern: SparsePattern, width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(len(pattern.row), generator=generator, dtype=torch.float64)
    left = torch.randn(pattern.shape[0], width, generator=generator, dtype=torch.float64)
    right = torch.randn(pattern.shape[1], width, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(pattern.times(values, right), _dense(pattern, values) @ right)
    torch.testing.assert_close(pattern.dots(left, right), (left @ right.t())[pattern.row, pattern.col])


def test_first_and_second_derivatives_are_finite_differences() -> None:
    row, col = torch.tensor([0, 0, 0, 2, 3]), torch.tensor([1, 1, 2, 0, 2])  # one entry twice, row 1 empty
    pattern = SparsePattern(row, col, (4, 3))
    values = torch.randn(5, dtype=torch.float64, requires_grad=True)
    right = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    left = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pattern.times, (values, right))
    assert torch.autograd.gradgradcheck(pattern.times, (values, right))
    assert torch.autograd.gradcheck(pattern.dots, (left, right))
    assert torch.autograd.gradgradcheck(pattern.dots, (left, right))
