from __future__ import annotations

from functools import partial

import pytest
import torch

from oddnode.functional import propagate
from oddnode.ops import BlockedNeighbourMean, NeighbourMean, neighbour_mean_matrix

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"))]


def random_edges(nodes: int, edges: int, device: str, seed: int = 0) -> torch.Tensor:
    """Random edges with repeats and self-loops; the last nodes have none, and node 0 has a thousand."""
    generator = torch.Generator().manual_seed(seed)
    some = torch.randint(nodes - 3, (2, edges), generator=generator)
    hub = torch.stack([torch.randint(nodes - 3, (1000,), generator=generator), torch.zeros(1000, dtype=torch.long)])
    return torch.cat([some, hub], dim=1).to(device)


KINDS = [NeighbourMean, BlockedNeighbourMean]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("nodes", [5, 33, 1000])
def test_it_is_the_product_with_the_random_walk_matrix(
    nodes: int, dtype: torch.dtype, device: str, kind: type[NeighbourMean]
) -> None:
    edges = random_edges(nodes, 5 * nodes, device)
    values = torch.randn(nodes, generator=torch.Generator().manual_seed(1), dtype=dtype).to(device)
    walk, matrix = kind.from_edges(edges, nodes), neighbour_mean_matrix(edges, nodes, dtype)
    # A mean over a thousand neighbours is a sum of many rounded numbers, which may nearly cancel.
    close = partial(torch.testing.assert_close, rtol=1e-6, atol=1e-9 if dtype == torch.float64 else 1e-4)
    close(walk.diffuse(values, 0.0, 1), matrix @ values)
    close(walk.diffuse(values, 0.3, 3), matrix.diffuse(values, 0.3, 3))
    assert torch.equal(walk.row_counts(), torch.bincount(edges[1], minlength=nodes))
    close(propagate(values, walk, 2), propagate(values, edges, 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
def test_its_gradient_is_the_matrixs_gradient(device: str, kind: type[NeighbourMean]) -> None:
    edges = random_edges(40, 100, device)
    values = torch.randn(40, dtype=torch.float64, device=device, requires_grad=True)
    direction = torch.randn(40, dtype=torch.float64, device=device)
    walk, matrix = kind.from_edges(edges, 40), neighbour_mean_matrix(edges, 40, torch.float64)
    for pair in [(walk, matrix), (walk.with_self_loops_where_empty, matrix.with_self_loops_where_empty)]:
        ours, theirs = (torch.autograd.grad((m.diffuse(values, 0.3, 3) * direction).sum(), values)[0] for m in pair)
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("device", DEVICES)
def test_a_node_with_very_many_neighbours(device: str) -> None:
    hub = torch.stack([torch.arange(80_000) % 50, torch.zeros(80_000, dtype=torch.long)])
    edges = torch.cat([random_edges(50, 500, "cpu"), hub], dim=1).to(device)
    walk, matrix = BlockedNeighbourMean.from_edges(edges, 50, 2), neighbour_mean_matrix(edges, 50, torch.float64)
    values = torch.randn(50, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(device)
    assert torch.equal(walk.row_counts(), torch.bincount(edges[1], minlength=50))
    for _ in range(2):
        torch.testing.assert_close(walk.diffuse(values, 0.3, 3), matrix.diffuse(values, 0.3, 3))


def test_several_scores_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \[3, 2\], expected one per node"):
        NeighbourMean.from_edges(torch.tensor([[0], [1]]), 3).diffuse(torch.ones(3, 2), 0.5, 1)
