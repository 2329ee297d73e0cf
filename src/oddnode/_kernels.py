"""Triton kernels. Triton comes with torch for CUDA; where it is missing, `sum_neighbours` is ``None``."""

# mypy: disable-error-code="no-untyped-def, no-redef"
from __future__ import annotations

from typing import Any

sum_neighbours: Any = None

try:
    import triton
    import triton.language as tl
except ImportError:
    pass
else:

    @triton.jit
    def sum_neighbours(offsets, sources, values, out, num_nodes, ROWS: tl.constexpr, LANES: tl.constexpr):
        """Sums of ``values`` over the sources of every row; a program takes some rows, some edges of each at a time."""
        row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        inside = row < num_nodes
        start = tl.load(offsets + row, mask=inside, other=0).to(tl.int64)
        end = tl.load(offsets + row + 1, mask=inside, other=0).to(tl.int64)
        lane = tl.arange(0, LANES)
        total = tl.zeros((ROWS, LANES), dtype=values.dtype.element_ty)
        for step in range(0, tl.max(end - start), LANES):
            place = start[:, None] + step + lane[None, :]
            within = place < end[:, None]
            source = tl.load(sources + place, mask=within, other=0)
            total += tl.load(values + source, mask=within, other=0.0)
        tl.store(out + row, tl.sum(total, axis=1), mask=inside)
