from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oddnode.tables import TableError, TableModel, encode_labels, read_marks
from tests.tables.examples import FIT, example, training_tables


@pytest.mark.parametrize("label", ["unknown", "Unknown", "?", "None", "#N/A", "-1", "n.a.", -1])
def test_a_label_that_looks_like_none_is_pointed_out_and_can_be_none(label: Any) -> None:
    others = [1, 2] if isinstance(label, int) else ["a", "b"]
    array = pa.array([*others, label, label])
    labels = encode_labels(array, "n.csv", "kind")
    assert label in labels.classes
    assert labels.notes == [
        f"{label!r} is read as a label, of 2 nodes; if it means 'not labelled': `unlabelled` {shlex.quote(str(label))}"
    ]
    labels = encode_labels(array, "n.csv", "kind", [str(label)])
    assert (labels.classes, labels.y.tolist(), labels.notes) == (others, [0, 1, -1, -1], [])


def test_a_value_that_no_node_has_is_said() -> None:
    labels = encode_labels(pa.array(["a", "b"]), "n.csv", "kind", ["unknow"])
    assert labels.notes == ["no node has the label that `unlabelled` names: unknow"]


@pytest.mark.parametrize(
    "labels", [pa.array([2**64 - 1, 5], pa.uint64()), pa.array([2**63, 5], pa.uint64()), pa.array([-(2**63), 5])]
)
def test_labels_that_could_not_be_saved_are_refused_before_training(
    labels: pa.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oddnode.Detector.fit", lambda *_, **__: pytest.fail("trained"))
    nodes, edges = (pa.Table.from_pylist(rows) for rows in example())
    nodes = nodes.set_column(1, "kind", labels.take(pa.array(np.arange(120) % 2)))
    with pytest.raises(
        TableError, match=r"column 'kind' has the label -?[0-9]{19,}, too large a number; give labels as"
    ):
        TableModel.fit(nodes, edges, **FIT)


@pytest.mark.parametrize(
    "marks",
    [["x", None, "", "X "], [1.0, float("nan"), None, 1.0], [True, False, None, True], ["yes", "no", "NA", "1"]],
)
def test_marks_are_read_in_every_common_spelling(marks: list[Any]) -> None:
    assert read_marks(pa.array(marks), "n.csv", "ok").tolist() == [True, False, False, True]


def test_a_label_for_nearly_every_node_is_not_a_label() -> None:
    prices = [f"{i}.99" for i in range(60)]
    nodes, edges = (
        {"name": range(60), "kind": prices, "size": [i / 7 for i in range(60)]},
        {"source": [0], "target": [1]},
    )
    with pytest.raises(TableError, match="there are 60 labels for 60 labelled nodes, nearly as many"):
        training_tables(nodes, edges).read(0)
