"""Columns that say something about nodes: labels, and marks of yes and no."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oddnode.tables.values import TableError, as_argument, as_text, listed, missing_to_null, pyarrow, quoted

__all__ = ["Labels", "encode_labels", "read_marks"]

_YES = ("1", "true", "yes", "t", "y", "x")
_NO = ("0", "false", "no", "f", "n", "")
# Texts that other programs write for a missing value.
_LOOKS_UNLABELLED = {"unknown", "unlabelled", "unlabeled", "missing", "undefined", "none", "nan", "na", "null"}
_LOOKS_UNLABELLED |= {"?", "??", "-", "--", ".", "-1", "#n/a", "n/a", "n.a.", "<na>", "<null>"}


@dataclass(frozen=True)
class Labels:
    """The labels of n nodes.

    Parameters
    ----------
    y : numpy.ndarray
        Classes 0, 1, 2, ... ``[n]``; -1 = unlabelled.
    classes : list of str, int or bool
        The label that each class stands for.
    notes : list of str
        Notes for the user.
    """

    y: np.ndarray
    classes: list[str | int | bool]
    notes: list[str]


def encode_labels(array: Any, where: str, column: str, unlabelled: Sequence[str] = ()) -> Labels:
    """Number the labels.

    Parameters
    ----------
    array : pyarrow.Array
        The labels of n nodes; missing ones are allowed.
    where, column : str
        Their table and column, for messages.
    unlabelled : sequence of str
        Labels that stand for "not labelled".
    """
    pa = pyarrow()
    import pyarrow.compute as pc

    labels = _whole_numbers_or_texts(missing_to_null(array), where, column)
    present = pc.is_in(as_text(labels, where, column), value_set=pa.array([*unlabelled], pa.string()))
    labels = pc.if_else(present, pa.scalar(None, labels.type), labels) if unlabelled else labels
    if labels.null_count == len(labels):
        raise TableError(f"{where}: column {column!r} has no label in any row; some nodes must be labelled")
    classes = sorted(labels.drop_null().unique().to_pylist())
    wide = next((label for label in classes if isinstance(label, int) and abs(label) >= 2**63), None)
    if wide is not None:
        raise TableError(f"{where}: column {column!r} has the label {wide}, too large a number; give labels as text")
    index = pc.index_in(labels, value_set=pa.array(classes, labels.type), skip_nulls=True)
    y = index.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Labels(y, classes, _notes(y, classes, unlabelled, int(pc.sum(present).as_py() or 0)))


def _whole_numbers_or_texts(labels: Any, where: str, column: str) -> Any:
    pa = pyarrow()
    types = pa.types
    if types.is_floating(labels.type):
        # Many tools write integers with missing values as floats.
        try:
            return labels.cast(pa.int64())
        except pa.ArrowInvalid:
            raise TableError(
                f"{where}: column {column!r} has fractions, expected labels (text or whole numbers)"
            ) from None
    if not any(test(labels.type) for test in (types.is_string, types.is_integer, types.is_boolean, types.is_null)):
        raise TableError(f"{where}: column {column!r} holds {labels.type}, expected labels (text or whole numbers)")
    return labels


def _notes(y: np.ndarray, classes: list[Any], unlabelled: Sequence[str], num_unlabelled: int) -> list[str]:
    notes = []
    if unlabelled and not num_unlabelled:
        notes.append(f"no node has the label that `unlabelled` names: {listed(unlabelled)}")
    for number, label in enumerate(classes):
        if not isinstance(label, bool) and str(label).lower() in _LOOKS_UNLABELLED:
            count = int((y == number).sum())
            notes.append(
                f"{quoted(label)} is read as a label, of {count} nodes; "
                f"if it means 'not labelled': `unlabelled` {as_argument([label])}"
            )
    if len(classes) == 1:
        notes.append(f"there is one label, {quoted(classes[0])}, so the predicted label says nothing")
    return notes


def read_marks(array: Any, where: str, column: str) -> np.ndarray:
    """Read a column of yes and no (true/false, 1/0, yes/no, x; nothing = no).

    Parameters
    ----------
    array : pyarrow.Array
        The marks of n nodes.
    where, column : str
        Their table and column, for messages.

    Returns
    -------
    numpy.ndarray
        One boolean per node ``[n]``.
    """
    texts = [(text or "").lower() for text in as_text(array, where, column).to_pylist()]
    wrong = next((text for text in texts if text not in _YES + _NO), None)
    if wrong is not None:
        raise TableError(f"{where}: column {column!r} has {quoted(wrong)}, expected true or false")
    return np.array([text in _YES for text in texts])
