"""The methods of a fitted detector: scores, predictions, decisions and explanations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.export import ExportedProgram

from oddnode._utils.modes import gradients_enabled
from oddnode.detector.adaptation import labelled_nodes
from oddnode.detector.attributes import NOT_FITTED, FittedAttributes
from oddnode.detector.calibration import Calibration, calibration_nodes
from oddnode.detector.explanation import Explanation, explain, positions, reasons
from oddnode.detector.exporting import exported
from oddnode.detector.feature_range import clip_far_features, lower_far_scores
from oddnode.detector.folders import device_for, with_dtype
from oddnode.detector.own_parts import node_scores
from oddnode.detector.recognition import references_in, seen_in
from oddnode.functional import CalibrationError
from oddnode.graph import Graph, GraphError, GraphSource, as_source
from oddnode.large import outputs_of
from oddnode.large.rooms import own_copy
from oddnode.scoring import Names, Outputs

__all__ = ["FittedEstimator"]


class FittedEstimator(FittedAttributes):
    """Base of `oddnode.Detector` with everything that needs a fitted state and a device, but no settings."""

    device: str

    @gradients_enabled()
    def outputs(self, data: GraphSource) -> Outputs:
        """Run the network on a graph once, for several of the methods below.

        Parameters
        ----------
        data : GraphSource
            N nodes. Those in its ``train_mask`` and ``val_mask`` are labelled ID nodes for scorers that use
            them as anchors. For scorers that compare with reference nodes, those of the training graph are recognised
            if the nodes of that graph come first, or else among the nodes in ``val_mask``; or ``reference_mask`` marks
            them. All nodes of the training graph are recognised if they come first; or ``seen_mask`` marks them.

        Returns
        -------
        Outputs
            The methods below accept it instead of the graph.
        """
        state, data = self.state_, as_source(data)
        graph = Graph.from_data(data, device_for(self.device, data))
        if graph.x.shape[1] != state.num_features:
            raise GraphError(
                f"data.x has {graph.x.shape[1]} features, but the detector was fitted on {state.num_features}"
            )
        graph, far = clip_far_features(graph, state.max_abs_feature)
        graph = with_dtype(graph, state.dtype)
        references = references_in(state.references, data, graph)
        seen = seen_in(state.references, state.profile.num_nodes, data, graph)
        labelled = labelled_nodes(data, graph.device)
        return outputs_of(state.module, graph, state.num_classes, labelled, references, far, seen)

    @gradients_enabled()
    def score_samples(self, data: GraphSource | Outputs) -> Tensor:
        """Score every node; higher = more like the training distribution.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.

        Returns
        -------
        Tensor
            Scores ``[N]``, finite, on the device of the data. Nodes whose features are far beyond those of training
            score below all others.
        """
        data = _as_source(data)
        outputs = self._outputs(data)
        return _to_device_of(data, self._checked(node_scores(self.scorer_, outputs), outputs))

    @gradients_enabled()
    def predict(self, data: GraphSource | Outputs) -> Tensor:
        """Predict the most likely ID class of every node.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.

        Returns
        -------
        Tensor
            Classes ``[N]``, on the device of the data.
        """
        data = _as_source(data)
        return _to_device_of(data, self._outputs(data).logits.argmax(dim=-1))

    @gradients_enabled()
    def predict_proba(self, data: GraphSource | Outputs) -> Tensor:
        """Predict the probabilities of the ID classes.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.

        Returns
        -------
        Tensor
            Probabilities ``[N, C]``, on the device of the data.
        """
        data = _as_source(data)
        return _to_device_of(data, self._outputs(data).logits.softmax(dim=-1))

    @gradients_enabled()
    def calibrate(self, data: GraphSource, false_alarm_rate: float = 0.05, mask: Tensor | None = None) -> Self:
        """Choose the threshold so that a known node is flagged with at most the given probability.

        Parameters
        ----------
        data : GraphSource
            A graph with ID nodes that were used neither for training nor for choosing the epoch.
        false_alarm_rate : float
            The share of known nodes that may be flagged.
        mask : Tensor, optional
            The mask of these nodes ``[N]``; by default ``data.calibration_mask``.

        Returns
        -------
        Detector
            The detector itself.

        Examples
        --------
        >>> from oddnode import Detector, load_task
        >>> task = load_task("digits/label")
        >>> detector = Detector.from_recipe("nodesafe", epochs=50).fit(task.train)
        >>> known = task.train.test_mask & (task.train.y >= 0)
        >>> detector = detector.calibrate(task.train, false_alarm_rate=0.05, mask=known)
        >>> detector.detect(task.id_test.data).dtype
        torch.bool
        """
        data = as_source(data)
        nodes = calibration_nodes(data, mask, self.num_classes_)
        outputs = self.outputs(data)
        nodes = nodes.to(outputs.graph.device)
        scores, classes = self.score_samples(outputs)[nodes], self.predict(outputs)[nodes]
        return self._with_state(self.state_, Calibration.from_scores(scores, classes, false_alarm_rate))

    def set_false_alarm_rate(self, false_alarm_rate: float) -> Self:
        """Choose the threshold for another rate of false alarms, on the same calibration nodes.

        Parameters
        ----------
        false_alarm_rate : float
            The share of known nodes that may be flagged.

        Returns
        -------
        Detector
            The detector itself.
        """
        known = self._calibrated()
        return self._with_state(self.state_, Calibration.from_scores(known.scores, known.classes, false_alarm_rate))

    def detect(self, data: GraphSource | Outputs) -> Tensor:
        """Flag nodes at the calibrated false-alarm rate.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.

        Returns
        -------
        Tensor
            One boolean per node ``[N]``, True = out-of-distribution; equal to ``p_values(data) <= false_alarm_rate``.
        """
        return self._calibrated().detect(self.score_samples(data))

    def p_values(self, data: GraphSource | Outputs, per_class: bool = False) -> Tensor:
        """Compute conformal p-values: the share of known nodes that score as low as a node, or lower.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        per_class : bool
            Whether to compare each node with the calibration nodes of its own predicted class only.

        Returns
        -------
        Tensor
            P-values ``[N]`` in double precision.
        """
        calibration, outputs = self._calibrated(), self._outputs(data)
        return calibration.p_values(self.score_samples(outputs), self.predict(outputs) if per_class else None)

    def flag(self, data: GraphSource | Outputs, fdr: float = 0.1, per_class: bool = False) -> Tensor:
        """Flag nodes so that the expected share of known nodes among them is at most ``fdr``.

        Uses the Benjamini-Hochberg procedure on the p-values of all nodes.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        fdr : float
            The false discovery rate.
        per_class : bool
            As for `p_values`.

        Returns
        -------
        Tensor
            One boolean per node ``[N]``, True = flagged.
        """
        calibration, outputs = self._calibrated(), self._outputs(data)
        return calibration.flag(self.score_samples(outputs), fdr, self.predict(outputs) if per_class else None)

    @gradients_enabled()
    def explain(self, data: GraphSource | Outputs) -> Explanation:
        """Split every score into the node's own score and the contribution of its neighbours; find the nearest class.

        If the scorer combines kinds of evidence (`oddnode.scoring.Evidence`), it also says how strongly each speaks
        against every node. `reasons` puts it into words.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        """
        data = _as_source(data)
        outputs = self._outputs(data)
        found = explain(self.state_, outputs)
        score = self._checked(found.score, outputs)
        found = found._replace(score=score, neighbour_contribution=score - found.own_score)
        return found if isinstance(data, Outputs) else found.to(data.x.device)

    @gradients_enabled()
    def reasons(
        self,
        data: GraphSource | Outputs,
        nodes: Tensor | Sequence[int] | None = None,
        *,
        node_names: Sequence[object] | None = None,
        class_names: Sequence[object] | None = None,
    ) -> list[str]:
        """Say in words why nodes have low scores: the one or two strongest kinds of evidence against each.

        Known nodes, of which the sentences speak, are the reference nodes of the scorer; for a scorer that has none,
        the calibration nodes. Neighbours are the nodes whose edges lead to a node, each once.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        nodes : Tensor or sequence of int, optional
            Positions ``[n]``, or a mask ``[N]``; by default the nodes that `detect` flags.
        node_names, class_names : sequence, optional
            What the N nodes and the C classes are called; by default their numbers.

        Returns
        -------
        list of str
            One or two sentences for each of the nodes.

        Examples
        --------
        >>> from oddnode import Detector, load_task
        >>> task = load_task("digits/feature")
        >>> detector = Detector.from_recipe("nodesafe-evidence", epochs=20).fit(task.train)
        >>> why = detector.reasons(task.tests["feature"])
        >>> len(why) == int(detector.detect(task.tests["feature"]).sum())
        True
        """
        outputs = self._outputs(data)
        scores = self.score_samples(outputs)
        flagged = self._calibrated().detect(scores) if nodes is None else nodes
        chosen = positions(flagged, outputs.graph.num_nodes)
        names = Names(node_names, class_names)
        return reasons(self.state_, outputs, chosen, scores, self.calibration_, names)

    def export(self) -> ExportedProgram:
        """Export `score_samples` as a plain torch program, for graphs of any size.

        ``torch.export.save(detector.export(), "scores.pt2")`` writes it. Programs that have torch, but not this
        library, load it: ``torch.export.load("scores.pt2").module()(x, edge_index)``. Inputs are not checked there.

        Returns
        -------
        torch.export.ExportedProgram
            It takes features ``[N, F]`` in the precision of the network and edges ``[2, E]``, which all count the same,
            and returns scores ``[N]``, equal up to rounding to those of a graph without weights, on the device of the
            network. Compare them with ``threshold_`` to decide.

        Raises
        ------
        TypeError
            If the scorer needs more than the network and the edges (``Scorer.supports_export``), or the network cannot
            be traced.
        """
        return exported(self.state_, self.calibration_)

    def _outputs(self, data: GraphSource | Outputs) -> Outputs:
        return data if isinstance(data, Outputs) else self.outputs(data)

    def _checked(self, scores: Tensor, outputs: Outputs) -> Tensor:
        """Finite scores, those of nodes far beyond training below all others."""
        finite = scores.isfinite()
        if not bool(finite.all()):
            node = int((~finite).nonzero()[0])
            raise ValueError(
                f"{int((~finite).sum())} of {len(scores)} scores are not finite, the first is {float(scores[node])} at "
                f"node {node}: the network's outputs overflow; check the scale of the features, and fit again"
            )
        known = None if self.calibration_ is None else self.calibration_.scores
        return lower_far_scores(scores, outputs.far, known)

    def _calibrated(self) -> Calibration:
        check_is_fitted(self, msg=NOT_FITTED)
        if self.calibration_ is None:
            raise CalibrationError(self._not_calibrated)
        return self.calibration_


def _as_source(data: GraphSource | Outputs) -> GraphSource | Outputs:
    return data if isinstance(data, Outputs) else as_source(data)


def _to_device_of(data: GraphSource | Outputs, result: Tensor) -> Tensor:
    """Move the result to the device of the user's graph, where its masks are; the user may change it."""
    return own_copy(result if isinstance(data, Outputs) else result.to(data.x.device))
