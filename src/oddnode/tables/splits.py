"""Splits of the labelled nodes into training, validation and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oddnode.tables.labels import Labels
from oddnode.tables.values import TableError, as_text, quoted

__all__ = ["SPLIT_WORDS", "Split", "read_split", "split_labelled"]

# Shares of the labelled nodes. Calibration gets as many as training: with n nodes, the standard deviation of the
# achieved false-alarm rate is about sqrt(rate / n).
_TRAIN, _VALIDATION = 0.4, 0.2
#: The words of a split column, and the part that they stand for; -1 = none.
SPLIT_WORDS = {
    "train": 0,
    "training": 0,
    "val": 1,
    "valid": 1,
    "validation": 1,
    "cal": 2,
    "calibration": 2,
    "test": -1,
    "none": -1,
}


@dataclass
class Split:
    """Positions of the labelled nodes by use.

    Parameters
    ----------
    train, validation, calibration : numpy.ndarray
        Positions ``[n]``, ascending.
    """

    train: np.ndarray
    validation: np.ndarray
    calibration: np.ndarray


def split_labelled(y: np.ndarray, classes: Sequence[Any], seed: int) -> Split:
    """Split labelled nodes by class at random: training (40 %), validation (20 %) and calibration (40 %).

    Parameters
    ----------
    y : numpy.ndarray
        Classes ``[n]``; -1 = unlabelled.
    classes : sequence
        The label that each class stands for, for messages.
    seed : int
        Seed of the random split.
    """
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[], [], []]
    for label in range(len(classes)):
        nodes = rng.permutation(np.flatnonzero(y == label))
        if len(nodes) < 3:
            often = "once" if len(nodes) == 1 else "twice"
            raise TableError(
                f"the label {quoted(classes[label])} occurs {often}, but every label needs at least 3 nodes "
                "(to train, to validate, to calibrate); label more nodes, or remove it"
            )
        validation = max(round(_VALIDATION * len(nodes)), 1)
        train = min(max(round(_TRAIN * len(nodes)), 1), len(nodes) - validation - 1)
        for part, chosen in zip(parts, np.split(nodes, [train, train + validation]), strict=True):
            part.append(chosen)
    return Split(*(np.sort(np.concatenate(part)) for part in parts))


def read_split(array: Any, labels: Labels, ids: Any, where: str, column: str) -> Split:
    """Split nodes by a column with train, validation, calibration, test or nothing.

    Parameters
    ----------
    array : pyarrow.Array
        The values of n nodes.
    labels : Labels
        Their labels.
    ids : pyarrow.Array
        Their ids, for messages.
    where, column : str
        Their table and column, for messages.
    """
    y, classes = labels.y, labels.classes
    found = as_text(array, where, column).dictionary_encode()  # few different words, however many nodes
    words = [w.lower() for w in found.dictionary.to_pylist()]
    wrong = next((w for w in words if w not in SPLIT_WORDS), None)
    if wrong is not None:
        raise TableError(
            f"{where}: column {column!r} has {quoted(wrong)}, expected train, validation, calibration, test or nothing"
        )
    place = found.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    part = np.array([*(SPLIT_WORDS[w] for w in words), -1])[place]
    unlabelled = np.flatnonzero((part >= 0) & (y < 0))
    if unlabelled.size:
        first = int(unlabelled[0])
        raise TableError(
            f"{where}: {unlabelled.size} nodes have a word in column {column!r}, but no label, "
            f"first the node {quoted(ids[first].as_py())} with {words[place[first]]}; label them, or empty these cells"
        )
    split = Split(*(np.flatnonzero(part == number) for number in range(3)))
    for name in ("train", "validation", "calibration"):
        if not len(getattr(split, name)):
            raise TableError(f"{where}: column {column!r} marks no node for {name}")
    missing = sorted(set(np.unique(y[part >= 0])) - set(np.unique(y[split.train])))
    if missing:
        raise TableError(f"{where}: column {column!r} gives no training node of label {quoted(classes[missing[0]])}")
    return split
