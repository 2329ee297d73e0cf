from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oddnode.ops import BlockMatrix, FeatureProducts, SparseMatrix, SparsePattern, csr, sparse


def random_matrix(rows: int, cols: int, nnz: int, seed: int, dtype: torch.dtype = torch.float64) -> SparseMatrix:
    generator = torch.Generator().manual_seed(seed)
    row = torch.randint(rows, (nnz,), generator=generator)
    col = torch.randint(cols, (nnz,), generator=generator)
    return SparseMatrix(row, col, torch.randn(nnz, generator=generator, dtype=dtype), (rows, cols))


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 30), st.integers(0, 10_000))
def test_product_equals_the_dense_product(rows: int, cols: int, nnz: int, seed: int) -> None:
    matrix = random_matrix(rows, cols, nnz, seed)
    other = torch.randn(cols, 3, dtype=torch.float64)
    torch.testing.assert_close(matrix @ other, matrix.to_dense() @ other)
    torch.testing.assert_close(matrix @ other[:, 0], matrix.to_dense() @ other[:, 0])


def test_first_and_second_derivatives_agree_with_finite_differences() -> None:
    matrix = random_matrix(5, 4, 9, seed=1)
    dense = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda d: matrix @ d, (dense,))
    assert torch.autograd.gradgradcheck(lambda d: (matrix @ d) ** 2, (dense,))


@pytest.mark.parametrize("nnz", [0, 12])
def test_products_and_diffusion_without_the_fast_kernel_are_the_same(monkeypatch: pytest.MonkeyPatch, nnz: int) -> None:
    other = torch.randn(6, 3, dtype=torch.float64)
    fast, without = (random_matrix(6, 6, nnz, seed=2) for _ in range(2))
    expected = fast @ other, fast.diffuse(other[:, 0], 0.3, 2)
    monkeypatch.setattr(csr, "cpu_has_csr_kernel", lambda: False)
    assert not without.is_plain
    torch.testing.assert_close((without @ other, without.diffuse(other[:, 0], 0.3, 2)), expected)


def test_other_precision_is_refused() -> None:
    with pytest.raises(TypeError, match=r"float64.*float32"):
        random_matrix(2, 2, 2, seed=0) @ torch.ones(2, 1)


def test_empty_rows_are_filled_with_a_one_on_the_diagonal() -> None:
    matrix = SparseMatrix(torch.tensor([0, 2]), torch.tensor([1, 0]), torch.tensor([2.0, 3.0]), (3, 3))
    assert matrix.with_self_loops_where_empty.to_dense().tolist() == [[0, 2, 0], [0, 1, 0], [3, 0, 0]]
    assert matrix.with_self_loops_where_empty.with_self_loops_where_empty is matrix.with_self_loops_where_empty


def test_some_rows_give_those_rows_of_the_product() -> None:
    matrix = random_matrix(9, 9, 30, seed=4)
    nodes = torch.tensor([7, 0, 7, 3])
    part, columns = matrix.rows(nodes)
    dense = torch.randn(9, 2, dtype=torch.float64)
    torch.testing.assert_close(part @ dense[columns], (matrix @ dense)[nodes])
    assert set(columns.tolist()) == set(matrix.to_dense()[nodes].nonzero()[:, 1].tolist())


def test_what_lies_in_fresh_memory_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, dense = random_matrix(5, 5, 9, seed=7), torch.randn(5, 3, dtype=torch.float64)
    expected = matrix.to_dense() @ dense
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *shape: self.new_full(shape, float("nan")))
    torch.testing.assert_close(matrix @ dense, expected)
    torch.testing.assert_close(matrix @ dense[:, 0], expected[:, 0])


@pytest.fixture(params=["hop by hop", "as one dense matrix"])
def way_to_diffuse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways that a GPU has, whatever the device and the size."""
    for kind in (SparseMatrix, BlockMatrix):
        monkeypatch.setattr(kind, "prefers_dense", request.param == "as one dense matrix")


@pytest.mark.usefixtures("way_to_diffuse")
def test_diffusion_is_the_dense_formula_forward_and_backward() -> None:
    matrix = random_matrix(6, 6, 14, seed=8)
    one = 0.3 * torch.eye(6, dtype=torch.float64) + 0.7 * matrix.to_dense()
    for shape in ((6,), (6, 2)):
        values = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        diffused, expected = matrix.diffuse(values, 0.3, 3), one @ one @ one @ values
        torch.testing.assert_close(diffused, expected)
        slope = torch.randn_like(diffused)
        torch.testing.assert_close(
            *(torch.autograd.grad((out * slope).sum(), values)[0] for out in (diffused, expected))
        )


@pytest.mark.usefixtures("way_to_diffuse")
@pytest.mark.parametrize("shape", [(6,), (6, 2)])
def test_stacked_vectors_are_multiplied_as_one_after_another(shape: tuple[int, ...]) -> None:
    matrix = random_matrix(6, 6, 14, seed=8)
    values = torch.randn(3, *shape, dtype=torch.float64, requires_grad=True)
    together = torch.vmap(lambda v: matrix.diffuse(matrix @ v, 0.2, 2))(values)
    alone = torch.stack([matrix.diffuse(matrix @ v, 0.2, 2) for v in values])
    torch.testing.assert_close(together, alone)
    direction = torch.randn_like(alone)
    torch.testing.assert_close(
        *(torch.autograd.grad((out * direction).sum(), values, retain_graph=True)[0] for out in (together, alone))
    )


@pytest.mark.usefixtures("way_to_diffuse")
@pytest.mark.parametrize("shape", [(6,), (6, 2)])
def test_a_matrix_for_each_vector(shape: tuple[int, ...]) -> None:
    matrices = [random_matrix(6, 6, 9 + s, seed=s) for s in range(3)]
    values = torch.randn(3, *shape, dtype=torch.float64, requires_grad=True)
    blocks = BlockMatrix(matrices)
    together = torch.vmap(lambda v: blocks.diffuse(v, 0.2, 2))(values)
    alone = torch.stack([m.diffuse(v, 0.2, 2) for m, v in zip(matrices, values, strict=True)])
    torch.testing.assert_close(together, alone)
    direction = torch.randn_like(alone)
    torch.testing.assert_close(
        *(torch.autograd.grad((out * direction).sum(), values, retain_graph=True)[0] for out in (together, alone))
    )
    full = torch.vmap(lambda v: blocks.with_self_loops_where_empty.diffuse(v, 0.0, 1))(values)
    torch.testing.assert_close(
        full, torch.stack([m.with_self_loops_where_empty @ v for m, v in zip(matrices, values, strict=True)])
    )


def test_dense_diffusions_are_for_small_matrices_on_a_gpu_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random_matrix(6, 6, 14, seed=8)
    assert not matrix.prefers_dense
    monkeypatch.setattr(sparse._kernels, "can_run", lambda device: True)
    assert matrix.prefers_dense
    assert BlockMatrix([matrix] * 16).prefers_dense
    assert not BlockMatrix([matrix] * 17).prefers_dense
    monkeypatch.setattr(sparse, "_SMALL", 5)
    assert not matrix.prefers_dense
    monkeypatch.undo()
    first = matrix.dense_diffusion(0.1, 2)
    assert matrix.dense_diffusion(0.1, 2) is first
    blocks = BlockMatrix([matrix, random_matrix(6, 6, 9, seed=9)])
    torch.testing.assert_close(blocks.dense_diffusion(0.1, 2)[0], first)
    assert matrix.dense_diffusion(0.1, 2) is first  # captured steps may refer to it
    with pytest.raises(AssertionError, match=r"torch\.vmap only"):
        blocks.diffuse(torch.ones(6, dtype=torch.float64), 0.1, 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.usefixtures("way_to_diffuse")
@pytest.mark.parametrize("shape", [(400,), (400, 1), (400, 10), (400, 37), (400, 700)])
def test_the_kernel_on_a_gpu_diffuses_as_the_cpu_does_the_same_every_time(shape: tuple[int, ...]) -> None:
    matrix = random_matrix(400, 400, 3000, seed=11, dtype=torch.float32)
    hub = SparseMatrix(torch.zeros(600, dtype=torch.long), torch.arange(600) % 400, torch.rand(600), (400, 400))
    values = torch.randn(shape)
    for each in (matrix, hub):
        there, moved = each.to("cuda"), values.cuda()
        torch.testing.assert_close(
            there.diffuse(moved, 0.3, 1).cpu(), each.diffuse(values, 0.3, 1), rtol=1e-4, atol=1e-4
        )
        assert torch.equal(there.diffuse(moved, 0.3, 2), there.diffuse(moved, 0.3, 2))
        double = there.to(torch.float64).diffuse(moved.double(), 0.3, 2).cpu()
        torch.testing.assert_close(double, each.to(torch.float64).diffuse(values.double(), 0.3, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("size", [5_000, 70_000])
@pytest.mark.parametrize("width", [1, 3, 40])
def test_the_kernel_on_a_gpu_takes_rows_of_any_length(size: int, width: int) -> None:
    generator = torch.Generator().manual_seed(12)
    row = torch.cat([torch.full((size,), 7), torch.randint(size, (3 * size,), generator=generator)])
    col = torch.cat([torch.arange(size), torch.randint(size, (3 * size,), generator=generator)])
    matrix = SparseMatrix(row, col, torch.rand(len(row), generator=generator) / 4, (size, size))
    values = torch.randn(size, width, generator=generator)
    expected = matrix.to(torch.float64).diffuse(values.double(), 0.3, 2)
    there = matrix.to("cuda").diffuse(values.cuda(), 0.3, 2)
    torch.testing.assert_close(there.cpu().double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("width", [1, 16, 17, 64, 65])
@pytest.mark.parametrize("transposed_factor", [False, True])
def test_products_in_single_precision_are_those_of_dense_double_ones(width: int, transposed_factor: bool) -> None:
    torch.manual_seed(0)
    row, col, value = torch.randint(30, (90,)), torch.randint(1, 20, (90,)), torch.randn(90)
    row[row == 4] = 5  # a row and a column without entries
    matrix = SparseMatrix(row, col, value, (30, 20))
    dense = matrix.to_dense().double()
    factor = torch.randn(width, 20).t() if transposed_factor else torch.randn(20, width)
    factor.requires_grad_()
    direction = torch.randn(30, width)
    product = matrix @ factor
    torch.testing.assert_close(product, (dense @ factor.double()).float())
    (gradient,) = torch.autograd.grad(product, factor, direction)
    torch.testing.assert_close(gradient, (dense.t() @ direction.double()).float())


@pytest.mark.parametrize("width", [16, 17])
def test_diffusion_of_many_columns_is_that_of_dense_double_ones(width: int) -> None:
    torch.manual_seed(0)
    matrix = SparseMatrix(torch.randint(20, (60,)), torch.randint(20, (60,)), torch.rand(60) / 3, (20, 20))
    values = torch.randn(20, width)
    expected = values.double()
    for _ in range(3):
        expected = 0.3 * expected + 0.7 * matrix.to_dense().double() @ expected
    torch.testing.assert_close(matrix.diffuse(values, 0.3, 3), expected.float())


def test_a_matrix_without_entries_gives_zeros_whatever_the_width() -> None:
    none = torch.empty(0, dtype=torch.long)
    for columns in (0, 3):
        matrix = SparseMatrix(none, none, torch.empty(0), (4, columns))
        assert torch.equal(matrix @ torch.ones(columns, 64), torch.zeros(4, 64))


@given(st.integers(1, 8), st.integers(0, 40), st.integers(0, 10_000))
def test_inserted_diagonal_equals_the_dense_sum(size: int, nnz: int, seed: int) -> None:
    matrix = random_matrix(size, size, nnz, seed)
    rows = (matrix.to_dense().diagonal() == 0) & (torch.arange(size) % 2 == seed % 2)
    row, col, _ = matrix.coordinates()
    rows[row[row == col]] = False  # a stored zero is an entry too
    value = torch.arange(1.0, 1.0 + int(rows.sum()), dtype=torch.float64)
    inserted = matrix.with_diagonal(rows, value)
    expected = matrix.to_dense()
    expected[rows, rows] += value
    torch.testing.assert_close(inserted.to_dense(), expected, rtol=0, atol=0)
    at = inserted.coordinates()
    assert bool((at[0].diff() * size + at[1].diff() > 0).all()), "entries are sorted"


def features_and_weight() -> tuple[SparseMatrix, Tensor]:
    generator = torch.Generator().manual_seed(0)
    dense = torch.rand(5, 4, generator=generator, dtype=torch.float64)
    dense = dense * (torch.rand(5, 4, generator=generator) < 0.5)
    return SparseMatrix.from_dense(dense), torch.randn(2, 4, generator=generator, dtype=torch.float64).requires_grad_()


def test_a_product_without_a_gradient_is_no_product_with_one() -> None:
    features, weight = features_and_weight()
    products = FeatureProducts()
    with torch.no_grad():
        assert not products.linear(features, weight).requires_grad
    assert products.linear(features, weight).requires_grad
    with torch.no_grad():
        assert not products.linear(features, weight).requires_grad


def test_two_users_of_one_product_both_count_in_the_gradient() -> None:
    features, weight = features_and_weight()
    products = FeatureProducts()
    loss = (products.linear(features, weight) ** 2).sum() + products.linear(features, weight).sum()
    [gradient] = torch.autograd.grad(loss, weight)
    dense = features.to_dense()
    torch.testing.assert_close(gradient, (2 * (dense @ weight.T) + 1).T @ dense)


def test_no_warning_is_shown_and_the_filters_stay_as_they_are() -> None:
    code = """
import warnings
import torch
before = list(warnings.filters)
import oddnode.ops
from oddnode.ops import csr
torch_filters = [f for f in warnings.filters if f not in before]
warnings.simplefilter("error")
filters = list(warnings.filters)
index = torch.tensor([0, 1])
csr.from_coordinates(index, index, torch.ones(2), (2, 2))
oddnode.ops.SparseMatrix.from_csr(torch.tensor([0, 1, 2]), index, torch.ones(2), (2, 2))
assert list(warnings.filters) == filters
assert ("ignore", None, UserWarning, None, 0) not in torch_filters
print("quiet")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "quiet\n", done.stderr
    assert "beta" not in done.stderr


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
