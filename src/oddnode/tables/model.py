"""A detector together with how to read the tables it was fitted on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from oddnode.detector import Detector, ModelFileError
from oddnode.detector import load, save
from oddnode.functional import conformal_p_values, threshold_at
from oddnode.scoring import GRASP
from oddnode.tables.columns import FeatureRecipe, learn_features
from oddnode.tables.reader import Table, TableError, pyarrow
from oddnode.tables.rows_to_graph import (
    Nodes,
    Split,
    edge_columns,
    encode_labels,
    read_edges,
    read_marks,
    read_nodes,
    read_split,
    split_labelled,
)
from oddnode.tables.schema import TableSchema
from oddnode.tables.writer import check_target, write_table

__all__ = ["CalibrationReport", "FitReport", "ScoreReport", "TableModel"]

_OUTPUT = ("predicted", "confidence", "score", "p_value", "is_ood")
_EXPLAINED = ("own_score", "neighbour_contribution", "nearest_class")


@dataclass(frozen=True)
class FitReport:
    """What was read and learnt."""

    num_nodes: int
    num_edges: int
    num_features: int
    labels: list[str | int | bool]
    num_train: int
    num_validation: int
    num_calibration: int
    best_epoch: int
    false_alarm_rate: float
    threshold: float
    mean_degree: float
    homophily: float | None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ScoreReport:
    """What was scored."""

    num_nodes: int
    num_edges: int
    num_flagged: int
    false_alarm_rate: float
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CalibrationReport:
    """What a threshold was set on."""

    num_nodes: int
    num_edges: int
    num_calibration: int
    false_alarm_rate: float
    threshold: float
    old_threshold: float
    notes: list[str] = field(default_factory=list)


class TableModel:
    """A fitted detector for tables: reads nodes and edges, scores every node, writes a table.

    Parameters
    ----------
    detector : Detector
        Fitted and calibrated.
    schema : TableSchema
        How to read the tables.
    """

    def __init__(self, detector: Detector, schema: TableSchema):
        self.detector = detector
        self.schema = schema

    @classmethod
    def fit(
        cls,
        nodes: str | os.PathLike,
        edges: str | os.PathLike,
        *,
        id_column: str,
        label_column: str,
        feature_columns: Sequence[str] | None = None,
        source_column: str | None = None,
        target_column: str | None = None,
        directed: bool = False,
        split_column: str | None = None,
        exposure_nodes: str | os.PathLike | None = None,
        exposure_edges: str | os.PathLike | None = None,
        exposure_column: str | None = None,
        method: str | None = None,
        false_alarm_rate: float = 0.05,
        seed: int = 0,
        device: str = "auto",
        on_epoch: Callable[[int], None] | None = None,
        **settings: Any,
    ) -> tuple[TableModel, FitReport]:
        """Fit and calibrate a detector on two tables.

        Nodes without a label are part of the graph and teach nothing. Known OOD nodes are those of a second table
        (``exposure_nodes``, with its own edges or none) or those that ``exposure_column`` marks.

        Returns
        -------
        TableModel, FitReport
        """
        table, edge_table = Table(Path(nodes)), Table(Path(edges))
        extra = [name for name in (label_column, split_column, exposure_column) if name is not None]
        table.require([id_column], "id")
        table.require(extra, "label, split or exposure")
        chosen = _feature_columns(table, feature_columns, {id_column, *extra})
        recipe, notes = learn_features(table, chosen)
        source, target = edge_columns(edge_table, source_column, target_column)
        rows = read_nodes(table, id_column, recipe, extra)
        y, classes, marked = _labels(rows, table, label_column, exposure_column)
        split = (
            split_labelled(y, classes, seed)
            if split_column is None
            else read_split(rows.columns[split_column], y, classes, table, split_column)
        )
        data = _data(rows.x, read_edges(edge_table, source, target, rows.ids, directed), y, split)
        exposure = _exposure(
            data, marked, exposure_nodes, exposure_edges, id_column, recipe, (source, target), directed
        )
        method = method or ("nodesafe" if exposure is None else "nodesafe++")
        detector = Detector.from_recipe(method, seed=seed, device=device, **settings)
        _check_method(method, detector, has_exposure=exposure is not None)
        _check_enough(split, false_alarm_rate)
        detector.fit(data, exposure, on_epoch=on_epoch).calibrate(data, false_alarm_rate)
        schema = TableSchema(
            id_column=id_column,
            source_column=source_column,
            target_column=target_column,
            directed=directed,
            features=recipe,
            classes=tuple(classes),
            other_columns=tuple(n for n in table.columns if n and n != id_column and n not in recipe.names),
            named_features=feature_columns is not None,
        )
        model = cls(detector, schema)
        return model, model._fit_report(data, split, notes)

    def _fit_report(self, data: Data, split: Split, notes: list[str]) -> FitReport:
        profile = self.detector.graph_profile_
        return FitReport(
            num_nodes=profile.num_nodes,
            num_edges=profile.num_edges if self.schema.directed else profile.num_edges // 2,
            num_features=data.x.shape[1],
            labels=list(self.schema.classes),
            num_train=len(split.train),
            num_validation=len(split.validation),
            num_calibration=len(split.calibration),
            best_epoch=self.detector.best_epoch_,
            false_alarm_rate=self.detector.false_alarm_rate_,
            threshold=self.detector.threshold_,
            mean_degree=profile.mean_degree,
            homophily=profile.homophily,
            notes=notes + self.detector.advice_,
        )

    def score(
        self, nodes: str | os.PathLike, edges: str | os.PathLike, out: str | os.PathLike, explain: bool = False
    ) -> ScoreReport:
        """Score every node of two tables and write one row for each, in the order of the table of nodes."""
        target = Path(out)
        check_target(target, [Path(nodes), Path(edges)])
        if self.schema.id_column in _OUTPUT + _EXPLAINED:
            raise TableError(f"the id column {self.schema.id_column!r} has the name of a column that is written")
        rows, data, notes = self._read(nodes, edges)
        columns, flagged = self._columns(data, explain)
        write_table({self.schema.id_column: rows.ids} | columns, target)
        return ScoreReport(len(rows.ids), self._num_edges(data), flagged, self.detector.false_alarm_rate_, notes)

    def calibrate(
        self,
        nodes: str | os.PathLike,
        edges: str | os.PathLike,
        known_column: str,
        false_alarm_rate: float | None = None,
    ) -> CalibrationReport:
        """Set the threshold anew, for another graph or another false-alarm rate; the network stays as it is.

        Parameters
        ----------
        nodes, edges : path
            Two tables as for `score`.
        known_column : str
            Column of true and false: true for nodes that are surely known. None of them may have been trained on.
        false_alarm_rate : float, optional
            The share of known nodes that may be flagged; the model's own if left out.
        """
        rows, data, notes = self._read(nodes, edges, known_column)
        known = read_marks(rows.columns[known_column], Table(Path(nodes)), known_column)
        if not known.any():
            raise TableError(f"{nodes}: column {known_column!r} marks no node")
        before = self.detector.threshold_
        rate = self.detector.false_alarm_rate_ if false_alarm_rate is None else false_alarm_rate
        self.detector.calibrate(data, rate, torch.from_numpy(known))
        return CalibrationReport(
            num_nodes=len(rows.ids),
            num_edges=self._num_edges(data),
            num_calibration=int(known.sum()),
            false_alarm_rate=rate,
            threshold=self.detector.threshold_,
            old_threshold=before,
            notes=notes,
        )

    def _read(
        self, nodes: str | os.PathLike, edges: str | os.PathLike, extra: str | None = None
    ) -> tuple[Nodes, Data, list[str]]:
        """Two tables of the kind that the model was fitted on, as a graph."""
        table, edge_table = Table(Path(nodes)), Table(Path(edges))
        also = [] if extra is None else [extra]
        table.require(also, "known")
        self.schema.check_columns(table, also)
        rows = read_nodes(table, self.schema.id_column, self.schema.features, also)
        ends = edge_columns(edge_table, self.schema.source_column, self.schema.target_column)
        edge_index = torch.from_numpy(read_edges(edge_table, *ends, rows.ids, self.schema.directed))
        notes = []
        if rows.unseen_categories:
            notes.append(
                f"{rows.unseen_categories} categories were not seen when the model was fitted; they count as none"
            )
        return rows, Data(x=torch.from_numpy(rows.x), edge_index=edge_index), notes

    def _num_edges(self, data: Data) -> int:
        """As many as the table has."""
        return data.num_edges if self.schema.directed else data.num_edges // 2

    def _columns(self, data: Data, explain: bool) -> tuple[dict[str, Any], int]:
        outputs = self.detector.outputs(data)
        confidence, predicted = self.detector.predict_proba(outputs).max(dim=1)
        scores = self.detector.score_samples(outputs).cpu()
        # The same as p_values() and detect(), without propagating over a large graph once for each.
        p_values = conformal_p_values(scores, self.detector.calibration_.scores)
        flags = (scores.double() < self.detector.threshold_).numpy()
        columns = {
            "predicted": self._label(predicted),
            "confidence": confidence.cpu().numpy(),
            "score": scores.numpy(),
            "p_value": p_values,
            "is_ood": flags,
        }
        if explain:
            why = self.detector.explain(outputs)
            columns |= {
                "own_score": why.own_score.cpu().numpy(),
                "neighbour_contribution": why.neighbour_contribution.cpu().numpy(),
                "nearest_class": self._label(why.nearest_class),
            }
        return columns, int(flags.sum())

    def _label(self, classes: torch.Tensor) -> Any:
        """Classes under the names they had in the table."""
        return pyarrow().array(list(self.schema.classes)).take(pyarrow().array(classes.cpu().numpy()))

    def save(self, path: str | os.PathLike) -> None:
        """Write the model to a folder; `Detector.load` reads its detector alone."""
        save(self.detector, path, {"table": self.schema.to_json()})

    @classmethod
    def load(cls, path: str | os.PathLike, device: str = "auto") -> TableModel:
        """Read a model that `save` wrote."""
        detector, config = load(Detector, path, device=device)
        if "table" not in config:
            raise ModelFileError(
                f"{path} holds a detector that was not fitted on tables; use it from Python with Detector.load"
            )
        if not hasattr(detector, "threshold_") or detector.class_means_ is None:
            raise ModelFileError(f"{path} holds a model without calibration")
        try:
            schema = TableSchema.from_json(config["table"], detector.n_features_in_, detector.num_classes_)
        except ModelFileError as error:
            raise ModelFileError(f"{path}: {error}") from None
        return cls(detector, schema)


def _feature_columns(table: Table, named: Sequence[str] | None, taken: set[str]) -> list[str]:
    if named is None:
        chosen = [name for name in table.columns if name.strip() and name not in taken]
        if not chosen:
            raise TableError(f"{table.path} has no column left for features beside {', '.join(sorted(taken))}")
        return chosen
    table.require(named, "feature")
    both = [name for name in named if name in taken]
    if both:
        raise TableError(f"the column {both[0]!r} cannot be a feature: it holds ids, labels, the split or exposure")
    if not named or len(set(named)) < len(named):
        raise TableError("the feature columns are none, or one is named twice")
    return list(named)


def _labels(
    rows: Nodes, table: Table, label_column: str, exposure_column: str | None
) -> tuple[np.ndarray, list[Any], np.ndarray | None]:
    """Classes of the nodes; known OOD nodes teach no class, whatever label they have."""
    array = rows.columns[label_column]
    if exposure_column is None:
        return (*encode_labels(array, table, label_column), None)
    marked = read_marks(rows.columns[exposure_column], table, exposure_column)
    if not marked.any():
        raise TableError(f"{table.path}: column {exposure_column!r} marks no node")
    pa = pyarrow()
    import pyarrow.compute as pc

    cleared = pc.if_else(pa.array(marked), pa.scalar(None, array.type), array)
    return (*encode_labels(cleared, table, label_column), marked)


def _data(x: np.ndarray, edge_index: np.ndarray, y: np.ndarray, split: Split) -> Data:
    data = Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(edge_index), y=torch.from_numpy(y))
    for name, nodes in (
        ("train_mask", split.train),
        ("val_mask", split.validation),
        ("calibration_mask", split.calibration),
    ):
        data[name] = torch.zeros(len(y), dtype=torch.bool)
        data[name][torch.from_numpy(nodes)] = True
    return data


def _exposure(
    data: Data,
    marked: np.ndarray | None,
    nodes: str | os.PathLike | None,
    edges: str | os.PathLike | None,
    id_column: str,
    recipe: FeatureRecipe,
    ends: tuple[str, str],
    directed: bool,
) -> Data | None:
    if nodes is not None and marked is not None:
        raise TableError("give either a table of exposed nodes or a column that marks them, not both")
    if edges is not None and nodes is None:
        raise TableError("edges of exposed nodes were given, but not the nodes")
    if marked is not None:
        return Data(x=data.x, edge_index=data.edge_index, ood_mask=torch.from_numpy(marked))
    if nodes is None:
        return None
    table = Table(Path(nodes))
    table.require([id_column, *recipe.names], "exposure")
    rows = read_nodes(table, id_column, recipe)
    edge_index = np.empty((2, 0), dtype=np.int64)
    if edges is not None:
        edge_index = read_edges(Table(Path(edges)), *ends, rows.ids, directed)
    return Data(x=torch.from_numpy(rows.x), edge_index=torch.from_numpy(edge_index))


def _check_method(method: str, detector: Detector, has_exposure: bool) -> None:
    if isinstance(detector.scorer, GRASP):
        raise TableError(
            f"{method} anchors on labelled nodes of the graph it scores, which a table of new nodes need not have, "
            "so its false-alarm rate would not hold; choose another method, for example nodesafe"
        )
    needs_exposure = detector.objective is not None and detector.objective.needs_exposure
    if needs_exposure and not has_exposure:
        raise TableError(
            f"{method} needs exposure, nodes that are known not to belong: give them as a table (exposure_nodes) or "
            "mark them in a column (exposure_column), or choose a method that needs none, for example nodesafe"
        )
    if has_exposure and not needs_exposure:
        raise TableError(
            f"{method} does not learn from nodes that are known not to belong; leave them out, or choose a method that "
            "does, for example nodesafe++"
        )


def _check_enough(split: Split, false_alarm_rate: float) -> None:
    """Say it before training, not after: how many calibration nodes a rate needs."""
    threshold_at(np.arange(len(split.calibration), dtype=float), false_alarm_rate)
