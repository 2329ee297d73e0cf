"""The state of a fitted detector, as plain data that can be saved."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from msgspec.structs import asdict
from torch import Tensor, nn

from oddnode._utils.modes import gradients_enabled
from oddnode.detector.checked_json import ModelFileError
from oddnode.detector.model_config import StateConfig
from oddnode.detector.own_parts import check_logits
from oddnode.detector.part_config import learnt_of, set_learnt
from oddnode.detector.reference import ReferenceNodes
from oddnode.graph import GraphProfile
from oddnode.nn import Backbone, Ensemble
from oddnode.scoring import EnsembleMean, Outputs, Scorer

__all__ = ["FittedState", "TrainingOutputs", "dtype_of"]


@dataclass(frozen=True, eq=False)
class TrainingOutputs:
    """The network's outputs on the training graph and its labelled nodes, from which scorers learn.

    Parameters
    ----------
    outputs : Outputs
        The outputs on the training graph of N nodes.
    train : Tensor
        Positions of the training nodes ``[n]``.
    y : Tensor
        Their classes ``[n]``.
    parts : tuple of TrainingOutputs
        For networks that set reference nodes aside, the outputs of each on the graph that it was trained on, which
        lacks its own reference nodes; otherwise empty.
    val : Tensor, optional
        Positions of the validation nodes ``[m]``; of a part that was trained by `Detector.fit`.
    exposure : (Outputs, Tensor), optional
        The outputs on the whole exposure graph and the positions of the exposed nodes in it; of such a part.
    """

    outputs: Outputs
    train: Tensor
    y: Tensor
    parts: tuple[TrainingOutputs, ...] = ()
    val: Tensor | None = None
    exposure: tuple[Outputs, Tensor] | None = None

    def fit(self, scorer: Scorer) -> Scorer:
        """Fit a scorer; one that needs reference nodes learns from everything but them, and then compares with them.

        Parameters
        ----------
        scorer : Scorer
            An unfitted scorer; for an ensemble an `oddnode.scoring.EnsembleMean`.
        """
        if not scorer.needs_reference:
            return scorer.fit(self.outputs, self.train, self.y)
        if not self.parts:
            raise ValueError(
                f"{type(scorer).__name__} compares nodes with reference nodes, but this detector has set none aside; "
                "fit a new detector with this scorer, or pass Detector.wrap a graph with a reference_mask"
            )
        scorers = scorer.scorers if isinstance(scorer, EnsembleMean) else (scorer,)
        wholes = self.outputs.members or [self.outputs]
        fitted = tuple(part._fit_one(own, whole) for own, part, whole in zip(scorers, self.parts, wholes, strict=True))
        return EnsembleMean(fitted) if isinstance(scorer, EnsembleMean) else fitted[0]

    def _fit_one(self, scorer: Scorer, whole: Outputs) -> Scorer:
        """Fit the scorer of one network, whose outputs on the graph with its reference nodes are ``whole``."""
        fitted = scorer.fit(self.outputs, self.train, self.y)
        self.outputs.release()  # the same of the whole graph comes next
        fitted = fitted.fit_reference(whole)
        if not fitted.needs_exposure:
            return fitted
        if self.exposure is None or self.val is None:
            raise ValueError(
                f"{type(scorer).__name__} learns from exposed nodes, but this detector was fitted without any: call "
                "fit(data, exposure=...)"
            )
        return fitted.fit_exposure(self.outputs, self.val, *self.exposure)

    def class_means(self) -> Tensor | None:
        """Mean logits of every class ``[C, C]``; ``None`` if some class has no training node."""
        members = F.one_hot(self.y, self.outputs.num_classes).to(self.outputs.logits.dtype)
        counts = members.sum(dim=0).unsqueeze(1)
        return members.t() @ self.outputs.logits[self.train] / counts if bool((counts > 0).all()) else None


@dataclass(frozen=True, eq=False)
class FittedState:
    """Everything that a fitted `oddnode.Detector` has learnt.

    Parameters
    ----------
    module : torch.nn.Module
        The trained network, in evaluation mode; an `oddnode.nn.Ensemble` of several.
    num_features : int
        Number of features of a node.
    num_classes : int
        Number of ID classes.
    max_abs_feature : float
        The largest magnitude of a feature of the training graph.
    profile : GraphProfile
        Size, degrees and homophily of the training graph.
    base_scorer : Scorer
        The unfitted scorer; it may have fewer hops than the user's.
    scorer : Scorer
        The fitted scorer; for an ensemble an `oddnode.scoring.EnsembleMean`.
    class_means : Tensor or None
        Mean logits of every class ``[C, C]``; ``None`` if a class has no training node.
    training : TrainingOutputs or None
        The outputs that another scorer can learn from; ``None`` without a training graph. It is not saved.
    best_epoch : int
        The epoch with the lowest validation loss, whose weights are used; that of the first network in an ensemble.
    history : list of dict
        Training and validation loss of every epoch. It is not saved.
    advice : list of str
        Messages on the graph, on how the scorer was adapted to it, and on scores to be doubted.
    references : tuple of ReferenceNodes
        The reference nodes of each network; empty unless the scorer needs them.
    """

    module: nn.Module
    num_features: int
    num_classes: int
    max_abs_feature: float
    profile: GraphProfile
    base_scorer: Scorer
    scorer: Scorer
    class_means: Tensor | None = None
    training: TrainingOutputs | None = None
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    references: tuple[ReferenceNodes, ...] = ()

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the network."""
        return dtype_of(self.module)

    @gradients_enabled()
    def with_scorer(self, scorer: Scorer) -> FittedState:
        """Fit another scorer to the same network.

        Parameters
        ----------
        scorer : Scorer
            An unfitted scorer. If it learns from the training graph, `training` is needed.

        Returns
        -------
        FittedState
            The same state with the fitted scorer.
        """
        fitted = _scorer_for(self.module, scorer)
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

    def to_config(self) -> dict[str, Any]:
        """The fields of a saved model's ``config.json``, except for the scorer's settings; see also `tensors`."""
        graph = self.profile.as_dict()
        del graph["adjusted_homophily"]  # derived from the others
        return {
            "num_features": self.num_features,
            "num_classes": self.num_classes,
            "max_abs_feature": self.max_abs_feature,
            "best_epoch": self.best_epoch,
            "dtype": str(self.dtype).removeprefix("torch."),
            "graph": graph,
            "advice": list(self.advice),
            "num_networks": len(self.module.members) if isinstance(self.module, Ensemble) else 1,
            "learnt": {k: v for k, v in learnt_of(self.scorer, "scorer") if not isinstance(v, Tensor)},
        }

    def tensors(self) -> dict[str, Tensor]:
        """The tensors for a saved model's ``model.safetensors``."""
        tensors = {f"module.{name}": value for name, value in self.module.state_dict().items()}
        odd = [name for name, value in tensors.items() if not isinstance(value, Tensor)]
        if odd:
            raise TypeError(
                f"{type(self.module).__name__} has state {odd[0]!r} that is not a tensor and cannot be saved"
            )
        tensors |= {k: v for k, v in learnt_of(self.scorer, "scorer") if isinstance(v, Tensor)}
        for network, reference in enumerate(self.references):
            for name in ("nodes", "checksums", "edges"):
                tensors[f"reference.{network}.{name}"] = getattr(reference, name)
        return tensors if self.class_means is None else tensors | {"class_means": self.class_means}

    @classmethod
    def from_config(
        cls,
        config: StateConfig,
        module: nn.Module,
        scorer: Scorer,
        learnt: dict[str, Tensor],
        class_means: Tensor | None,
        references: tuple[ReferenceNodes, ...] = (),
    ) -> FittedState:
        """Restore a saved state.

        Parameters
        ----------
        config : StateConfig
            From ``config.json``.
        module : torch.nn.Module
            The network with its saved weights.
        scorer : Scorer
            The unfitted scorer.
        learnt : dict
            The tensors that it learnt, by path, on the network's device.
        class_means : Tensor or None
            Mean logits of every class ``[C, C]``, on the network's device.
        references : tuple of ReferenceNodes
            The reference nodes of each network.
        """
        fitted = _scorer_for(module, scorer)
        for path, value in (config.learnt | learnt).items():
            set_learnt(fitted, path, value)
        shape, dtype = (config.num_classes, config.num_classes), getattr(torch, config.dtype)
        if class_means is not None and (class_means.shape != shape or class_means.dtype != dtype):
            found = f"{class_means.dtype} of shape {list(class_means.shape)}"
            raise ModelFileError(f"class_means is {found}, expected {dtype} of shape {list(shape)}")
        return cls(
            module=module,
            num_features=config.num_features,
            num_classes=config.num_classes,
            max_abs_feature=config.max_abs_feature,
            profile=GraphProfile(**asdict(config.graph)),
            base_scorer=scorer,
            scorer=fitted,
            class_means=class_means,
            best_epoch=config.best_epoch,
            advice=config.advice,
            references=references,
        )


def _scorer_for(module: nn.Module, scorer: Scorer) -> Scorer:
    """Copy the scorer before fitting it; an ensemble has one for each network."""
    return EnsembleMean.of(scorer, len(module.members)) if isinstance(module, Ensemble) else copy.deepcopy(scorer)


def dtype_of(module: nn.Module) -> torch.dtype:
    """Find the precision of a network.

    Parameters
    ----------
    module : torch.nn.Module
        Any network; one without weights has torch's default precision.
    """
    weights = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(weights, torch.get_default_dtype())
