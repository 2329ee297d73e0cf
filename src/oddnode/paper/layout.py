"""A force-directed layout of graphs."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

__all__ = ["spring_layout"]


def spring_layout(edge_index: np.ndarray, num_nodes: int, iterations: int = 100, seed: int = 0) -> np.ndarray:
    """Compute positions ``[N, 2]`` of nodes in the unit square.

    A force-directed layout (after Fruchterman and Reingold, 1991) in which edges attract, only the nearest nodes repel
    each other, and all nodes are attracted to the centre. It takes seconds for thousands of nodes and is deterministic.

    Parameters
    ----------
    edge_index : array
        Edges ``[2, E]``, in one direction or both.
    num_nodes : int
        The number of nodes N.
    iterations : int
        Number of steps, of decreasing size.
    seed : int
        Seed of the initial positions.

    Examples
    --------
    >>> spring_layout(np.array([[0, 1], [1, 0]]), 3).shape
    (3, 2)
    """
    rng = np.random.default_rng(seed)
    place = rng.normal(size=(num_nodes, 2))
    if num_nodes < 2:
        return np.full((num_nodes, 2), 0.5, dtype=np.float32)
    ones = np.ones(edge_index.shape[1])
    pull = sparse.csr_matrix((ones, (edge_index[1], edge_index[0])), shape=(num_nodes, num_nodes))
    pull = (pull + pull.T).tocsr()
    pull.data[:] = 1.0
    degree = np.asarray(pull.sum(axis=1)).ravel()
    # Smoothed noise puts neighbours near each other from the start, which saves most of the iterations.
    walk = sparse.diags(1.0 / np.maximum(degree, 1.0)) @ pull
    for _ in range(30):
        place = 0.5 * place + 0.5 * (walk @ place)
        place = (place - place.mean(axis=0)) / (place.std(axis=0) + 1e-12)
    place *= np.sqrt(num_nodes) / 4
    near = min(num_nodes, 24)
    for step in range(iterations):
        heat = 1.0 - step / iterations
        force = pull @ place - degree[:, None] * place
        force /= np.maximum(degree, 1.0)[:, None]
        gap, other = cKDTree(place).query(place, k=near)
        away = place[:, None, :] - place[other]
        force += (away / np.maximum(gap, 1e-3)[:, :, None] ** 2).sum(axis=1)
        force -= 0.05 * place
        length = np.linalg.norm(force, axis=1, keepdims=True)
        place += force / np.maximum(length, 1e-9) * np.minimum(length, 1.5 * heat + 0.02)
    # Pull in the few nodes that drifted far away, which would shrink the rest of the picture.
    place -= np.median(place, axis=0)
    length = np.linalg.norm(place, axis=1)
    place *= np.minimum(1.0, 1.15 * np.percentile(length, 97) / np.maximum(length, 1e-9))[:, None]
    low, high = place.min(axis=0), place.max(axis=0)
    return ((place - low) / np.maximum((high - low).max(), 1e-9)).astype(np.float32)
