"""Reasons in terms of the tables: every number in a sentence is recomputed from the tables, with pandas alone."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oddnode.tables import TableModel
from tests.tables.shop import Shop, shop

FIT = {"id_column": "id", "label_column": "category", "device": "cpu", "epochs": 60}


@pytest.fixture(scope="module")
def products() -> Shop:
    made = shop()
    made.nodes.loc[made.nodes.index[-4:], "seller"] = "eve"  # not seen at fit
    made.nodes.loc[made.nodes.index[-8:-4], "price"] = 5e4  # clipped when encoded
    made.nodes.loc[made.nodes.index[-12:-8], "price"] = None  # never missing at fit
    return made


@pytest.fixture(scope="module")
def model(products: Shop) -> TableModel:
    return TableModel.fit(*products.old, **FIT)[0]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def scores(model: TableModel, products: Shop) -> pd.DataFrame:
    return model.score_frame(products.nodes, products.edges, explain=True).to_pandas().set_index("id")


def number(text: str) -> float:
    return float(text.replace(",", ""))


def five_digits(value: float) -> float:
    return float(f"{value:.5g}")


NUMBER = r"-?[\d,.]*\d"
OF_KNOWN = r"the ([\d,]+) known rows(?: labelled (\w+))?"


def test_ranges_and_counts_of_known_rows_are_those_of_the_tables(scores: pd.DataFrame, products: Shop) -> None:
    table = products.nodes.set_index("id").join(scores[["split", "predicted"]])
    known = table[table["split"].notna()]
    ranges, rare = 0, 0
    for name, why in scores["why"].dropna().items():
        if not (found := re.search(OF_KNOWN, why)):
            continue
        rows = known if found[2] is None else known[known["category"] == found[2]]
        assert found[2] in (None, table["predicted"][name])
        assert len(rows) == int(found[1])
        for column, value, low, high in re.findall(rf"`(\w+)` is ({NUMBER}),.*? ({NUMBER})(?: to ({NUMBER}))?\.", why):
            values = np.sort(rows[column].dropna())
            cut = int(0.025 * len(values))
            assert number(value) == five_digits(table[column][name])
            assert number(low) == five_digits(values[cut])
            assert number(high or low) == five_digits(values[-1 - cut])
            ranges += 1
        for column, value, count in re.findall(r"`(\w+)`(?: '(\w+)')? \((\d+) rows?\)", why):
            assert table[column][name] == (value or 1)
            assert int(count) == (rows[column] == (value or 1)).sum()
            rare += 1
    assert ranges > 5
    assert rare > 5


def test_linked_rows_are_counted_as_the_tables_link_them(scores: pd.DataFrame, products: Shop) -> None:
    ends = products.edges[products.edges["source"] != products.edges["target"]]
    both = pd.concat([ends, ends.rename(columns={"source": "target", "target": "source"})]).drop_duplicates()
    checked = 0
    for name, why in scores["why"].dropna().items():
        linked = scores.loc[both.loc[both["target"] == name, "source"]]
        for count, total, label in re.findall(r"(\d+) of (\d+) linked rows (?:is|are) predicted as (\w+)", why):
            assert (int(count), int(total)) == ((linked["predicted"] == label).sum(), len(linked))
            checked += 1
        for count in re.findall(r"(\d+) of them (?:is|are) flagged", why):
            assert int(count) == linked["is_ood"].sum()
    assert checked > 3


def test_values_that_features_do_not_tell_are_told(scores: pd.DataFrame) -> None:
    whys = scores["why"]
    clipped = whys.iloc[-8:-4].dropna()
    assert len(clipped)
    assert clipped.str.contains("`price` is 50,000,", regex=False).all()
    assert not whys.iloc[-12:-8].dropna().str.contains("`price` is").any()
    assert whys.iloc[-4:].dropna().str.contains("seller 'eve' was not seen in training.", regex=False).all()


def test_what_all_new_rows_lack_is_not_held_against_them(model: TableModel, products: Shop) -> None:
    nodes = products.nodes.copy()
    nodes.loc[products.is_new, "seller"] = "New shop"
    nodes.loc[products.is_new, "weight"] = None
    known = products.is_new & (products.kind != "cameras")
    scores = [model.score_frame(each, products.edges, explain=True).to_pandas() for each in (products.nodes, nodes)]
    usual, changed = (int(each["is_ood"][known].sum()) for each in scores)
    assert abs(changed - usual) <= 3  # of 120; neither column says anything about the category
    told = scores[1]["why"][products.is_new].dropna()
    assert told.str.contains("seller 'New shop' was not seen in training.", regex=False).any()


def test_reasons_survive_saving_and_need_no_old_rows(
    model: TableModel, scores: pd.DataFrame, products: Shop, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    loaded = TableModel.load(tmp_path / "model", device="cpu")
    again = loaded.score_frame(products.nodes, products.edges, explain=True).to_pandas().set_index("id")
    assert again["why"].equals(scores["why"])
    new = products.nodes[products.is_new]
    inside = products.edges[products.edges["source"].isin(new["id"]) & products.edges["target"].isin(new["id"])]
    alone = loaded.score_frame(new, inside, explain=True).to_pandas().set_index("id")
    told = alone["why"].dropna()
    assert told.str.contains("known rows labelled").sum() > 5


def test_few_rows_of_a_label_are_not_a_range_and_a_model_without_statistics_still_explains(products: Shop) -> None:
    nodes, edges = products.old
    nodes = nodes.assign(category=nodes["category"].where(nodes["category"] != "books"))
    few = nodes.index[(products.kind[: len(nodes)] == "books")][:12]
    nodes.loc[few, "category"] = "books"
    model, _ = TableModel.fit(nodes, edges, **FIT)  # type: ignore[arg-type]
    told = model.score_frame(products.nodes, products.edges, explain=True).to_pandas()
    assert not told["why"].dropna().str.contains("labelled books").any()
    model.known = None
    told = model.score_frame(products.nodes, products.edges, explain=True).to_pandas()
    assert (told["why"].notna() == told["is_ood"]).all()
    assert not told["why"].dropna().str.contains("`price` is").any()
