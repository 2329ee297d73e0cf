"""Weights of edges in tables, against sums in plain Python and graphs in memory."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oddnode.tables import Edges, TableError, TableModel, TrainingTables, WeightColumn
from tests.tables.examples import FIT, Rows, edges_in, example, options, training_tables

IDS = pa.array(["a", "b", "c", "d"])
WEIGHT = WeightColumn("weight")


def read(text: str, path: Path, weights: WeightColumn | None = WEIGHT, **settings: Any) -> Edges:
    path.write_text(text)
    return edges_in(path, IDS, weights, **settings)


def as_dict(found: Edges) -> dict[tuple[int, ...], float]:
    assert found.weight is not None
    return dict(zip(map(tuple, found.index.T.tolist()), found.weight.tolist(), strict=True))


def test_weights_of_rows_that_join_the_same_nodes_add_up(tmp_path: Path) -> None:
    text = "source,target,weight\na,b,0.5\nb,a,2\nb,c,1e2\na,a,7\nc,d,0\n"
    both = read(text, tmp_path / "e.csv")
    assert as_dict(both) == {(0, 1): 2.5, (1, 0): 2.5, (1, 2): 100.0, (2, 1): 100.0}
    assert both.notes == [
        "1 of 5 edges repeat others; their weights add up; if every edge is listed in both directions: `directed`"
    ]
    one_way = read(text, tmp_path / "e.csv", directed=True)
    assert as_dict(one_way) == {(0, 1): 0.5, (1, 0): 2.0, (1, 2): 100.0}
    assert one_way.notes == []
    unweighted = read(text, tmp_path / "e.csv", None)
    assert unweighted.weight is None
    assert unweighted.index.shape[1] == 6


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.0, 0.25, 1.0, 3.0])), max_size=40))
@pytest.mark.parametrize("directed", [True, False])
def test_sums_do_not_depend_on_batches(directed: bool, rows: list[tuple[int, int, float]]) -> None:
    expected: dict[tuple[int, int], float] = defaultdict(float)
    for a, b, weight in rows:
        if a != b and weight:
            for pair in [(a, b)] if directed else [(a, b), (b, a)]:
                expected[pair] += weight
    parts = [rows[start : start + 7] for start in range(0, len(rows), 7)] or [[]]
    tables = [
        pa.table({name: pa.array([row[i] for row in part], kind) for i, (name, kind) in enumerate(COLUMNS.items())})
        for part in parts
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oddnode.tables.edges._PENDING", 3)
        found = edges_in(tables, pa.array(range(6)), WEIGHT, directed=directed)
    assert as_dict(found) == expected


COLUMNS = {"source": pa.int64(), "target": pa.int64(), "weight": pa.float64()}


@pytest.mark.parametrize("cell", ["-1", "", "NA", "inf", "nan", "heavy", "1,5"])
def test_what_is_no_weight_is_named_with_its_place(tmp_path: Path, cell: str) -> None:
    with pytest.raises(TableError) as caught:
        read(f'source,target,weight\na,b,1\na,c,"{cell}"\n', tmp_path / "e.csv")
    assert str(caught.value) == (
        f"{tmp_path / 'e.csv'}: column 'weight' has {cell!r} in line 3, expected a non-negative edge "
        "weight; correct it, name another column when fitting with `weight_column`, or fit with `unweighted`"
    )


def test_dates_and_lists_are_no_weights() -> None:
    ends = {"source": ["a"], "target": ["b"]}
    for values in (pa.array([[1.0]]), pa.array([1], pa.date32())):
        with pytest.raises(TableError, match=r"column 'weight' has .* in row 1, expected a non-negative edge weight"):
            edges_in(pa.table(ends | {"weight": values}), IDS, WEIGHT)


def test_decimal_commas_and_whole_numbers_are_weights(tmp_path: Path) -> None:
    found = read("source;target;weight\na;b;1,5\n", tmp_path / "e.csv", WeightColumn("weight", decimal_comma=True))
    assert as_dict(found)[0, 1] == 1.5
    table = pa.table({"source": ["a", "b"], "target": ["b", "c"], "weight": pa.array([2, 3], pa.int8())})
    assert as_dict(edges_in(table, IDS, WEIGHT))[1, 2] == 3.0


def test_the_column_weight_is_recognised_and_others_are_named() -> None:
    nodes, rows = weighted_example()
    frames = pa.Table.from_pylist(nodes), pa.Table.from_pylist([row | {"amount": 2} for row in rows])

    def chosen(edges: Any = frames[1], **more: Any) -> tuple[str | None, bool]:
        graph = training_tables(frames[0], edges, **more).read(seed=0)
        note = "the column 'weight' of the edges holds their weights; `unweighted` leaves it out"
        weights = graph.schema.weights
        return None if weights is None else weights.name, note in graph.notes

    assert chosen() == ("weight", True)
    assert chosen(weight_column="amount") == ("amount", False)
    assert chosen(unweighted=True) == chosen(frames[1].drop_columns(["weight"])) == (None, False)
    assert chosen(frames[1].select(["source", "target"]).rename_columns(["weight", "b"])) == (None, False)
    with pytest.raises(TableError, match="either `weight_column` or `unweighted`"):
        chosen(weight_column="amount", unweighted=True)
    with pytest.raises(TableError, match="`weight_column` is 'source', which holds ids"):
        chosen(weight_column="source")


def test_every_table_of_edges_needs_the_column() -> None:
    tables = [{"source": ["a"], "target": ["b"], "weight": [1]}, {"source": ["a"], "target": ["c"]}]
    with pytest.raises(TableError, match="has no weight column 'weight'"):
        edges_in(tables, IDS, WEIGHT)


def weighted_example() -> tuple[Rows, Rows]:
    nodes, rows = example()
    rng = np.random.default_rng(1)
    return nodes, [{**row, "weight": round(float(rng.random()), 3)} for row in rows]


def fitted(nodes: Rows, rows: Rows, **settings: Any) -> TableModel:
    return TableModel.fit(pa.Table.from_pylist(nodes), pa.Table.from_pylist(rows), **(FIT | settings))[0]


def test_a_table_is_the_graph_of_its_summed_weights() -> None:
    nodes, rows = weighted_example()
    frames = pa.Table.from_pylist(nodes), pa.Table.from_pylist(rows)
    graph = training_tables(*frames).read(seed=0)
    place = {row["name"]: i for i, row in enumerate(nodes)}
    dense = np.zeros((len(nodes), len(nodes)))
    for row in rows:
        dense[place[row["source"]], place[row["target"]]] += row["weight"]
    found = torch.zeros(len(nodes), len(nodes), dtype=torch.float64)
    found[graph.data.edge_index[0], graph.data.edge_index[1]] = graph.data.edge_weight
    np.testing.assert_allclose(found.numpy(), dense + dense.T)
    assert graph.schema.weights == WEIGHT


def test_weights_of_one_are_no_weights_where_no_edge_is_repeated() -> None:
    nodes, rows = example()
    once = list({frozenset(row.values()): row for row in rows}.values())
    ones = [{**row, "weight": 1} for row in once]
    model, plain = fitted(nodes, ones), fitted(nodes, once)
    tables = pa.Table.from_pylist(nodes), pa.Table.from_pylist(once)
    scored = model.score_frame(tables[0], pa.Table.from_pylist(ones))
    assert scored.equals(plain.score_frame(*tables))
    assert scored.equals(fitted(nodes, weighted_example()[1], unweighted=True).score_frame(*tables))


def test_a_saved_model_reads_the_weights_of_the_same_column(tmp_path: Path) -> None:
    nodes, rows = weighted_example()
    rows = [{"source": r["source"], "target": r["target"], "amount": r["weight"]} for r in rows]
    model = fitted(nodes, rows, weight_column="amount")
    model.save(tmp_path / "model")
    loaded = TableModel.load(tmp_path / "model", device="cpu")
    assert loaded.schema.weights == WeightColumn("amount")
    frames = pa.Table.from_pylist(nodes), pa.Table.from_pylist(rows)
    scored = loaded.score_frame(*frames)
    assert scored.equals(model.score_frame(*frames))
    halved = [{**row, "amount": row["amount"] / 2} for row in rows[:200]] + rows[200:]
    assert not scored["score"].equals(loaded.score_frame(frames[0], pa.Table.from_pylist(halved))["score"])
    with pytest.raises(TableError, match="has no weight column 'amount'"):
        loaded.score_frame(frames[0], frames[1].drop_columns("amount"))


def test_arrivals_and_exposed_nodes_keep_their_weights() -> None:
    nodes, rows = weighted_example()
    for i, row in enumerate(nodes):
        row["day"], row["bad"] = i, i % 10 == 1
    frames = pa.Table.from_pylist(nodes), pa.Table.from_pylist(rows)
    whole = training_tables(*frames, exposure_column="bad").read(seed=0)
    past = training_tables(*frames, exposure_column="bad", time_column="day", train_until="79").read(seed=0)
    assert past.arrivals is not None
    assert torch.equal(past.arrivals.graph.data.edge_weight, whole.data.edge_weight)
    inside = (whole.data.edge_index < 80).all(dim=0)
    assert torch.equal(past.data.edge_weight, whole.data.edge_weight[inside])
    assert past.exposure is not None
    assert torch.equal(past.exposure.edge_weight, past.data.edge_weight)
    apart = TrainingTables(*frames, options(drop_columns=["bad", "day"]), *frames).read(seed=0)
    assert apart.exposure is not None
    assert torch.equal(apart.exposure.edge_weight, whole.data.edge_weight)
