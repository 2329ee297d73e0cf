"""Rows of tables as arrivals, against the tables with the rows in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from oddnode import LiveGraph
from oddnode.graph import GraphError
from oddnode.online import Judgement
from oddnode.tables import TableError, TableModel
from tests.tables.shop import Shop, shop

COLUMNS: dict[str, Any] = {"id_column": "id", "label_column": "category"}


@pytest.fixture(scope="module")
def goods() -> Shop:
    return shop(num_old=400, num_known=20, num_planted=10)


@pytest.fixture(scope="module")
def model(goods: Shop) -> TableModel:
    return TableModel.fit(*goods.old, **COLUMNS, method="energy", epochs=10, device="cpu")[0]


@pytest.fixture(scope="module")
def live(goods: Shop, model: TableModel) -> LiveGraph:
    return LiveGraph(model, model.read(*goods.old))


def new_rows(goods: Shop, count: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Some arrivals, and their edges to each other and to old products."""
    nodes, (old, _) = goods.nodes[goods.is_new][:count], goods.old
    known = {*old["id"], *nodes["id"]}
    edges = goods.edges[goods.edges["source"].isin(known) & goods.edges["target"].isin(known)]
    return nodes, edges[edges["source"].isin(nodes["id"]) | edges["target"].isin(nodes["id"])]


def as_pairs(edges: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(edges.itertuples(index=False, name=None))


def test_rows_score_as_in_the_tables_with_them(goods: Shop, model: TableModel, live: LiveGraph) -> None:
    nodes, edges = new_rows(goods, 8)
    old_nodes, old_edges = goods.old
    frame = model.score_frame([old_nodes, nodes], [old_edges, edges]).to_pandas().set_index("id")
    records: Any = nodes.astype(object).where(nodes.notna(), None).to_dict("records")
    for rows, links in ((nodes, edges), (records, as_pairs(edges))):
        found: list[Judgement] = live.score(rows, links)
        assert [each.id for each in found] == nodes["id"].tolist()
        assert all(each.exact for each in found)
        for each in found:
            expected = frame.loc[each.id]
            assert each.score == pytest.approx(expected["score"], abs=1e-5)
            assert (each.predicted, each.is_ood) == (expected["predicted"], expected["is_ood"])


def test_a_single_row_is_a_mapping_and_names_what_was_never_seen(goods: Shop, live: LiveGraph) -> None:
    row: Any = {**goods.nodes.iloc[0].to_dict(), "id": "later", "seller": "eve", "weight": None}
    [found] = live.score(row, [("later", "p0001")], explain=True)
    assert (found.id, found.unseen, found.num_neighbours) == ("later", {"seller": "eve"}, 1)
    assert found.predicted in ("kitchen", "garden", "toys", "books")
    assert found.why


def test_rows_that_do_not_fit_are_refused(goods: Shop, live: LiveGraph) -> None:
    row = goods.nodes.iloc[0].to_dict()
    with pytest.raises(GraphError, match="already a node with the id 'p0000'"):
        live.score(row, [])
    with pytest.raises(TableError, match=r"lacks 1 \(price\)"):
        live.score({name: value for name, value in row.items() if name != "price"} | {"id": "a"}, [])
    with pytest.raises(GraphError, match="leave ids out"):
        live.score({**row, "id": "a"}, [], ids=["a"])
    with pytest.raises(GraphError, match="first 'p9999'"):
        live.score({**row, "id": "a"}, [("a", "p9999")])


def test_committed_rows_are_known_by_their_ids(goods: Shop, model: TableModel) -> None:
    live = LiveGraph(model, model.read(*goods.old))
    nodes, edges = new_rows(goods, 4)
    live.commit(nodes, edges)
    assert nodes["id"].iloc[0] in live
    [first, *_] = live.explain(nodes["id"].tolist())
    assert first.id == nodes["id"].iloc[0]
    live.rebase()
    [again, *_] = live.explain(nodes["id"].tolist())
    assert again.score == pytest.approx(first.score, abs=1e-5)


def test_repeated_edges_of_tables_are_one(goods: Shop, live: LiveGraph) -> None:
    row = {**goods.nodes.iloc[3].to_dict(), "id": "a"}
    [once] = live.score(row, [("a", "p0001")])
    [twice] = live.score(row, [("a", "p0001"), ("p0001", "a"), ("a", "a")])
    assert once == twice


def test_the_default_method_compares_with_the_reference_rows(goods: Shop, tmp_path: Path) -> None:
    TableModel.fit(*goods.old, **COLUMNS, epochs=10, device="cpu")[0].save(tmp_path / "model")
    model = TableModel.load(tmp_path / "model", device="cpu")
    live = LiveGraph(model, model.read(*goods.old))
    nodes, edges = new_rows(goods, 12)
    frame = model.score_frame([goods.old[0], nodes], [goods.old[1], edges]).to_pandas().set_index("id")
    found = live.score(nodes, edges)
    apart = [abs(each.score - frame.loc[each.id, "score"]) for each in found]
    assert sum(apart) / len(apart) < 0.2
    alone = live.score(nodes.iloc[:1])
    frame = model.score_frame([goods.old[0], nodes.iloc[:1]], goods.old[1]).to_pandas().set_index("id")
    assert alone[0].exact
    assert alone[0].score == pytest.approx(frame.loc[alone[0].id, "score"], abs=1e-5)
