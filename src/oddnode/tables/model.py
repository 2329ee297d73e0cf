"""A detector together with the schema of the tables it was fitted on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from oddnode.detector import Detector, ModelFileError, load, save
from oddnode.functional import threshold_at
from oddnode.tables.reader import TableError, open_table, pyarrow
from oddnode.tables.reports import CalibrationReport, FitReport, ScoreReport
from oddnode.tables.rows_to_graph import edge_columns, read_edges, read_marks, read_nodes
from oddnode.tables.schema import TableSchema
from oddnode.tables.training_tables import TrainingTables
from oddnode.tables.writer import check_target, write_table

__all__ = ["TableGraph", "TableModel"]

_WRITTEN = ("predicted", "confidence", "score", "p_value", "is_ood")
_EXPLAINED = ("own_score", "neighbour_contribution", "nearest_class")


@dataclass(frozen=True)
class TableGraph:
    """Two tables that were read, ready to be scored.

    Parameters
    ----------
    ids : pyarrow.Array
        Ids of the N nodes, in the order of the table.
    data : torch_geometric.data.Data
        Their features and edges.
    columns : dict
        Further requested columns of the table of nodes, by name.
    notes : list of str
        Notes for the user.
    """

    ids: Any
    data: Data
    columns: dict[str, Any]
    notes: list[str]


class TableModel:
    """A fitted detector for tables: it reads nodes and edges, scores every node and writes a table.

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
        nodes: Any,
        edges: Any,
        *,
        id_column: str,
        label_column: str,
        feature_columns: Sequence[str] | None = None,
        source_column: str | None = None,
        target_column: str | None = None,
        directed: bool = False,
        split_column: str | None = None,
        exposure_nodes: Any = None,
        exposure_edges: Any = None,
        exposure_column: str | None = None,
        method: str | None = None,
        false_alarm_rate: float = 0.05,
        seed: int = 0,
        device: str = "auto",
        on_epoch: Callable[[int], None] | None = None,
        **settings: Any,
    ) -> tuple[TableModel, FitReport]:
        """Fit and calibrate a detector on two tables.

        Parameters
        ----------
        nodes, edges : path, or table in memory
            As for `oddnode.tables.open_table`.
        id_column, label_column : str
            Columns with the ids and with the labels of the nodes. Nodes without a label are part of the graph, but
            not trained on.
        feature_columns, source_column, target_column, directed, split_column
            As for `oddnode.tables.TrainingTables`.
        exposure_nodes, exposure_edges : path, or table in memory, optional
            Nodes that are known to be OOD, with their own edges or none.
        exposure_column : str, optional
            Column that marks the nodes known to be OOD, instead of ``exposure_nodes``.
        method : str, optional
            One of `oddnode.RECIPES`; by default ``"nodesafe"``, or ``"nodesafe++"`` with known OOD nodes.
        false_alarm_rate : float
            The share of known nodes that may be flagged.
        seed : int
            Seed of the split and of training.
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
        tables = TrainingTables(
            nodes,
            edges,
            id_column,
            label_column,
            feature_columns,
            source_column,
            target_column,
            directed,
            split_column,
            exposure_nodes,
            exposure_edges,
            exposure_column,
        )
        graph = tables.read(seed)
        method = method or ("nodesafe" if graph.exposure is None else "nodesafe++")
        detector = Detector.from_recipe(method, seed=seed, device=device, **settings)
        _check_method(method, detector, has_exposure=graph.exposure is not None)
        # Raises before training, not after it, if there are too few calibration nodes for the rate.
        threshold_at(np.arange(len(graph.split.calibration), dtype=float), false_alarm_rate)
        detector.fit(graph.data, graph.exposure, on_epoch=on_epoch).calibrate(graph.data, false_alarm_rate)
        return cls(detector, graph.schema), FitReport.of(detector, graph)

    def read(self, nodes: Any, edges: Any, also: Sequence[str] = ()) -> TableGraph:
        """Read two tables of the kind that the model was fitted on.

        Parameters
        ----------
        nodes, edges : path, or table in memory
            As for `oddnode.tables.open_table`.
        also : sequence of str
            Further columns of the table of nodes to keep.
        """
        table, edge_table = open_table(nodes, "nodes"), open_table(edges, "edges")
        table.require(also, "known")
        self.schema.check_columns(table, also)
        rows = read_nodes(table, self.schema.id_column, self.schema.features, also)
        ends = edge_columns(edge_table, self.schema.source_column, self.schema.target_column)
        edge_index = torch.from_numpy(read_edges(edge_table, *ends, rows.ids, self.schema.directed))
        notes = []
        if rows.unseen_categories:
            notes.append(
                f"{rows.unseen_categories} categories were not seen when the model was fitted; they count as missing"
            )
        return TableGraph(rows.ids, Data(x=torch.from_numpy(rows.x), edge_index=edge_index), rows.columns, notes)

    def score_graph(self, graph: TableGraph, explain: bool = False) -> Any:
        """Score every node of tables that were read.

        Parameters
        ----------
        graph : TableGraph
            From `read`.
        explain : bool
            Whether to add the columns ``own_score``, ``neighbour_contribution`` and ``nearest_class``.

        Returns
        -------
        pyarrow.Table
            One row per node, in the order of the table of nodes: the id, ``predicted``, ``confidence``, ``score``
            (higher = better known), ``p_value`` and ``is_ood``.
        """
        self._check_id_column()
        outputs = self.detector.outputs(graph.data)
        confidence, predicted = self.detector.predict_proba(outputs).max(dim=1)
        scores = self.detector.score_samples(outputs).cpu()
        calibration = self.detector.calibration_
        assert calibration is not None
        columns = {
            self.schema.id_column: graph.ids,
            "predicted": self._label(predicted),
            "confidence": confidence.cpu().numpy(),
            "score": scores.numpy(),
            "p_value": calibration.p_values(scores).numpy(),
            "is_ood": calibration.detect(scores).numpy(),
        }
        if explain:
            why = self.detector.explain(outputs)
            columns |= {
                "own_score": why.own_score.cpu().numpy(),
                "neighbour_contribution": why.neighbour_contribution.cpu().numpy(),
                "nearest_class": self._label(why.nearest_class),
            }
        return pyarrow().table(columns)

    def score_frame(self, nodes: Any, edges: Any, explain: bool = False) -> Any:
        """Score every node of two tables in memory.

        Parameters
        ----------
        nodes, edges : pyarrow.Table, frame or mapping
            As for `oddnode.tables.open_table`; files can be given too.
        explain : bool
            As for `score_graph`.

        Returns
        -------
        pyarrow.Table
            As for `score_graph`.
        """
        return self.score_graph(self.read(nodes, edges), explain)

    def score(self, nodes: Any, edges: Any, out: str | os.PathLike, explain: bool = False) -> ScoreReport:
        """Score every node of two tables and write one row for each, in the order of the table of nodes.

        Parameters
        ----------
        nodes, edges : path, or table in memory
            As for `oddnode.tables.open_table`.
        out : path
            The file to write, CSV or Parquet.
        explain : bool
            As for `score_graph`.
        """
        target = Path(out)
        check_target(target, [Path(each) for each in (nodes, edges) if isinstance(each, (str, os.PathLike))])
        self._check_id_column()
        graph = self.read(nodes, edges)
        scored = self.score_graph(graph, explain)
        write_table(scored, target)
        flagged = int(scored["is_ood"].to_numpy().sum())
        rate = self.detector.false_alarm_rate_
        return ScoreReport(scored.num_rows, _num_edges(graph.data, self.schema), flagged, rate, graph.notes)

    def calibrate(
        self, nodes: Any, edges: Any, known_column: str, false_alarm_rate: float | None = None
    ) -> CalibrationReport:
        """Recalibrate the threshold for another graph or another false-alarm rate; the network is unchanged.

        Parameters
        ----------
        nodes, edges : path, or table in memory
            As for `score`.
        known_column : str
            Column of true and false: true for known nodes, none of which may have been trained on.
        false_alarm_rate : float, optional
            The share of known nodes that may be flagged; by default the model's own.
        """
        graph = self.read(nodes, edges, [known_column])
        table = open_table(nodes, "nodes")
        known = read_marks(graph.columns[known_column], table, known_column)
        if not known.any():
            raise TableError(f"{table.name}: column {known_column!r} marks no node")
        before = self.detector.threshold_
        rate = self.detector.false_alarm_rate_ if false_alarm_rate is None else false_alarm_rate
        self.detector.calibrate(graph.data, rate, torch.from_numpy(known))
        return CalibrationReport(
            num_nodes=len(graph.ids),
            num_edges=_num_edges(graph.data, self.schema),
            num_calibration=int(known.sum()),
            false_alarm_rate=rate,
            threshold=self.detector.threshold_,
            old_threshold=before,
            notes=graph.notes,
        )

    def save(self, path: str | os.PathLike) -> None:
        """Write the model to a folder; `Detector.load` reads its detector alone.

        Parameters
        ----------
        path : path
            As for `Detector.save`.
        """
        save(self.detector, path, {"table": self.schema.to_json()})

    @classmethod
    def load(cls, path: str | os.PathLike, device: str = "auto") -> TableModel:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : path
            Its folder.
        device : str
            As for `oddnode.Detector`.
        """
        detector, config = load(Detector, path, device=device)
        if "table" not in config:
            raise ModelFileError(
                f"{path} has a detector that was not fitted on tables; use it from Python with Detector.load"
            )
        if detector.calibration_ is None or detector.class_means_ is None:
            raise ModelFileError(f"{path} has a model without calibration")
        try:
            schema = TableSchema.from_json(config["table"], detector.n_features_in_, detector.num_classes_)
        except ModelFileError as error:
            raise ModelFileError(f"{path}: {error}") from None
        return cls(detector, schema)

    def _check_id_column(self) -> None:
        if self.schema.id_column in _WRITTEN + _EXPLAINED:
            raise TableError(f"the id column {self.schema.id_column!r} has the name of an output column")

    def _label(self, classes: torch.Tensor) -> Any:
        """The labels of classes, as in the table."""
        return pyarrow().array(list(self.schema.classes)).take(pyarrow().array(classes.cpu().numpy()))


def _num_edges(data: Data, schema: TableSchema) -> int:
    """The number of edges in the table."""
    return data.num_edges if schema.directed else data.num_edges // 2


def _check_method(method: str, detector: Detector, has_exposure: bool) -> None:
    if detector.scorer is not None and detector.scorer.needs_labelled_nodes:
        raise TableError(
            f"{method} anchors on labelled nodes of the graph it scores, which a table of new nodes need not have, "
            "so its false-alarm rate would not hold; choose another method, for example nodesafe"
        )
    if detector.needs_exposure and not has_exposure:
        raise TableError(
            f"{method} needs exposure, nodes known to be OOD: give them as a table (exposure_nodes) or mark them in a "
            "column (exposure_column), or choose a method that needs none, for example nodesafe"
        )
    if has_exposure and not detector.needs_exposure:
        raise TableError(
            f"{method} does not learn from nodes that are known not to belong; leave them out, or choose a method that "
            "does, for example nodesafe++"
        )
