"""`Detector`: a backbone, an objective and a scorer, with the estimator interface of scikit-learn."""

from __future__ import annotations

import copy
import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

import torch
from torch import Tensor, nn

from oddnode._utils.checked_json import show
from oddnode._utils.suggestions import unknown
from oddnode.detector import hub, saving
from oddnode.detector.drift import Drift
from oddnode.detector.explanation import Explanation, explain, node_indices, reasons
from oddnode.detector.feature_range import clip_far_features, lower_far_scores
from oddnode.detector.fitted import Calibration, FittedState, as_scorer, calibration_nodes, gradients_enabled
from oddnode.detector.fitting import (
    TrainingKey,
    calibration_by_references,
    device_for,
    fit_together,
    hash_of_weights,
    outputs_of,
    with_dtype,
    wrapped_state,
)
from oddnode.detector.recipes import RECIPES
from oddnode.detector.reference import labelled_nodes, references_in, seen_in
from oddnode.functional import CalibrationError
from oddnode.graph import Graph, GraphError, GraphProfile, GraphSource, as_source, checked_nodes
from oddnode.objectives import CrossEntropy, Objective
from oddnode.scoring import BatchDifference, Names, Outputs, Scorer, batch_differences
from oddnode.training import BatchNormStatistics, Trainer

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_log = logging.getLogger("oddnode")
# Parameters that take effect after training, or have a separate field in `TrainingKey`.
_NOT_IN_KEY = {"backbone", "objective", "scorer", "propagation", "trainer", "device", "seed"}
_NOT_FITTED = "this Detector is not fitted yet: call fit(data) first"
_NOT_CALIBRATED = (
    "this Detector has no threshold yet: call calibrate(data, false_alarm_rate=0.05) with held-out known nodes first"
)


def _raise_not_fitted(message: str) -> NoReturn:
    from sklearn.exceptions import NotFittedError  # takes as long to import as torch

    raise NotFittedError(message)


def _learnt(name: str) -> Any:
    """A read-only attribute of the fitted state."""
    return property(lambda detector: getattr(detector.state_, name))


def _calibrated(name: str) -> Any:
    """A read-only attribute of the calibration."""

    def read(detector: Detector) -> float:
        if detector.calibration_ is None:
            _raise_not_fitted(detector._not_calibrated)
        return getattr(detector.calibration_, name)

    return property(read)


class Detector:
    """A detector of out-of-distribution nodes: a backbone, an objective and a scorer.

    Parameters
    ----------
    backbone : str or torch.nn.Module
        A name (``"gcn"``), or any module with ``forward(x, edge_index) -> logits`` or another ``forward`` that
        `oddnode.nn.run_backbone` can call; a copy of it is trained.
    objective : Objective, optional
        The loss that training minimises; by default the cross-entropy.
    scorer : Scorer or str, optional
        Turns the outputs of the network into scores, or the name of a method whose scorer it is (``"msp"``); by default
        the energy, propagated over the graph.
    hidden_channels, num_layers, dropout
        Shape of a backbone given by name.
    num_spare_logits : int
        Number of additional logits without a class, for a backbone given by name. Cross-entropy pushes them down on ID
        nodes only. They are never predicted.
    epochs, lr, weight_decay
        Settings of Adam. The weights of the epoch with the lowest validation loss are used.
    val_share : float
        The share of the training nodes to split off, stratified by class, if the data has no ``val_mask``.
    batch_norm : {"id-graph", "running"}
        The source of the statistics of batch norm in evaluation.
    propagation : {"auto", "as-given"}
        Whether a scorer that propagates keeps its number of hops on a graph whose edges mostly join different classes.
        ``"auto"`` reduces it, based on the labels of training and validation nodes, and logs a message.
    ensemble : int
        Number of networks to train, from different seeds. Their scores and their probabilities are averaged. On a GPU
        they are stacked, if the backbone and the objective support it.
    seed : int
        The seed of weights, dropout and the validation split. On the same machine, with the same number of threads,
        it determines the scores; on a CPU bit for bit.
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"``, ...
    trainer : Trainer, optional
        Trains the networks; by default `oddnode.training.FullBatch`.

    Attributes
    ----------
    state_ : FittedState
        Everything that was learnt, as plain data; the attributes below read it.
    calibration_ : Calibration or None
        The result of `calibrate`.
    module_ : torch.nn.Module
        The trained network, or an `oddnode.nn.Ensemble` of them.
    scorer_ : Scorer
        The fitted scorer.
    num_classes_, n_features_in_ : int
        Number of ID classes, and of features of a node.
    best_epoch_ : int
        The epoch with the lowest validation loss, whose weights are used; that of the first network in an ensemble.
    history_ : list of dict
        Training and validation loss of every epoch; in an ensemble, with the index of the member.
    class_means_ : Tensor or None
        Mean logits of every class over the training nodes ``[C, C]``.
    graph_profile_ : GraphProfile
        Size, degrees and homophily of the training graph.
    advice_ : list of str
        Messages on the graph, on how the scorer was adapted to it, and on unreliable scores.
    threshold_, false_alarm_rate_ : float
        The calibrated threshold and its false-alarm rate.

    Examples
    --------
    >>> from oddnode import Detector, load_task
    >>> task = load_task("digits/label")
    >>> detector = Detector.from_recipe("nodesafe", epochs=50).fit(task.train)
    >>> scores = detector.score_samples(task.id_test.data)  # higher = more like the training data
    >>> scores.shape
    torch.Size([1797])
    """

    # The method and hyper-parameters that the objective and the scorer were built from, and these two.
    _made: tuple[str | None, dict[str, Any], Objective | None, Scorer | str | None] = (None, {}, None, None)
    _state: FittedState
    _calibration: Calibration | None = None
    _not_calibrated: str = _NOT_CALIBRATED

    def __init__(
        self,
        backbone: str | nn.Module = "gcn",
        objective: Objective | None = None,
        scorer: Scorer | str | None = None,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        num_spare_logits: int = 1,
        epochs: int = 200,
        lr: float = 0.01,
        weight_decay: float = 0.01,
        val_share: float = 0.2,
        batch_norm: BatchNormStatistics = "id-graph",
        propagation: Literal["auto", "as-given"] = "auto",
        ensemble: int = 1,
        seed: int = 0,
        device: str = "auto",
        trainer: Trainer | None = None,
    ):
        self.backbone = backbone
        self.objective = objective
        self.scorer = scorer
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.dropout = dropout
        self.num_spare_logits = num_spare_logits
        self.epochs = epochs
        self.lr = lr
        self.weight_decay = weight_decay
        self.val_share = val_share
        self.batch_norm = batch_norm
        self.propagation = propagation
        self.ensemble = ensemble
        self.seed = seed
        self.device = device
        self.trainer = trainer

    # The interface of scikit-learn's estimators, without the import, which takes as long as torch's.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool
            Without effect: no parameter is an estimator.
        """
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change some parameters.

        Parameters
        ----------
        **params
            The parameters by name.
        """
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise unknown("parameter", name, known)
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: each.default for name, each in inspect.signature(type(self)).parameters.items()}
        changed = (
            f"{name}={value!r}" for name, value in self.get_params().items() if repr(value) != repr(defaults[name])
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator().__sklearn_tags__()

    def __sklearn_is_fitted__(self) -> bool:
        return "_state" in vars(self)

    @classmethod
    def from_recipe(
        cls,
        name: str,
        backbone: str | nn.Module = "gcn",
        seed: int = 0,
        device: str = "auto",
        **overrides: Any,
    ) -> Detector:
        """Make the detector of a method, with the method's settings.

        Parameters
        ----------
        name : str
            The method, one of `oddnode.RECIPES`.
        backbone, seed, device
            As for `Detector`.
        **overrides
            Hyper-parameters of the method (``lambda2=1.0``, ``num_hops=2``, ...) or arguments of `Detector`
            (``epochs=50``, ...).
        """
        recipe = RECIPES[name]
        own = set(recipe.hyper_parameters)
        general = set(inspect.signature(cls.__init__).parameters) - {"self", "objective", "scorer"}
        for key in overrides:
            if key not in own | general:
                raise unknown(f"setting of {name}", key, sorted(own) + sorted(general))
        given = {k: v for k, v in overrides.items() if k in own}
        objective, scorer = recipe.build(**given)
        rest = recipe.settings | {k: v for k, v in overrides.items() if k not in own}
        if recipe.backbone and backbone not in ("gcn", recipe.backbone):
            raise ValueError(f"{name} requires the backbone {recipe.backbone}; leave backbone out")
        detector = cls(recipe.backbone or backbone, objective, scorer, seed=seed, device=device, **rest)
        detector._made = name, given, objective, scorer
        return detector

    def fit(
        self, data: GraphSource, exposure: GraphSource | None = None, *, on_epoch: Callable[[int], None] | None = None
    ) -> Detector:
        """Train on a graph, and return the detector itself.

        Parameters
        ----------
        data : GraphSource
            A PyG ``Data``, or another graph with ``x``, ``edge_index``, ``y`` and ``train_mask``
            (`oddnode.graph.as_source`); validation nodes are split off if it has no ``val_mask``. The nodes in its
            ``calibration_mask``, if it has one, calibrate the threshold at a false-alarm rate of 5 %. It may have
            neither ``y`` nor ``train_mask`` if the scorer does not use the network, as that of
            ``evidence-unlabelled``; reference nodes are then drawn at random from all nodes, unless
            ``reference_mask`` marks some.
        exposure : GraphSource, optional
            A graph with known OOD nodes (those in its ``ood_mask``, or all nodes without one), for objectives and
            scorers that learn from them.
        on_epoch : callable, optional
            Called with the number of finished epochs.
        """
        fit_together([self], [data], [exposure], on_epoch=on_epoch)
        return self

    @classmethod
    def wrap(
        cls,
        module: nn.Module,
        scorer: Scorer | str | None = None,
        data: GraphSource | None = None,
        *,
        num_classes: int | None = None,
        propagation: Literal["auto", "as-given"] = "auto",
        device: str = "auto",
    ) -> Detector:
        """Make a detector from a trained network, without training it again.

        The module is copied; its weights, its mode and its batch-norm statistics are not changed.

        Parameters
        ----------
        module : torch.nn.Module
            A trained network, as for `Detector`.
        scorer : Scorer or str, optional
            As for `Detector`.
        data : GraphSource
            A graph of the kind the module was trained on. If it has ``train_mask`` and ``y``, they determine the number
            of classes, and scorers that learn from training nodes can be used. Scorers that compare with reference
            nodes also need a ``reference_mask``: labelled nodes that the module was neither trained nor validated on.
            Without one, the nodes in a ``calibration_mask`` are the reference nodes.
        num_classes : int, optional
            Number of classes; by default that of the training labels, or else the number of logits.
        propagation, device
            As for `Detector`.

        Examples
        --------
        >>> from oddnode import Detector, Energy, GCN, Propagated, load_task
        >>> graph = load_task("digits/label").train
        >>> trained = GCN(64, 16, 5)  # yours would be trained
        >>> detector = Detector.wrap(trained, scorer=Propagated(Energy()), data=graph)
        >>> detector.score_samples(graph).shape[0] == graph.num_nodes
        True
        """
        detector = cls(module, None, scorer, propagation=propagation, device=device)
        state = wrapped_state(detector, module, as_source(data), num_classes)
        return detector._with_state(state, calibration_by_references(state))

    def with_scorer(self, scorer: Scorer | str) -> Detector:
        """Use another scorer with the same trained network. The scorer is not adapted to the graph.

        Parameters
        ----------
        scorer : Scorer or str
            The scorer, or the name of a method whose scorer it is. If it learns from the training graph, the detector
            must have been fitted, not loaded.

        Returns
        -------
        Detector
            A new detector. It is not calibrated, because a threshold belongs to a scorer, unless the new scorer
            compares nodes with reference nodes.
        """
        other, scorer = copy.copy(self), as_scorer(scorer)
        other.scorer = scorer
        state = replace(self.state_.with_scorer(scorer), advice=[])
        return other._with_state(state, calibration_by_references(state))

    @gradients_enabled()
    def outputs(self, data: GraphSource, batch: bool = True) -> Outputs:
        """Run the network on a graph once; the methods below take the result in place of the graph.

        Parameters
        ----------
        data : GraphSource
            N nodes. Those in its ``train_mask`` and ``val_mask`` are labelled ID nodes for scorers that use
            them as anchors. For scorers that compare with reference nodes, these are recognised
            if the nodes of that graph come first, or else among the nodes in ``val_mask``; or ``reference_mask`` marks
            them. All nodes of the training graph are recognised if they come first; or ``seen_mask`` marks them.
        batch : bool
            Whether scorers such as `oddnode.Evidence` may judge new nodes by what they have in common, so that a score
            depends on the other new nodes.
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
        return outputs_of(state.module, graph, state.num_classes, labelled, references, far, seen, batch)

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
            Scores ``[N]``, finite, on the device of the data. Nodes whose features are far outside the range of
            training score below all others.
        """
        outputs, device = self._outputs(data)
        return outputs.graph.own_copy(self._scores(outputs).to(device))

    @gradients_enabled()
    def predict(self, data: GraphSource | Outputs) -> Tensor:
        """Predict the most likely ID class of every node ``[N]``, on the device of the data.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        """
        outputs, device = self._outputs(data)
        return outputs.logits.argmax(dim=-1).to(device)

    @gradients_enabled()
    def predict_proba(self, data: GraphSource | Outputs) -> Tensor:
        """Predict the probabilities of the ID classes ``[N, C]``, on the device of the data.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        """
        outputs, device = self._outputs(data)
        return outputs.logits.softmax(dim=-1).to(device)

    @gradients_enabled()
    def calibrate(
        self,
        data: GraphSource | Outputs,
        false_alarm_rate: float = 0.05,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Self:
        """Choose the threshold so that a known node is flagged with at most the given probability.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph with ID nodes that were used neither for training nor for choosing the epoch, drawn at random.
        false_alarm_rate : float
            The share of known nodes that may be flagged.
        mask : Tensor, optional
            The mask of these nodes ``[N]``; by default ``data.calibration_mask``. Outputs need one.
        weights : Tensor, optional
            How many known nodes each node stands for ``[N]``: 1 over the probability that it was drawn. Needed unless
            the nodes were drawn at random, all alike; only those of the calibration nodes are used.

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
        if isinstance(data, Outputs):
            nodes = checked_nodes(mask, data.graph.num_nodes, "mask")
        else:
            data = as_source(data)
            nodes = calibration_nodes(data, mask, self.num_classes_)
        outputs, _ = self._outputs(data)
        nodes = nodes.to(outputs.graph.device)
        scores, classes = self.score_samples(outputs)[nodes], self.predict(outputs)[nodes]
        weights = None if weights is None else weights.to(nodes.device)[nodes]
        return self._with_state(self.state_, Calibration.from_scores(scores, classes, false_alarm_rate, weights))

    def set_false_alarm_rate(self, false_alarm_rate: float) -> Self:
        """Choose the threshold for another false-alarm rate, with the same calibration nodes.

        Parameters
        ----------
        false_alarm_rate : float
            The share of known nodes that may be flagged.
        """
        old = self._calibrated()
        known = Calibration.from_scores(old.scores, old.classes, false_alarm_rate, old.weights)
        return self._with_state(self.state_, known)

    def detect(self, data: GraphSource | Outputs) -> Tensor:
        """Flag nodes at the calibrated false-alarm rate; a warning is logged if these are far too many.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.

        Returns
        -------
        Tensor
            One boolean per node ``[N]``, True = out-of-distribution; equal to ``p_values(data) <= false_alarm_rate``.
        """
        calibration, (outputs, device) = self._calibrated(), self._outputs(data)
        for note in self._doubts(outputs):
            _log.warning("%s", note)
        return calibration.detect(self.score_samples(outputs)).to(device)

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
            P-values ``[N]``, float64.
        """
        calibration, (outputs, _) = self._calibrated(), self._outputs(data)
        return calibration.p_values(self.score_samples(outputs), self.predict(outputs) if per_class else None)

    def flag(
        self,
        data: GraphSource | Outputs,
        fdr: float = 0.1,
        per_class: bool = False,
        nodes: Tensor | Sequence[int] | None = None,
    ) -> Tensor:
        """Flag nodes so that the expected share of known nodes among them is at most ``fdr``.

        Uses the Benjamini-Hochberg procedure on the p-values of some nodes; no other is flagged.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        fdr : float
            The false discovery rate.
        per_class : bool
            As for `p_values`.
        nodes : Tensor or sequence of int, optional
            Indices ``[n]``, or a mask ``[N]``, of these nodes; by default those that are new, as far as `outputs`
            recognises the training graph, or else all.

        Returns
        -------
        Tensor
            One boolean per node ``[N]``, True = flagged.
        """
        calibration, (outputs, _) = self._calibrated(), self._outputs(data)
        is_new = None if outputs.seen is None or bool(outputs.seen.all()) else ~outputs.seen
        for note in self._doubts(outputs):
            _log.warning("%s", note)
        count = outputs.graph.num_nodes
        chosen = is_new if nodes is None else node_indices(nodes, count).to(outputs.graph.device)
        among = slice(None) if chosen is None else chosen
        scores, classes = self.score_samples(outputs), self.predict(outputs) if per_class else None
        flagged = torch.zeros(count, dtype=torch.bool, device=scores.device)
        flagged[among] = calibration.flag(scores[among], fdr, None if classes is None else classes[among])
        return flagged

    def drift(self, data: GraphSource | Outputs, nodes: Tensor | Sequence[int] | None = None) -> Drift:
        """Compare nodes that the detector has not seen with those that it was calibrated on.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        nodes : Tensor or sequence of int, optional
            Indices ``[n]``, or a mask ``[N]``, of the nodes that it has not seen; by default all nodes except those of
            the training graph, as far as `outputs` recognises them.
        """
        calibration, (outputs, _) = self._calibrated(), self._outputs(data)
        graph = outputs.graph
        if nodes is None:
            nodes = torch.ones(graph.num_nodes, dtype=torch.bool) if outputs.seen is None else ~outputs.seen
        chosen = node_indices(nodes, graph.num_nodes).to(graph.device)
        num_isolated = int((graph.num_others()[chosen] == 0).sum())
        scores = self.score_samples(outputs)[chosen]
        return Drift.of(scores, calibration, num_isolated, self.graph_profile_.isolated_share)

    def notes(self, data: GraphSource | Outputs) -> list[str]:
        """Say what to know about the scores of a graph: how nodes were compared, and what makes the threshold doubtful.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        """
        outputs, _ = self._outputs(data)
        return self.scorer_.notes(outputs) + (self._doubts(outputs) if self.calibration_ is not None else [])

    def _doubts(self, outputs: Outputs) -> list[str]:
        """Say that the threshold may not fit a graph, if far too many of its new nodes are below it."""
        if outputs.seen is not None and bool(outputs.seen.all()):
            return []
        drift = self.drift(outputs)
        if not drift.flags_too_many:
            return []
        nodes = "nodes" if outputs.seen is None else "nodes that the detector has not seen"
        found = (
            f"{drift.num_flagged} of {drift.num_nodes} {nodes} are flagged, where about "
            f"{drift.false_alarm_rate:.0%} of known ones would be: either many are unknown, or the threshold does not "
            "fit this graph; check some of them, and calibrate on known nodes of this graph"
        )
        if self.state_.references and not outputs.references:
            found += (
                ". The reference nodes were not found in it, so that nodes are compared with them as they were at fit: "
                "score the training graph and the new nodes together, or mark them (reference_mask, seen_mask)"
            )
        return [found]

    @gradients_enabled()
    def explain(self, data: GraphSource | Outputs) -> Explanation:
        """Split every score into the node's own score and the contribution of its neighbours; find the nearest class.

        If the scorer combines kinds of evidence (`oddnode.scoring.Evidence`), the result includes the strength of each
        against every node. `reasons` puts it into words.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        """
        outputs, device = self._outputs(data)
        return explain(self.state_, outputs, self._scores(outputs)).to(device)

    @gradients_enabled()
    def reasons(
        self,
        data: GraphSource | Outputs,
        nodes: Tensor | Sequence[int] | None = None,
        *,
        node_names: Sequence[object] | None = None,
        class_names: Sequence[object] | None = None,
        feature_names: Sequence[object] | None = None,
    ) -> list[str]:
        """Say in words why nodes have low scores: a sentence for each of the one or two strongest kinds of evidence.

        The known nodes in these sentences are the reference nodes of the scorer or, if it has none, the calibration
        nodes. Neighbours are the sources of the edges to a node, each counted once.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph of N nodes.
        nodes : Tensor or sequence of int, optional
            Indices ``[n]``, or a mask ``[N]``; by default the nodes that `detect` flags.
        node_names, class_names, feature_names : sequence, optional
            Names of the N nodes, the C classes and the F features; by default their indices.

        Examples
        --------
        >>> from oddnode import Detector, load_task
        >>> task = load_task("digits/feature")
        >>> detector = Detector.from_recipe("nodesafe-evidence", epochs=20).fit(task.train)
        >>> why = detector.reasons(task.tests["feature"])
        >>> len(why) == int(detector.detect(task.tests["feature"]).sum())
        True
        """
        outputs, _ = self._outputs(data)
        scores = self.score_samples(outputs)
        chosen = node_indices(self._calibrated().detect(scores) if nodes is None else nodes, outputs.graph.num_nodes)
        names = Names(node_names, class_names, feature_names)
        return reasons(self.state_, outputs, chosen, scores, self.calibration_, names)

    @gradients_enabled()
    def batch_differences(self, data: GraphSource | Outputs) -> tuple[BatchDifference, ...]:
        """Find what sets the new nodes of a graph apart as a whole, the most telling first, at most three things.

        These are what the batch's classifier tells new nodes from known ones by. Empty if the method does not compare
        batches, if there are fewer than 100 new nodes, or if new and known nodes hardly differ.

        Parameters
        ----------
        data : GraphSource or Outputs
            A graph that begins with the training graph.
        """
        outputs, _ = self._outputs(data)
        return batch_differences(self.scorer_.comparisons(outputs), outputs)

    def export(self) -> ExportedProgram:
        """Export `score_samples` as a plain torch program, for graphs of any size.

        ``torch.export.save(detector.export(), "scores.pt2")`` writes it. Programs that have torch, but not this
        library, load it: ``torch.export.load("scores.pt2").module()(x, edge_index)``. Inputs are not checked there.

        Returns
        -------
        torch.export.ExportedProgram
            It takes features ``[N, F]`` with the dtype of the network and edges ``[2, E]``, without weights, and
            returns scores ``[N]`` on the device of the network, equal up to rounding to `score_samples` of a graph
            without weights. Compare them with ``threshold_`` to decide.

        Raises
        ------
        TypeError
            If the scorer needs more than the network and the edges (``Scorer.supports_export``), or the network cannot
            be traced.
        """
        from oddnode.detector.exporting import exported  # torch.export takes long to import

        return exported(self.state_, self.calibration_)

    def save(self, path: str | os.PathLike) -> None:
        """Save the fitted detector atomically as a folder with ``config.json`` and ``model.safetensors``.

        Parameters
        ----------
        path : path
            The folder. A saved detector is replaced; any other folder must be empty.
        """
        saving.save(self, path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        backbone: nn.Module | None = None,
        objective: Objective | None = None,
        scorer: Scorer | str | None = None,
        device: str = "auto",
    ) -> Detector:
        """Load a detector that `save` wrote; its scores are equal bit for bit.

        Nothing in the folder is executed: parts are built by name from classes of this library and of loaded plugins.

        Parameters
        ----------
        path : path
            The folder.
        backbone, objective, scorer
            Custom parts, which are not in the folder; a copy of the module gets the saved weights. With a scorer other
            than the saved one, the detector has no threshold until it is calibrated.
        device : str
            As for `Detector`.

        Raises
        ------
        ModelFileError
            If the folder is damaged, incomplete, or not a saved detector.
        """
        return saving.load(cls, path, backbone=backbone, objective=objective, scorer=scorer, device=device)[0]

    def push_to_hub(
        self,
        repo_id: str,
        *,
        measured: Mapping[str, Any] | None = None,
        with_node_vectors: bool = False,
        private: bool = True,
        token: str | None = None,
    ) -> str:
        """Upload the fitted detector to the Hugging Face Hub, with a model card, and return the URL of the commit.

        It needs the extra ``hub``. Neither ids nor their hashes, nor tables, nor features or edges of the training
        graph are uploaded. Reference nodes are left out too: the uploaded detector compares nodes with their scores
        at the time of fitting.

        Parameters
        ----------
        repo_id : str
            The repository, ``"user/name"``; it is created if it does not exist.
        measured : mapping, optional
            Numbers for the card: the return value of `oddnode.evaluate`, or of `oddnode.evaluation.Result.summary`.
        with_node_vectors : bool
            Whether vectors of single training nodes may be uploaded, which some scorers compare with: `KNN`,
            `NeighbourhoodFeatures`, and thus all methods with evidence. They have no ids, but features could be
            recovered from them. Vectors of a custom scorer are recognised by the name ``bank_``.
        private : bool
            Whether a repository that is created is private.
        token : str, optional
            A token of the Hub; by default the one that ``hf auth login`` stored.
        """
        return hub.upload(self, repo_id, measured, with_node_vectors, private, token)

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike,
        *,
        revision: str | None = None,
        token: str | None = None,
        backbone: nn.Module | None = None,
        objective: Objective | None = None,
        scorer: Scorer | str | None = None,
        device: str = "auto",
    ) -> Detector:
        """Load a detector from a folder, or from the Hugging Face Hub, which needs the extra ``hub``.

        Everything is checked as in `load`, and nothing that was downloaded is executed.

        Parameters
        ----------
        name : str or path
            A folder that `save` wrote, or else a repository of the Hub, ``"user/name"``.
        revision : str, optional
            A branch, tag or commit of the repository. Only a commit cannot be changed later.
        token : str, optional
            A token of the Hub, for private repositories; by default the one that ``hf auth login`` stored.
        backbone, objective, scorer, device
            As for `load`.
        """
        folder: str | os.PathLike = name
        if isinstance(name, str) and not os.path.isdir(name):
            folder = hub.download(name, revision, token)
        elif revision is not None:
            raise ValueError(f"revision is {revision!r}, but {os.fspath(name)} is a folder, which has none")
        return cls.load(folder, backbone=backbone, objective=objective, scorer=scorer, device=device)

    @property
    def state_(self) -> FittedState:
        """Everything that was learnt, as plain data; the other attributes read it."""
        if "_state" not in vars(self):
            _raise_not_fitted(_NOT_FITTED)
        return self._state

    @property
    def calibration_(self) -> Calibration | None:
        """The result of `calibrate`; ``None`` before."""
        return self._calibration

    # Attributes that end in ``_`` raise scikit-learn's `NotFittedError` before `fit`, as ``hasattr`` and
    # `sklearn.utils.validation.check_is_fitted` expect.
    module_: nn.Module = _learnt("module")
    scorer_: Scorer = _learnt("scorer")
    num_classes_: int = _learnt("num_classes")
    n_features_in_: int = _learnt("num_features")
    best_epoch_: int = _learnt("best_epoch")
    history_: list[dict[str, float]] = _learnt("history")
    class_means_: Tensor | None = _learnt("class_means")
    graph_profile_: GraphProfile = _learnt("profile")
    advice_: list[str] = _learnt("advice")
    threshold_: float = _calibrated("threshold")
    false_alarm_rate_: float = _calibrated("false_alarm_rate")

    def _with_state(
        self, state: FittedState, calibration: Calibration | None = None, not_calibrated: str = _NOT_CALIBRATED
    ) -> Self:
        """Set the fitted state, and the message if a calibration is missing; nothing else sets them."""
        self._state, self._calibration, self._not_calibrated = state, calibration, not_calibrated
        return self

    @property
    def method(self) -> str | None:
        """The method that `from_recipe` made it from; ``None`` if its parts were given one by one, or changed since."""
        name, _, objective, scorer = self._made
        return name if objective is self.objective and scorer is self.scorer else None

    def _adapt_scorer(self, change: Callable[[Scorer], Scorer]) -> None:
        """Replace the scorer by a changed copy, which is still the method's."""
        self.scorer = change(as_scorer(self.scorer))
        self._made = (*self._made[:3], self.scorer)

    @property
    def forecast_(self) -> dict[str, float]:
        """The share of altered known nodes that would be flagged at 5 %, by alteration; empty without a rehearsal."""
        return self.scorer_.forecast

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """The hyper-parameters of `method` that were given to `from_recipe`; the others have their defaults."""
        return {} if self.method is None else dict(self._made[1])

    @property
    def needs_exposure(self) -> bool:
        """Whether `fit` needs a graph with known OOD nodes."""
        objective, scorer = self.objective, as_scorer(self.scorer)
        return scorer.needs_exposure or (objective is not None and objective.needs_exposure)

    def training_key(self, include_seed: bool = True) -> TrainingKey:
        """Return everything that the training of this detector depends on, so that detectors can share a training.

        Parameters
        ----------
        include_seed : bool
            Whether detectors that differ in their seed only have different keys.
        """
        backbone, params = self.backbone, self.get_params(deep=False).items()
        return TrainingKey(
            backbone=backbone if isinstance(backbone, str) else repr(backbone),
            weights=hash_of_weights(backbone) if include_seed and isinstance(backbone, nn.Module) else None,
            objective=repr(self.objective or CrossEntropy()),
            settings=tuple(sorted((name, repr(value)) for name, value in params if name not in _NOT_IN_KEY)),
            trainer="" if self.trainer is None else repr(self.trainer),
            device=self.device,
            seed=self.seed if include_seed else None,
            sets_reference_aside=as_scorer(self.scorer).needs_reference,
            needs_exposure=self.needs_exposure,
        )

    def _outputs(self, data: GraphSource | Outputs) -> tuple[Outputs, torch.device]:
        """The outputs on a graph, and the device of the user's tensors, where results go."""
        if isinstance(data, Outputs):
            return data, data.graph.device
        data = as_source(data)
        return self.outputs(data), data.x.device

    def _scores(self, outputs: Outputs) -> Tensor:
        """One finite score per node, or an error; nodes far outside the range of training score below all others."""
        scores, expected = outputs.scores_of(self.scorer_), (outputs.graph.num_nodes,)
        if not isinstance(scores, Tensor) or scores.shape != expected:
            returned = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(f"{show(self.scorer_)} returned {returned}, expected one score per node, {list(expected)}")
        scores = scores.detach()
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
        _ = self.state_  # an error before fit
        if self.calibration_ is None:
            raise CalibrationError(self._not_calibrated)
        return self.calibration_
