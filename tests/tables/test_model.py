from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from typer.testing import CliRunner

from oddnode import Detector
from oddnode.cli.app import app, main
from oddnode.detector import ModelFileError
from oddnode.scoring import Evidence
from oddnode.tables import (
    FORMATS,
    FeatureRecipe,
    Table,
    TableError,
    TableModel,
    learn_features,
    read_nodes,
    split_labelled,
)
from tests.cli.test_app import CLI
from tests.saved_models import rewrite
from tests.tables.examples import FIT, Rows, edges_in, example, read_csv, write_csv, write_parquet


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    nodes, edges = example()
    return write_csv(tmp_path / "nodes.csv", nodes), write_csv(tmp_path / "edges.csv", edges)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    nodes, edges = example()
    paths = write_csv(folder / "nodes.csv", nodes), write_csv(folder / "edges.csv", edges)
    TableModel.fit(*paths, **FIT)[0].save(folder / "model")
    return folder / "model"


def test_every_node_gets_a_row_in_the_order_of_the_table(tables: tuple[Path, Path], tmp_path: Path) -> None:
    model, report = TableModel.fit(*tables, **FIT)
    result = model.score(*tables, tmp_path / "scores.csv")
    rows = read_csv(tmp_path / "scores.csv")
    first = ["name", "predicted", "confidence", "score", "p_value", "is_ood", "split"]
    assert list(rows[0]) == [*first, "seen", "group", "rank", "expected_precision"]
    assert [row["name"] for row in rows] == [row["name"] for row in read_csv(tables[0])]
    assert {row["predicted"] for row in rows} <= {"a", "b"}
    assert all(0 < float(row["p_value"]) <= 1 and 0 < float(row["confidence"]) <= 1 for row in rows)
    assert all((row["is_ood"] == "true") == (float(row["p_value"]) <= 0.05) for row in rows)
    assert result.num_flagged == sum(row["is_ood"] == "true" for row in rows)
    assert (report.num_nodes, report.num_features, report.labels) == (120, 4, ["a", "b"])


def test_a_saved_model_scores_as_before_bit_for_bit(tables: tuple[Path, Path], tmp_path: Path) -> None:
    model, _ = TableModel.fit(*tables, **FIT)
    model.score(*tables, tmp_path / "first.csv", explain=True)
    model.save(tmp_path / "model")
    TableModel.load(tmp_path / "model", device="cpu").score(*tables, tmp_path / "second.csv", explain=True)
    assert (tmp_path / "first.csv").read_bytes() == (tmp_path / "second.csv").read_bytes()


def test_csv_and_parquet_give_the_same_scores(tmp_path: Path) -> None:
    nodes, edges = example()
    for row in nodes:
        row["kind"] = row["kind"] or None
    as_csv = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    as_parquet = write_parquet(tmp_path / "n.parquet", nodes), write_parquet(tmp_path / "e.parquet", edges)
    TableModel.fit(*as_csv, **FIT)[0].score(*as_csv, tmp_path / "a.parquet")
    TableModel.fit(*as_parquet, **FIT)[0].score(*as_parquet, tmp_path / "b.parquet")
    assert parquet.read_table(tmp_path / "a.parquet").equals(parquet.read_table(tmp_path / "b.parquet"))


def test_whole_number_ids_and_labels_keep_their_type(tmp_path: Path) -> None:
    nodes, edges = example()
    for row in nodes:
        row["name"] = int(row["name"][1:]) - 7
        row["kind"] = {"a": 10, "b": 20, "": None}[row["kind"]]
    for row in edges:
        row["source"], row["target"] = int(row["source"][1:]) - 7, int(row["target"][1:]) - 7
    paths = write_parquet(tmp_path / "n.parquet", nodes), write_csv(tmp_path / "e.csv", edges)
    model, report = TableModel.fit(*paths, **FIT)
    model.score(*paths, tmp_path / "s.parquet")
    written = parquet.read_table(tmp_path / "s.parquet")
    assert report.labels == [10, 20]
    assert written.schema.field("name").type == pa.int64()
    assert written.schema.field("predicted").type == pa.int64()
    assert written["name"].to_pylist()[0] == -7


def test_ids_with_leading_zeros_stay_apart(tmp_path: Path) -> None:
    write_csv(tmp_path / "n.csv", [{"id": "1", "x": 1}, {"id": "01", "x": 2}, {"id": "001", "x": 3}])
    table = Table(tmp_path / "n.csv")
    nodes = read_nodes(table, "id", learn_features(table, ["x"])[0])
    assert nodes.ids.to_pylist() == ["1", "01", "001"]


def test_new_nodes_new_edges_and_unseen_categories_are_fine(model_folder: Path, tmp_path: Path) -> None:
    nodes, edges = example(num_nodes=90, seed=5)
    nodes.append({"name": "new", "kind": "c", "size": 0.5, "colour": "violet"})
    edges.append({"source": "new", "target": "n001"})
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    report = TableModel.load(model_folder).score(*paths, tmp_path / "s.csv")
    assert report.num_nodes == 91
    assert report.notes[0] == (
        "column 'colour': 1 of 91 values are of 1 category that the model was not fitted on (for example 'violet'); "
        "they count as missing"
    )
    assert "reference rows are in these tables, 24 of them with changed features" in report.notes[1]


class Frame:
    """A frame of another library, as pyarrow sees it: nothing but the PyCapsule interface."""

    def __init__(self, table: pa.Table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", ["arrow", "mapping", "pandas", "capsule"])
def test_tables_in_memory_score_as_files_do(kind: str, model_folder: Path, tmp_path: Path) -> None:
    nodes, edges = example(num_nodes=90, seed=5)
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    model = TableModel.load(model_folder, device="cpu")
    model.score(*paths, tmp_path / "s.parquet", explain=True)
    frames: list[Any] = [pa.Table.from_pylist(rows) for rows in (nodes, edges)]
    if kind == "mapping":
        frames = [frame.to_pydict() for frame in frames]
    elif kind == "pandas":
        frames = [pytest.importorskip("pandas").DataFrame(frame.to_pydict()) for frame in frames]
    elif kind == "capsule":
        frames = [Frame(frame) for frame in frames]
    scored = model.score_frame(frames[0], frames[1], explain=True)
    assert scored.equals(parquet.read_table(tmp_path / "s.parquet"))


def test_a_method_that_anchors_on_labelled_nodes_is_refused(tables: tuple[Path, Path]) -> None:
    with pytest.raises(TableError, match="grasp anchors on labelled nodes of the graph it scores"):
        TableModel.fit(*tables, **FIT, method="grasp")


def test_surprises_are_columns_for_a_model_of_ones_own(
    model_folder: Path, tables: tuple[Path, Path], tmp_path: Path
) -> None:
    model = TableModel.load(model_folder)
    model.score(*tables, tmp_path / "s.parquet", explain=True, evidence=True)
    both, alone = parquet.read_table(tmp_path / "s.parquet"), model.score_frame(*tables, evidence=True)
    kinds = [name.removeprefix("p_") for name in both.column_names if name.startswith("p_") and name != "p_value"]
    assert kinds
    assert [name for name in alone.column_names if name.startswith("surprise_")] == [f"surprise_{k}" for k in kinds]
    assert not {"why", "threshold", f"p_{kinds[0]}"} & {*alone.column_names}
    for kind in kinds:
        surprise = both[f"surprise_{kind}"].to_numpy()
        np.testing.assert_allclose(np.exp(-surprise), both[f"p_{kind}"].to_numpy(), rtol=1e-5)
        np.testing.assert_array_equal(alone[f"surprise_{kind}"].to_numpy(), surprise)


def test_explaining_adds_columns_that_add_up(model_folder: Path, tables: tuple[Path, Path], tmp_path: Path) -> None:
    TableModel.load(model_folder).score(*tables, tmp_path / "s.csv", explain=True)
    rows = read_csv(tmp_path / "s.csv")
    written = list(rows[0])[11:]
    assert written[:4] == ["threshold", "own_score", "neighbour_contribution", "nearest_class"]
    assert written[-2:] == ["finding", "why"]
    assert {"p_confidence", "p_links", "p_link_similarity"} <= set(written[4:-2])
    assert all(0 < float(row[name]) <= 1 for row in rows for name in written[4:-2])
    for row in rows:
        assert (row["why"] != "") == (row["is_ood"] == "true") == (float(row["score"]) < float(row["threshold"]))
        own, neighbours = float(row["own_score"]), float(row["neighbour_contribution"])
        assert own + neighbours == pytest.approx(float(row["score"]), abs=1e-4)


@pytest.mark.parametrize("way", ["column", "table"])
def test_exposure_comes_as_a_column_or_as_a_table(tmp_path: Path, way: str) -> None:
    nodes, edges = example()
    options: dict[str, Any] = {}
    if way == "column":
        for i, row in enumerate(nodes):
            row["bad"] = "true" if i % 10 == 0 else ""
        options["exposure_column"] = "bad"
    else:
        strange = [{"name": i, "size": -9.0 - i, "colour": "green"} for i in range(8)]
        options["exposure_nodes"] = write_csv(tmp_path / "x.csv", strange)
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    model, report = TableModel.fit(*paths, **(FIT | options))
    assert report.method == "nodesafe-evidence++"
    evidence = model.detector.scorer_
    assert isinstance(evidence, Evidence)
    assert evidence.weights is not None
    assert not set(evidence.weights_.tolist()) <= {0.0, *evidence.weights}, "weights are learnt from the exposed nodes"


def test_calibrating_anew_sets_the_threshold_on_the_marked_nodes(model_folder: Path, tmp_path: Path) -> None:
    nodes, edges = example(150, seed=5)  # another graph
    for i, row in enumerate(nodes):
        row["checked"] = "true" if i % 2 else ""
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    model = TableModel.load(model_folder)
    weights = {name: value.clone() for name, value in model.detector.module_.state_dict().items()}
    report = model.calibrate(*paths, known_column="checked", false_alarm_rate=0.1, new_ids=True)
    assert (report.num_nodes, report.num_calibration, report.false_alarm_rate) == (150, 75, 0.1)
    assert report.old_threshold != report.threshold == model.detector.threshold_
    assert all(torch.equal(value, weights[name]) for name, value in model.detector.module_.state_dict().items())
    scored = model.score(*paths, tmp_path / "s.csv")
    assert scored.notes == [f"{paths[0]}: columns that the model was not fitted on are ignored: checked"]
    rows = read_csv(tmp_path / "s.csv")
    known = [float(row["score"]) for i, row in enumerate(rows) if i % 2]
    for row in rows:
        expected = (1 + sum(score <= float(row["score"]) for score in known)) / 76
        assert float(row["p_value"]) == pytest.approx(expected)
        assert (row["is_ood"] == "true") == (expected <= 0.1)


def test_calibrating_on_too_little_is_an_error_that_changes_nothing(model_folder: Path, tmp_path: Path) -> None:
    nodes, edges = example()
    edge_table, model = write_csv(tmp_path / "e.csv", edges), TableModel.load(model_folder)
    before = model.detector.threshold_
    for marks, message in (([], "marks no node"), ([3], "needs at least"), (["x"], "expected true or false")):
        table = [row | {"ok": "maybe" if "x" in marks else str(i in marks)} for i, row in enumerate(nodes)]
        with pytest.raises(ValueError, match=message):
            model.calibrate(write_csv(tmp_path / "n.csv", table), edge_table, "ok")
    with pytest.raises(TableError, match="good"):
        model.calibrate(write_csv(tmp_path / "n.csv", nodes), edge_table, "good")
    assert model.detector.threshold_ == before


def test_edges_that_are_meant_to_lead_one_way_are_not_doubted(tables: tuple[Path, Path]) -> None:
    model, report = TableModel.fit(*tables, **FIT, method="msp", directed=True)
    assert model.detector.graph_profile_.num_edges == report.num_edges
    assert not [note for note in report.notes if "reverse edge" in note]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30), st.booleans())
def test_edges_are_the_set_of_pairs(tmp_path: Path, pairs: list[tuple[int, int]], directed: bool) -> None:
    path = tmp_path / "e.csv"
    path.write_text("source,target\n" + "".join(f"k{a},k{b}\n" for a, b in pairs))
    found = edges_in(path, pa.array([f"k{i}" for i in range(7)]), directed=directed).index
    expected = {(a, b) for a, b in pairs if a != b}
    if not directed:
        expected |= {(b, a) for a, b in expected}
    assert set(map(tuple, found.T.tolist())) == expected
    assert found.shape[1] == len(expected)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.sampled_from(["p", "q", "r", "s t", "ü", "NA", ""])), min_size=2, max_size=40
    )
)
def test_features_are_standard_scores_and_one_hot(tmp_path: Path, rows: list[tuple[float, str]]) -> None:
    path = tmp_path / "n.csv"
    write_csv(path, [{"id": f"i{i}", "x": x, "c": c} for i, (x, c) in enumerate(rows)])
    table = Table(path)
    values, texts = np.array([x for x, _ in rows]), [c for _, c in rows]
    known = sorted({c for c in texts if c not in ("NA", "")})
    if values.std() <= 1e-12 * abs(values.mean()) and len(known) < 2:
        with pytest.raises(TableError, match="constant"):
            learn_features(table, ["x", "c"])
        return
    written = msgspec.json.encode(learn_features(table, ["x", "c"])[0])
    recipe = msgspec.json.decode(written, type=FeatureRecipe)
    x = read_nodes(table, "id", recipe).x
    column = 0
    if "x" in recipe.names:
        centre = 0.0 if recipe.columns[0].is_count else values.mean()  # type: ignore[union-attr]
        expected = np.clip((values - centre) / values.std(), -5, 5)
        assert np.allclose(x[:, 0], expected, atol=1e-3)
        column = 1
    if len(known) > 1:
        assert x[:, column:].tolist() == [[float(c == k) for k in known] for c in texts]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(3, 40), min_size=1, max_size=5), st.integers(0, 100))
def test_the_split_is_stratified_and_leaves_nothing_out(counts: list[int], seed: int) -> None:
    y = np.concatenate([np.full(n, c) for c, n in enumerate(counts)] + [np.full(4, -1)])
    split = split_labelled(y, list(range(len(counts))), seed)
    parts = [split.train, split.validation, split.calibration]
    assert sorted(np.concatenate(parts)) == np.flatnonzero(y >= 0).tolist()
    for c, n in enumerate(counts):
        shares = [int((y[part] == c).sum()) for part in parts]
        assert min(shares) >= 1
        assert abs(shares[0] - 0.4 * n) <= 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(3, 60), min_size=1, max_size=5), st.integers(0, 100))
def test_with_times_recent_nodes_calibrate_and_every_class_is_learnt(counts: list[int], seed: int) -> None:
    y = np.concatenate([np.full(n, c) for c, n in enumerate(counts)] + [np.full(4, -1)])
    times = np.random.default_rng(seed).integers(1990, 2020, len(y))
    split = split_labelled(y, list(range(len(counts))), seed, times)
    assert sorted(np.concatenate([split.train, split.validation, split.calibration])) == np.flatnonzero(y >= 0).tolist()
    for c, n in enumerate(counts):
        own = split.calibration[y[split.calibration] == c]
        rest = np.setdiff1d(np.flatnonzero(y == c), own)
        assert len(own) <= max(0.6 * n, 1)
        assert min((y[split.train] == c).sum(), (y[split.validation] == c).sum()) >= 1
        assert not len(own) or times[own].min() >= times[rest].max()
    is_full = [(y[split.calibration] == c).sum() >= min(int(0.6 * n), n - 2) for c, n in enumerate(counts)]
    left_out = [
        times[np.setdiff1d(np.flatnonzero(y == c), split.calibration)].max() for c in np.flatnonzero(~np.array(is_full))
    ]
    assert len(split.calibration) <= round(0.4 * sum(counts))
    assert not left_out or not len(split.calibration) or times[split.calibration].min() >= max(left_out)


def test_of_many_labelled_nodes_the_most_recent_500_calibrate() -> None:
    times = np.random.default_rng(1).permutation(5000)
    split = split_labelled(np.zeros(5000, dtype=np.int64), ["known"], 0, times)
    assert sorted(times[split.calibration]) == list(range(4500, 5000))
    assert (len(split.train), len(split.validation)) == (3000, 1500)


Change = Callable[[Rows, Rows], Any]


def _set(column: str, value: Any, row: int = 4) -> Change:
    return lambda nodes, edges: nodes[row].__setitem__(column, value)


def _only_label_once(nodes: Rows, edges: Rows) -> None:
    nodes[1]["kind"] = "rare"


def _no_labels(nodes: Rows, edges: Rows) -> None:
    for row in nodes:
        row["kind"] = ""


def _constant(nodes: Rows, edges: Rows) -> None:
    for row in nodes:
        row["size"], row["colour"] = 1, "red"


def _one_node(nodes: Rows, edges: Rows) -> None:
    del nodes[1:]
    edges.clear()


def _names_as_feature(nodes: Rows, edges: Rows) -> None:
    for i in range(300):
        nodes.append({"name": f"m{i}", "kind": "", "size": 1, "colour": f"c{i}"})


BAD_TABLES: dict[str, tuple[Change, str]] = {
    "duplicate id": (_set("name", "n000"), r"has an id more than once: 'n000' \(line 2, line 6\)"),
    "no id": (_set("name", " "), r"column 'name' has no id in line 6"),
    "unknown edge": (lambda n, e: e[2].update(target="ghost"), r"first 'ghost' in column 'target', line 4; give all"),
    "edge without end": (lambda n, e: e[2].update(source=""), r"column 'source' has no id in line 4"),
    "label once": (_only_label_once, r"the label 'rare' occurs once, but every label needs at least 3"),
    "no labels": (_no_labels, r"column 'kind' has no label in any row"),
    "constant": (_constant, r"all feature columns \(size, colour\) are constant"),
    "free text": (_names_as_feature, r"column 'colour' is text .* more than 256 different values"),
    "too large": (_set("size", "1e308"), r"column 'size' are too large"),
    "one node": (_one_node, "has one node"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables_are_named_and_nothing_is_written(case: str, tmp_path: Path, cli: CLI) -> None:
    change, message = BAD_TABLES[case]
    nodes, edges = example()
    header = edges[0].copy()
    change(nodes, edges)
    paths = write_csv(tmp_path / "nodes.csv", nodes), write_csv(tmp_path / "edges.csv", edges or [header])
    with pytest.raises(TableError, match=message):
        TableModel.fit(*paths, **FIT)
    before = sorted(p.name for p in tmp_path.iterdir())
    command = f"fit --nodes {paths[0]} --edges {paths[1]} --id-column name --label-column kind --out {tmp_path / 'm'}"
    done = cli(*command.split(), fails=True)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stdout + done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == before


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "header only": (b"name,kind,size,colour\n", "has a header, but no rows"),
    "latin-1": ("name,kind,size\nJosé,a,3\n".encode("latin-1"), "not UTF-8 text"),
    "latin-1 header": ("naïve,kind,size\nx,a,3\n".encode("latin-1"), "not UTF-8 text"),
    "utf-16": ("name,kind,size\nn1,a,3\n".encode("utf-16"), "is UTF-16 text; say so with `encoding` utf-16"),
    "binary": (b"\x7fELF\x00\x01\x02", "binary data"),
    "short row": (b"name,kind,size\nn1,a,3\nn2,b\n", "Expected 3 columns, got 2"),
    "same name twice": (b"name,kind,size,size\nn1,a,3,3\n", "two columns named 'size'"),
    "no header": (b"\n\n", "no header"),
    "no features": (b"name,kind\nn1,a\n", "has no feature columns, only kind, name"),
    "misspelt": (b"nam,kind,size\nn1,a,3\n", "did you mean 'nam'"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_named(case: str, tmp_path: Path, tables: tuple[Path, Path]) -> None:
    content, message = BAD_FILES[case]
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=message):
        TableModel.fit(path, tables[1], **FIT)


def test_other_bad_paths_are_named(tmp_path: Path, tables: tuple[Path, Path]) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not at all PAR1")
    (tmp_path / "folder.csv").mkdir()
    for path, message in (
        (tmp_path / "bad.parquet", "cannot be read as parquet"),
        (tmp_path / "nowhere.csv", "does not exist"),
        (tmp_path / "nodes.xlsx", "neither .csv nor .parquet"),
        (tmp_path / "folder.csv", "not a regular file"),
        (7, "the table of nodes is a int that pyarrow cannot read"),
    ):
        with pytest.raises(TableError, match=message):
            TableModel.fit(path, tables[1], **FIT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id_column": "nmae"}, "no id column 'nmae'; did you mean 'name'"),
        ({"label_column": "sort"}, "no label column 'sort'. It has 'name'"),
        ({"feature_columns": ["sze"]}, "did you mean 'size'"),
        ({"feature_columns": ["size", "kind"]}, "'kind' cannot be a feature"),
        ({"feature_columns": ["size", "size"]}, "named twice"),
        ({"source_column": "source"}, "both `source_column` and `target_column`"),
        ({"source_column": "source", "target_column": "source"}, "both 'source'"),
        ({"split_column": "colour"}, "has '(red|blue|green)', expected train"),
        ({"exposure_column": "colour"}, "expected true or false"),
        ({"exposure_edges": "edges.csv"}, "but not the nodes"),
        ({"false_alarm_rate": 0.001}, "needs at least 999 calibration nodes, but there are"),
        ({"false_alarm_rate": 5}, "expected a share between 0 and 1"),
        ({"method": "nodesafe++"}, "needs exposure, nodes known to be OOD"),
        ({"method": "nodesaef"}, "Did you mean 'nodesafe'"),
    ],
)
def test_bad_options_are_named(tables: tuple[Path, Path], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TableModel.fit(*tables, **(FIT | options))


BAD_SCORE: dict[str, tuple[Change, str]] = {
    "text for numbers": (_set("size", "big"), r"column 'size' has the text 'big' in line 6, but had numbers"),
    "fewer columns": (lambda n, e: [r.pop("size") for r in n], r"lacks 1 \(size\) of the 2 feature columns"),
    "unknown edge": (lambda n, e: e[0].update(source="ghost"), "first 'ghost' in column 'source', line 2"),
}


@pytest.mark.parametrize("case", BAD_SCORE)
def test_a_table_that_does_not_fit_the_model_is_an_error(case: str, model_folder: Path, tmp_path: Path) -> None:
    change, message = BAD_SCORE[case]
    nodes, edges = example()
    change(nodes, edges)
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    with pytest.raises(TableError, match=message):
        TableModel.load(model_folder).score(*paths, tmp_path / "s.csv")
    assert not (tmp_path / "s.csv").exists()


def test_bad_targets_are_found_before_the_work(model_folder: Path, tables: tuple[Path, Path], tmp_path: Path) -> None:
    model = TableModel.load(model_folder)
    for out, message in (
        (tables[0], "one of the input tables"),
        (tmp_path / "s.txt", "neither .csv nor .parquet"),
        (tmp_path / "no" / "s.csv", "does not exist"),
    ):
        for nodes in (tables[0], [tables[0]], Table(tables[0])):
            with pytest.raises(TableError, match=message):
                model.score(nodes, tables[1], out)
    with pytest.raises(OSError, match="its name has 250 bytes, expected at most"):
        model.score(*tables, tmp_path / ("s" * 246 + ".csv"))


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_failed_write_keeps_the_old_file(
    model_folder: Path,
    tables: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    kind: str,
) -> None:
    target = tmp_path / f"s.{kind}"
    target.write_bytes(b"old")
    before = sorted(p.name for p in tmp_path.iterdir())

    def fail(file: Any, schema: Any) -> None:
        file.write(b"half")
        raise failure

    monkeypatch.setattr(FORMATS[kind], "writer", fail)
    with pytest.raises(type(failure)):
        TableModel.load(model_folder).score(*tables, target)
    assert target.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_without_pyarrow_the_message_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write_csv(tmp_path / "n.csv", example()[0])
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"pip install 'oddnode\[tables\]'"):
        Table(table)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update(classes=[]),
        lambda t: t.update(classes=["a"]),
        lambda t: t.update(classes=["a", 1]),
        lambda t: t.update(classes=[10**30, 2]),
        lambda t: t.update(features=[]),
        lambda t: t["features"].update(columns=[]),
        lambda t: t["features"].update(columns=[{"kind": "number", "name": "size", "mean": 0, "scale": 0}]),
        lambda t: t["features"]["columns"][0].update(scale=-1),
        lambda t: t["features"]["columns"][0].update(mean=float("1e301")),
        lambda t: t["features"]["columns"][0].update(kind="os.system"),
        lambda t: t["features"]["columns"][1].update(categories=[["x"]]),
        lambda t: t["features"]["columns"][1].update(categories=["red", "red", "blue"]),
        lambda t: t.update(directed="no"),
        lambda t: t.update(id_column=None),
        lambda t: t.update(other_columns=[1]),
        lambda t: t.update(time_column="day"),
        lambda t: t.update(time_column="day", train_until="May"),
        lambda t: t.pop("classes"),
        lambda t: t.update(x=1),
    ],
)
def test_hostile_schemas_are_refused(
    model_folder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    import shutil

    shutil.copytree(model_folder, tmp_path / "m")
    rewrite(tmp_path / "m", lambda config: change(config["table"]) and None)
    with pytest.raises(ModelFileError, match=r"table|the tables give"):
        TableModel.load(tmp_path / "m")


def test_a_model_without_tables_says_so(tmp_path: Path) -> None:
    from oddnode import load_task

    Detector(epochs=1).fit(load_task("digits/label").train).save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="not fitted on tables"):
        TableModel.load(tmp_path / "m")


def test_a_hundred_damaged_tables_break_nothing(model_folder: Path, tmp_path: Path) -> None:
    rng = random.Random(1)
    nodes, edges = example(40)
    model = TableModel.load(model_folder)
    sound = {
        kind: (write(tmp_path / f"n.{kind}", nodes).read_bytes(), write(tmp_path / f"e.{kind}", edges).read_bytes())
        for kind, write in (("csv", write_csv), ("parquet", write_parquet))
    }
    refused = 0
    for number in range(100):
        kind = rng.choice(["csv", "csv", "parquet"])
        contents = [bytearray(content) for content in sound[kind]]
        which = rng.randrange(2)
        contents[which] = _damaged(contents[which], rng)
        paths = tmp_path / f"n-{number}.{kind}", tmp_path / f"e-{number}.{kind}"
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        out = tmp_path / f"s-{number}.csv"
        try:
            model.score(*paths, out)
        except (TableError, OSError):
            assert not out.exists()
            refused += 1
        else:
            assert out.exists()
    assert refused > 50
    assert not list(tmp_path.glob(".*"))


def _damaged(content: bytearray, rng: random.Random) -> bytearray:
    kind = rng.randrange(4)
    if kind == 0:
        return content[: rng.randrange(len(content))]
    if kind == 1:
        for _ in range(rng.randrange(1, 30)):
            content[rng.randrange(len(content))] = rng.randrange(256)
    elif kind == 2:
        place = rng.randrange(len(content))
        content[place:place] = rng.choice([b",,", b'"', b"\n", b"\r\n\r\n", b"\xff", b"1e999", b"\x00", b"a" * 5000])
    else:
        place = rng.randrange(len(content))
        del content[place : place + rng.randrange(1, 50)]
    return content


def test_ctrl_c_leaves_nothing_behind(
    tables: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Detector, "fit", interrupt)
    before = sorted(p.name for p in tmp_path.iterdir())
    command = ["fit", "--nodes", str(tables[0]), "--edges", str(tables[1]), "--id-column", "name"]
    monkeypatch.setattr("sys.argv", ["oddnode", *command, "--label-column", "kind", "--out", str(tmp_path / "m")])
    with pytest.raises(SystemExit, match="130"):
        main()
    assert capsys.readouterr().err.strip() == "interrupted"
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_flagged_row_says_why(tmp_path: Path) -> None:
    """Two nodes are joined to the other kind only; the counts and ids in their sentences are those of the tables."""
    nodes, edges = example()
    rng = np.random.default_rng(1)
    kind = {row["name"]: "ab"[int(row["colour"] == "blue")] for row in nodes}
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    arguments = [
        "--nodes", str(paths[0]), "--edges", str(paths[1]), "--id-column", "name", "--label-column", "kind",
        "--method", "evidence", "--false-alarm-rate", "0.1", "--device", "cpu", "--out", str(tmp_path / "model"),
    ]  # fmt: skip
    assert (done := CliRunner().invoke(app, ["fit", *arguments])).exit_code == 0, done.output
    known = sorted(name for name, each in kind.items() if each == "b")
    for number in range(4):
        nodes.append({"name": f"new{number}", "kind": "", "size": 0.0, "colour": "red"})
        edges += [{"source": f"new{number}", "target": str(name)} for name in rng.choice(known, 5, replace=False)]
    write_csv(paths[0], nodes)
    write_csv(paths[1], edges)
    out = str(tmp_path / "s.csv")
    score = ["score", str(tmp_path / "model"), *arguments[:4], "--out", out, "--explain", "--device", "cpu"]
    assert (done := CliRunner().invoke(app, score)).exit_code == 0, done.output
    rows = {row["name"]: row for row in read_csv(tmp_path / "s.csv")}
    columns = [name for name in next(iter(rows.values())) if name.startswith("p_") and name != "p_value"]
    assert {"p_confidence", "p_links", "p_links_around", "p_class_agreement", "p_number_of_features"} <= set(columns)
    for row in rows.values():
        assert (row["why"] != "") == (row["is_ood"] == "true")
        assert all(0 < float(row[name]) <= 1 for name in columns)
    ends = [(edge["source"], edge["target"]) for edge in edges]
    counts = 0
    for name, row in rows.items():
        neighbours = {a for a, b in ends if b == name} | {b for a, b in ends if a == name}
        for count, total in re.findall(r"(?:(\d+) of|all) (\d+) (?:links \(|neighbours)", row["why"]):
            counts += 1
            assert int(count or total) <= int(total) == len(neighbours)
        for found in re.findall(r"\((?:to )?([^)%]*?)(?: and \d+ more)?\)", row["why"]):
            assert {each for each in found.split(", ") if each in rows} <= neighbours
        if found := re.search(r"suggest (\w+), but .* \((.*?)\) (?:is|are) predicted as (a|b)\.", row["why"]):
            named = found[2].partition(" and ")[0].split(", ")
            assert {rows[each]["predicted"] for each in named} == {found[3]} != {found[1]}
    assert counts > 0
    assert sum(rows[f"new{number}"]["is_ood"] == "true" for number in range(4)) >= 2


def test_an_id_column_called_like_a_kind_of_evidence_is_refused(tmp_path: Path) -> None:
    nodes, edges = example()
    for row in nodes:
        row["p_links"] = row.pop("name")
    options = FIT | {"id_column": "p_links", "method": "evidence"}
    model, _ = TableModel.fit(pa.Table.from_pylist(nodes), pa.Table.from_pylist(edges), **options)
    with pytest.raises(TableError, match="'p_links' has the name of an output column"):
        model.score(pa.Table.from_pylist(nodes), pa.Table.from_pylist(edges), tmp_path / "s.csv")


def test_an_empty_cell_or_an_unseen_category_is_a_small_thing_and_named() -> None:
    """The number of features is evidence only where the table has counts; a category or a scaled number is none."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=400)
    nodes = {
        "name": [f"n{row}" for row in range(400)],
        "kind": ["ab"[each] for each in kind],
        "price": (rng.normal(size=400) + 3 * kind).tolist(),
        "size": rng.normal(size=400).tolist(),
        "shop": [f"shop {each}" for each in rng.integers(5, size=400)],
    }
    alike = [rng.choice(np.flatnonzero(kind == each), 3) for each in kind]
    edges = {"source": np.repeat(nodes["name"], 3), "target": [f"n{other}" for row in alike for other in row]}
    ends = zip(*edges.values(), strict=True)
    old = np.array([max(int(source[1:]), int(target[1:])) < 300 for source, target in ends])
    first = {name: values[:300] for name, values in nodes.items()}
    inside = {name: np.array(values)[old] for name, values in edges.items()}
    model, _ = TableModel.fit(first, inside, id_column="name", label_column="kind", epochs=30, device="cpu")
    rows = np.arange(300, 400)
    before = model.score_frame(nodes, edges)["is_ood"].to_numpy()[rows].mean()
    for column, value in (("price", None), ("shop", None), ("shop", "New shop")):
        changed = {name: list(values) for name, values in nodes.items()}
        for row in rows:
            changed[column][row] = value
        table = model.score_frame(changed, edges, explain=True)
        assert table["is_ood"].to_numpy()[rows].mean() <= max(before + 0.02, 0.05)
        assert set(table["p_number_of_features"].to_pylist()) == {1.0}
        whys = list(filter(None, table["why"].to_pylist()[300:]))
        assert all(("shop 'New shop' was not seen in training." in why) == (value == "New shop") for why in whys)


def test_words_in_a_table_are_counted_as_the_table_has_them() -> None:
    words = np.random.default_rng(0).poisson(0.3, size=(200, 30))
    nodes = {"name": range(200), "kind": ["a", "b"] * 100, **{f"w{word}": words[:, word] for word in range(30)}}
    edges = {"source": range(199), "target": range(1, 200)}
    model, _ = TableModel.fit(nodes, edges, id_column="name", label_column="kind", epochs=2, device="cpu")
    graph = model.read(nodes, edges)
    assert torch.equal(torch.count_nonzero(graph.source.x, dim=1), torch.from_numpy((words > 0).sum(axis=1)))


def test_a_rare_word_is_not_far_from_the_fitted_ones(tmp_path: Path) -> None:
    nodes, edges = example(240)
    nodes = [row | {"word": int(i % 24 == 0)} for i, row in enumerate(nodes)]  # 1 is five standard deviations from 0
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    model, _ = TableModel.fit(*paths, **FIT, method="msp")
    assert model.score(*paths, tmp_path / "s.csv").notes == []
