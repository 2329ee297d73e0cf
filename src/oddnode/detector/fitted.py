"""The state of a fitted detector as plain data that can be saved, and the decisions of a calibrated one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oddnode.detector.recipes import RECIPES
from oddnode.detector.reference import ReferenceNodes
from oddnode.functional import (
    CalibrationError,
    benjamini_hochberg,
    conformal_p_values,
    conformal_p_values_per_class,
    negative_energy,
    nodes_needed,
    rate_interval,
    threshold_at,
)
from oddnode.graph import GraphProfile, GraphSource, as_labels, check_mask, checked_nodes
from oddnode.nn import Backbone, Ensemble
from oddnode.scoring import Energy, EnsembleMean, Outputs, Propagated, Scorer
from oddnode.scoring.combinations import share_equal

# Tolerance for sums of probabilities and energies of log-probabilities.
_ROUNDING = 1e-3


@contextmanager
def gradients_enabled() -> Iterator[None]:
    """Undo any `torch.no_grad` or `torch.inference_mode` of the caller; also a decorator.

    Training and some scorers need gradients, and tensors created in inference mode cannot have any. Both modes are
    thread-local, so no other thread is affected.
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield


@dataclass(frozen=True, eq=False)
class TrainingOutputs:
    """The network's outputs on the training graph and its labelled nodes, from which scorers learn."""

    outputs: Outputs  #: The outputs on the training graph of N nodes.
    train: Tensor  #: Indices of the training nodes ``[n]``.
    y: Tensor  #: Their classes ``[n]``.
    #: For networks that set reference nodes aside, the outputs of each on its training graph, without its reference
    #: nodes; otherwise empty.
    parts: tuple[TrainingOutputs, ...] = ()
    #: Indices of the validation nodes ``[m]``; for parts that were trained by `Detector.fit`.
    val: Tensor | None = None
    #: The outputs on the whole exposure graph and the indices of the exposed nodes in it; for the same parts.
    exposure: tuple[Outputs, Tensor] | None = None

    def fit(self, scorer: Scorer) -> Scorer:
        """Fit a scorer; one that needs reference nodes learns from all other nodes, and then compares with them.

        Parameters
        ----------
        scorer : Scorer
            An unfitted scorer; for an ensemble an `oddnode.scoring.EnsembleMean`.
        """
        if not scorer.needs_reference:
            return self.outputs._fit(scorer, self.train, self.y)
        if not self.parts:
            raise ValueError(
                f"{type(scorer).__name__} compares nodes with reference nodes, but this detector has set none aside; "
                "fit a new detector with this scorer, or pass Detector.wrap a graph with a reference_mask"
            )
        fitted, wholes = [], self.outputs.members or [self.outputs]
        shared = self._shared_part() if len(self.parts) > 1 else None
        for own, part, whole in zip(members_of(scorer), self.parts, wholes, strict=True):
            part.outputs.learns_shared = None if shared is None or shared[0] is part.outputs else shared
            learnt = part.outputs._fit(own, part.train, part.y)
            if shared is None or shared[0] is not part.outputs:
                part.outputs.release()  # those of the whole graph are computed next
            learnt = learnt.fit_reference(whole)
            fitted.append(learnt)
        if shared is not None:
            shared[0].release()
            share_equal(fitted)
        fitted = fitted[0].fit_together(fitted, wholes)
        for place, (own, part) in enumerate(zip(members_of(scorer), self.parts, strict=True)):
            learnt = fitted[place]
            if learnt.needs_exposure:
                if part.exposure is None or part.val is None:
                    raise ValueError(
                        f"{type(own).__name__} learns from exposed nodes, but this detector was fitted without any: "
                        "call fit(data, exposure=...)"
                    )
                fitted[place] = learnt.fit_exposure(part.outputs, part.val, *part.exposure)
        fitted = [learnt.fit_scores(whole) for learnt, whole in zip(fitted, wholes, strict=True)]
        return EnsembleMean(tuple(fitted)) if isinstance(scorer, EnsembleMean) else fitted[0]

    def _shared_part(self) -> tuple[Outputs, Tensor, Tensor]:
        """The outputs on the training graph without the reference nodes of any network, and its training nodes."""
        part, first, references = self.parts[0], self.parts[0].outputs, self.outputs.references
        if all(torch.equal(references[0], other) for other in references[1:]):
            return first, part.train, part.y
        rest, new_index = self.outputs.graph.without(torch.cat(list(references)).unique())
        train = new_index[self.train]
        return type(first)(first.module, rest, first.num_classes), train[train >= 0], self.y[train >= 0]

    def class_means(self) -> Tensor | None:
        """Mean logits of every class ``[C, C]``; ``None`` if some class has no training node."""
        members = F.one_hot(self.y, self.outputs.num_classes).to(self.outputs.logits.dtype)
        counts = members.sum(dim=0).unsqueeze(1)
        return members.t() @ self.outputs.logits[self.train] / counts if bool((counts > 0).all()) else None


@dataclass(frozen=True, eq=False)
class FittedState:
    """Everything that a fitted `oddnode.Detector` has learnt."""

    module: nn.Module  #: The trained network, in evaluation mode; an `oddnode.nn.Ensemble` of several.
    num_features: int  #: Number of features of a node.
    num_classes: int  #: Number of ID classes.
    max_abs_feature: float  #: The largest magnitude of a feature of the training graph.
    profile: GraphProfile  #: Size, degrees and homophily of the training graph.
    base_scorer: Scorer  #: The unfitted scorer; it may have fewer hops than the user's.
    scorer: Scorer  #: The fitted scorer; for an ensemble an `oddnode.scoring.EnsembleMean`.
    #: Mean logits of every class ``[C, C]``; ``None`` if a class has no training node.
    class_means: Tensor | None = None
    #: The outputs that another scorer can learn from; ``None`` without a training graph. It is not saved.
    training: TrainingOutputs | None = None
    #: The epoch with the lowest validation loss, whose weights are used; that of the first network in an ensemble.
    best_epoch: int = 0
    #: Training and validation loss of every epoch. It is not saved.
    history: list[dict[str, float]] = field(default_factory=list)
    #: Messages on the graph, on how the scorer was adapted to it, and on unreliable scores.
    advice: list[str] = field(default_factory=list)
    #: The reference nodes of each network; empty unless the scorer needs them.
    references: tuple[ReferenceNodes, ...] = ()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the network."""
        return dtype_of(self.module)

    @gradients_enabled()
    def with_scorer(self, scorer: Scorer) -> FittedState:
        """Fit another scorer to the same network.

        Parameters
        ----------
        scorer : Scorer
            An unfitted scorer. If it learns from the training graph, `training` is needed.
        """
        fitted = unfitted_copy(self.module, scorer)
        if self.training is not None:
            if not isinstance(self.module, (Backbone, Ensemble)):
                check_logits(self.module, self.training.outputs.all_logits, self.num_classes, scorer)
            fitted = self.training.fit(fitted)
        elif scorer.learns_from_training_graph:
            raise ValueError(
                f"{type(scorer).__name__} learns from the training graph, but this detector does not have it: it was "
                "loaded from files, or wrapped without train_mask and y; fit a new detector with this scorer"
            )
        return replace(self, base_scorer=scorer, scorer=fitted)


def members_of(scorer: Scorer) -> tuple[Scorer, ...]:
    """The scorer of each network."""
    return tuple(scorer.scorers) if isinstance(scorer, EnsembleMean) else (scorer,)


def unfitted_copy(module: nn.Module, scorer: Scorer) -> Scorer:
    """Copy the scorer before fitting it; an ensemble has one for each network."""
    return EnsembleMean.of(scorer, len(module.members)) if isinstance(module, Ensemble) else copy.deepcopy(scorer)


def dtype_of(module: nn.Module) -> torch.dtype:
    """Find the dtype of a network's weights."""
    for weight in module.parameters():
        if weight.is_floating_point():
            return weight.dtype
    return torch.get_default_dtype()


def as_scorer(scorer: Scorer | str | None) -> Scorer:
    """Return the scorer of a detector: the one given, that of a method by name, or the default."""
    if scorer is None:
        return Propagated(Energy())
    if isinstance(scorer, str):
        recipe = RECIPES[scorer]
        if recipe.backbone is not None:
            raise ValueError(f"the scorer of {scorer} requires the backbone {recipe.backbone}; name another method")
        return recipe.build()[1]
    if not isinstance(scorer, Scorer):
        given = f"the class {scorer.__name__}" if isinstance(scorer, type) else type(scorer).__name__
        raise TypeError(
            f"scorer is {given}, expected a Scorer such as MaxSoftmax(), or the name of a method such as 'msp'; for a "
            "custom score, subclass oddnode.Scorer with a method score(outputs) that returns one number per node"
        )
    return scorer


def check_logits(module: nn.Module, logits: Tensor, num_classes: int, scorer: Scorer) -> None:
    """Raise an error if a network returns probabilities, or log-probabilities although the scorer needs logits."""
    if logits.shape[1] < 2:
        return
    name = type(module).__name__
    if bool((logits >= 0).all()) and bool(((logits.sum(dim=1) - 1).abs() < _ROUNDING).all()):
        raise ValueError(
            f"{name} returns probabilities, which sum to 1 at every node; return logits, without softmax at the end"
        )
    energy = negative_energy(logits[:, :num_classes])
    if scorer.needs_raw_logits and num_classes > 1 and bool((energy.abs() < _ROUNDING).all()):
        raise ValueError(
            f"{name} returns log-probabilities, whose energy is 0 at every node; "
            "return logits, without log_softmax at the end, or use MaxSoftmax()"
        )


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores of held-out known nodes and the resulting threshold.

    It works on scores only (higher = more in-distribution), whatever their source. Make one with `from_scores`.

    Parameters
    ----------
    scores : Tensor
        Scores of the calibration nodes, ascending ``[n]``, on the CPU.
    classes : Tensor or None
        Their predicted classes ``[n]``; ``None`` if they are unknown, so that there are no p-values per class.
    false_alarm_rate : float
        The share of known nodes that may be flagged.
    threshold : float
        Nodes that score below it are flagged.
    weights : Tensor or None
        How many known nodes each calibration node stands for ``[n]``; ``None`` if all were drawn alike.

    Examples
    --------
    >>> calibration = Calibration.from_scores(torch.arange(19.0), false_alarm_rate=0.1)
    >>> calibration.detect(torch.tensor([0.5, 1.5]))
    tensor([ True, False])
    >>> calibration.p_values(torch.tensor([0.5, 1.5]))
    tensor([0.1000, 0.1500], dtype=torch.float64)
    """

    scores: Tensor
    classes: Tensor | None
    false_alarm_rate: float
    threshold: float
    weights: Tensor | None = None

    @classmethod
    def from_scores(
        cls, scores: Any, classes: Any = None, false_alarm_rate: float = 0.05, weights: Any = None
    ) -> Calibration:
        """Calibrate on the scores of known nodes.

        Parameters
        ----------
        scores : Tensor or array
            Scores ``[n]`` of known nodes that were used neither for training nor for choosing the epoch.
        classes : Tensor or array, optional
            Their predicted classes ``[n]``, for p-values per class.
        false_alarm_rate : float
            The share of known nodes that may be flagged.
        weights : Tensor or array, optional
            As for `oddnode.functional.conformal_p_values` ``[n]``.

        Returns
        -------
        Calibration
            With the highest threshold at which a known node is flagged with at most this probability.
        """
        values = torch.as_tensor(scores).detach().cpu()
        threshold = threshold_at(values, false_alarm_rate, weights)
        order = values.argsort(stable=True)
        own = None if classes is None else torch.as_tensor(classes).detach().cpu()
        if own is not None and own.shape != values.shape:
            raise ValueError(f"{len(values)} scores have classes of shape {list(own.shape)}, expected one per score")
        each = None if weights is None else torch.as_tensor(weights, dtype=torch.float64).detach().cpu()[order]
        return cls(values[order], None if own is None else own[order], float(false_alarm_rate), threshold, each)

    @property
    def rate_interval(self) -> tuple[float, float]:
        """Where the true false-alarm rate lies with 95 % probability, by the number of calibration nodes.

        With weights, as if all had the larger weight of the node at the threshold and the next one up: these decide
        where it lies, and where the weight jumps, nothing is known between them.
        """
        count = len(self.scores)
        if self.weights is not None:
            at = int((self.scores.double() < self.threshold).sum())
            largest = self.weights[at : at + 2].max()
            count = max(int(self.weights.sum() / largest), nodes_needed(self.false_alarm_rate))
        return rate_interval(count, self.false_alarm_rate)

    def p_values(self, scores: Any, predicted: Any = None) -> Tensor:
        """Compute conformal p-values: the share of known nodes that score as low, or lower.

        Parameters
        ----------
        scores : Tensor or array
            Scores ``[N]``.
        predicted : Tensor or array, optional
            Predicted classes ``[N]``. Each node is then compared with the calibration nodes of its own class only.

        Returns
        -------
        Tensor
            P-values ``[N]``, float64, on the CPU.
        """
        if predicted is None:
            return torch.from_numpy(conformal_p_values(scores, self.scores, self.weights))
        if self.classes is None:
            raise CalibrationError(
                "p-values per class need the classes of calibration nodes: calibrate with classes=..."
            )
        known = self.scores, self.classes, self.weights
        return torch.from_numpy(conformal_p_values_per_class(scores, predicted, *known))

    def detect(self, scores: Any) -> Tensor:
        """Flag the nodes that score below the threshold.

        Parameters
        ----------
        scores : Tensor or array
            Scores ``[N]``.

        Returns
        -------
        Tensor
            One boolean per node ``[N]``, True = out-of-distribution; equal to ``p_values <= false_alarm_rate``.
        """
        values = torch.as_tensor(scores).detach().cpu()
        if bool(values.isnan().any()):
            raise ValueError(f"{int(values.isnan().sum())} scores are NaN; no decision is possible")
        # As float64, like the p-values.
        return values.double() < self.threshold

    def flag(self, scores: Any, fdr: float = 0.1, predicted: Any = None) -> Tensor:
        """Flag nodes so that the expected share of known nodes among them is at most ``fdr``.

        Uses the Benjamini-Hochberg procedure on the p-values of all nodes.

        Parameters
        ----------
        scores : Tensor or array
            Scores ``[N]``.
        fdr : float
            The false discovery rate.
        predicted : Tensor or array, optional
            Predicted classes ``[N]``, for p-values per class.

        Returns
        -------
        Tensor
            One boolean per node ``[N]``, True = flagged.
        """
        return torch.from_numpy(benjamini_hochberg(self.p_values(scores, predicted), fdr))


def calibration_nodes(data: GraphSource, mask: Tensor | None, num_classes: int) -> Tensor:
    """Check the nodes for a calibration."""
    if mask is not None:
        nodes = checked_nodes(mask, data.x.shape[0], "mask")
    elif getattr(data, "calibration_mask", None) is not None:
        marked = check_mask(data, "calibration_mask")
        assert marked is not None
        nodes = marked
    else:
        raise CalibrationError(
            "no calibration nodes: pass mask=... or set data.calibration_mask to known nodes that were held out "
            "from training and validation"
        )
    _check_held_out(data, nodes)
    _check_known(data, nodes, num_classes)
    return nodes


def _check_held_out(data: GraphSource, nodes: Tensor) -> None:
    for name in ("train_mask", "val_mask"):
        used = getattr(data, name, None)
        if isinstance(used, Tensor) and bool(used[nodes.to(used.device)].any()):
            shared = int(used[nodes.to(used.device)].sum())
            raise CalibrationError(
                f"{shared} of the {len(nodes)} calibration nodes are also in data.{name}; nodes that the network was "
                "trained or validated on score too high, so the false-alarm rate would not hold"
            )


def _check_known(data: GraphSource, nodes: Tensor, num_classes: int) -> None:
    y = getattr(data, "y", None)
    if not isinstance(y, Tensor):
        return
    y = as_labels(y)
    if y.dim() != 1 or y.shape[0] != data.x.shape[0]:
        return
    labels = y[nodes.to(y.device)]
    if int(labels.min()) < 0:
        raise CalibrationError(
            f"{int((labels < 0).sum())} of the calibration nodes have label -1, which marks left-out or unlabelled "
            "nodes; calibrate on known nodes only"
        )
    highest = int(labels.max())
    if highest >= num_classes:
        raise CalibrationError(
            f"the calibration nodes include class {highest}, which the detector does not know "
            f"(classes 0..{num_classes - 1}); calibrate on known nodes only"
        )
