"""A detector together with the schema of the tables it was fitted on."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from msgspec.structs import replace

from oddnode._utils.checked_json import errors_in
from oddnode.detector import (
    Calibration,
    Detector,
    ModelFileError,
    as_scorer,
    default_method,
    full_batch_blocker,
    load,
    save,
)
from oddnode.functional import CalibrationError, threshold_at
from oddnode.scoring import Outputs
from oddnode.tables.checking import CheckedRows
from oddnode.tables.findings import FlaggedGroup
from oddnode.tables.formats import TableTarget, as_target, check_target, write_table
from oddnode.tables.graphs import TableGraph, read_graph
from oddnode.tables.known_values import KnownValues
from oddnode.tables.labels import SPLIT_MASKS, Split, read_marks, split_labelled
from oddnode.tables.reader import files_of
from oddnode.tables.reasons import RowReason
from oddnode.tables.reports import CalibrationReport, CheckedEstimates, FitReport, Rule, ScoreReport
from oddnode.tables.schema import TableOptions, TableSchema, schema_of
from oddnode.tables.scores import (
    ScoredNodes,
    ThresholdBasis,
    check_id_column,
    check_random,
    checked_basis,
    compared_outputs,
    fitting_outputs,
    with_references,
)
from oddnode.tables.training import TrainingGraph, TrainingTables
from oddnode.tables.used_rows import MOST_ROWS, USES, UsedRows, arrow_ids, uses_of
from oddnode.tables.values import TableError, pa

if TYPE_CHECKING:
    from oddnode.large import GraphFolder

_log = logging.getLogger("oddnode")


@dataclass(eq=False, repr=False)
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
        The reference scores that the threshold fits, as for `oddnode.tables.scores.ThresholdBasis`.
    known : KnownValues, optional
        What the labelled rows have in each column, for reasons; ``None`` if the model was fitted on a graph folder.
    """

    detector: Detector
    schema: TableSchema
    used_rows: UsedRows | None = None
    basis: ThresholdBasis = "fit"
    known: KnownValues | None = None

    @classmethod
    def fit(
        cls,
        nodes: Any,
        edges: Any,
        options: TableOptions | None = None,
        *,
        exposure_nodes: Any = None,
        exposure_edges: Any = None,
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
        nodes, edges : path, table in memory, or a list of these
            As for `oddnode.tables.open_table`.
        options : TableOptions, optional
            The roles of the columns; its fields can be given as keyword arguments instead, at least ``id_column``.
        exposure_nodes, exposure_edges : path, table in memory, a list of these, or None
            Nodes that are known to be OOD, and the edges between them.
        method : str, optional
            One of `oddnode.RECIPES`; by default ``"nodesafe-evidence"``, with known OOD nodes
            ``"nodesafe-evidence++"``, without labels ``"evidence-unlabelled"``.
        false_alarm_rate : float
            The share of known nodes that may be flagged.
        seed : int
            Seed of the split and of training.
        device : str
            As for `oddnode.Detector`.
        on_epoch : callable, optional
            Called with the number of epochs done.
        **settings
            Fields of `TableOptions`, and settings as for `oddnode.Detector.from_recipe`.

        Returns
        -------
        TableModel
            The model.
        FitReport
            Sizes, split, threshold, columns and notes.
        """
        if options is None:
            fields = TableOptions.__struct_fields__
            options = TableOptions(**{name: settings.pop(name) for name in fields if name in settings})
        tables = TrainingTables(nodes, edges, options, exposure_nodes, exposure_edges)
        return fit_tables(tables, method, false_alarm_rate, seed, device, on_epoch, **settings)

    def read(self, nodes: Any, edges: Any, also: Sequence[str] = (), ignore_unknown_edges: bool = False) -> TableGraph:
        """Read two tables with the columns that the model was fitted on.

        Parameters
        ----------
        nodes, edges, also, ignore_unknown_edges
            As for `oddnode.tables.read_graph`.
        """
        return read_graph(self.schema, nodes, edges, also, ignore_unknown_edges)

    def score_graph(self, graph: TableGraph, explain: bool = False, *, evidence: bool = False, **rule: Any) -> Any:
        """Score every node of tables in memory.

        Parameters
        ----------
        graph : TableGraph
            From `read`.
        explain : bool
            Whether to add the columns ``threshold``, ``own_score``, ``neighbour_contribution``, ``nearest_class``, for
            every kind of evidence ``p_<kind>`` (the share of known nodes at least as unusual), ``finding`` (the number
            of the finding that a flagged row belongs to) and ``why`` (sentences; null for nodes that are not flagged).
        evidence : bool
            Whether to add a column ``surprise_<kind>`` for every kind of evidence, minus the log of its p-value:
            features for a model of one's own.
        **rule
            Fields of `oddnode.tables.Rule`: ``fdr`` or ``budget``, ``only_new``, ``batch``.

        Returns
        -------
        pyarrow.Table
            One row per node, in the order of the table of nodes: the id, ``predicted``, ``confidence``, ``score``
            (higher = better known), ``p_value``, ``is_ood``, and ``split``: what a row was used for when the model was
            fitted (train, validation, calibration or null), or arrival for a row later than the training rows;
            ``seen``: whether the model was fitted on a row with this id, ``group`` (labelled, unlabelled or new),
            ``rank`` (1 = oddest) and ``expected_precision``, as for `oddnode.functional.expected_precision`, both among
            the new rows or, if there are none, among those that the model was not trained on.
            Notes for the user are logged.
        """
        scores, notes = self.scores_and_notes(graph, explain, evidence, **rule)
        for note in notes:
            _log.warning(note)
        return scores

    def scores_and_notes(
        self,
        graph: TableGraph,
        explain: bool = False,
        evidence: bool = False,
        told: np.ndarray | None = None,
        **rule: Any,
    ) -> tuple[Any, list[str]]:
        """Score every node as `score_graph` does, and return the notes, too, in place of logging them.

        Parameters
        ----------
        graph, explain, evidence, **rule
            As for `score_graph`.
        told : numpy.ndarray, optional
            The rows ``[N]`` whose reasons are told if they are flagged; by default all.
        """
        check_id_column(self.schema, self.detector)
        scored, notes = self._scored(graph, explain, Rule(**rule), evidence, told)
        return pa.concat_tables(scored.parts()), notes

    def outputs(self, graph: TableGraph | GraphFolder, batch: bool = True) -> tuple[Outputs, list[str]]:
        """Run the network on a graph, whose nodes are compared with the reference rows that the threshold fits.

        Parameters
        ----------
        graph : TableGraph or GraphFolder
            From `read`, or a folder that was prepared with this model's columns.
        batch : bool
            As for `oddnode.Detector.outputs`.

        Returns
        -------
        Outputs
            As for `oddnode.Detector.outputs`.
        list of str
            Notes for the user.
        """
        if isinstance(graph, TableGraph):
            return compared_outputs(self.detector, self.used_rows, graph, self.schema.features, self.basis, batch)
        _check_same_columns(self, graph)
        graph, message = _with_references(self, graph)
        return fitting_outputs(self.detector, self.detector.outputs(graph, batch), message, self.basis)

    def _scored(
        self,
        graph: TableGraph,
        explain: bool,
        rule: Rule,
        evidence: bool = False,
        told: np.ndarray | None = None,
    ) -> tuple[ScoredNodes, list[str]]:
        outputs, notes = self.outputs(graph, rule.batch)
        notes = notes + self.detector.scorer_.notes(outputs)
        use = uses_of(self.used_rows, graph.ids)
        seen = None if self.used_rows is None else self.used_rows.seen_rows(graph.ids)
        if graph.is_arrival is not None:
            use[(use < 0) & graph.is_arrival] = USES.index("arrival")
        rows = graph.ids, use, outputs, explain, graph, self.known
        more: dict[str, Any] = {"seen": seen, "rule": rule, "evidence": evidence, "told": told}
        scored = ScoredNodes(self.detector, self.schema, *rows, **more)
        return scored, notes + scored.notes(self.basis)

    def reasons(self, graph: TableGraph) -> list[RowReason]:
        """Why each flagged row is flagged, in terms of the tables; ``str`` puts a reason into words.

        Parameters
        ----------
        graph : TableGraph
            From `read`.
        """
        return self._scored(graph, explain=True, rule=Rule())[0].reasons

    def findings(self, graph: TableGraph) -> list[FlaggedGroup]:
        """The flagged rows that belong together, of those that the model was not fitted on, if there are any.

        Parameters
        ----------
        graph : TableGraph
            From `read`.

        Returns
        -------
        list of FlaggedGroup
            The largest first; ``str`` puts a finding into words. Rows that stand alone are in none.
        """
        return self._scored(graph, explain=True, rule=Rule())[0].findings

    def score_frame(
        self,
        nodes: Any,
        edges: Any,
        explain: bool = False,
        ignore_unknown_edges: bool = False,
        *,
        evidence: bool = False,
        **rule: Any,
    ) -> Any:
        """Score every node of two tables in memory. Notes for the user are logged.

        Parameters
        ----------
        nodes, edges, ignore_unknown_edges
            As for `read`.
        explain : bool
            As for `score_graph`, whose result it returns; ``.to_pandas()`` or ``polars.from_arrow`` convert it.
        evidence : bool
            As for `score_graph`.
        **rule
            As for `score_graph`.
        """
        graph = self.read(nodes, edges, ignore_unknown_edges=ignore_unknown_edges)
        for note in graph.notes:
            _log.warning(note)
        return self.score_graph(graph, explain, evidence=evidence, **rule)

    def score(
        self,
        nodes: Any,
        edges: Any,
        out: str | os.PathLike | TableTarget,
        explain: bool = False,
        ignore_unknown_edges: bool = False,
        raw_text: bool = False,
        *,
        evidence: bool = False,
        **rule: Any,
    ) -> ScoreReport:
        """Score every node of two tables and write one row for each, in the order of the table of nodes.

        Parameters
        ----------
        nodes, edges, ignore_unknown_edges
            As for `read`.
        out : path or DatabaseTable
            The file to write, whose suffix determines the format, or a table from `Database.table`.
        explain : bool
            As for `score_graph`.
        raw_text : bool
            As for `oddnode.tables.write_table`.
        evidence : bool
            As for `score_graph`.
        **rule
            As for `score_graph`.
        """
        target, decide = as_target(out), Rule(**rule)
        check_target(target, files_of(nodes) + files_of(edges))
        check_id_column(self.schema, self.detector)
        graph = self.read(nodes, edges, ignore_unknown_edges=ignore_unknown_edges)
        scored, notes = self._scored(graph, explain, decide, evidence)
        changed = write_table(scored.parts(), target, raw_text)
        return scored.report(graph.num_edges, graph.notes + notes, changed, target)

    def calibrate(
        self,
        nodes: Any,
        edges: Any,
        known_column: str | None = None,
        false_alarm_rate: float | None = None,
        ignore_unknown_edges: bool = False,
        new_ids: bool = False,
        *,
        checked: Any = None,
        batch: bool = True,
    ) -> CalibrationReport:
        """Recalibrate the threshold for another graph; the network is unchanged.

        Rows that the model was trained or validated on are left out: they score too high. Known rows that were chosen
        by their scores, such as false alarms, are refused, because the rate would not hold.

        Parameters
        ----------
        nodes, edges, ignore_unknown_edges
            As for `read`.
        known_column : str
            Column of true and false: true for known nodes, which must be drawn at random.
        false_alarm_rate : float, optional
            The share of known nodes that may be flagged; by default the model's.
        new_ids : bool
            Whether ids in these tables name different nodes than the same ids in the fitted table, so that no row was
            trained on.
        checked : path or table in memory, optional
            In place of ``known_column``: the rows that `oddnode.tables.sample_to_check` drew, with answers.
        batch : bool
            As for `oddnode.Detector.outputs`; ``False`` for a threshold of a `LiveGraph`, which judges nodes alone.
        """
        if (known_column is None) == (checked is None):
            raise TableError("give the known rows either as `known_column` or as `checked`")
        detector, old = self.detector, self.detector._calibrated()
        graph = self.read(nodes, edges, [] if known_column is None else [known_column], ignore_unknown_edges)
        rate = old.false_alarm_rate if false_alarm_rate is None else false_alarm_rate
        used_rows = None if new_ids else self.used_rows
        answers, left_out, weights, notes = None, 0, None, list[str]()
        if known_column is not None:
            held_out, left_out = _calibration_rows(graph, known_column, used_rows, rate)
        else:
            answers = CheckedRows.read(checked, self.schema.id_column, graph.ids)
            weights = torch.zeros(len(graph.ids), dtype=torch.float64)
            weights[answers.rows] = torch.from_numpy(answers.weights())
            held_out = np.zeros(len(graph.ids), dtype=bool)
            held_out[answers.rows[answers.is_known]] = True
            if answers.num_unanswered:
                notes = [f"{answers.num_unanswered} rows have no answer, as if they had not been drawn"]
        graph, _ = with_references(detector, used_rows, graph, self.schema.features)
        outputs = detector.outputs(graph.source, batch)
        if answers is None:
            scores = detector.score_samples(outputs).cpu().numpy()
            notes = check_random(scores, held_out, _comparable(graph.ids, held_out, used_rows), old)
        notes = notes + detector.scorer_.notes(outputs)
        detector.calibrate(outputs, rate, torch.from_numpy(held_out), weights)
        self.basis = "in place" if outputs.references else "stored"
        notes += [] if answers is None else _note_on_reach(detector._calibrated())
        estimates = None if answers is None else answers.estimates()
        return _calibration_report(detector, old.threshold, graph, left_out, estimates, notes)

    def set_false_alarm_rate(self, false_alarm_rate: float) -> CalibrationReport:
        """Choose the threshold for another false-alarm rate, from the model's calibration scores.

        Parameters
        ----------
        false_alarm_rate : float
            The share of known nodes that may be flagged.
        """
        before = self.detector.threshold_
        self.detector.set_false_alarm_rate(false_alarm_rate)
        return _calibration_report(self.detector, before)

    def save(self, path: str | os.PathLike) -> None:
        """Write the model to a folder; `Detector.load` reads its detector alone.

        Parameters
        ----------
        path : path
            As for `Detector.save`.
        """
        rows = None if self.used_rows is None else self.used_rows.to_json()
        interval = list(self.detector._calibrated().rate_interval)  # for readers of the file
        config = {"table": self.schema.to_json(), "table_rows": rows, "table_threshold": self.basis}
        learnt = {"table_rows": self.used_rows, "table_known": self.known}
        tensors = {name: each.to_tensor() for name, each in learnt.items() if each is not None}
        save(self.detector, path, config | {"table_rate_interval": interval}, tensors)

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
        detector, config, tensors = load(Detector, path, device=device)
        schema = schema_of(path, config)
        if detector.calibration_ is None or detector.class_means_ is None:
            raise ModelFileError(f"{path} has a model without calibration")
        with errors_in(path):
            used_rows = UsedRows.from_saved(config.get("table_rows", {}), tensors.get("table_rows"))
            basis = checked_basis(config.get("table_threshold"))
            sizes = len(schema.classes), schema.features.width
            known = KnownValues.from_saved(tensors.get("table_known"), *sizes)
        return cls(detector, schema, used_rows, basis, known)


def fit_tables(
    source: TrainingTables | GraphFolder,
    method: str | None = None,
    false_alarm_rate: float = 0.05,
    seed: int = 0,
    device: str = "auto",
    on_epoch: Callable[[int], None] | None = None,
    **settings: Any,
) -> tuple[TableModel, FitReport]:
    """Fit and calibrate a detector on tables, or on a graph folder that was made from tables."""
    graph = source.read(seed) if isinstance(source, TrainingTables) else _training_graph(source, seed)
    method = method or default_method(graph.exposure is not None, bool(graph.schema.label_column))
    detector, recipe = Detector.from_recipe(method, seed=seed, device=device, **settings), graph.schema.features
    detector._adapt_scorer(lambda scorer: scorer.reading(recipe.marked(counts_only=True), recipe.marked(False)))
    if (
        graph.arrivals is not None and graph.schema.split_column is None
    ):  # reference rows are recent because rows change
        detector._adapt_scorer(lambda scorer: scorer.expecting_drift())
    data = graph.data
    _check_before_training(graph, method, detector, false_alarm_rate)
    blocker = None if isinstance(source, TrainingTables) else full_batch_blocker(detector)
    if detector.trainer is None and blocker is not None:
        graph.notes.append(f"trained in mini-batches of sampled neighbourhoods: {blocker}")
    detector.fit(data, graph.exposure, on_epoch=on_epoch)
    if detector.calibration_ is None:
        detector.calibrate(data, false_alarm_rate)
    else:
        detector.set_false_alarm_rate(false_alarm_rate)
    calibration = torch.from_numpy(graph.split.calibration)
    accuracy = None
    if graph.schema.label_column:
        accuracy = float((detector.predict(data)[calibration].cpu() == data.y[calibration]).double().mean())
    schema = replace(graph.schema, accuracy=accuracy)
    model, checked = TableModel(detector, schema, graph.used_rows, known=graph.known), dict[str, Any]()
    if graph.arrivals is not None:
        outputs, _ = compared_outputs(
            detector, model.used_rows, graph.arrivals.graph, model.schema.features, model.basis
        )
        x = graph.arrivals.graph.source.x.numpy()
        is_judged = graph.schema.features.of_labelled_type(x, len(x))
        checked = graph.arrivals.check(detector.detect(outputs).numpy() & is_judged)
    return model, _fit_report(method, detector, graph, accuracy, checked)


def _check_before_training(graph: TrainingGraph, method: str, detector: Detector, false_alarm_rate: float) -> None:
    has_exposure = graph.exposure is not None
    if as_scorer(detector.scorer).needs_labelled_nodes:
        raise TableError(
            f"{method} anchors on labelled nodes of the graph it scores, which a table of new nodes need not have, "
            "so its false-alarm rate would not hold; choose another method, for example nodesafe-evidence"
        )
    if not graph.schema.label_column and as_scorer(detector.scorer).uses_network:
        raise TableError(
            f"{method} learns from labels: name their column (`label_column`), or choose a method that needs none, "
            f"{default_method(False, has_labels=False)}"
        )
    if detector.needs_exposure and not has_exposure:
        raise TableError(
            f"{method} needs exposure, nodes known to be OOD: give them as a table (`exposure_nodes`) or mark them in "
            "a column (`exposure_column`), or choose a method that needs none, for example nodesafe-evidence"
        )
    if has_exposure and not detector.needs_exposure:
        raise TableError(
            f"{method} does not learn from nodes that are known not to belong; leave them out, or choose a method that "
            "does, for example nodesafe-evidence++"
        )
    threshold_at(np.arange(len(graph.split.calibration), dtype=float), false_alarm_rate)
    if as_scorer(detector.scorer).needs_reference and len(graph.split.calibration) < 2:
        raise TableError(
            f"{method} compares nodes with calibration nodes, but there is one; give two or more, or choose another "
            "method, for example nodesafe"
        )
    schema = graph.schema
    TableSchema.from_json(schema.to_json(), schema.features.width, len(schema.classes))


def _fit_report(
    method: str, detector: Detector, graph: TrainingGraph, accuracy: float | None, checked: dict[str, Any]
) -> FitReport:
    """Report on a fit, and on how the model judges exposed nodes and arrivals."""
    state, calibration, directed = detector.state_, detector.calibration_, graph.schema.directed
    profile = state.profile
    assert calibration is not None
    if graph.exposure is not None:
        flagged = calibration.detect(detector.score_samples(graph.exposure))
        if hasattr(graph.exposure, "ood_mask"):
            flagged = flagged[graph.exposure.ood_mask]
        checked = checked | {"num_exposed": len(flagged), "num_exposed_flagged": int(flagged.sum())}
    return FitReport(
        method=method,
        num_nodes=profile.num_nodes,
        num_edges=profile.num_edges if directed else profile.num_edges // 2,
        num_features=graph.data.x.shape[1],
        labels=list(graph.schema.classes) if graph.schema.label_column else [],
        num_train=len(graph.split.train),
        num_validation=len(graph.split.validation),
        num_calibration=len(graph.split.calibration),
        best_epoch=state.best_epoch,
        false_alarm_rate=calibration.false_alarm_rate,
        threshold=calibration.threshold,
        rate_interval=calibration.rate_interval,
        accuracy=accuracy,
        forecast=state.scorer.forecast,
        mean_degree=profile.mean_degree,
        homophily=profile.homophily if graph.schema.label_column else None,
        **checked,
        columns=graph.columns,
        notes=graph.notes + state.advice,
    )


def _calibration_report(
    detector: Detector,
    old_threshold: float,
    graph: TableGraph | None = None,
    num_left_out: int = 0,
    checked: CheckedEstimates | None = None,
    notes: Sequence[str] = (),
) -> CalibrationReport:
    """Report on a calibration."""
    calibration = detector.calibration_
    assert calibration is not None
    return CalibrationReport(
        num_nodes=None if graph is None else len(graph.ids),
        num_edges=None if graph is None else graph.num_edges,
        num_calibration=len(calibration.scores),
        num_left_out=num_left_out,
        false_alarm_rate=calibration.false_alarm_rate,
        threshold=calibration.threshold,
        old_threshold=old_threshold,
        rate_interval=calibration.rate_interval,
        checked=checked,
        notes=[*([] if graph is None else graph.notes), *notes],
    )


def _note_on_reach(calibration: Calibration) -> list[str]:
    """Say if the threshold is between the flagged rows and the others, of which each stands for more."""
    assert calibration.weights is not None
    at = int((calibration.scores.double() < calibration.threshold).sum())
    here, *above = calibration.weights[at : at + 2].tolist()
    if not above or above[0] <= here:
        return []
    return [
        f"the threshold is as far as the flagged rows reach: the next known row stands for {above[0]:.0f} others, so "
        f"the rate may be far below {100 * calibration.false_alarm_rate:.3g} %; check more rows, drawn from scores in "
        "which more are flagged (no `budget`)"
    ]


def _calibration_rows(
    graph: TableGraph, known_column: str, used_rows: UsedRows | None, false_alarm_rate: float
) -> tuple[np.ndarray, int]:
    """Choose the known nodes to calibrate on, without those that the model was trained or validated on."""
    known = read_marks(graph.columns[known_column], graph.name, known_column)
    if not known.any():
        raise TableError(f"{graph.name}: column {known_column!r} marks no node")
    held_out = known if used_rows is None else known & ~used_rows.trained_on(graph.ids)
    left_out = int(known.sum() - held_out.sum())
    try:
        threshold_at(np.arange(int(held_out.sum()), dtype=float), false_alarm_rate)
    except CalibrationError as error:
        if not left_out:
            raise
        raise CalibrationError(
            f"{error}. {left_out} more nodes are marked as known, but the model was trained or validated on them; "
            "if their ids name other nodes in these tables: `new_ids`"
        ) from None
    return held_out, left_out


def _comparable(ids: Any, marked: np.ndarray, used_rows: UsedRows | None) -> np.ndarray:
    """The rows to compare marked rows with: new ones if some of those are new, and none that the model learnt from."""
    if used_rows is None:
        return np.ones(len(ids), dtype=bool)
    held_out, seen = ~used_rows.trained_on(ids), used_rows.seen_rows(ids)
    return held_out if seen is None or not (marked & ~seen).any() else held_out & ~seen


def _training_graph(folder: GraphFolder, seed: int) -> TrainingGraph:
    schema = _schema_in(folder)
    if folder.y is None:
        raise TableError(f"{folder.path} has no labels; prepare the graph with `label_column`")
    split, none = _split_of(folder, schema, seed), np.empty((2, 0), dtype=np.int64)
    used = UsedRows.of(_ids(folder), split, folder.x.numpy(), none)
    if used is not None:
        num_edges = int(folder.offsets.diff()[torch.from_numpy(split.calibration)].sum())
        used = replace(used, num_reference_edges=num_edges, folder=folder.manifest.made_from)
    masks = {name: torch.from_numpy(mask) for name, mask in split.masks(folder.num_nodes).items()}
    masked = folder if folder.train_mask is not None else folder.with_masks(**masks)
    return TrainingGraph(masked, None, split, schema, used, [], list(folder.manifest.notes))


def _schema_in(folder: GraphFolder) -> TableSchema:
    manifest = folder.manifest
    if manifest.table is None:
        raise TableError(f"{folder.path} was not made from tables; use it from Python: Detector.fit(GraphFolder(...))")
    return TableSchema.from_json(manifest.table, folder.num_features, len(manifest.classes or []))


def _split_of(folder: GraphFolder, schema: TableSchema, seed: int) -> Split:
    masks = [getattr(folder, name) for name in SPLIT_MASKS]
    if all(mask is not None for mask in masks):
        return Split(*(np.flatnonzero(mask.numpy()) for mask in masks))
    assert folder.y is not None
    return split_labelled(folder.y.numpy(), schema.classes, seed)


def _ids(folder: GraphFolder) -> Any:
    return arrow_ids(folder.id_arrays(), 0, folder.num_nodes)


def _check_same_columns(model: TableModel, folder: GraphFolder) -> None:
    schema = _schema_in(folder)
    if schema.features != model.schema.features:
        raise TableError(
            f"{folder.path} was prepared with features that differ from those the model was fitted on; prepare it with "
            "`model`, so that columns are read as the model reads them"
        )
    if schema.weights != model.schema.weights:
        prepared, expected = (
            "no weights of edges" if weights is None else f"the column {weights.name!r} as weights of edges"
            for weights in (schema.weights, model.schema.weights)
        )
        raise TableError(
            f"{folder.path} was prepared with {prepared}, but the model was fitted with {expected}; prepare it with "
            "`model`, so that edges are read as the model reads them"
        )


def score_folder(
    model: TableModel,
    folder: GraphFolder,
    out: str | os.PathLike | TableTarget,
    explain: bool = False,
    raw_text: bool = False,
    *,
    evidence: bool = False,
    **rule: Any,
) -> ScoreReport:
    """Score every node of a graph folder and write one row for each."""
    from oddnode.large.ranks import active_ranks

    target, detector, decide = as_target(out), model.detector, Rule(**rule)
    check_target(target, [])
    check_id_column(model.schema, detector)
    outputs, notes = model.outputs(folder, decide.batch)
    ids = _ids(folder)
    use, seen = _uses(model, folder, ids)
    named = model.schema, ids, use
    scored = ScoredNodes(detector, *named, outputs, explain, seen=seen, rule=decide, evidence=evidence)
    changed = active_ranks().on_rank_zero(lambda: write_table(scored.parts(), target, raw_text), int)
    notes += scored.notes(model.basis) + detector.scorer_.notes(outputs)
    # A folder has undirected edges twice.
    num_edges = folder.num_edges if model.schema.directed else folder.num_edges // 2
    return scored.report(num_edges, notes, changed, target)


def _is_fitted_on(model: TableModel, folder: GraphFolder) -> bool:
    return model.used_rows is not None and model.used_rows.folder == folder.manifest.made_from


def _with_references(model: TableModel, folder: GraphFolder) -> tuple[GraphFolder, str]:
    """Mark the reference rows and those of the fit in another folder, as `with_references` does in tables."""
    rows, is_compared = model.used_rows, model.detector.state_.references and not _is_fitted_on(model, folder)
    if rows is None or not is_compared or folder.num_nodes > MOST_ROWS:
        return folder, "the reference rows were not found, because this graph does not begin with the rows of the fit"
    ids = _ids(folder)
    mask, message = rows.reference_rows(ids, folder.x.numpy(), folder.offsets.diff().numpy())
    seen = rows.seen_rows(ids)
    if mask is None or seen is None:
        return folder, message
    return folder.with_masks(reference_mask=torch.from_numpy(mask), seen_mask=torch.from_numpy(seen)), message


def _uses(model: TableModel, folder: GraphFolder, ids: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """What nodes were used for, an index into `USES` or -1, and which were seen at fit; ``None`` if nobody knows."""
    if not _is_fitted_on(model, folder):
        known = model.used_rows if folder.num_nodes <= MOST_ROWS else None
        return uses_of(known, ids), None if known is None else known.seen_rows(ids)
    use = np.full(folder.num_nodes, -1, dtype=np.int8)
    if folder.y is not None:
        split = _split_of(folder, model.schema, model.detector.seed)
        for number, part in enumerate((split.train, split.validation, split.calibration)):
            use[part] = number
    return use, np.ones(folder.num_nodes, dtype=bool)


def calibrate_folder(
    model: TableModel, folder: GraphFolder, false_alarm_rate: float | None = None
) -> CalibrationReport:
    """Recalibrate the threshold on the calibration nodes of a graph folder; the network is unchanged."""
    _check_same_columns(model, folder)
    detector = model.detector
    rate = detector.false_alarm_rate_ if false_alarm_rate is None else false_alarm_rate
    known = _known(model, folder)
    if _is_fitted_on(model, folder):
        trained = np.isin(_uses(model, folder, _ids(folder))[0], (0, 1))
    else:
        model.basis, trained = "in place" if detector.outputs(folder).references else "stored", np.zeros_like(known)
        if model.used_rows is not None:
            trained[known] = model.used_rows.trained_on(_ids(folder).filter(pa.array(known)))
    before = detector.threshold_
    used = {"train_mask": torch.from_numpy(trained), "val_mask": torch.zeros(folder.num_nodes, dtype=torch.bool)}
    detector.calibrate(folder.with_masks(**used), rate, torch.from_numpy(known & ~trained))
    return _calibration_report(detector, before, num_left_out=int((known & trained).sum()))


def _known(model: TableModel, folder: GraphFolder) -> np.ndarray:
    if folder.y is None:
        raise TableError(f"{folder.path} has no labels; prepare the graph with `label_column`")
    if list(model.schema.classes) != folder.manifest.classes:
        raise TableError(f"{folder.path} numbers its labels differently from the model; prepare it with `model`")
    known = folder.y.numpy() >= 0
    if not known.any():
        raise TableError(f"{folder.path} has no node with a label that the model knows")
    return known
