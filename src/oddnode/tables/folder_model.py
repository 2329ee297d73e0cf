"""Models for tables on graph folders: fitting, scoring and calibration of graphs that do not fit into memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor

from oddnode._utils.atomic_files import new_file
from oddnode.detector import Calibration, Detector, default_method, full_batch_blocker
from oddnode.large import GraphFolder
from oddnode.large.ranks import active_ranks
from oddnode.tables.checks import calibrated, check_before_training, compares_with_references
from oddnode.tables.drift import note_on_threshold
from oddnode.tables.id_index import arrow_ids
from oddnode.tables.model import TableModel
from oddnode.tables.references import fitting_outputs
from oddnode.tables.reports import CalibrationReport, FitReport, ScoreReport
from oddnode.tables.schema import TableSchema
from oddnode.tables.scored_table import check_id_column, explained_columns
from oddnode.tables.splits import Split, split_labelled
from oddnode.tables.training_tables import TrainingGraph
from oddnode.tables.used_rows import UsedRows
from oddnode.tables.values import TableError, pyarrow
from oddnode.tables.writer import check_target, format_to_write, neutralised

__all__ = ["calibrate_folder", "fit_folder", "score_folder"]

_ROWS = 2**20
_PARTS = {"train_mask": "train", "val_mask": "validation", "calibration_mask": "calibration"}


def fit_folder(
    folder: GraphFolder,
    *,
    method: str | None = None,
    false_alarm_rate: float = 0.05,
    seed: int = 0,
    device: str = "auto",
    on_epoch: Callable[[int], None] | None = None,
    **settings: Any,
) -> tuple[TableModel, FitReport]:
    """Fit and calibrate a detector on a graph folder that was made from tables.

    Parameters
    ----------
    folder : GraphFolder
        From `FolderTables.prepare`, with labels.
    method : str, optional
        One of `oddnode.RECIPES` that can be used on graphs on disk; by default ``"nodesafe-evidence"``.
    false_alarm_rate : float
        The share of known nodes that may be flagged.
    seed : int
        Seed of training, and of the split if the tables had no column for it.
    device : str
        As for `oddnode.Detector`.
    on_epoch : callable, optional
        Called with the number of epochs done.
    **settings
        As for `oddnode.Detector.from_recipe`.

    Returns
    -------
    TableModel
        The model.
    FitReport
        Sizes, split, threshold and notes.
    """
    schema = _schema_of(folder)
    if folder.y is None:
        raise TableError(f"{folder.path} has no labels; prepare the graph with `label_column`")
    split = _split_of(folder, schema, seed)
    masked = folder if folder.train_mask is not None else folder.with_masks(**_masks(split, folder.num_nodes))
    method = method or default_method(has_exposure=False)
    detector = Detector.from_recipe(method, seed=seed, device=device, **settings)
    # Of the data, checks and reports read the attributes that a folder has, too.
    graph = TrainingGraph(cast("Any", masked), None, split, schema, None, [], _training_notes(folder, detector))
    check_before_training(method, detector, graph, false_alarm_rate)
    if compares_with_references(detector):
        masked = masked.with_masks(reference_mask=_masks(split, folder.num_nodes)["calibration_mask"])
    calibrated(detector.fit(masked, on_epoch=on_epoch), masked, false_alarm_rate)
    return TableModel(detector, schema, _used_rows(folder, split)), FitReport.of(method, detector, graph, None)


def _training_notes(folder: GraphFolder, detector: Detector) -> list[str]:
    blocker = full_batch_blocker(detector)
    if detector.trainer is not None or blocker is None:
        return list(folder.manifest.notes)
    return [*folder.manifest.notes, f"trained in mini-batches of sampled neighbourhoods: {blocker}"]


def _schema_of(folder: GraphFolder) -> TableSchema:
    manifest = folder.manifest
    if manifest.table is None:
        raise TableError(f"{folder.path} was not made from tables; use it from Python: Detector.fit(GraphFolder(...))")
    return TableSchema.from_json(manifest.table, folder.num_features, len(manifest.classes or []))


def _split_of(folder: GraphFolder, schema: TableSchema, seed: int) -> Split:
    masks = {name: getattr(folder, name) for name in _PARTS}
    if all(mask is not None for mask in masks.values()):
        return Split(*(np.flatnonzero(mask.numpy()) for mask in masks.values()))
    assert folder.y is not None
    return split_labelled(folder.y.numpy(), schema.classes, seed)


def _masks(split: Split, num_nodes: int) -> dict[str, Tensor]:
    masks = {name: torch.zeros(num_nodes, dtype=torch.bool) for name in _PARTS}
    for name, part in _PARTS.items():
        masks[name][torch.from_numpy(getattr(split, part))] = True
    return masks


def _used_rows(folder: GraphFolder, split: Split) -> UsedRows | None:
    ids = arrow_ids(folder.id_arrays(), 0, folder.num_nodes)
    used = UsedRows.of(ids, split, folder.x.numpy(), np.empty((2, 0), dtype=np.int64), with_others=False)
    if used is None:
        return None
    num_edges = int(folder.offsets.diff()[torch.from_numpy(split.calibration)].sum())
    return replace(used, num_reference_edges=num_edges, folder=folder.manifest.made_from)


def _check_same_columns(model: TableModel, folder: GraphFolder) -> None:
    schema = _schema_of(folder)
    if schema.features != model.schema.features:
        raise TableError(
            f"{folder.path} was prepared with other features than those that the model was fitted on; prepare it with "
            "`model`, so that columns are read as the model reads them"
        )
    if schema.weights != model.schema.weights:
        found, expected = (
            "no weights of edges" if weights is None else f"the column {weights.name!r} as weights of edges"
            for weights in (schema.weights, model.schema.weights)
        )
        raise TableError(
            f"{folder.path} was prepared with {found}, but the model was fitted with {expected}; prepare it with "
            "`model`, so that edges are read as the model reads them"
        )


def score_folder(
    model: TableModel, folder: GraphFolder, out: str | os.PathLike, explain: bool = False, raw_text: bool = False
) -> ScoreReport:
    """Score every node of a graph folder and write one row for each.

    Parameters
    ----------
    model : TableModel
        A model whose method can be used on graphs on disk.
    folder : GraphFolder
        The folder that it was fitted on, or one that was prepared with the model.
    out : path
        The file to write, CSV or Parquet.
    explain : bool
        Whether to add the columns that explain the scores, as `oddnode.tables.TableModel.score_graph` does.
    raw_text : bool
        As for `oddnode.tables.write_table`.
    """
    target, detector = Path(out), model.detector
    check_target(target, [])
    check_id_column(model.schema, detector)
    _check_same_columns(model, folder)
    found = "the reference nodes are not in this graph"
    outputs, notes = fitting_outputs(detector, detector.outputs(folder), found, model.basis)
    scores, calibration = detector.score_samples(outputs).cpu(), detector.calibration_
    assert calibration is not None
    use = _uses(model, folder)
    is_ood, logits = calibration.detect(scores), outputs.logits
    explained, why = detector.explain(outputs) if explain else None, np.full(folder.num_nodes, None, dtype=object)
    if explain:
        names = {"node_names": _Ids(folder), "class_names": model.schema.classes}
        why[is_ood.numpy()] = detector.reasons(outputs, is_ood.to(outputs.graph.device), **names)

    def rows_from(start: int) -> Any:
        rows = slice(start, min(start + _ROWS, folder.num_nodes))
        confidence, predicted = logits[rows].softmax(dim=-1).cpu().max(dim=1)
        columns = {
            model.schema.id_column: _plain_ids(arrow_ids(folder.id_arrays(), rows.start, rows.stop)),
            "predicted": _labels(model, predicted),
            "confidence": confidence.numpy(),
            "score": scores[rows].numpy(),
            "p_value": calibration.p_values(scores[rows]).numpy(),
            "is_ood": is_ood[rows].numpy(),
            "split": _words(use[rows]),
        }
        if explained is not None:
            columns |= explained_columns(detector, model.schema, explained, why[rows], rows)
        return pyarrow().table(columns)

    parts = map(rows_from, range(0, folder.num_nodes, _ROWS))
    changed = active_ranks().from_first(lambda: _write_rows(target, parts, raw_text), int)
    # A threshold that was calibrated on other nodes says nothing about the calibration nodes of the fit.
    calibrated = (use == list(_PARTS).index("calibration_mask")) & (model.basis == "fit")
    notes += _notes(scores, calibrated, calibration, changed, target)
    return ScoreReport(folder.num_nodes, folder.num_edges, int(is_ood.sum()), detector.false_alarm_rate_, notes)


class _Ids(Sequence[object]):
    """The ids of the nodes, each of which is read when it is asked for."""

    def __init__(self, folder: GraphFolder):
        self._folder = folder

    def __len__(self) -> int:
        return self._folder.num_nodes

    def __getitem__(self, place: Any) -> Any:
        return self._folder.ids(place, place + 1)[0]


def _write_rows(target: Path, parts: Iterable[Any], raw_text: bool) -> int:
    """Write a table; return how many texts were changed because a spreadsheet would run them."""
    changed = 0
    with _writer(target) as write:
        for part in parts:
            if format_to_write(target) == "csv" and not raw_text:
                part, count = neutralised(part)
                changed += count
            write(part)
    return changed


def _notes(scores: Tensor, calibrated: np.ndarray, calibration: Calibration, changed: int, target: Path) -> list[str]:
    notes = note_on_threshold(scores.numpy(), calibrated, np.zeros_like(calibrated), calibration)
    if changed:
        notes.append(
            f"{changed} texts in {target} have an apostrophe before them or control characters escaped, because a "
            "spreadsheet or a terminal would run them; `raw_text` writes them as they are"
        )
    return notes


def _is_fitted_on(model: TableModel, folder: GraphFolder) -> bool:
    return model.used_rows is not None and model.used_rows.folder == folder.manifest.made_from


def _uses(model: TableModel, folder: GraphFolder) -> np.ndarray:
    """What nodes were used for when the model was fitted: the number of a part of the split, -1 = nothing."""
    use = np.full(folder.num_nodes, -1, dtype=np.int8)
    if _is_fitted_on(model, folder) and folder.y is not None:
        split = _split_of(folder, model.schema, model.detector.seed)
        for number, part in enumerate(_PARTS.values()):
            use[getattr(split, part)] = number
    return use


def _words(use: np.ndarray) -> Any:
    pa = pyarrow()
    return pa.array(list(_PARTS.values())).take(pa.array(use, mask=use < 0))


def _labels(model: TableModel, classes: Tensor) -> Any:
    return pyarrow().array(list(model.schema.classes)).take(pyarrow().array(classes.numpy()))


def _plain_ids(ids: Any) -> Any:
    pa = pyarrow()
    return ids.cast(pa.string()) if pa.types.is_large_string(ids.type) else ids


@contextmanager
def _writer(target: Path) -> Iterator[Callable[[Any], None]]:
    """Write a table in parts; the file appears when all of them are written."""
    from pyarrow import csv, parquet

    writers: list[Any] = []
    with new_file(target) as part, part.open("wb") as file:

        def write(table: Any) -> None:
            if not writers:
                is_csv = format_to_write(target) == "csv"
                options = {"write_options": csv.WriteOptions(quoting_style="needed")} if is_csv else {}
                kind = csv.CSVWriter if is_csv else parquet.ParquetWriter
                writers.append(kind(file, table.schema, **options))
            writers[0].write_table(table)

        try:
            yield write
        finally:
            for writer in writers:
                writer.close()


def calibrate_folder(
    model: TableModel, folder: GraphFolder, false_alarm_rate: float | None = None
) -> CalibrationReport:
    """Recalibrate the threshold on the calibration nodes of a graph folder; the network is unchanged.

    Parameters
    ----------
    model : TableModel
        The model.
    folder : GraphFolder
        A folder with labels of known nodes. Nodes that the model was trained or validated on are left out.
    false_alarm_rate : float, optional
        The share of known nodes that may be flagged; by default the model's own.
    """
    _check_same_columns(model, folder)
    detector = model.detector
    rate = detector.false_alarm_rate_ if false_alarm_rate is None else false_alarm_rate
    known = _known(model, folder)
    use = _uses(model, folder)
    trained = (use == 0) | (use == 1)
    if not _is_fitted_on(model, folder):
        model.basis = "in place" if detector.outputs(folder).references else "stored"
    if model.used_rows is not None and not _is_fitted_on(model, folder):
        places = np.flatnonzero(known)
        ids = arrow_ids(folder.id_arrays(), 0, folder.num_nodes).take(pyarrow().array(places))
        trained[places] = model.used_rows.trained_on(ids)
    before = detector.threshold_
    used = {"train_mask": torch.from_numpy(trained), "val_mask": torch.zeros(folder.num_nodes, dtype=torch.bool)}
    detector.calibrate(folder.with_masks(**used), rate, torch.from_numpy(known & ~trained))
    return CalibrationReport.of(detector, before, num_left_out=int((known & trained).sum()))


def _known(model: TableModel, folder: GraphFolder) -> np.ndarray:
    """The nodes with labels that the model knows."""
    if folder.y is None:
        raise TableError(f"{folder.path} has no labels; prepare the graph with `label_column`")
    if list(model.schema.classes) != folder.manifest.classes:
        raise TableError(f"{folder.path} numbers its labels in another way than the model; prepare it with `model`")
    known = folder.y.numpy() >= 0
    if not known.any():
        raise TableError(f"{folder.path} has no node with a label that the model knows")
    return known
