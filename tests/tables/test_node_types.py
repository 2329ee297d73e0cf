"""Types of nodes in one table: each has its own columns, and types without labels are not judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from oddnode.tables import TableError, TableModel, TableOptions, TrainingTables, fit_tables, score_folder
from oddnode.tables.known_values import Cells
from oddnode.tables.webpage.model import changes_of, column_changes

FIT: dict[str, Any] = {"id_column": "id", "label_column": "segment", "type_column": "type"}
QUICK: dict[str, Any] = {**FIT, "epochs": 5, "device": "cpu"}


def bank(num_accounts: int = 120, seed: int = 0) -> tuple[dict[str, pa.Table], pa.Table]:
    """Accounts with labels, and for each a card without; every tenth account has no balance."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=num_accounts)
    accounts = pa.table(
        {
            "id": [f"a{i}" for i in range(num_accounts)],
            "type": ["account"] * num_accounts,
            "segment": [None if i % 4 == 3 else ["private", "business"][k] for i, k in enumerate(kind)],
            "balance": [None if i % 10 == 0 else 100.0 * k + i for i, k in enumerate(kind)],
            "country": [["de", "fr"][int(rng.integers(2))] for _ in range(num_accounts)],
        }
    )
    cards = pa.table(
        {
            "id": [f"c{i}" for i in range(num_accounts)],
            "type": ["card"] * num_accounts,
            "limit": [5.0 * k + i / 100 for i, k in enumerate(kind)],
            "network": [["visa", "maestro"][int(rng.integers(2))] for _ in range(num_accounts)],
        }
    )
    edges = pa.table({"source": accounts["id"], "target": cards["id"]})
    return {"account": accounts, "card": cards}, edges


def joined(tables: dict[str, pa.Table]) -> pa.Table:
    """One table, in which cells of columns that another type has are empty."""
    return pa.concat_tables(tables.values(), promote_options="default")


def test_columns_of_other_types_are_absent_not_missing() -> None:
    tables, edges = bank()
    graph = TrainingTables(joined(tables), edges, TableOptions(**FIT)).read(seed=0)
    x, balance = graph.data.x.numpy(), tables["account"]["balance"].to_numpy()
    known = balance[~np.isnan(balance)]
    scaled = np.nan_to_num((balance - known.mean()) / known.std())
    # type: account, card; balance and its mark; country: de, fr; limit, which is never missing; network
    assert x.shape == (240, 9)
    np.testing.assert_array_equal(x[:, :2], np.repeat(np.eye(2), 120, axis=0))
    np.testing.assert_allclose(x[:120, 2], scaled, atol=1e-5)
    np.testing.assert_array_equal(x[:120, 3], np.isnan(balance))
    assert not x[:120, 6:].any()
    assert not x[120:, 2:6].any()
    assert abs(x[120:, 6].mean()) < 1e-6
    assert [note for note in graph.notes if "missing" in note] == [
        "missing numbers count as the mean of their column, and a feature marks them: balance (12 of 120)"
    ]
    summary = {column.name: (column.num_values, column.num_missing) for column in graph.columns}
    assert summary["balance"] == (108, 12)
    assert summary["limit"] == summary["network"] == (120, 0)


def test_a_table_for_each_type_is_one_table_with_empty_cells(tmp_path: Path) -> None:
    tables, edges = bank()
    model, report = TableModel.fit(joined(tables), edges, **QUICK)
    apart, same_report = TableModel.fit([*tables.values()], edges, **QUICK)
    assert report == same_report
    scores = model.score_frame(joined(tables), edges)
    assert apart.score_frame([*tables.values()], edges).equals(scores)
    model.save(tmp_path / "model")
    assert TableModel.load(tmp_path / "model", "cpu").score_frame(joined(tables), edges).equals(scores)


def test_types_without_labels_are_scored_but_not_judged() -> None:
    tables, edges = bank()
    model, report = TableModel.fit(joined(tables), edges, **QUICK)
    told = "120 of 240 rows are of types without labels: they are scored, but have no p-value and are not flagged"
    assert [told in " ".join(notes) for notes in (report.notes, model.read(joined(tables), edges).notes)] == [
        True,
        True,
    ]
    scores = model.score_frame(joined(tables), edges)
    assert scores["score"].null_count == 0
    assert scores["p_value"].is_null().to_pylist() == [False] * 120 + [True] * 120
    assert not any(scores["is_ood"].to_pylist()[120:])


@pytest.fixture(scope="module")
def model() -> TableModel:
    tables, edges = bank()
    return TableModel.fit(joined(tables), edges, **QUICK)[0]


def test_a_table_may_lack_the_columns_of_types_that_it_does_not_have(model: TableModel) -> None:
    tables, edges = bank()
    alone = model.read(tables["account"], edges.slice(0, 0))
    whole = model.read(joined(tables), edges)
    assert (alone.source.x == whole.source.x[:120]).all()
    with pytest.raises(TableError, match="no values in the column 'limit', but rows of the type 'card', which had it"):
        model.read([tables["account"], tables["card"].drop_columns("limit")], edges)
    with pytest.raises(TableError, match="no type column 'type'"):
        model.read([tables["account"], tables["card"].drop_columns("type")], edges)


def test_values_of_other_types_and_new_types_are_told(model: TableModel) -> None:
    tables, edges = bank()
    nodes = joined(tables).to_pylist()
    nodes[120] |= {"balance": 7.0}
    changed = model.read(pa.Table.from_pylist(nodes), edges)
    assert "values of types that did not have the column at fit are ignored: balance (1)" in changed.notes
    assert (changed.source.x == model.read(joined(tables), edges).source.x).all()
    new = model.read(pa.Table.from_pylist([*nodes, nodes[0] | {"id": "m", "type": "merchant"}]), edges)
    assert any("1 category that the model was not fitted on (for example 'merchant')" in note for note in new.notes)
    assert not new.source.x[-1].any()
    nodes[5] |= {"type": ""}
    with pytest.raises(TableError, match="column 'type' has no type in row 6; every row needs one"):
        model.read(pa.Table.from_pylist(nodes), edges)


def test_types_are_refused_where_they_cannot_be_used() -> None:
    tables, edges = bank()
    for wrong, message in (("segment", "has another role"), ("kind", "no type column 'kind'")):
        with pytest.raises(TableError, match=message):
            TrainingTables(joined(tables), edges, TableOptions(**{**FIT, "type_column": wrong})).check_columns()


def test_a_folder_has_the_features_and_the_types_of_the_tables(tmp_path: Path) -> None:
    tables, edges = bank()
    read = TrainingTables(joined(tables), edges, TableOptions(**FIT))
    folder, in_memory = read.prepare(tmp_path / "graph"), read.read(seed=0)
    np.testing.assert_array_equal(folder.x.numpy(), in_memory.data.x.numpy())
    model, _ = fit_tables(folder, epochs=5, device="cpu")
    assert model.schema.features == in_memory.schema.features
    score_folder(model, folder, out := tmp_path / "scores.parquet")
    scores = parquet.read_table(out)
    assert scores["p_value"].is_null().to_pylist() == [False] * 120 + [True] * 120
    assert not any(scores["is_ood"].to_pylist()[120:])


def test_what_changed_is_told_of_the_rows_that_have_the_column(model: TableModel) -> None:
    tables, edges = bank()
    labelled = [i for i in range(120) if i % 4 != 3]
    usual = tables["account"].take(labelled)
    balance = [value if k % 2 else None for k, value in enumerate(usual["balance"].to_pylist())]
    poorer = usual.set_column(3, "balance", pa.array(balance, pa.float64()))
    for accounts, expected in ((usual, []), (poorer, [("balance", "is missing")])):
        graph = model.read([accounts, tables["card"]], edges.slice(0, 0))
        assert model.known is not None
        cells = Cells(model.schema.features, graph.source.x.numpy(), graph.counts)
        of_type = model.schema.features.of_labelled_type(cells.x, len(graph.ids))
        found = changes_of(model.known, cells, of_type, np.ones(len(of_type), dtype=bool), np.ones(len(of_type)))
        assert [(change.column, change.what) for change in found] == expected
        for change in found:
            shares = [np.mean([value is None for value in rows["balance"].to_pylist()]) for rows in (usual, accounts)]
            assert [change.known, change.new] == pytest.approx(shares)


def test_a_range_of_few_values_is_no_change() -> None:
    nodes: dict[str, list[Any]] = {
        "id": [f"n{i}" for i in range(200)],
        "segment": [["a", "b"][i % 2] for i in range(200)],
        "discount": [float([0, 5, 10, 12.5, 20][i % 5]) for i in range(200)],
    }
    edges = {"source": nodes["id"][:-2], "target": nodes["id"][2:]}
    options: dict[str, Any] = {"id_column": "id", "label_column": "segment", "method": "msp", "epochs": 2}
    made, _ = TableModel.fit(nodes, edges, **options)
    graph = made.read(nodes, edges)
    cells = Cells(made.schema.features, graph.source.x.numpy(), graph.counts)
    assert made.known is not None
    assert column_changes(made.known, cells, np.arange(200)) == []
    far = replace(cells, x=cells.x + 3)
    [change] = column_changes(made.known, far, np.arange(200))
    assert (change.what, change.known, change.new) == ("is outside 0 to 20", 0.0, 1.0)


def test_changed_columns_of_new_rows_are_noticed_by_type() -> None:
    rng = np.random.default_rng(0)
    kind = ["book" if i % 2 else "lamp" for i in range(300)]
    nodes: dict[str, list[Any]] = {
        "id": [f"n{i}" for i in range(300)],
        "type": kind,
        "segment": [["a", "b"][i // 2 % 2] for i in range(300)],
        "pages": [float(rng.normal(300, 20)) if each == "book" else None for each in kind],
        "colour": [None if each == "book" else ["red", "blue"][i // 2 % 2] for i, each in enumerate(kind)],
    }
    edges = {"source": nodes["id"][:-2], "target": nodes["id"][2:]}
    model, _ = TableModel.fit(nodes, edges, **QUICK, method="msp")
    new = nodes | {"id": [f"m{i}" for i in range(300)]}
    both = {"source": edges["source"] + new["id"][:-2], "target": edges["target"] + new["id"][2:]}

    def notes(**changed: list[Any]) -> str:
        graph = model.read([nodes, new | changed], both)
        return " ".join(model.scores_and_notes(graph)[1])

    assert "new rows" not in notes()
    mean = np.mean([pages for pages in nodes["pages"] if pages is not None])
    far = notes(pages=[p and 20 * p for p in nodes["pages"]])
    assert f"pages (mean about {20 * mean:.3g}, {mean:.3g} at fit)" in far
    assert "colour (100 %, 0 % at fit)" in notes(colour=[c and "Red" for c in nodes["colour"]])
