"""A detector together with the schema of the tables it was fitted on.

Long because the signature of `TableModel.fit` declares all its settings.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from oddnode.detector import Detector, ModelFileError, default_method, load, save
from oddnode.tables.arrivals import ArrivalCheck, Arrivals
from oddnode.tables.checks import calibrated, calibration_rows, check_before_training, compares_with_references
from oddnode.tables.learning import ReadAs
from oddnode.tables.reader import files_of
from oddnode.tables.references import ThresholdBasis, checked_basis, compared_outputs, with_references
from oddnode.tables.reports import CalibrationReport, FitReport, ScoreReport
from oddnode.tables.schema import TableSchema, schema_of
from oddnode.tables.scored_table import check_id_column, scored_table
from oddnode.tables.table_graph import TableGraph, read_graph
from oddnode.tables.training_tables import TrainingTables
from oddnode.tables.used_rows import UsedRows
from oddnode.tables.writer import check_target, write_table

__all__ = ["TableModel"]

_log = logging.getLogger("oddnode")


class TableModel:
    """A fitted detector for tables: it reads nodes and edges, scores every node and writes a table.

    Parameters
    ----------
    detector : Detector
        Fitted and calibrated.
    schema : TableSchema
        How to read the tables.
    used_rows : UsedRows, optional
        The rows that the detector was fitted on.
    basis : {"fit", "in place", "stored"}
        The reference scores that the threshold fits, as for `oddnode.tables.references.ThresholdBasis`.
    """

    def __init__(
        self,
        detector: Detector,
        schema: TableSchema,
        used_rows: UsedRows | None = None,
        basis: ThresholdBasis = "fit",
    ):
        self.detector = detector
        self.schema = schema
        self.used_rows = used_rows
        self.basis = basis

    @classmethod
    def fit(
        cls,
        nodes: Any,
        edges: Any,
        *,
        id_column: str,
        label_column: str,
        feature_columns: Sequence[str] | None = None,
        drop_columns: Sequence[str] = (),
        category_columns: Sequence[str] = (),
        number_columns: Sequence[str] = (),
        decimal_comma: bool = False,
        unlabelled: Sequence[str] = (),
        method: str | None = None,
        false_alarm_rate: float = 0.05,
        seed: int = 0,
        device: str = "auto",
        on_epoch: Callable[[int], None] | None = None,
        source_column: str | None = None,
        target_column: str | None = None,
        directed: bool = False,
        ignore_unknown_edges: bool = False,
        split_column: str | None = None,
        exposure_nodes: Any = None,
        exposure_edges: Any = None,
        exposure_column: str | None = None,
        time_column: str | None = None,
        train_until: str | None = None,
        weight_column: str | None = None,
        unweighted: bool = False,
        **settings: Any,
    ) -> tuple[TableModel, FitReport]:
        """Fit and calibrate a detector on two tables.

        Parameters
        ----------
        nodes, edges : path, table in memory, or a list of these
            As for `oddnode.tables.open_table`.
        id_column, label_column : str
            Columns with the ids and with the labels of the nodes. Nodes without a label are part of the graph, but
            not trained on.
        feature_columns, drop_columns, unlabelled
            As for `oddnode.tables.TrainingTables`.
        category_columns, number_columns, decimal_comma
            As for `oddnode.tables.ReadAs`.
        method : str, optional
            One of `oddnode.RECIPES`; by default ``"nodesafe-evidence"``, with known OOD nodes
            ``"nodesafe-evidence++"``.
        false_alarm_rate : float
            The share of known nodes that may be flagged.
        seed : int
            Seed of the split and of training.
        device : str
            As for `oddnode.Detector`.
        on_epoch : callable, optional
            Called with the number of epochs done.
        source_column, target_column, directed, ignore_unknown_edges, split_column
            As for `oddnode.tables.TrainingTables`.
        exposure_nodes, exposure_edges, exposure_column, time_column, train_until, weight_column, unweighted
            As for `oddnode.tables.TrainingTables`.
        **settings
            As for `oddnode.Detector.from_recipe`.

        Returns
        -------
        TableModel
            The model.
        FitReport
            Sizes, split, threshold, columns and notes.
        """
        tables = TrainingTables(
            nodes,
            edges,
            id_column,
            label_column,
            feature_columns,
            drop_columns,
            ReadAs(category_columns, number_columns, decimal_comma),
            unlabelled,
            source_column,
            target_column,
            directed,
            ignore_unknown_edges,
            split_column,
            exposure_nodes,
            exposure_edges,
            exposure_column,
            time_column,
            train_until,
            weight_column,
            unweighted,
        )
        graph = tables.read(seed)
        graph.data.directed = directed
        method = method or default_method(graph.exposure is not None)
        detector = Detector.from_recipe(method, seed=seed, device=device, **settings)
        check_before_training(method, detector, graph, false_alarm_rate)
        if compares_with_references(detector):
            graph.data.reference_mask = graph.data.calibration_mask
        calibrated(detector.fit(graph.data, graph.exposure, on_epoch=on_epoch), graph.data, false_alarm_rate)
        model = cls(detector, graph.schema, graph.used_rows)
        return model, FitReport.of(method, detector, graph, model._check(graph.arrivals))

    def _check(self, arrivals: Arrivals | None) -> ArrivalCheck | None:
        if arrivals is None:
            return None
        outputs, _ = compared_outputs(self.detector, self.used_rows, arrivals.graph, self.basis)
        return arrivals.check(self.detector.detect(outputs).numpy())

    def read(self, nodes: Any, edges: Any, also: Sequence[str] = (), ignore_unknown_edges: bool = False) -> TableGraph:
        """Read two tables of the kind that the model was fitted on.

        Parameters
        ----------
        nodes, edges, also, ignore_unknown_edges
            As for `oddnode.tables.read_graph`.
        """
        return read_graph(self.schema, nodes, edges, also, ignore_unknown_edges)

    def score_graph(self, graph: TableGraph, explain: bool = False) -> Any:
        """Score every node of tables that were read.

        Parameters
        ----------
        graph : TableGraph
            From `read`.
        explain : bool
            Whether to add the columns ``threshold``, ``own_score``, ``neighbour_contribution``, ``nearest_class``, for
            every kind of evidence ``p_<kind>`` (the share of known nodes that are as unusual), and ``why`` (a sentence;
            null for nodes that are not flagged).

        Returns
        -------
        pyarrow.Table
            One row per node, in the order of the table of nodes: the id, ``predicted``, ``confidence``, ``score``
            (higher = better known), ``p_value``, ``is_ood``, and ``split``: what a row was used for when the model was
            fitted (train, validation, calibration or null), or arrival for a row that came after those trained on.
            Notes for the user are logged.
        """
        scored, notes = self._scored(graph, explain)
        for note in notes:
            _log.warning(note)
        return scored

    def _scored(self, graph: TableGraph, explain: bool) -> tuple[Any, list[str]]:
        return scored_table(self.detector, self.schema, self.used_rows, graph, explain, self.basis)

    def score_frame(self, nodes: Any, edges: Any, explain: bool = False, ignore_unknown_edges: bool = False) -> Any:
        """Score every node of two tables in memory. Notes for the user are logged.

        Parameters
        ----------
        nodes, edges : table in memory, path, or a list of these
            As for `oddnode.tables.open_table`.
        explain : bool
            As for `score_graph`.
        ignore_unknown_edges : bool
            As for `read`.

        Returns
        -------
        pyarrow.Table
            As for `score_graph`; ``.to_pandas()`` or ``polars.from_arrow`` make a frame of it.
        """
        graph = self.read(nodes, edges, ignore_unknown_edges=ignore_unknown_edges)
        for note in graph.notes:
            _log.warning(note)
        return self.score_graph(graph, explain)

    def score(
        self,
        nodes: Any,
        edges: Any,
        out: str | os.PathLike,
        explain: bool = False,
        ignore_unknown_edges: bool = False,
        raw_text: bool = False,
    ) -> ScoreReport:
        """Score every node of two tables and write one row for each, in the order of the table of nodes.

        Parameters
        ----------
        nodes, edges : path, table in memory, or a list of these
            As for `oddnode.tables.open_table`.
        out : path
            The file to write, CSV or Parquet.
        explain : bool
            As for `score_graph`.
        ignore_unknown_edges : bool
            As for `read`.
        raw_text : bool
            As for `oddnode.tables.write_table`.
        """
        target = Path(out)
        check_target(target, files_of(nodes) + files_of(edges))
        check_id_column(self.schema, self.detector)
        graph = self.read(nodes, edges, ignore_unknown_edges=ignore_unknown_edges)
        scored, notes = self._scored(graph, explain)
        changed = write_table(scored, target, raw_text)
        notes = graph.notes + notes
        if changed:
            notes.append(
                f"{changed} texts in {target} have an apostrophe before them or control characters escaped, because a "
                "spreadsheet or a terminal would run them; `raw_text` writes them as they are"
            )
        flagged = int(scored["is_ood"].to_numpy().sum())
        return ScoreReport(scored.num_rows, graph.num_edges, flagged, self.detector.false_alarm_rate_, notes)

    def calibrate(
        self,
        nodes: Any,
        edges: Any,
        known_column: str,
        false_alarm_rate: float | None = None,
        ignore_unknown_edges: bool = False,
        new_ids: bool = False,
    ) -> CalibrationReport:
        """Recalibrate the threshold for another graph; the network is unchanged.

        Rows that the model was trained or validated on are left out: they score too high.

        Parameters
        ----------
        nodes, edges : path, table in memory, or a list of these
            As for `score`.
        known_column : str
            Column of true and false: true for known nodes.
        false_alarm_rate : float, optional
            The share of known nodes that may be flagged; by default the model's own.
        ignore_unknown_edges : bool
            As for `read`.
        new_ids : bool
            Whether an id of these tables names another node than the same id of the fitted table, so that no row was
            trained on.
        """
        graph = self.read(nodes, edges, [known_column], ignore_unknown_edges)
        rate = self.detector.false_alarm_rate_ if false_alarm_rate is None else false_alarm_rate
        held_out, left_out = calibration_rows(graph, known_column, None if new_ids else self.used_rows, rate)
        before = self.detector.threshold_
        graph, _ = with_references(self.detector, None if new_ids else self.used_rows, graph)
        self.detector.calibrate(graph.data, rate, torch.from_numpy(held_out))
        self.basis = "in place" if self.detector.outputs(graph.data).references else "stored"
        return CalibrationReport.of(self.detector, before, graph, left_out)

    def set_false_alarm_rate(self, false_alarm_rate: float) -> CalibrationReport:
        """Choose the threshold for another false-alarm rate, from the calibration scores that the model has.

        Parameters
        ----------
        false_alarm_rate : float
            The share of known nodes that may be flagged.
        """
        before = self.detector.threshold_
        self.detector.set_false_alarm_rate(false_alarm_rate)
        return CalibrationReport.of(self.detector, before)

    def save(self, path: str | os.PathLike) -> None:
        """Write the model to a folder; `Detector.load` reads its detector alone.

        Parameters
        ----------
        path : path
            As for `Detector.save`.
        """
        rows = None if self.used_rows is None else self.used_rows.to_json()
        save(self.detector, path, {"table": self.schema.to_json(), "table_rows": rows, "table_threshold": self.basis})

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
        schema = schema_of(path, config, detector.n_features_in_, detector.num_classes_)
        if detector.calibration_ is None or detector.class_means_ is None:
            raise ModelFileError(f"{path} has a model without calibration")
        try:
            used_rows = UsedRows.from_json(config.get("table_rows", {}))
            basis = checked_basis(config.get("table_threshold"))
        except ModelFileError as error:
            raise ModelFileError(f"{path}: {error}") from None
        return cls(detector, schema, used_rows, basis)
