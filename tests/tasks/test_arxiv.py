"""Arxiv on a small set of files of the form that OGB gives out, written here."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from oddnode import Detector, evaluate
from oddnode.protocols import published
from oddnode.tasks import MissingDataError, Task, arxiv_graph, dataset_states, expand_tasks, load_task, read_numbers

NODES, EDGES, FEATURES = 600, 3000, 8


def write(path: Path, lines: Iterable[object]) -> None:
    with gzip.open(path, "wt") as file:
        file.writelines(f"{line}\n" for line in lines)


class Papers:
    """Papers of 2010 to 2020 that cite earlier ones, kept as arrays to compare with."""

    def __init__(self, folder: Path):
        rng = np.random.default_rng(0)
        self.year = rng.permutation(np.repeat(np.arange(2010, 2021), 60))[:NODES]
        self.y = rng.integers(0, 4, NODES)
        self.y[self.year == 2020] = 5  # a class that no earlier paper has
        self.x = (np.eye(FEATURES)[self.y] + 0.3 * rng.standard_normal((NODES, FEATURES))).round(6)
        self.edges = rng.integers(0, NODES, (EDGES, 2))
        later = self.year[self.edges[:, 0]] < self.year[self.edges[:, 1]]
        self.edges[later] = self.edges[later][:, ::-1]  # the first cites the second
        self.raw = folder / "arxiv" / "raw"
        self.raw.mkdir(parents=True)
        write(self.raw / "num-node-list.csv.gz", [NODES])
        write(self.raw / "num-edge-list.csv.gz", [EDGES])
        write(self.raw / "edge.csv.gz", (f"{a},{b}" for a, b in self.edges))
        write(self.raw / "node-feat.csv.gz", (",".join(f"{v:.6f}" for v in row) for row in self.x))
        write(self.raw / "node-label.csv.gz", self.y)
        write(self.raw / "node_year.csv.gz", self.year)

    def pairs(self, last: int, undirected: bool) -> set[tuple[int, int]]:
        """The citations between papers up to a year."""
        kept = {(a, b) for a, b in self.edges.tolist() if max(self.year[a], self.year[b]) <= last}
        return kept | {(b, a) for a, b in kept} if undirected else kept


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


def as_pairs(edge_index: Tensor, names: np.ndarray) -> set[tuple[int, int]]:
    return {(int(names[a]), int(names[b])) for a, b in edge_index.t().tolist()}


def test_the_files_come_back_as_they_were_written(papers: Papers, tmp_path: Path) -> None:
    data, year = arxiv_graph(tmp_path)
    np.testing.assert_allclose(data.x.numpy(), papers.x, rtol=1e-6)
    np.testing.assert_array_equal(data.edge_index.t().numpy(), papers.edges)
    np.testing.assert_array_equal(data.y.numpy(), papers.y)
    np.testing.assert_array_equal(year.numpy(), papers.year)
    papers.raw.parent.rename(tmp_path / "ogbn_arxiv")  # the name that OGB gives it
    assert arxiv_graph(tmp_path)[0].num_nodes == NODES


YEARS = {2017: (2016, 2017), 2018: (2018,), 2019: (2019,), 2020: (2020,)}


@pytest.mark.parametrize("protocol", ["clean", "published"])
def test_graphs_hold_what_the_protocol_lets_them(papers: Papers, tmp_path: Path, protocol: str) -> None:
    """Clean ones no paper of the future and both directions, published ones all papers and citations as given."""
    is_clean = protocol == "clean"
    task = load_task("arxiv", tmp_path, protocol=protocol)
    graphs = {2015: task.train, 2017: task.exposure, **{int(name): graph for name, graph in task.tests.items()}}
    assert list(graphs) == [2015, 2017, 2018, 2019, 2020]
    for last, graph in graphs.items():
        assert graph is not None
        names = np.flatnonzero(papers.year <= last) if is_clean else np.arange(NODES)
        np.testing.assert_allclose(graph.x.numpy(), papers.x[names], rtol=1e-6)
        assert as_pairs(graph.edge_index, names) == papers.pairs(last, undirected=is_clean)
        if last in YEARS:
            np.testing.assert_array_equal(graph.ood_mask.numpy(), np.isin(papers.year[names], YEARS[last]))


def sizes(task: Task) -> list[int]:
    return [int(task.train[name].sum()) for name in ("train_mask", "val_mask", "test_mask")]


def test_papers_up_to_2015_are_split_one_to_one_to_eight(papers: Papers, tmp_path: Path) -> None:
    known = int((papers.year <= 2015).sum())
    task = load_task("arxiv", tmp_path)
    assert sizes(task) == [known // 10, known // 10, known - 2 * (known // 10)]
    other = load_task("arxiv", tmp_path, seed=1)
    assert not torch.equal(task.train.train_mask, other.train.train_mask)
    both = load_task("arxiv", tmp_path, protocol="published").train
    chosen = np.flatnonzero(papers.year <= 2015)[task.train.train_mask.numpy()]
    np.testing.assert_array_equal(np.flatnonzero(both.train_mask.numpy()), chosen)


def test_a_class_without_a_training_paper_is_none_or_a_spare_logit(papers: Papers, tmp_path: Path) -> None:
    known = np.flatnonzero(papers.year <= 2015)
    train = known[load_task("arxiv", tmp_path).train.train_mask.numpy()]
    rare = np.setdiff1d(known, train)[:7]
    papers.y[rare] = 4
    write(papers.raw / "node-label.csv.gz", papers.y)
    from oddnode.tasks import arxiv

    arxiv._read.cache_clear()
    clean, given = load_task("arxiv", tmp_path), load_task("arxiv", tmp_path, protocol="published")
    assert clean.num_classes == given.num_classes == 4
    assert given.num_left_out == 2  # class 4, and class 5 of 2020
    labelled = clean.train.train_mask | clean.train.val_mask | clean.train.test_mask
    assert not labelled[torch.from_numpy(np.isin(known, rare))].any()
    assert int(clean.train.y.min()) == -1
    assert int(given.train.test_mask.sum()) + int(given.train.val_mask.sum()) >= int(
        clean.train.test_mask.sum() + clean.train.val_mask.sum()
    )
    assert int(given.train.y[given.train.val_mask].max()) < 4
    assert sorted(given.train.y.unique().tolist()) == [0, 1, 2, 3, 4, 5]


def test_methods_run_on_it_under_both_protocols(papers: Papers, tmp_path: Path) -> None:
    clean = load_task("arxiv", tmp_path)
    numbers = evaluate(Detector.from_recipe("nodesafe", epochs=25).fit(clean.train), clean)
    assert list(numbers["tests"]) == ["2018", "2019", "2020"]
    assert numbers["id_acc"] > 40  # a guess would be right in 25
    given = load_task("arxiv", tmp_path, protocol="published")
    detector = published.detector("nodesafe++", given, epochs=5)
    assert "0.01 * TruncatedHinge(m_in=-9.0, m_out=-2.0, num_hops=2)" in repr(detector.objective)
    assert evaluate(detector.fit(given.train, given.exposure), given)["auroc"] > 0
    assert "0.01 * TruncatedHinge(m_in=-9.0, m_out=-4.0" in repr(published.detector("energy-ft", given).objective)


def test_all_holds_arxiv_where_its_files_are_and_missing_ones_are_named(papers: Papers, tmp_path: Path) -> None:
    assert expand_tasks(["all"], tmp_path)[-1] == "arxiv"
    assert {state.name: state.state for state in dataset_states(tmp_path)}["arxiv"] == "found"
    (papers.raw / "node_year.csv.gz").unlink()
    assert "arxiv" not in expand_tasks(["all"], tmp_path)
    assert expand_tasks(["arxiv"], tmp_path) == ["arxiv"]
    expected = rf"missing node_year.csv.gz; looked in {tmp_path}.*Get https://.*unpack it into <data dir>"
    with pytest.raises(MissingDataError, match=expected):
        load_task("arxiv", tmp_path)


@pytest.mark.parametrize(
    ("file", "lines", "message"),
    [
        ("num-node-list.csv.gz", ["many"], r"line 1 of num-node-list.csv.gz is 'many', expected 1 integer"),
        ("num-node-list.csv.gz", [NODES, 1], r"num-node-list.csv.gz has more than the 1 lines"),
        ("num-node-list.csv.gz", [], r"num-node-list.csv.gz has 0 lines, expected 1"),
        ("num-node-list.csv.gz", [NODES + 1], rf"node-feat.csv.gz has {NODES} lines, expected {NODES + 1}"),
        ("num-node-list.csv.gz", [10**15], r"node-feat.csv.gz is too small for the 10{15} lines"),
        ("num-node-list.csv.gz", [0], r"0 nodes and 3000 edges are not a graph"),
        ("num-edge-list.csv.gz", [EDGES - 1], rf"edge.csv.gz has more than the {EDGES - 1} lines"),
        ("edge.csv.gz", ["0,1"] * 5 + ["0,x"] + ["0,1"] * (EDGES - 6), r"line 6 of edge.csv.gz is '0,x', expected 2"),
        ("edge.csv.gz", ["0,1", ""] + ["0,1"] * (EDGES - 2), r"line 2 of edge.csv.gz is '', expected 2 integers"),
        ("edge.csv.gz", ["0,1.5"] * EDGES, r"line 1 of edge.csv.gz is '0,1.5', expected 2 integers"),
        ("edge.csv.gz", ["0,1,2"] * EDGES, r"line 1 of edge.csv.gz is '0,1,2', expected 2 integers"),
        ("edge.csv.gz", ["0,1"] * (EDGES - 1) + [f"0,{NODES}"], r"line 3000 of edge.csv.gz joins 0 and 600, but there"),
        ("node-feat.csv.gz", ["1.0,2.0"] * 9 + ["1.0,nan"] * (NODES - 9), r"line 10 of .* expected 2 finite numbers"),
        ("node-feat.csv.gz", ["1.0,2.0"] * 9 + ["1.0"] * (NODES - 9), r"line 10 of .* expected 2 finite numbers"),
        ("node-label.csv.gz", [-1] * NODES, r"line 1 of node-label.csv.gz has a negative class"),
        ("node_year.csv.gz", [2015] * NODES, r"node_year.csv.gz has no paper from 2016 or 2017"),
    ],
)
def test_damage_is_told_by_line(papers: Papers, tmp_path: Path, file: str, lines: list[object], message: str) -> None:
    write(papers.raw / file, lines)
    with pytest.raises(MissingDataError, match=rf"the files in {papers.raw} are damaged: {message}"):
        load_task("arxiv", tmp_path)


def test_a_file_that_was_cut_off_or_is_no_gzip_is_told(papers: Papers, tmp_path: Path) -> None:
    path = papers.raw / "node-feat.csv.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MissingDataError, match=r"node-feat.csv.gz is truncated; download it again"):
        load_task("arxiv", tmp_path)
    path.write_bytes(b"<html>not found</html>" * 100)
    with pytest.raises(MissingDataError, match=r"node-feat.csv.gz is not a valid gzip file"):
        load_task("arxiv", tmp_path)
    path.write_bytes(whole[:200] + b"\x00\x01\x02" + whole[203:])
    with pytest.raises(MissingDataError, match=r"are damaged: node-feat.csv.gz|are damaged: line \d+ of node-feat"):
        load_task("arxiv", tmp_path)


def test_reading_takes_the_memory_of_the_array_and_little_more(tmp_path: Path) -> None:
    rows, columns = 40_000, 128
    line = ",".join(["-0.123456"] * columns) + "\n"
    path = tmp_path / "node-feat.csv.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        for _ in range(rows):
            file.write(line)
    tracemalloc.start()
    array = read_numbers(path, rows, None, np.float32)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    text = rows * len(line)
    assert array.shape == (rows, columns)
    assert array[-1, -1] == np.float32(-0.123456)
    assert peak - array.nbytes < 8 * 2**20 < text / 5
