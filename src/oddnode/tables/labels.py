"""Columns that describe nodes: labels, booleans, and the split of the labelled nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oddnode.tables.values import TableError, as_argument, as_text, listed, missing_to_null, pa, pc, quoted

# Spreadsheets write true and false in their own language.
_YES = ("1", "true", "yes", "t", "y", "x", "wahr", "vrai", "verdadero", "verdadeiro", "vero")
_NO = ("0", "false", "no", "f", "n", "", "falsch", "faux", "falso")
# Strings that other programs write for a missing value.
_LOOKS_UNLABELLED = {"unknown", "unlabelled", "unlabeled", "missing", "undefined", "none", "nan", "na", "null"}
_LOOKS_UNLABELLED |= {"?", "??", "-", "--", ".", "-1", "#n/a", "n/a", "n.a.", "<na>", "<null>"}

# Shares of the labelled nodes. Calibration gets as many as training: with n nodes, the standard deviation of the
# achieved false-alarm rate is about sqrt(rate / n).
_TRAIN, _VALIDATION = 0.4, 0.2
# With times, the most recent labelled nodes calibrate: at most so many, since more would reach further back, and at
# most this share of each label, so that a recent one is learnt, too.
_MOST_RECENT, _MOST_OF_LABEL = 500, 0.6
# With more labelled nodes, most of which have a label of their own, the labels are something else.
_FEW = 10
#: The classes if there is no column of labels: a name for all rows.
NO_CLASSES = ("known",)
#: The parts of a split, and the masks of a graph that mark them.
SPLIT_PARTS = ("train", "validation", "calibration")
SPLIT_MASKS = ("train_mask", "val_mask", "calibration_mask")
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


@dataclass(frozen=True)
class Labels:
    """The labels of n nodes."""

    y: np.ndarray  # Classes 0, 1, 2, ... `[n]`; -1 = unlabelled
    classes: list[str | int | bool]  # The label that each class stands for
    notes: list[str]  # Notes for the user


def encode_labels(array: Any, where: str, column: str, unlabelled: Sequence[str] = ()) -> Labels:
    """Encode labels as classes."""
    labels = _integers_or_strings(missing_to_null(array), where, column)
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


def _integers_or_strings(labels: Any, where: str, column: str) -> Any:
    types = pa.types
    if types.is_floating(labels.type):
        # Many tools write integers with missing values as floats.
        try:
            return labels.cast(pa.int64())
        except pa.ArrowInvalid:
            raise TableError(f"{where}: column {column!r} has fractions, expected labels (text or integers)") from None
    is_text = types.is_string(labels.type) or types.is_null(labels.type)
    if not (is_text or types.is_integer(labels.type) or types.is_boolean(labels.type)):
        raise TableError(f"{where}: column {column!r} holds {labels.type}, expected labels (text or integers)")
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
    """Read a boolean column (true/false, 1/0, yes/no, x; empty = no)."""
    strings = [(text or "").lower() for text in as_text(array, where, column).to_pylist()]
    wrong = next((text for text in strings if text not in _YES + _NO), None)
    if wrong is not None:
        raise TableError(f"{where}: column {column!r} has {quoted(wrong)}, expected true or false")
    return np.array([text in _YES for text in strings])


@dataclass
class Split:
    """Indices of the labelled nodes by use."""

    train: np.ndarray  #: `train`, `validation`, `calibration`: indices ``[n]``, ascending.
    validation: np.ndarray
    calibration: np.ndarray

    def masks(self, num_nodes: int) -> dict[str, np.ndarray]:
        """Make ``train_mask``, ``val_mask`` and ``calibration_mask``.

        Parameters
        ----------
        num_nodes : int
            Their length.
        """
        masks = {}
        for name, part in zip(SPLIT_MASKS, (self.train, self.validation, self.calibration), strict=True):
            masks[name] = np.zeros(num_nodes, dtype=bool)
            masks[name][part] = True
        return masks


def split_labelled(y: np.ndarray, classes: Sequence[Any], seed: int, times: np.ndarray | None = None) -> Split:
    """Split labelled nodes by class at random: training (40 %), validation (20 %) and calibration (40 %).

    With times, the most recent nodes are for calibration: 40 % of all, but at most 500, and 60 % of each class. The
    others are divided 2:1 at random.

    Parameters
    ----------
    y : numpy.ndarray
        Classes ``[n]``; -1 = unlabelled.
    classes : sequence
        The label that each class stands for, for messages.
    seed : int
        Seed of the random split.
    times : numpy.ndarray, optional
        When each node came, as numbers ``[n]``.
    """
    rng, num_labelled = np.random.default_rng(seed), int((y >= 0).sum())
    parts: list[list[np.ndarray]] = [[], [], []]
    is_recent = np.zeros(len(y), dtype=bool) if times is None else _recent(y, times, num_labelled, rng)
    for label in range(len(classes)):
        nodes = rng.permutation(np.flatnonzero(y == label))
        if len(nodes) < 3 and num_labelled > _FEW and 2 * len(classes) > num_labelled:
            raise TableError(
                f"there are {len(classes)} labels for {num_labelled} labelled nodes, nearly as many (for example "
                f"{quoted(classes[0])}); is this the right `label_column`?"
            )
        if len(nodes) < 3:
            often = "once" if len(nodes) == 1 else "twice"
            raise TableError(
                f"the label {quoted(classes[label])} occurs {often}, but every label needs at least 3 nodes "
                "(to train, to validate, to calibrate); label more nodes, or remove it"
            )
        if times is None:
            validation = max(round(_VALIDATION * len(nodes)), 1)
            train = min(max(round(_TRAIN * len(nodes)), 1), len(nodes) - validation - 1)
        else:
            nodes = np.concatenate([nodes[~is_recent[nodes]], nodes[is_recent[nodes]]])
            rest = len(nodes) - int(is_recent[nodes].sum())
            validation = max(round(_VALIDATION / (_TRAIN + _VALIDATION) * rest), 1)
            train = rest - validation
        for part, chosen in zip(parts, np.split(nodes, [train, train + validation]), strict=True):
            part.append(chosen)
    return Split(*map(np.sort, map(np.concatenate, parts)))


def _recent(y: np.ndarray, times: np.ndarray, num_labelled: int, rng: np.random.Generator) -> np.ndarray:
    """Which nodes calibrate ``[n]``: recent ones of all classes, of which at least two others are left in each."""
    nodes = rng.permutation(np.flatnonzero(y >= 0))  # of those of the same time, some at random
    nodes = nodes[np.argsort(times[nodes], kind="stable")][::-1]
    label = y[nodes]
    before = np.empty(len(nodes), dtype=np.int64)  # how many of the same class are more recent
    for each in np.unique(label):
        before[label == each] = np.arange(int((label == each).sum()))
    of_label = np.bincount(label)[label]
    allowed = before < np.minimum(np.maximum(np.floor(_MOST_OF_LABEL * of_label), 1), of_label - 2)
    is_recent = np.zeros(len(y), dtype=bool)
    number = min(round((1 - _TRAIN - _VALIDATION) * num_labelled), _MOST_RECENT)
    is_recent[nodes[allowed][:number]] = True
    return is_recent


def read_split(array: Any, labels: Labels, ids: Any, where: str, column: str) -> Split:
    """Split nodes by a column with train, validation, calibration, test or nothing."""
    y, classes = labels.y, labels.classes
    encoded = as_text(array, where, column).dictionary_encode()  # few distinct words, however many nodes
    words = [w.lower() for w in encoded.dictionary.to_pylist()]
    wrong = next((w for w in words if w not in SPLIT_WORDS), None)
    if wrong is not None:
        raise TableError(
            f"{where}: column {column!r} has {quoted(wrong)}, expected train, validation, calibration, test or nothing"
        )
    codes = encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    part = np.array([*(SPLIT_WORDS[w] for w in words), -1])[codes]
    unlabelled = np.flatnonzero((part >= 0) & (y < 0))
    if unlabelled.size:
        first = int(unlabelled[0])
        raise TableError(
            f"{where}: {unlabelled.size} nodes have a word in column {column!r}, but no label, "
            f"first the node {quoted(ids[first].as_py())} with {words[codes[first]]}; label them, or empty these cells"
        )
    split = Split(*(np.flatnonzero(part == number) for number in range(3)))
    for name in SPLIT_PARTS:
        if not len(getattr(split, name)):
            raise TableError(f"{where}: column {column!r} marks no node for {name}")
    missing = sorted(set(np.unique(y[part >= 0])) - set(np.unique(y[split.train])))
    if missing:
        raise TableError(f"{where}: column {column!r} gives no training node of label {quoted(classes[missing[0]])}")
    return split
