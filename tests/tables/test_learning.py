"""How columns become features, and what is said about columns that may be meant in another way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from oddnode.tables import FeatureRecipe, Number, TableError, learn_features, open_table, read_nodes
from oddnode.tables.columns import notes_on_scored_columns
from oddnode.tables.learning import notes_on_fitted_columns
from tests.tables.examples import training_tables


def learnt(values: Sequence[Any] | np.ndarray, **read_as: Any) -> tuple[FeatureRecipe, list[str], np.ndarray]:
    """The encoding of a column ``c``, the notes on it, and its features."""
    table = open_table({"id": range(len(values)), "c": values, "other": np.arange(len(values)) / 7}, "nodes")
    recipe, columns = learn_features(table, ["c", "other"], **read_as)
    x = read_nodes(table, "id", recipe).x
    return recipe, notes_on_fitted_columns(columns, recipe), x[:, :-1]


def scored(recipe: FeatureRecipe, values: Sequence[Any] | np.ndarray) -> tuple[np.ndarray, list[str]]:
    table = open_table({"id": range(len(values)), "c": values, "other": np.arange(len(values)) / 7}, "nodes")
    rows = read_nodes(table, "id", recipe)
    return rows.x[:, :-1], notes_on_scored_columns(recipe, rows.counts)


@pytest.mark.parametrize("values", [[1.5, None, 2.5, 5.0], ["1.5", "", "2.5", "5"], [1.5, float("nan"), 2.5, 5.0]])
def test_a_missing_number_is_the_mean_and_is_marked(values: list[Any]) -> None:
    _, notes, x = learnt(values)
    present = np.array([1.5, 2.5, 5.0])
    standard = (present - present.mean()) / present.std()
    assert np.allclose(x, [[standard[0], 0], [0, 1], [standard[1], 0], [standard[2], 0]])
    assert notes == ["missing numbers count as the mean of their column, and a feature marks them: c (1 of 4)"]


def test_an_infinite_number_counts_as_missing() -> None:
    _, notes, x = learnt([1.5, -np.inf, 2.5, np.inf])
    assert np.allclose(x, [[-1, 0], [0, 1], [1, 0], [0, 1]])
    assert notes == ["infinite numbers count as missing: c (2 of 4)"]


def test_numbers_that_are_missing_only_later_count_as_the_mean() -> None:
    recipe, notes, x = learnt([1.5, 2.5])
    assert notes == []
    assert x.shape == (2, 1)
    features, later = scored(recipe, [None, 2.5, np.inf])
    assert features.tolist() == [[0.0], [1.0], [0.0]]
    assert later == [
        "missing numbers count as the mean; none was missing when the model was fitted: c (1 of 3)",
        "infinite numbers count as missing: c (1 of 3)",
    ]


def test_codes_are_pointed_out_and_can_be_categories() -> None:
    codes = [3, 17, 501] * 20
    _, notes, x = learnt(codes)
    assert x.shape == (60, 1)
    assert notes == [
        "integers with few values are read as amounts: c (3 values); if they are codes: `category_columns` c"
    ]
    recipe, notes, x = learnt(codes, category_columns=["c"])
    assert notes == []
    assert x[:3].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]  # "17" < "3" < "501" as texts
    assert scored(recipe, ["501", "3"])[0].tolist() == [[0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("values", [[0, 1] * 30, list(range(0, 120, 2)), [0.5, 1.0, 2.0] * 20])
def test_marks_amounts_and_fractions_are_no_codes(values: list[Any]) -> None:
    assert learnt(values)[1] == []


def test_numbers_with_a_typo_are_pointed_out_and_can_be_numbers() -> None:
    ages = [str(20 + i % 10) for i in range(50)]
    ages[6], ages[9] = "12.O", "n.a."
    _, notes, x = learnt(ages)
    assert x.shape == (50, 12)
    assert notes == [
        "column 'c' is read as 12 categories, because 2 of 50 values are not numeric (first '12.O' in row 7); "
        "correct them, or treat them as missing with `number_columns` c"
    ]
    recipe, notes, x = learnt(ages, number_columns=["c"])
    assert x[:, 1].nonzero()[0].tolist() == [6, 9]
    assert notes == ["missing numbers count as the mean of their column, and a feature marks them: c (2 of 50)"]
    assert scored(recipe, ["old", "25"])[0][:, 1].tolist() == [1, 0]


AMOUNTS: list[tuple[list[str], list[float], str]] = [
    (["3,5", "4", "-0,5", "2,25"], [3.5, 4, -0.5, 2.25], "numbers with decimal commas: c ('-0,5')"),
    (["$22.66", "-$3", "$1,200.50"], [22.66, -3, 1200.5], "numbers with the unit $: c ('$1,200.50')"),
    (["12,50 EUR", "3 EUR", "1.200,00 EUR"], [12.5, 3, 1200], "numbers with decimal commas and the unit EUR: c"),
    (["12%", "7.5 %"], [12, 7.5], "numbers with the unit %: c ('12%')"),
    (["1,234.5", "12", "1e3"], [1234.5, 12, 1000], "thousands are separated in the numbers of c ('1,234.5')"),
    (["1 234", "12"], [1234, 12], "thousands are separated in the numbers of c ('1 234')"),
    (["1,234", "12"], [1234, 12], "thousands are separated in the numbers of c ('1,234'); if these are decimal commas"),
]


@pytest.mark.parametrize(("values", "numbers", "note"), AMOUNTS)
def test_amounts_are_numbers_and_said_to_be(values: list[str], numbers: list[float], note: str) -> None:
    recipe, notes, x = learnt(values)
    expected = (np.array(numbers) - np.mean(numbers)) / np.std(numbers)
    assert np.allclose(x[:, 0], expected, atol=1e-6)
    assert notes[0].startswith(note)
    saved = msgspec.convert(msgspec.to_builtins(recipe), FeatureRecipe)
    assert np.allclose(scored(saved, values[::-1])[0][:, 0], expected[::-1], atol=1e-6)


def test_an_amount_in_another_unit_is_an_error() -> None:
    recipe, _, _ = learnt(["$5", "$7.50"])
    assert np.allclose(scored(recipe, ["$1,250", "10"])[0], [[5], [3]])  # clipped; (10 - 6.25) / 1.25
    with pytest.raises(TableError, match="has the text '7 €' in row 2, but had numbers with the unit \\$ when"):
        scored(recipe, ["$5", "7 €"])


@pytest.mark.parametrize("values", [["$5", "5 EUR"], ["12%", "0.12"], ["030 1234", "171 234"], ["SKU 12", "SKU 13"]])
def test_what_has_no_common_unit_stays_a_category(values: list[str]) -> None:
    assert learnt(values)[2].shape == (2, 2)


def test_the_decimal_comma_that_the_user_states_decides() -> None:
    recipe, notes, x = learnt(["1,234", "12", "1.500"], decimal_comma=True)
    numbers = np.array([1.234, 12, 1500])
    assert np.allclose(x[:, 0], (numbers - numbers.mean()) / numbers.std())
    assert "thousands are separated in the numbers of c ('1.500')" in notes
    assert np.allclose(scored(recipe, ["12,0"])[0], x[1:2])
    _, notes, x = learnt(["1,5", "2.5", "1.500"], decimal_comma=True)  # 2.5 shows that points are no separators
    assert np.allclose(x[:, 0], np.array([-1, 2, -1]) / np.sqrt(2))
    assert notes == []


def test_one_column_with_decimal_commas_settles_the_others() -> None:
    columns = {"price": ["3,5", "4,25", "1.000,00"], "stock": ["1.234", "12", "3"], "size": ["0.5", "1.25", "2"]}
    table = open_table({"id": [1, 2, 3], **columns}, "nodes")
    recipe, _ = learn_features(table, list(columns))
    means = [column.mean for column in recipe.columns if isinstance(column, Number)]
    assert np.allclose(means, [(3.5 + 4.25 + 1000) / 3, (1234 + 12 + 3) / 3, 3.75 / 3])


def test_amounts_among_other_words_are_numbers_on_demand() -> None:
    recipe, _, x = learnt(["$1", "$3", "on request"], number_columns=["c"])
    assert x.tolist() == [[-1, 0], [1, 0], [0, 1]]
    assert scored(recipe, ["ask", "$3"])[0].tolist() == [[0, 1], [1, 0]]


def test_long_numbers_that_differ_in_every_row_are_ids() -> None:
    articles = [400638133393100000 + 7_000_001 * i for i in range(40)]
    for values in (articles, [str(value) for value in articles]):
        recipe, notes, _ = learnt(values)
        assert recipe.names == ["other"]
        assert notes == [
            "whole numbers that differ in every row look like ids or times and are left out: c; if they are amounts: "
            "`number_columns` c; one with times can be the `time_column`"
        ]
        assert learnt(values, number_columns=["c"])[0].names == ["c", "other"]
    assert learnt([*articles[:-1], articles[0]])[1] == []
    populations = [10**9 + 10**7 * i * i for i in range(40)]  # not all of one length
    assert learnt(populations)[0].names == ["c", "other"]


@pytest.mark.parametrize("values", [list(range(1, 41)), [1_700_000_000_000 + 60_000 * i for i in range(40)]])
def test_row_numbers_and_times_since_1970_are_left_out(values: list[int]) -> None:
    assert learnt(values)[0].names == ["other"]
    assert learnt([*values, values[-1]])[0].names == ["c", "other"]


def test_a_split_is_pointed_out() -> None:
    [found] = learnt(["train", "val", "Test", None])[1]
    assert found.startswith("column 'c' looks like a split (Test, train, val), but is used as a feature")
    assert found.endswith("leave it out with `drop_columns` c")


@pytest.mark.parametrize(
    "values",
    [
        ["2024-01-01", "2024-02-01 12:00"],
        ["1.2.2024", "24.12.24"],
        [f"20{i // 12:02d}-{i % 12 + 1:02d}-01" for i in range(300)],
    ],
)
def test_dates_are_left_out_unless_they_are_named(values: list[str]) -> None:
    recipe, [note], _ = learnt(values)
    assert recipe.names == ["other"]
    assert note.startswith("dates are left out: c; they can tell later rows apart (`time_column` c with `train_until`)")
    if len(values) == 2:
        assert learnt(values, category_columns=["c"])[0].names == ["c", "other"]


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ([f"text {i}" for i in range(300)], "leave it out with `drop_columns` c"),
        ([str(i) for i in range(300)] + ["n.a."], "read it as numbers with `number_columns` c, or leave it out"),
        ([f"${i}" for i in range(300)] + ["free"], "read it as numbers with `number_columns` c, or leave it out"),
    ],
)
def test_too_many_categories_have_a_way_out(values: list[str], advice: str) -> None:
    with pytest.raises(TableError, match=f"more than 256 different values, too many for categories; {advice}"):
        learnt(values)


def test_a_changed_unit_is_pointed_out() -> None:
    years = np.arange(20.5, 70)
    recipe, _, _ = learnt(years)
    features, [note] = scored(recipe, years * 365)
    assert features.max() == 5.0
    assert note.startswith("column 'c': 50 of 50 values (for example 7482.5) are more than 5 standard deviations from")
    assert scored(recipe, years + 1)[1] == []


def test_new_categories_are_counted_apart_from_cells() -> None:
    recipe, _, _ = learnt(["red", "blue", "green", "red"])
    features, [note] = scored(recipe, ["RED", "RED", "Blue", "red", ""])
    assert features.sum() == 1
    assert note == (
        "column 'c': 3 of 4 values are of 2 categories that the model was not fitted on (for example 'Blue'); they "
        "count as missing. The model knows 'blue', 'green', 'red'; check the spelling"
    )


def test_a_column_that_nearly_all_new_rows_lack_has_the_values_of_other_rows() -> None:
    values = np.array(["red", "blue", "green", None] * 50 + ["pink"] * 95 + ["red"] * 5, dtype=object)
    recipe, _, _ = learnt(values[:200])
    x, is_new = scored(recipe, values)[0], np.arange(300) >= 200
    x = np.hstack([x, np.ones((300, 1), np.float32)])
    filled = recipe.with_shared_gaps_filled(x, is_new)
    assert (filled[~is_new | (x[:, :3].sum(axis=1) > 0)] == x[~is_new | (x[:, :3].sum(axis=1) > 0)]).all()
    drawn = filled[200:295, :3]
    assert (drawn.sum(axis=1) == 1).all()
    assert (drawn.mean(axis=0) > 0.2).all()  # each of the three colours a third of the time
    few = np.arange(250)
    assert (recipe.with_shared_gaps_filled(x[few], is_new[few]) == x[few]).all()


def test_what_the_user_says_of_columns_is_checked() -> None:
    frames = pa.table({"name": [1, 2], "kind": ["a", "b"], "c": [1, 2]}), pa.table({"source": [1], "target": [2]})
    with pytest.raises(TableError, match="`category_columns` names 'd', which is not a feature column"):
        training_tables(*frames, category_columns=["d"]).check_columns()
    with pytest.raises(TableError, match="'c' is in both"):
        training_tables(*frames, category_columns=["c"], number_columns=["c"]).check_columns()


def test_numbers_in_one_table_and_texts_in_another_are_an_error() -> None:
    parts = [pa.table({"id": [1, 2], "c": [1, 2]}), pa.table({"id": ["3"], "c": ["x"]})]
    with pytest.raises(TableError, match="has the text 'x' in row 1, but numbers in another table"):
        learn_features(open_table(parts, "nodes"), ["c"])


def test_learning_takes_time_in_proportion_to_the_columns() -> None:
    import time

    def seconds(num_columns: int) -> float:
        names = [f"c{number}" for number in range(num_columns)]
        table = open_table({"id": ["a", "b"]} | {name: [0.5, number] for number, name in enumerate(names)}, "nodes")
        start = time.process_time()
        recipe, _ = learn_features(table, names)
        read_nodes(table, "id", recipe)
        return time.process_time() - start

    small = seconds(1000)
    assert seconds(8000) < 3 * 8 * small + 1


def test_missing_counts_are_filled_in_as_in_rows_of_the_most_similar_label() -> None:
    # Label 0 has the words a and b, one each, label 1 has c twice and d.
    words = {"a": [1, 1, 0, 0], "b": [1, 1, 0, 0], "c": [0, 0, 2, 2], "d": [0, 0, 1, 1]}
    table = open_table({"id": range(40)} | {word: values * 10 for word, values in words.items()}, "nodes")
    plain, _ = learn_features(table, list(words))
    recipe = plain.with_profiles([(read_nodes(table, "id", plain).x, np.array([0, 0, 1, 1] * 10))], 2)
    holes = {"id": [0, 1, 2], "a": [1, 0, 0], "b": [None, 0, 0], "c": [0, 2, None], "d": [0, None, None]}
    rows = read_nodes(open_table(holes, "nodes"), "id", recipe)
    counts = rows.x * [column.scale for column in recipe.columns if isinstance(column, Number)]
    rate = {word: (20 * max(values) + 0.05) / 21 for word, values in words.items()}
    positive = {word: mean / -np.expm1(-mean) for word, mean in rate.items()}
    assert np.allclose(counts[:2], [[1, positive["b"], 0, 0], [0, 0, 2, positive["d"]]], atol=1e-3)
    assert (counts[2, :2] == 0).all()  # an empty row: the label with fewer words explains a and b that are 0 best
    assert notes_on_scored_columns(recipe, rows.counts)[0].startswith("missing counts are filled in from rows of the")
    assert np.array_equal(read_nodes(table, "id", recipe).x, read_nodes(table, "id", plain).x)


def test_amounts_of_two_units_are_named_and_never_left_out_silently() -> None:
    price = [f"{i},50 EUR" for i in range(400)]
    price[7] = "$12.00"
    table = open_table({"price": price, "size": list(range(400))}, "nodes")
    with pytest.raises(
        TableError, match=r"its amounts have different units \('\$12.00', '99,50 EUR'\), write all in one"
    ):
        learn_features(table, ["price", "size"])
    with pytest.raises(TableError, match=r"no value of column 'price', which `number_columns` names, .*'\$12.00'"):
        learn_features(table, ["price", "size"], number_columns=["price"])
    words = open_table({"price": ["cheap", "dear"] * 200, "size": list(range(400))}, "nodes")
    with pytest.raises(TableError, match=r"can be read as a number, such as 'cheap'"):
        learn_features(words, ["price", "size"], number_columns=["price"])
