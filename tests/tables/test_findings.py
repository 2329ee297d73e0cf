"""Flagged rows that belong together: a planted category is one finding, and chance makes none."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oddnode.tables import Category, FeatureRecipe, KnownValues, Number, TableModel
from oddnode.tables.columns import ColumnCounts
from oddnode.tables.findings import group_flagged
from oddnode.tables.known_values import Cells
from tests.tables.shop import WORDS, Shop, shop
from tests.tables.test_reasons import FIT, five_digits, number

NO_EDGES = np.empty((2, 0), dtype=np.int64)


@pytest.fixture(scope="module")
def products() -> Shop:
    return shop(800, 200, 40, seed=1)


@pytest.fixture(scope="module")
def scored(products: Shop) -> tuple[pd.DataFrame, list[str]]:
    model, _ = TableModel.fit(*products.old, **FIT)  # type: ignore[arg-type]
    graph = model.read(products.nodes, products.edges)
    table = model.score_graph(graph, explain=True).to_pandas()
    return table, [str(each) for each in model.findings(graph)]


def test_a_planted_category_is_one_finding(scored: tuple[pd.DataFrame, list[str]], products: Shop) -> None:
    table, _ = scored
    is_planted = products.kind == "cameras"
    flagged = table["is_ood"] & products.is_new
    first = table["finding"] == 1
    assert (first & is_planted).sum() >= 0.9 * (flagged & is_planted).sum() > 10
    assert (first & ~is_planted).sum() <= 0.1 * first.sum()
    assert not (table["finding"].notna() & ~flagged).any()  # known rows are no finding while there are new ones


def test_every_number_of_a_finding_is_that_of_the_tables(
    scored: tuple[pd.DataFrame, list[str]], products: Shop
) -> None:
    table, sentences = scored
    known = products.nodes[table["split"].notna()]
    assert sentences
    for place, text in enumerate(sentences, 1):
        is_member = (table["finding"] == place).to_numpy()
        rows = products.nodes[is_member]
        total, flagged = map(int, re.findall(r"(\d+) of the (\d+) flagged rows", text)[0])
        assert (total, flagged) == (len(rows), (table["is_ood"] & products.is_new).sum())
        inside = products.edges[products.edges["source"].isin(rows["id"]) & products.edges["target"].isin(rows["id"])]
        linked = re.search(r", (\w+) of them linked", text)
        assert (total if linked[1] == "all" else int(linked[1])) == len(set(inside.to_numpy().ravel()))  # type: ignore[index]
        for count, column, alike, all_known in re.findall(r"(\d+) have `(\w+)` \((\d+) of (\d+) known rows\)", text):
            assert int(count) == (rows[column] > 0).sum()
            assert (int(alike), int(all_known)) == ((known[column] > 0).sum(), len(known))
        for count, column, low, high in re.findall(r"(\d+) have `(\w+)` outside ([\d.]+) to ([\d.]+),", text):
            values = np.sort(known[column].dropna())
            cut = int(0.025 * len(values))
            assert (number(low), number(high)) == (five_digits(values[cut]), five_digits(values[-1 - cut]))
            assert int(count) == ((rows[column] < values[cut]) | (rows[column] > values[-1 - cut])).sum()
        label, count = re.findall(r"Nearest known label: (\w+) \(predicted for (\d+)\)", text)[0]
        assert (
            table["predicted"][is_member].value_counts().iloc[0]
            == int(count)
            == (table["predicted"][is_member] == label).sum()
        )


def made(num_rows: int, seed: int = 0) -> tuple[KnownValues, Cells, np.ndarray]:
    """400 known rows with rare words, and further rows like them."""
    rng = np.random.default_rng(seed)
    words = tuple(Number(f"w{word}", 0.02, 0.14, is_count=True) for word in range(20))
    recipe = FeatureRecipe((*words, Category("shop", ("a", "b"))))
    shops = np.eye(2)[rng.integers(2, size=400 + num_rows)]
    x = np.hstack([rng.random((400 + num_rows, 20)) < 0.02, shops]).astype(np.float32)
    cells = Cells(recipe, x, [ColumnCounts() for _ in range(21)])
    return KnownValues.of(cells, np.arange(400), np.zeros(400, int), 1), cells, np.arange(400, 400 + num_rows)


@pytest.mark.parametrize("num_rows", [0, 1, 2, 3, 500])
def test_rows_that_are_alike_by_chance_are_no_finding(num_rows: int) -> None:
    known, cells, rows = made(num_rows)
    rng = np.random.default_rng(1)
    edges = rng.integers(len(cells.x), size=(2, 3 * len(cells.x)))
    groups = group_flagged(known, cells, rows, edges, np.zeros(len(cells.x), int), ["a"])
    assert all(len(group.rows) <= 0.05 * num_rows for group in groups)


def test_rows_that_share_rare_words_a_new_category_or_links_are_findings() -> None:
    known, cells, rows = made(60)
    cells.x[rows[:10], :3] = 1 / 0.14  # three words, without a link
    cells.counts[20].unseen_rows.update({int(row): "new" for row in rows[10:18]})
    cells.x[rows[10:18], 20:] = 0
    ring = np.stack([rows[18:24], np.roll(rows[18:24], 1)])
    others = np.random.default_rng(2).integers(400, size=(2, 600))
    edges = np.concatenate([ring, ring[::-1], others, others[::-1]], axis=1)
    groups = group_flagged(known, cells, rows, edges, np.zeros(len(cells.x), int), ["a"])
    found = {group.rows: group for group in groups}
    words, unseen, linked = (tuple(part.tolist()) for part in (rows[:10], rows[10:18], rows[18:24]))
    assert set(found) >= {words, unseen, linked}
    assert {each.column for each in found[words].shared} >= {"w0", "w1", "w2"}
    assert next((each.value, each.num_rows, each.num_alike) for each in found[unseen].shared) == ("new", 8, 0)
    assert (found[words].num_linked, found[linked].num_linked) == (0, 6)
    assert [group.number for group in groups] == list(range(1, len(groups) + 1))
    again = group_flagged(known, cells, rows, edges, np.zeros(len(cells.x), int), ["a"])
    assert again == groups


def test_without_statistics_only_links_group_rows() -> None:
    _, cells, rows = made(12)
    edges = np.stack([rows[:4], np.roll(rows[:4], 1)])
    background = np.random.default_rng(0).integers(400, size=(2, 800))
    both = np.concatenate([edges, edges[::-1], background, background[::-1]], axis=1)
    [group] = group_flagged(None, cells, rows, both, np.zeros(len(cells.x), int), ["a"])
    assert (group.rows, group.shared) == (tuple(rows[:4].tolist()), ())
    assert group_flagged(None, cells, rows, NO_EDGES, np.zeros(len(cells.x), int), ["a"]) == []


def test_what_sets_the_new_rows_apart_is_said_in_the_units_of_the_table(products: Shop, tmp_path: Path) -> None:
    model, _ = TableModel.fit(*products.old, **FIT)  # type: ignore[arg-type]
    report = model.score(products.nodes, products.edges, tmp_path / "scores.csv", explain=True)
    assert report.batch
    assert report.summary[-1].startswith("As a whole, the new rows have ")
    new = products.nodes[products.is_new]
    for each in report.batch:
        assert f"{each.name} (" in report.summary[-1]
        if each.column is not None and each.column in WORDS["cameras"]:
            assert each.new == pytest.approx(new[each.column].mean(), abs=1e-6)
            assert each.known == pytest.approx(products.old[0][each.column].mean(), abs=1e-6)
            assert each.name == f"more of `{each.column}`"
    assert {each.column for each in report.batch} & {"price", *WORDS["cameras"]}
    assert not model.score(products.nodes, products.edges, tmp_path / "scores.csv", explain=True, batch=False).batch
