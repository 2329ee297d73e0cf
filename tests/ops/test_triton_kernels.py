"""Every kernel against a dense formula in double precision or a loop over Python's own integers.

They run on a GPU or, with ``TRITON_INTERPRET=1``, in Triton's interpreter on a CPU (``make test-kernels``).
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from oddnode.ops import LongRows, SparseMatrix, relu_dropout, stacked_keys, sum_neighbours, triton_kernels
from oddnode.ops.neighbour_means import _tile_bases
from tests.ops.test_dropout import is_kept

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"

if triton_kernels.triton is None:
    pytest.skip("TRITON KERNELS NOT TESTED: triton is not installed; run make test-kernels", allow_module_level=True)
if not INTERPRETED and not torch.cuda.is_available():
    pytest.skip("TRITON KERNELS NOT TESTED: no GPU and no interpreter; run make test-kernels", allow_module_level=True)

#: Numbers of edges per row: one empty row, one row, only empty ones, a long row among empty ones, many odd ones.
STRUCTURES = {
    "one empty row": [0],
    "one row": [5],
    "empty rows": [0, 0, 0],
    "long row": [0, 300, 0, 1],
    "odd rows": [n * 7 % 11 for n in range(37)],
}
WIDTHS = [None, 1, 3, 17, 40]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def structure(counts: list[int], num_sources: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random sources for rows with these numbers of edges: offsets, sources, and the dense matrix of their counts."""
    sources = torch.randint(num_sources, (sum(counts),), generator=rng())
    row = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    dense = torch.zeros(len(counts), num_sources, dtype=torch.float64)
    dense.index_put_((row, sources), torch.ones(len(sources), dtype=torch.float64), accumulate=True)
    offsets = torch.tensor([0, *counts]).cumsum(0)
    return offsets, sources.int(), dense


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Up to the rounding of sums in the precision of ``actual``."""
    tolerance = 1e-12 if actual.dtype == torch.float64 else 2e-5
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("counts", STRUCTURES.values(), ids=STRUCTURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset_dtype", [torch.int32, torch.int64])
def test_sums_over_neighbours(counts: list[int], dtype: torch.dtype, offset_dtype: torch.dtype) -> None:
    offsets, sources, dense = structure(counts, 13)
    values = torch.randn(13, 2, dtype=dtype, generator=rng(1)).to(DEVICE)[:, 0]  # not contiguous
    summed = sum_neighbours(offsets.to(DEVICE, offset_dtype), sources.to(DEVICE), values)
    assert summed.dtype == dtype
    assert_close(summed, dense @ values.cpu().double())


@pytest.mark.parametrize("counts", STRUCTURES.values(), ids=STRUCTURES)
@pytest.mark.parametrize("width", [1, 3, 17, 64, 70])
def test_sums_of_several_columns(counts: list[int], width: int) -> None:
    offsets, sources, dense = structure(counts, 13)
    values = torch.randn(13, width, generator=rng(1))
    assert_close(sum_neighbours(offsets.to(DEVICE), sources.to(DEVICE), values.to(DEVICE)), dense @ values.double())


@pytest.mark.parametrize("width", [None, 3])
@pytest.mark.parametrize(("most", "piece"), [(1, 1), (3, 2), (5, 7), (299, 1), (300, 4)])
def test_long_rows_are_summed_in_pieces(
    monkeypatch: pytest.MonkeyPatch, width: int | None, most: int, piece: int
) -> None:
    monkeypatch.setattr("oddnode.ops.neighbour_means._MOST", piece)
    offsets, sources, dense = structure([2, 300, 0, 1, 6, 1, 17], 13)
    values = torch.randn(13, *([] if width is None else [width]), dtype=torch.float64, generator=rng(1))
    offsets = offsets.to(DEVICE)
    rest = LongRows(offsets[:-1], offsets[1:], most)
    assert rest.rows.tolist() == [row for row, count in enumerate([2, 300, 0, 1, 6, 1, 17]) if count > most]
    assert_close(sum_neighbours(offsets, sources.to(DEVICE), values.to(DEVICE), rest), dense @ values)


@pytest.mark.parametrize("width", [None, 3, 40])
@pytest.mark.parametrize("most", [3, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_are_mixed_with_values_and_written_into_other_columns(
    width: int | None, most: int, dtype: torch.dtype
) -> None:
    offsets, sources, dense = structure(counts := [2, 300, 0, 1, 6, 1, 17], 13)
    columns = [] if width is None else [width]
    values, own = (torch.randn(n, *columns, dtype=dtype, generator=rng(n)) for n in (13, len(counts)))
    kept, share = (torch.rand(len(counts), dtype=dtype, generator=rng(seed)) for seed in (2, 3))
    room = torch.full((len(counts), 2 * (width or 1)), 7.0, dtype=dtype, device=DEVICE)
    out = room[:, 0] if width is None else room[:, :width]
    offsets = offsets.to(DEVICE)
    mix = triton_kernels.Mix(own.to(DEVICE), kept.to(DEVICE), share.to(DEVICE))
    rest = LongRows(offsets[:-1], offsets[1:], most)
    mixed = sum_neighbours(offsets, sources.to(DEVICE), values.to(DEVICE), rest, mix, out)
    assert mixed is out
    sums = dense @ values.double()
    assert_close(out, (sums.t() * share.double() + own.double().t() * kept.double()).t())
    assert bool((room[:, width or 1 :] == 7.0).all())


@pytest.mark.parametrize("count_dtype", [torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize("num_rows", [1, 5, triton_kernels.TILE, 2 * triton_kernels.TILE + 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_block_is_added_to_what_is_there(num_rows: int, dtype: torch.dtype, count_dtype: torch.dtype) -> None:
    counts = torch.randint(6, (num_rows,), generator=rng()).mul_(torch.arange(num_rows) % 3 != 0)
    counts[-1] = 200  # one long row, in the last tile
    _, sources, dense = structure(counts.tolist(), 13)
    counts = counts.to(DEVICE, count_dtype)
    values, total = torch.randn(13, dtype=dtype, generator=rng(1)), torch.randn(num_rows, dtype=dtype, generator=rng(2))
    found = total.to(DEVICE, copy=True)
    sources, values = sources.to(DEVICE), values.to(DEVICE)
    triton_kernels.add_block(counts, _tile_bases(counts), sources, values, found)
    assert_close(found, total.double() + dense @ values.cpu().double())
    in_parts, ends = total.to(DEVICE, copy=True), counts.cumsum(0, dtype=torch.long)
    triton_kernels.add_block(counts, _tile_bases(counts), sources, values, in_parts, most=4)
    LongRows(ends - counts, ends, most=4).add(sources, values, in_parts)
    assert_close(in_parts, total.double() + dense @ values.cpu().double())


def matrix_and_values(counts: list[int], width: int | None, dtype: torch.dtype) -> tuple[SparseMatrix, Tensor]:
    """A square matrix whose rows have at most these numbers of entries, since equal ones are added up; and values."""
    size = max(len(counts), *counts)
    counts = counts + [0] * (size - len(counts))
    row = torch.arange(size).repeat_interleave(torch.tensor(counts))
    col = torch.cat([torch.randperm(size, generator=rng(n))[:count] for n, count in enumerate(counts)])
    value = torch.randn(len(row), dtype=dtype, generator=rng(1))
    shape = (size,) if width is None else (size, width)
    return SparseMatrix(row, col, value, (size, size)), torch.randn(shape, dtype=dtype, generator=rng(2))


def assert_mixed(matrix: SparseMatrix, values: Tensor, keep: float, longest: int) -> None:
    mixed = triton_kernels.mix(matrix.to(DEVICE)._csr, values.to(DEVICE), keep, longest)
    assert mixed.dtype == values.dtype
    wide = values.double()
    assert_close(mixed, keep * wide + (1 - keep) * (matrix.to_dense().double() @ wide))


@pytest.mark.parametrize(
    "counts", [c for c in STRUCTURES.values() if sum(c)], ids=[k for k, c in STRUCTURES.items() if sum(c)]
)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("keep", [0.0, 0.3])
def test_one_step_of_diffusion(counts: list[int], width: int | None, keep: float) -> None:
    matrix, values = matrix_and_values(counts, width, torch.float32)
    assert_mixed(matrix, values, keep, max(counts))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("keep", [0.0, 0.3])
def test_one_step_of_diffusion_in_double_precision(width: int | None, keep: float) -> None:
    matrix, values = matrix_and_values(STRUCTURES["odd rows"], width, torch.float64)
    assert_mixed(matrix, values, keep, 10)


@pytest.mark.parametrize("longest", [10, 257, 4097, 65537])
@pytest.mark.parametrize("width", [1, 17])
def test_every_shape_of_the_diffusion_kernel(longest: int, width: int) -> None:
    matrix, values = matrix_and_values(STRUCTURES["odd rows"], width, torch.float32)
    assert_mixed(matrix, values, 0.3, longest)


def test_values_that_are_not_contiguous() -> None:
    matrix, values = matrix_and_values([3, 0, 2], 3, torch.float32)
    assert_mixed(matrix, values.t().contiguous().t(), 0.3, 3)


def reference(values: Tensor, rows: list[int], keys: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """What ``values`` of the rows are multiplied by in dropout after ReLU, and the output: ``[n, S, H]``."""
    _, networks, width = values.shape
    kept = [
        [[is_kept(keys[s].tolist(), node, h, width, p) for h in range(width)] for s in range(networks)] for node in rows
    ]
    slope = torch.tensor(kept).reshape(len(rows), networks, width) * (values[rows] > 0) / (1 - p)
    return slope, values[rows] * slope


@pytest.mark.parametrize("p", [0.25, 0.5])
@pytest.mark.parametrize("rows", [None, [4, 0, 2], [5], []], ids=str)
@pytest.mark.parametrize(("networks", "width"), [(1, 1), (3, 7), (2, 33), (2, 64)])
def test_relu_and_dropout_and_their_gradient(p: float, rows: list[int] | None, networks: int, width: int) -> None:
    table = stacked_keys(list(range(networks)), epochs=3, graphs=2, layers=2).flatten(1, 2)  # [3, 4, S, 2]
    values = torch.randn(6, networks, width, generator=rng(1))
    chosen = list(range(6)) if rows is None else rows
    slope, expected = reference(values.double(), chosen, table[2, 3], p)
    arguments = (
        values.to(DEVICE),
        None if rows is None else torch.tensor(rows, dtype=torch.long, device=DEVICE),
        table.to(DEVICE),
        torch.tensor([2], device=DEVICE),  # the epoch
        3,  # the place
        p,
    )
    assert_close(relu_dropout(*arguments), expected)
    grad = torch.randn(len(chosen), networks, width, generator=rng(2))
    whole = torch.zeros(6, networks, width, dtype=torch.float64)
    whole[chosen] = slope * grad.double()
    assert_close(relu_dropout(*arguments, grad=grad.to(DEVICE)), whole)


def test_the_library_uses_the_kernels_on_a_gpu_alone() -> None:
    assert triton_kernels.can_run(torch.device("cuda"))
    assert not triton_kernels.can_run(torch.device("cpu"))  # not even where the interpreter would run them
