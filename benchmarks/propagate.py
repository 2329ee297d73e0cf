"""One hop of propagation over uniformly random edges: edges per second against a measured read or copy of memory.

    python benchmarks/propagate.py --device cpu
    python benchmarks/propagate.py --device cuda --sizes 10000000:200000000,50000000:1000000000

The ways: torch's sparse product with a value per edge (MKL, cuSPARSE), on a GPU also our kernel for that, the mean
without values (`NeighbourMean`), and on a GPU the same with the edges sorted by blocks of sources, so that the scores
of a block stay in cache while its edges are read.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from common import seconds, store, wait
from torch import Tensor

from oddnode.ops import BlockedNeighbourMean, NeighbourMean, SparseMatrix
from oddnode.ops import triton_kernels as _kernels


def random_walk(
    nodes: int, edges: int, device: str, seed: int = 0, sources: tuple[int, int] | None = None
) -> NeighbourMean:
    """In-degrees follow a Poisson distribution, as those of uniformly random edges do; sources lie in a range."""
    generator = torch.Generator(device).manual_seed(seed)
    counts = torch.poisson(torch.full((nodes,), edges / nodes, device=device), generator=generator)
    offsets = torch.zeros(nodes + 1, dtype=torch.long, device=device)
    torch.cumsum(counts.long(), 0, out=offsets[1:])
    low, high = sources or (0, nodes)
    count = int(offsets[-1])
    chosen = torch.randint(low, high, (count,), generator=generator, device=device, dtype=torch.int32)
    return NeighbourMean(offsets.int() if count < 2**31 else offsets, chosen)


def with_values(walk: NeighbourMean) -> SparseMatrix:
    """The same as a sparse matrix, built without sorting what is sorted."""
    value = torch.repeat_interleave(walk.inverse_degree(torch.float32), walk.row_counts().long())
    return SparseMatrix.from_csr(walk.offsets, walk.sources, value, (walk.num_nodes, walk.num_nodes))


def read_seconds(bytes_read: int, device: str) -> float:
    """How long it takes to read as many bytes in order, and on a GPU to copy them."""
    block = torch.ones(bytes_read // 4, device=device)
    if device == "cpu":
        return seconds(block.sum, device)
    target = torch.empty_like(block)
    return seconds(lambda: target.copy_(block), device)


def measure(nodes: int, edges: int, device: str, options: argparse.Namespace) -> dict[str, Any]:
    walk = random_walk(nodes, edges, device)
    scores = torch.randn(nodes, device=device)
    row: dict[str, Any] = {"nodes": nodes, "edges": len(walk.sources)}
    if device == "cuda":
        row["index copy ms"] = 1e3 * read_seconds(4 * len(walk.sources), device)
        matrix = with_values(walk)
        row["cuSPARSE ms"] = 1e3 * seconds(partial(matrix.__matmul__, scores), device)
        row["with values ms"] = 1e3 * seconds(partial(matrix.diffuse, scores, 0.5, 1), device)
        columns = scores.repeat(8, 1).t()
        row["8 columns with values ms"] = 1e3 * seconds(partial(matrix.diffuse, columns, 0.5, 1), device)
        del matrix
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        row["without values ms"] = 1e3 * seconds(lambda: walk.diffuse(scores, 0.5, 1), device)
        row["without values peak GB"] = torch.cuda.max_memory_allocated() / 1e9
        expected = walk.diffuse(scores, 0.0, 1)
        if options.tune and _kernels.can_run(scores.device):
            row["kernel shapes ms"] = _shapes(walk, scores)
        row["largest difference"] = _try(lambda: float((with_values(walk) @ scores - expected).abs().max()))
        del walk, expected
        torch.cuda.empty_cache()
        row["in blocks"] = _try(partial(_blocks, nodes, edges, scores))
    else:
        row["read with values ms"] = 1e3 * read_seconds(8 * len(walk.sources), device)
        row["read without values ms"] = 1e3 * read_seconds(4 * len(walk.sources), device)
        row["with values ms"] = 1e3 * seconds(partial(with_values(walk).diffuse, scores, 0.5, 1), device)
        row["without values ms"] = 1e3 * seconds(lambda: walk.diffuse(scores, 0.5, 1), device)
        row["factor over a read"] = row["with values ms"] / row["read with values ms"]
    row["edges per second"] = row["edges"] / min(row["with values ms"], row["without values ms"]) * 1e3
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in row.items()}


def _shapes(walk: NeighbourMean, scores: Tensor) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for rows, lanes in (
        (32, 16),
        (16, 32),
        (64, 8),
        (128, 4),
        (64, 16),
        (128, 8),
        (32, 8),
        (256, 4),
        (16, 16),
        (256, 1),
    ):
        work = _sums(walk, scores, rows, lanes)
        taken = _try(partial(seconds, work, "cuda", 3))
        found[f"{rows}x{lanes}"] = None if taken is None else round(1e3 * taken, 3)
    return found


def _sums(walk: NeighbourMean, scores: Tensor, rows: int, lanes: int) -> Callable[[], Tensor]:
    starts, ends = walk.offsets[:-1], walk.offsets[1:]
    return lambda: _kernels.sum_ranges(starts, ends, walk.sources, scores, program=(rows, lanes, 4))


def blocked_walk(nodes: int, edges: int, blocks: int) -> BlockedNeighbourMean:
    """The same number of random edges in blocks by their sources, made without sorting."""
    cuts = torch.linspace(0, nodes, blocks + 1).long().tolist()
    counts, sources = [], []
    for number, cut in enumerate(pairwise(cuts)):
        walk = random_walk(nodes, edges // blocks, "cuda", number, cut)
        counts.append(walk.row_counts().to(torch.uint8))
        sources.append(walk.sources)
        del walk
    torch.cuda.empty_cache()
    return BlockedNeighbourMean(counts, sources)


def _blocks(nodes: int, edges: int, scores: Tensor) -> dict[str, dict[str, float]]:
    """Milliseconds of a hop and gigabytes in all, for some numbers of blocks."""
    found = {}
    for count in (2, 4, 6, 8, 12, 16):
        walk = blocked_walk(nodes, edges, count)
        torch.cuda.reset_peak_memory_stats()
        milliseconds = 1e3 * seconds(partial(walk.diffuse, scores, 0.5, 1), "cuda", 3)
        found[str(count)] = {"ms": round(milliseconds, 3), "peak GB": round(torch.cuda.max_memory_allocated() / 1e9, 2)}
        del walk
        wait("cuda")
        torch.cuda.empty_cache()
    return found


def _try(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception:  # one figure that fails must not cost the others
        traceback.print_exc()
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", default=None, help="nodes:edges, separated by commas")
    parser.add_argument("--tune", action="store_true", help="also try other shapes of the kernel")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    default = (
        "10000000:200000000,50000000:1000000000" if options.device == "cuda" else "100000:10000000,10000000:50000000"
    )
    rows = []
    for size in (options.sizes or default).split(","):
        nodes, edges = (int(part) for part in size.split(":"))
        row = _try(partial(measure, nodes, edges, options.device, options))
        rows.append(row or {"nodes": nodes, "edges": edges})
        print(json.dumps(row), flush=True)
    print(store("propagate", options.device, rows, options.out))


if __name__ == "__main__":
    main()
