"""A large graph with known and unknown blocks, made in chunks: the input of the scale tests, without a download.

The model is a degree-corrected block model. Known blocks are the classes; nodes of unknown blocks are never labelled,
so that a wrong answer shows as a bad AUROC. Degrees follow a power law, some nodes have no edge, and some lie in
components of three. The features of a node are its block's mean plus noise.

A chunk is a function of the settings and its number alone (Philox, keyed by seed and chunk), in integer and exactly
rounded arithmetic: any chunk can be made alone, on any machine, in any order, and has the same bytes.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["SPLITS", "BlockModel", "NodeChunk"]

#: What a labelled node is for; an unlabelled node has no split.
SPLITS = ("train", "validation", "calibration")
_SHARES = (0.4, 0.2, 0.4)

_NODES, _EDGES, _MEANS, _SHIFT = range(4)  # kinds of random streams
_TINY = 3  # nodes of a tiny component, which is a path

# Multiples of these parts of n, modulo n, spread evenly over 0..n-1.
_GOLDEN, _SILVER = 618_033_988_749_895, 414_213_562_373_095


@dataclass(frozen=True)
class NodeChunk:
    """The nodes of a chunk, in the order of their ids.

    Parameters
    ----------
    id : array of int64
        Ids, consecutive.
    x : array of float32
        Features, one row per node.
    block : array of int64
        The truth: blocks from ``known_blocks`` on are unknown.
    label : array of int64
        The block of labelled nodes, -1 for all others.
    split : array of int8
        The place in `SPLITS`, -1 for nodes without a label.
    """

    id: np.ndarray
    x: np.ndarray
    block: np.ndarray
    label: np.ndarray
    split: np.ndarray


@dataclass(frozen=True)
class BlockModel:
    """The settings of a graph; everything else follows from them.

    Parameters
    ----------
    nodes : int
        Number of nodes.
    edges : int
        Number of columns of ``edge_index``: two for every pair of nodes that is joined.
    features : int
        Number of features.
    labelled : int
        Number of nodes with a label, all of them in known blocks.
    known_blocks, unknown_blocks : int
        Number of blocks of each kind. Blocks of a kind have the same size, up to one node.
    unknown_share : float
        Share of the nodes that are in unknown blocks.
    homophily : float
        Share of the pairs that are within a block, apart from tiny components, which always are.
    tail : int
        How heavy the degrees' tail is: their density falls with the exponent ``(2 tail - 1) / (tail - 1)``, which is 3
        for 2, 2.5 for 3 and 2.33 for 4. A whole number, because powers by multiplication round the same everywhere.
    isolated, tiny : float
        Shares of the nodes that have no edge, and that lie in components of three.
    signal : float
        Length of the blocks' means; the noise of each feature has a standard deviation of 1.
    seed : int
        Another seed gives another graph with the same settings.
    node_chunk, edge_chunk : int
        Number of nodes and of pairs in a chunk. The graph depends on both.
    """

    nodes: int
    edges: int
    features: int = 32
    labelled: int = 100_000
    known_blocks: int = 5
    unknown_blocks: int = 2
    unknown_share: float = 0.2
    homophily: float = 0.8
    tail: int = 3
    isolated: float = 0.01
    tiny: float = 0.02
    signal: float = 1.5
    seed: int = 0
    node_chunk: int = 1 << 17
    edge_chunk: int = 1 << 20

    def __post_init__(self) -> None:
        if self.tail < 2:
            raise ValueError(f"tail is {self.tail}, expected a whole number of 2 or more")
        if self.known_blocks < 2:
            raise ValueError(f"known_blocks is {self.known_blocks}, expected 2 or more")
        if self.edges % 2 or self.pairs < self._tiny_pairs[-1]:
            raise ValueError(
                f"edges is {self.edges}, expected an even number of at least {2 * self._tiny_pairs[-1]}, the edges of "
                "tiny components"
            )
        if bool(self.unknown_blocks) != (self.unknown_share > 0):
            raise ValueError(f"unknown_blocks is {self.unknown_blocks}, but unknown_share is {self.unknown_share}")
        if self._connected.min() < 2:
            raise ValueError(f"{self.nodes} nodes are too few for {self.known_blocks + self.unknown_blocks} blocks")
        if self.labelled > self._starts[self.known_blocks]:
            known = self._starts[self.known_blocks]
            raise ValueError(f"labelled is {self.labelled}, but only {known} nodes are in known blocks")

    @property
    def pairs(self) -> int:
        """Number of pairs of nodes that are joined, which is the number of rows of the edge tables."""
        return self.edges // 2

    @property
    def num_node_chunks(self) -> int:
        return -(-self.nodes // self.node_chunk)

    @property
    def num_edge_chunks(self) -> int:
        return -(-self.pairs // self.edge_chunk)

    @property
    def exponent(self) -> float:
        """The exponent with which the density of degrees falls."""
        return (2 * self.tail - 1) / (self.tail - 1)

    # A node has a position: blocks lie one after the other, and in a block first the nodes that random pairs join,
    # those of high degree first, then tiny components, then isolated nodes. Ids are positions, scrambled.

    @cached_property
    def _starts(self) -> np.ndarray:
        """The first position of every block, and the number of nodes."""
        first_unknown = self.nodes - round(self.unknown_share * self.nodes)
        known = np.arange(self.known_blocks) * first_unknown // self.known_blocks
        unknown = np.arange(self.unknown_blocks) * (self.nodes - first_unknown) // max(self.unknown_blocks, 1)
        return np.concatenate([known, first_unknown + unknown, [self.nodes]])

    @cached_property
    def _num_tiny(self) -> np.ndarray:
        """The number of tiny components of every block."""
        return np.floor(self.tiny * np.diff(self._starts) / _TINY).astype(np.int64)

    @cached_property
    def _connected(self) -> np.ndarray:
        """The number of nodes of every block that random pairs join."""
        sizes = np.diff(self._starts)
        return sizes - _TINY * self._num_tiny - np.floor(self.isolated * sizes).astype(np.int64)

    @cached_property
    def _connected_until(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self._connected)])

    @cached_property
    def _tiny_pairs(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum((_TINY - 1) * self._num_tiny)])

    @cached_property
    def _multiplier(self) -> int:
        return _spread(self.nodes, _GOLDEN)

    @cached_property
    def _shift(self) -> int:
        return int(self._stream(_SHIFT).random_raw() % self.nodes)

    def _stream(self, kind: int, chunk: int = 0) -> np.random.Philox:
        return np.random.Philox(key=np.array([self.seed, (kind << 48) + chunk], dtype=np.uint64))

    def _id_of(self, position: np.ndarray) -> np.ndarray:
        return (position * self._multiplier + self._shift) % self.nodes

    def _position_of(self, ids: np.ndarray) -> np.ndarray:
        return (ids - self._shift) % self.nodes * pow(self._multiplier, -1, self.nodes) % self.nodes

    def block_of(self, ids: np.ndarray) -> np.ndarray:
        """The blocks of nodes; those from ``known_blocks`` on are unknown."""
        return np.searchsorted(self._starts, self._position_of(ids), "right") - 1

    def split_of(self, ids: np.ndarray) -> np.ndarray:
        """The place in `SPLITS` of nodes, -1 for those without a label."""
        known = int(self._starts[self.known_blocks])
        position = self._position_of(ids)
        place = position * _spread(known, _SILVER) % known
        bounds = np.floor(np.cumsum(_SHARES) * self.labelled).astype(np.int64)
        bounds[-1] = self.labelled
        split = np.searchsorted(bounds, place, "right")
        return np.where((position < known) & (split < len(SPLITS)), split, -1).astype(np.int8)

    @cached_property
    def means(self) -> np.ndarray:
        """The mean features of every block."""
        shape = (len(self._connected), self.features)
        signs = self._stream(_MEANS).random_raw(shape[0] * shape[1]).reshape(shape) >> np.uint64(63)
        return ((2.0 * signs - 1.0) * (self.signal / math.sqrt(self.features))).astype(np.float32)

    def nodes_of(self, chunk: int) -> NodeChunk:
        """Make a chunk of nodes."""
        _check_chunk(chunk, self.num_node_chunks)
        ids = np.arange(chunk * self.node_chunk, min((chunk + 1) * self.node_chunk, self.nodes))
        block, split = self.block_of(ids), self.split_of(ids)
        x = _noise(self._stream(_NODES, chunk), len(ids) * self.features).reshape(len(ids), self.features)
        x += self.means[block]
        return NodeChunk(ids, x, block, np.where(split >= 0, block, -1), split)

    def pairs_of(self, chunk: int) -> tuple[np.ndarray, np.ndarray]:
        """Make a chunk of pairs: the ids of their two ends. Every pair stands for an edge in both directions."""
        _check_chunk(chunk, self.num_edge_chunks)
        begin, end = chunk * self.edge_chunk, min((chunk + 1) * self.edge_chunk, self.pairs)
        num_tiny = int(np.clip(self._tiny_pairs[-1] - begin, 0, end - begin))
        tiny = self._tiny_ends(np.arange(begin, begin + num_tiny))
        random = self._random_ends(self._stream(_EDGES, chunk), end - begin - num_tiny)
        source, target = (self._id_of(np.concatenate(ends)) for ends in zip(tiny, random, strict=True))
        return source, target

    def _tiny_ends(self, pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the ends of pairs in tiny components."""
        block = np.searchsorted(self._tiny_pairs, pair, "right") - 1
        component, place = np.divmod(pair - self._tiny_pairs[block], _TINY - 1)
        source = self._starts[block] + self._connected[block] + _TINY * component + place
        return source, source + 1

    def _random_ends(self, stream: np.random.Philox, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the ends of random pairs: two uniform numbers a pair, one for each end."""
        first, second = np.random.Generator(stream).random((2, count))
        total = self._connected_until[-1]
        block, part = self._block_and_part(first * total)
        source = self._position(block, part)
        is_same = second < self.homophily
        part = second / self.homophily if self.homophily else second
        [other] = np.nonzero(~is_same)
        if len(other):
            own = block[other]
            place = (second[other] - self.homophily) / (1 - self.homophily) * (total - self._connected[own])
            place += np.where(place >= self._connected_until[own], self._connected[own], 0)
            block[other], part[other] = self._block_and_part(place)
        target = self._position(block, part)
        [loops] = np.nonzero(source == target)
        start = self._starts[block[loops]]
        target[loops] = start + (target[loops] - start + 1) % self._connected[block[loops]]
        return source, target

    def _block_and_part(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The block that a place among all connected nodes falls into, and the part of the block before it."""
        block = np.searchsorted(self._connected_until[1:-1], place, "right")
        return block, (place - self._connected_until[block]) / self._connected[block]

    def _position(self, block: np.ndarray, part: np.ndarray) -> np.ndarray:
        """The position of the node of a block that a uniform number chooses: low ranks are chosen more often."""
        power = part.copy()
        for _ in range(self.tail - 1):
            power *= part
        connected = self._connected[block]
        rank = np.minimum((power * connected).astype(np.int64), connected - 1)
        return self._starts[block] + rank

    def data(self, device: str = "cpu", workers: int = 1) -> Data:
        """The whole graph on a device, filled chunk by chunk by several threads; ``y`` is the block of every node."""
        import torch
        from torch_geometric.data import Data

        x = torch.empty(self.nodes, self.features, device=device)
        y, split = (torch.empty(self.nodes, dtype=kind, device=device) for kind in (torch.long, torch.int8))
        edge_index = torch.empty(2, self.edges, dtype=torch.long, device=device)

        def fill_nodes(chunk: int) -> None:
            part = self.nodes_of(chunk)
            rows = slice(int(part.id[0]), int(part.id[-1]) + 1)
            x[rows], y[rows], split[rows] = (
                torch.from_numpy(each).to(device) for each in (part.x, part.block, part.split)
            )

        def fill_edges(chunk: int) -> None:
            ends = torch.from_numpy(np.stack(self.pairs_of(chunk))).to(device)
            for start, columns in ((0, ends), (self.pairs, ends.flip(0))):
                begin = start + chunk * self.edge_chunk
                edge_index[:, begin : begin + columns.shape[1]] = columns

        with ThreadPoolExecutor(workers) as pool:
            for _ in chain(
                pool.map(fill_nodes, range(self.num_node_chunks)), pool.map(fill_edges, range(self.num_edge_chunks))
            ):
                pass
        masks = {f"{name}_mask": split == place for place, name in enumerate(("train", "val", "calibration"))}
        return Data(x=x, y=y, edge_index=edge_index, **masks)


def _spread(n: int, part: int) -> int:
    """A number near ``part`` of ``n`` that has no divisor in common with it."""
    return next(m for m in range(max(n * part // 10**15, 1), 2 * n + 2) if math.gcd(m, n) == 1)


def _check_chunk(chunk: int, count: int) -> None:
    if not 0 <= chunk < count:
        raise IndexError(f"chunk {chunk} does not exist; there are {count} (0..{count - 1})")


def _noise(stream: np.random.Philox, count: int) -> np.ndarray:
    """Numbers of mean 0 and variance 1, nearly normal: sums of four 16-bit integers, which are exact everywhere."""
    parts = stream.random_raw(count).astype("<u8", copy=False).view("<u2").reshape(count, 4)
    total = parts[:, 0].astype(np.int32)
    for place in (1, 2, 3):
        total += parts[:, place]
    return (total - 2 * 65535).astype(np.float32) * np.float32(math.sqrt(3) / 65536)
