"""Nodes are compared with the calibration rows of the fit, in place where these are in the scored tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from oddnode.detector import ModelFileError
from oddnode.tables import Rule, TableError, TableGraph, TableModel
from tests.saved_models import rewrite
from tests.tables.examples import FIT, Rows, example
from tests.tables.shop import shop

Fitted = tuple[TableModel, Rows, Rows]


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    nodes, edges = example(300)
    return TableModel.fit(_table(nodes), _table(edges), **FIT)[0], nodes, edges


def _table(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows)


def _model(fitted: Fitted, folder: Path) -> TableModel:
    """A copy, for tests that calibrate it."""
    fitted[0].save(folder / "model")
    return TableModel.load(folder / "model", device="cpu")


def _scored(model: TableModel, nodes: Rows, edges: Rows) -> tuple[Any, list[str]]:
    return _scored_graph(model, model.read(_table(nodes), _table(edges)))


def _scored_graph(model: TableModel, graph: TableGraph) -> tuple[Any, list[str]]:
    return model.score_graph(graph), model._scored(graph, explain=False, rule=Rule())[1]


def _grown(nodes: Rows, edges: Rows) -> tuple[Rows, Rows]:
    """The same nodes in another order, and 90 new ones, too few for a batch, with edges to the old ones."""
    new, new_edges = example(90, seed=7)
    ids = {row["name"]: f"new {row['name']}" for row in new}
    new = [row | {"name": ids[row["name"]], "kind": ""} for row in new]
    joins = [{"source": ids[f"n{i:03d}"], "target": f"n{i:03d}"} for i in range(90)]
    order = np.random.default_rng(0).permutation(len(nodes) + len(new))
    every = [*nodes, *new]
    between = [{key: ids[value] for key, value in edge.items()} for edge in new_edges]
    return [every[i] for i in order], [*edges, *between, *joins]


def test_the_default_compares_with_calibration_rows_that_nothing_was_learnt_from() -> None:
    nodes, edges = example(300)
    parts = ["train", "validation", "calibration"]
    rows = [row | {"part": parts[i // 3 % 3] if row["kind"] else ""} for i, row in enumerate(nodes)]
    is_reference = [row["part"] == "calibration" for row in rows]
    other = [row | ({"kind": "a", "colour": "green"} if row["part"] == "calibration" else {}) for row in rows]
    options: dict[str, Any] = FIT | {"feature_columns": ["colour"], "split_column": "part"}
    model, report = TableModel.fit(_table(rows), _table(edges), **options)
    changed, _ = TableModel.fit(_table(other), _table(edges), **options)
    assert report.method == "nodesafe-evidence"
    [references] = model.detector.state_.references
    assert references.nodes.tolist() == np.flatnonzero(is_reference).tolist()
    pairs = zip(model.detector.module_.parameters(), changed.detector.module_.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_false_alarm_rate_is_set_as_the_detector_sets_it(fitted: Fitted) -> None:
    model, nodes, edges = fitted
    asked, _ = TableModel.fit(_table(nodes), _table(edges), **FIT, false_alarm_rate=0.2)
    by_itself = model.detector.calibration_
    assert by_itself is not None
    again = type(by_itself).from_scores(by_itself.scores, by_itself.classes, 0.2)
    assert asked.detector.threshold_ == again.threshold
    assert torch.equal(asked.detector.calibration_.scores, by_itself.scores)  # type: ignore[union-attr]


def test_a_grown_table_in_any_order_is_compared_with_its_own_known_rows(fitted: Fitted) -> None:
    model, nodes, edges = fitted
    more, more_edges = _grown(nodes, edges)
    scored, notes = _scored(model, more, more_edges)
    assert notes == []
    graph = model.read(_table(more), _table(more_edges))
    graph.data.reference_mask = torch.tensor([use == "calibration" for use in scored["split"].to_pylist()])
    old = {row["name"] for row in nodes}
    graph.data.seen_mask = torch.tensor([name in old for name in graph.ids.to_pylist()])
    by_hand = model.detector.outputs(graph.data)
    assert len(by_hand.references[0]) == 80
    assert scored["score"].to_pylist() == model.detector.score_samples(by_hand).tolist()


def test_the_order_of_rows_does_not_matter(fitted: Fitted) -> None:
    """Rows that were in the graph at fit are known again wherever they are, whether they have a label or not."""
    model, nodes, edges = fitted
    in_order, _ = _scored(model, nodes, edges)
    shuffled, notes = _scored(model, nodes[::-1], edges)
    assert notes == []
    assert shuffled["is_ood"].to_pylist()[::-1] == in_order["is_ood"].to_pylist()
    shares = np.exp([shuffled["score"].to_numpy()[::-1], in_order["score"].to_numpy()])
    # Sums in another order are rounded otherwise, which may change a rank where nodes tie.
    assert np.abs(shares[0] - shares[1]).max() < 0.1
    assert np.mean(np.abs(shares[0] - shares[1]) > 1e-4) < 0.2


CASES = {
    "other nodes": "0 of the 80 reference rows are in these tables, so nodes were compared",
    "half of them": "45 of the 80 reference rows are in these tables, with 102 edges instead of 180",
    "other features": "80 of the 80 reference rows are in these tables, 80 of them with changed features",
    "no old edges": "80 of the 80 reference rows are in these tables, with 0 edges instead of",
    "same ids": "80 of the 80 reference rows are in these tables, ",
}


@pytest.mark.parametrize("case", CASES)
def test_without_the_reference_rows_those_of_the_fit_serve_and_a_note_says_so(fitted: Fitted, case: str) -> None:
    model, nodes, edges = fitted
    rows, joins = [dict(row) for row in nodes], [dict(edge) for edge in edges]
    if case == "other nodes":
        rows = [row | {"name": row["name"] + "x"} for row in rows][50:]  # not the positions of the fit either
        joins = [{key: value + "x" for key, value in edge.items()} for edge in joins]
    elif case == "half of them":
        rows = rows[::2]
    elif case == "other features":
        rows = [row | {"size": row["size"] + 0.1} for row in rows]
    elif case == "no old edges":
        rows, joins = [*rows, {"name": "new", "kind": "", "size": 0.0, "colour": "red"}], []
    else:
        rows = [
            row | {"size": other["size"], "colour": other["colour"]}
            for row, other in zip(rows, example(300, 3)[0], strict=True)
        ]
    here = {row["name"] for row in rows}
    joins = [edge for edge in joins if set(edge.values()) <= here]
    table = _table(joins) if joins else pa.table({"source": pa.array([], "string"), "target": pa.array([], "string")})
    graph = model.read(_table(rows), table)
    scored, notes = _scored_graph(model, graph)
    assert CASES[case] in notes[0]
    assert "so nodes were compared with the reference rows as they were at fit" in notes[0]
    assert "(several `nodes` and `edges`), or recalibrate on rows that `oddnode sample-to-check` draws" in notes[0]
    outputs = model.detector.outputs(graph.data)
    outputs.references = ()
    assert scored["score"].to_pylist() == model.detector.score_samples(outputs).tolist()


def _marked(nodes: Rows) -> Rows:
    return [row | {"ok": row["name"].startswith("new")} for row in nodes]


def test_a_threshold_calibrated_beside_the_reference_rows_needs_them(fitted: Fitted, tmp_path: Path) -> None:
    model, (_, nodes, edges) = _model(fitted, tmp_path), fitted
    more, more_edges = _grown(nodes, edges)
    model.calibrate(_table(_marked(more)), _table(more_edges), "ok", false_alarm_rate=0.1)
    model.save(tmp_path / "model")
    model = TableModel.load(tmp_path / "model", device="cpu")
    assert model.basis == "in place"
    scored, notes = _scored(model, more, more_edges)
    assert notes == []
    _check_decisions(scored, [name.startswith("new") for name in scored["name"].to_pylist()])
    alone = example(100, seed=7)
    assert "the threshold was calibrated in tables that had them" in _scored(model, *_renamed(*alone))[1][0]


def _check_decisions(scored: Any, is_calibration: list[bool]) -> None:
    """P-values and flags at 10 % follow from the scores of the rows that the model was calibrated on."""
    scores = scored["score"].to_numpy()
    known = scores[np.array(is_calibration)]
    expected = [(1 + (known <= score).sum()) / (len(known) + 1) for score in scores]
    assert scored["p_value"].to_numpy() == pytest.approx(expected)
    assert scored["is_ood"].to_pylist() == [p <= 0.1 for p in expected]


def _renamed(nodes: Rows, edges: Rows) -> tuple[Rows, Rows]:
    return [row | {"name": "m" + row["name"]} for row in nodes], [
        {key: "m" + value for key, value in edge.items()} for edge in edges
    ]


def test_a_threshold_calibrated_without_the_reference_rows_keeps_its_scores_beside_them(
    fitted: Fitted, tmp_path: Path
) -> None:
    model, (_, nodes, edges) = _model(fitted, tmp_path), fitted
    new, new_edges = _renamed(*example(150, seed=9))
    model.calibrate(_table([row | {"ok": True} for row in new]), _table(new_edges), "ok", false_alarm_rate=0.1)
    model.save(tmp_path / "model")
    model = TableModel.load(tmp_path / "model", device="cpu")
    assert model.basis == "stored"
    alone, notes = _scored(model, new, new_edges)
    assert notes == []
    _check_decisions(alone, [True] * 150)
    # Beside the old rows, without edges to them, the new ones are judged as they were calibrated.
    beside, [note, *_] = _scored(model, [*nodes, *new], [*edges, *new_edges])
    assert note.startswith("the reference rows are in these tables, but the threshold was calibrated in tables without")
    assert beside["score"].to_numpy()[300:] == pytest.approx(alone["score"].to_numpy(), abs=1e-3)


@pytest.mark.parametrize("basis", [None, "elsewhere", 1])
def test_a_damaged_basis_is_refused(fitted: Fitted, tmp_path: Path, basis: object) -> None:
    fitted[0].save(tmp_path / "model")
    rewrite(tmp_path / "model", lambda config: config.update(table_threshold=basis))
    with pytest.raises(ModelFileError, match="table_threshold"):
        TableModel.load(tmp_path / "model")


def test_other_methods_have_no_reference_rows() -> None:
    nodes, edges = example(300)
    model, _ = TableModel.fit(_table(nodes), _table(edges), **FIT, method="nodesafe")
    assert model.detector.state_.references == ()
    new, new_edges = _renamed(*example(150, seed=9))
    assert not any("reference" in note for note in _scored(model, new, new_edges)[1])


@pytest.mark.parametrize("case", ["one label", "no edges", "categories only", "few nodes"])
def test_the_default_fits_unusual_tables(case: str) -> None:
    nodes, edges = example(30 if case == "few nodes" else 240)
    if case == "one label":
        nodes = [row | {"kind": row["kind"] and "a"} for row in nodes]
    if case == "categories only":
        nodes = [{name: value for name, value in row.items() if name != "size"} for row in nodes]
    table = _table(edges)[: 0 if case == "no edges" else None]
    model, _ = TableModel.fit(_table(nodes), table, **FIT, false_alarm_rate=0.2)
    scores = model.score_frame(_table(nodes), table)["score"].to_numpy()
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) > 10


def test_a_single_calibration_node_is_refused() -> None:
    nodes = [{"name": i, "kind": "a", "size": float(i)} for i in range(4)]
    edges = [{"source": 0, "target": 1}]
    with pytest.raises(TableError, match="compares nodes with calibration nodes, but there is one"):
        TableModel.fit(_table(nodes), _table(edges), **FIT, false_alarm_rate=0.5)


def test_tables_without_labels_find_what_nobody_has_labelled(tmp_path: Path) -> None:
    goods = shop()
    nodes, edges = goods.old
    columns: dict[str, Any] = {"id_column": "id", "drop_columns": ("category",)}
    model, report = TableModel.fit(nodes, edges, **columns)
    assert report.method == "evidence-unlabelled"
    assert report.labels == []
    assert "there is no `label_column`" in " ".join(report.notes)
    model.save(tmp_path / "model")
    scores = TableModel.load(tmp_path / "model").score_frame(goods.nodes, goods.edges, explain=True).to_pandas()
    new = scores[goods.is_new]
    is_camera = goods.kind[goods.is_new] == "cameras"
    assert new["is_ood"][is_camera].mean() > 0.5
    assert new["is_ood"][~is_camera].mean() < 0.15
    assert set(scores["group"]) == {"new", "unlabelled"}
    assert not new["why"].dropna().str.contains("label|class|known known").any()
    with pytest.raises(TableError, match=r"nodesafe learns from labels.*evidence-unlabelled"):
        TableModel.fit(nodes, edges, method="nodesafe", **columns)
