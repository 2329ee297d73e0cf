"""Arxiv: papers up to 2015 are ID, later ones OOD. Reads the raw files of OGB's ogbn-arxiv."""

from __future__ import annotations

import gzip
import warnings
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph, to_undirected

from oddnode.tasks.catalogue import ARXIV_FILES
from oddnode.tasks.datasets import CLEAN, DataDir, MissingDataError, ScoredNodes, Task, TaskRules
from oddnode.tasks.shifts import induced, one_one_eight

_LAST_ID, _LAST_EXPOSED, _TEST_YEARS = 2015, 2017, (2018, 2019, 2020)

_CHUNK = 1 << 20
# The highest compression ratio of deflate. A number of lines that the file cannot contain is refused before allocation.
_MAX_RATIO = 1032

_COUNTS = ("num-node-list.csv.gz", "num-edge-list.csv.gz")


def arxiv_task(data_dir: DataDir = None, seed: int = 0, rules: TaskRules = CLEAN) -> Task:
    """Make the task: ID = papers up to 2015 (split 1:1:8 at random), exposure = 2016 and 2017, OOD = 2018 to 2020.

    Papers that are newer than a graph are absent from it, and edges are undirected. If the rules set
    ``keep_future_nodes``, every graph has the papers of all years, and only newer citations are absent. If they set
    ``keep_edge_direction``, edges point from the citing paper to the cited one.

    Parameters
    ----------
    data_dir : path, optional
        As for `load_task`.
    seed : int
        Seed of the split.
    rules : TaskRules
        The rules of the protocol.
    """
    full, year = arxiv_graph(data_dir)
    is_id = year <= _LAST_ID
    masks = _id_split(is_id, seed)
    full.y, num_classes = _trained_classes_first(full.y, masks[0])
    num_left_out = int(full.y.max()) + 1 - num_classes
    trained = full.y < num_classes
    if not rules.keep_untrained_classes:
        full.y[~trained] = -1
    if not rules.keep_edge_direction:
        full.edge_index = to_undirected(full.edge_index, num_nodes=full.num_nodes)
    full.train_mask, full.val_mask, full.test_mask = masks
    full.val_mask = full.val_mask & trained  # the cross-entropy of a class without training papers is undefined
    if not rules.keep_untrained_classes:
        full.test_mask = full.test_mask & trained
    train = _up_to(full, year, _LAST_ID, rules)
    return Task(
        name="arxiv",
        train=train,
        id_test=ScoredNodes(train, train.test_mask),
        tests={str(last): _with_ood(full, year, last, last, rules) for last in _TEST_YEARS},
        num_classes=num_classes,
        exposure=_with_ood(full, year, _LAST_ID + 1, _LAST_EXPOSED, rules),
        protocol=rules.protocol,
        num_left_out=num_left_out,
    )


def _id_split(is_id: Tensor, seed: int) -> list[Tensor]:
    """The ID papers split 1:1:8, as masks over all papers."""
    nodes = is_id.nonzero().squeeze(1)
    masks = []
    for part in one_one_eight(len(nodes), seed):
        mask = torch.zeros_like(is_id)
        mask[nodes[part]] = True
        masks.append(mask)
    return masks


def _trained_classes_first(y: Tensor, train_mask: Tensor) -> tuple[Tensor, int]:
    """Renumber the labels so that classes without a training paper come last, and count the others.

    Some of the forty classes have so few papers that a random tenth may contain none of them.
    """
    trained = torch.unique(y[train_mask])
    others = torch.tensor(sorted(set(range(int(y.max()) + 1)) - set(trained.tolist())), dtype=y.dtype)
    new = torch.empty(len(trained) + len(others), dtype=y.dtype)
    new[torch.cat([trained, others])] = torch.arange(len(new))
    return new[y], len(trained)


def _up_to(full: Data, year: Tensor, last: int, rules: TaskRules) -> Data:
    """The graph at the end of a year, with or without later papers."""
    present = year <= last
    if not rules.keep_future_nodes:
        return induced(full, present)
    edges, _ = subgraph(present, full.edge_index, num_nodes=full.num_nodes)
    return Data(edge_index=edges, **{key: value for key, value in full.items() if key != "edge_index"})


def _with_ood(full: Data, year: Tensor, first: int, last: int, rules: TaskRules) -> Data:
    marked = Data(x=full.x, edge_index=full.edge_index, y=full.y, ood_mask=(year >= first) & (year <= last))
    return _up_to(marked, year, last, rules)


def arxiv_graph(data_dir: DataDir = None) -> tuple[Data, Tensor]:
    """All papers with their 128 features, citations ``[citing, cited]`` and subject as class; and the year of each.

    Parameters
    ----------
    data_dir : path, optional
        As for `load_task`.
    """
    x, edge_index, y, year = _read(ARXIV_FILES.require(data_dir))
    return Data(x=x, edge_index=edge_index, y=y), year


@lru_cache(maxsize=1)
def _read(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, citations, labels and years. Callers share them and must not write into them."""
    try:
        num_nodes, num_edges = (int(read_numbers(folder / name, 1, 1, np.int64)[0, 0]) for name in _COUNTS)
        if num_nodes < 1 or num_edges < 0:
            raise DamagedFileError(f"{num_nodes} nodes and {num_edges} edges are not a graph")
        x = read_numbers(folder / "node-feat.csv.gz", num_nodes, None, np.float32)
        edges = read_numbers(folder / "edge.csv.gz", num_edges, 2, np.int64)
        y = read_numbers(folder / "node-label.csv.gz", num_nodes, 1, np.int64)[:, 0]
        year = read_numbers(folder / "node_year.csv.gz", num_nodes, 1, np.int64)[:, 0]
        _check(edges, y, year, num_nodes)
    except DamagedFileError as error:
        raise MissingDataError(f"the files in {folder} are damaged: {error}") from error
    return torch.from_numpy(x), torch.from_numpy(edges).t(), torch.from_numpy(y), torch.from_numpy(year)


def _check(edges: np.ndarray, y: np.ndarray, year: np.ndarray, num_nodes: int) -> None:
    outside = np.flatnonzero(((edges < 0) | (edges >= num_nodes)).any(axis=1))
    if outside.size:
        line = int(outside[0])
        raise DamagedFileError(
            f"line {line + 1} of edge.csv.gz joins {edges[line, 0]} and {edges[line, 1]}, but there are {num_nodes} "
            f"nodes (0..{num_nodes - 1})"
        )
    if (y < 0).any():
        raise DamagedFileError(f"line {int((y < 0).argmax()) + 1} of node-label.csv.gz has a negative class")
    for name, papers in (
        (f"up to {_LAST_ID}", year <= _LAST_ID),
        (f"from {_LAST_ID + 1} or {_LAST_EXPOSED}", (year > _LAST_ID) & (year <= _LAST_EXPOSED)),
        *((f"from {test}", year == test) for test in _TEST_YEARS),
    ):
        if not papers.any():
            raise DamagedFileError(f"node_year.csv.gz has no paper {name}")


# Numbers from ``.csv.gz`` files, a megabyte of text at a time


class DamagedFileError(ValueError):
    """A damaged file; the message says where, and what was expected."""


def read_numbers(path: Path, num_rows: int, num_columns: int | None, dtype: type) -> np.ndarray:
    """Read a file without a header into an array ``[num_rows, num_columns]``.

    Apart from the array, only one chunk of text is in memory at a time.
    """
    if num_rows > _MAX_RATIO * path.stat().st_size:
        raise DamagedFileError(f"{path.name} is too small for the {num_rows} lines it should have")
    array: np.ndarray | None = None
    row = 0
    for lines in _chunks(path):
        if array is None:
            num_columns = num_columns or lines[0].count(",") + 1
            array = np.empty((num_rows, num_columns), dtype=dtype)
        if row + len(lines) > num_rows:
            raise DamagedFileError(f"{path.name} has more than the {num_rows} lines it should have")
        array[row : row + len(lines)] = _parsed(path, lines, row, array.shape[1], dtype)
        row += len(lines)
    if row != num_rows:
        raise DamagedFileError(f"{path.name} has {row} lines, expected {num_rows}")
    return np.empty((0, num_columns or 0), dtype=dtype) if array is None else array


def _chunks(path: Path) -> Iterator[list[str]]:
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            while lines := file.readlines(_CHUNK):
                yield lines
    except EOFError:
        raise DamagedFileError(f"{path.name} is truncated; download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DamagedFileError(f"{path.name} is not a valid gzip file ({error}); download it again") from None
    except UnicodeDecodeError:
        raise DamagedFileError(f"{path.name} has characters other than numbers and commas") from None


def _parsed(path: Path, lines: list[str], row: int, num_columns: int, dtype: type) -> np.ndarray:
    numbers = _numbers(lines, num_columns, dtype)
    if numbers is not None:
        return numbers
    bad = next(i for i, line in enumerate(lines) if _numbers([line], num_columns, dtype) is None)
    shown = lines[bad].strip()
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    kind = "integer" if np.issubdtype(dtype, np.integer) else "finite number"
    expected = f"{num_columns} {kind}{'s' if num_columns > 1 else ''}"
    raise DamagedFileError(f"line {row + bad + 1} of {path.name} is {shown!r}, expected {expected}")


def _numbers(lines: list[str], num_columns: int, dtype: type) -> np.ndarray | None:
    """Parse lines; ``None`` if one of them does not consist of ``num_columns`` finite numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy only warns about empty lines and about 1.5 as an integer
        try:
            numbers: np.ndarray = np.loadtxt(lines, delimiter=",", dtype=dtype, ndmin=2, comments=None)
        except (ValueError, UserWarning, DeprecationWarning):
            return None
    if numbers.shape != (len(lines), num_columns) or not np.isfinite(numbers).all():
        return None
    return numbers
