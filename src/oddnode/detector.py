"""`Detector`: a backbone, an objective and a scorer, with the estimator contract of scikit-learn."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode.backbones import BACKBONES, run_backbone
from oddnode.graph import Graph, GraphError, check_labels, check_mask
from oddnode.objectives import CrossEntropy, Objective, TrainingSet
from oddnode.recipes import get_recipe
from oddnode.scorers import Energy, Outputs, Propagated, Scorer
from oddnode.suggest import unknown
from oddnode.training import BatchNormStatistics, seeded, train

__all__ = ["Detector"]


class Detector(BaseEstimator):
    """Tells which nodes of a graph a model does not know.

    Parameters
    ----------
    backbone : str or torch.nn.Module
        A name (``"gcn"``), or any module with ``forward(x, edge_index) -> logits``; a copy of it is trained.
    objective : Objective, optional
        What training minimises; cross-entropy if left out.
    scorer : Scorer, optional
        How outputs become scores; energy propagated over the graph if left out.
    hidden_channels, num_layers, dropout
        Shape of a backbone given by name.
    num_spare_logits : int
        Extra logits of a backbone given by name that belong to no class. Cross-entropy pushes them down on ID
        nodes, which leaves the rest of the space to them. They never count as a prediction.
    epochs, lr, weight_decay
        Adam's settings. The epoch with the lowest validation loss is kept.
    val_share : float
        Share of the training nodes split off, by class, when the data has no ``val_mask``.
    batch_norm : {"id-graph", "running"}
        Where batch norm takes its evaluation statistics from.
    seed : int
        Same seed, same machine: the same scores, bit for bit.
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"``, ...

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained network.
    num_classes_ : int
        How many ID classes it knows.
    best_epoch_ : int
        The epoch whose weights were kept.
    history_ : list of dict
        Training and validation loss of every epoch.

    Examples
    --------
    >>> from oddnode import Detector, load_task
    >>> task = load_task("digits/label")
    >>> detector = Detector.from_recipe("nodesafe", epochs=50).fit(task.train)
    >>> scores = detector.score_samples(task.id_test.data)  # higher = more like the training data
    >>> scores.shape
    torch.Size([1797])
    """

    def __init__(
        self,
        backbone: str | nn.Module = "gcn",
        objective: Objective | None = None,
        scorer: Scorer | None = None,
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
        seed: int = 0,
        device: str = "auto",
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
        self.seed = seed
        self.device = device

    @classmethod
    def from_recipe(
        cls,
        name: str,
        backbone: str | nn.Module = "gcn",
        seed: int = 0,
        device: str = "auto",
        **overrides: Any,
    ) -> Detector:
        """A detector by the name of its method, with its settings.

        ``overrides`` change hyper-parameters of the method (``lambda2=1.0``, ``num_hops=2``, ...) or arguments of
        `Detector` (``epochs=50``, ...).
        """
        recipe = get_recipe(name)
        own = set(recipe.hyper_parameters)
        general = set(inspect.signature(cls.__init__).parameters) - {"self", "objective", "scorer"}
        for key in overrides:
            if key not in own | general:
                raise unknown(f"setting of {name}", key, sorted(own) + sorted(general))
        objective, scorer = recipe.build(**{k: v for k, v in overrides.items() if k in own})
        rest = recipe.settings | {k: v for k, v in overrides.items() if k not in own}
        backbone = recipe.backbone or backbone
        return cls(backbone, objective, scorer, seed=seed, device=device, **rest)

    def fit(
        self, data: Data, exposure: Data | None = None, *, on_epoch: Callable[[int], None] | None = None
    ) -> Detector:
        """Train on a graph.

        Parameters
        ----------
        data : Data
            ``x``, ``edge_index``, ``y`` and ``train_mask``; a ``val_mask`` is split off where there is none.
        exposure : Data, optional
            A graph with known OOD nodes (those of its ``ood_mask``; all nodes without one), for objectives that
            use them.
        on_epoch : callable, optional
            Called with the number of epochs done.
        """
        objective = self.objective or CrossEntropy()
        self._check_exposure(objective, exposure)
        device = self._device()
        dataset = self._training_set(data, exposure, device)
        with seeded(self.seed, device):
            module = self._new_module(dataset).to(device)
            outcome = train(
                module,
                objective,
                dataset,
                epochs=self.epochs,
                lr=self.lr,
                weight_decay=self.weight_decay,
                batch_norm=self.batch_norm,
                on_epoch=on_epoch,
            )
        self.module_ = module
        self.num_features_in_ = dataset.graph.x.shape[1]
        self.num_classes_ = dataset.num_classes
        self.best_epoch_ = outcome.best_epoch
        self.history_ = outcome.history
        self._training = (dataset.graph, dataset.train, dataset.y_train)
        self._fit_scorer()
        return self

    def with_scorer(self, scorer: Scorer) -> Detector:
        """The same trained network under another scorer, without training again."""
        self._check_fitted()
        other = copy.copy(self)
        other.scorer = scorer
        other._fit_scorer()
        return other

    def outputs(self, data: Data) -> Outputs:
        """What the network says of a graph: logits and all that scorers build on.

        Nodes in the graph's ``train_mask`` and ``val_mask`` count as labelled ID nodes for scorers that anchor on them.
        """
        self._check_fitted()
        graph = Graph.from_data(data, self._device())
        if graph.x.shape[1] != self.num_features_in_:
            raise GraphError(
                f"data.x has {graph.x.shape[1]} features, but the detector was fitted on {self.num_features_in_}"
            )
        graph = graph if graph.x.dtype == self._dtype() else graph.with_features(graph.x.to(self._dtype()))
        return Outputs(self.module_, graph, self.num_classes_, _labelled(data, graph.device))

    def score_samples(self, data: Data | Outputs) -> Tensor:
        """One score per node; higher = more like the training distribution."""
        outputs = data if isinstance(data, Outputs) else self.outputs(data)
        return self.scorer_.score(outputs).detach()

    def predict(self, data: Data | Outputs) -> Tensor:
        """The most likely ID class of every node."""
        outputs = data if isinstance(data, Outputs) else self.outputs(data)
        return outputs.logits.argmax(dim=-1)

    def predict_proba(self, data: Data | Outputs) -> Tensor:
        """Probabilities of the ID classes."""
        outputs = data if isinstance(data, Outputs) else self.outputs(data)
        return outputs.logits.softmax(dim=-1)

    def _fit_scorer(self) -> None:
        graph, nodes, y = self._training
        scorer = self.scorer or Propagated(Energy())
        self.scorer_ = scorer.fit(Outputs(self.module_, graph, self.num_classes_), nodes, y)

    def _check_fitted(self) -> None:
        if not hasattr(self, "module_"):
            raise NotFittedError("this Detector is not fitted yet: call fit(data) first")

    def _check_exposure(self, objective: Objective, exposure: Data | None) -> None:
        if objective.needs_exposure and exposure is None:
            raise ValueError(f"the objective {objective!r} needs exposure: call fit(data, exposure=...)")
        if exposure is not None and not objective.needs_exposure:
            raise ValueError(
                f"exposure was given, but the objective {objective!r} uses none; leave it out, "
                "or choose a method that learns from it"
            )

    def _device(self) -> torch.device:
        if self.device != "auto":
            return torch.device(self.device)
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def _dtype(self) -> torch.dtype:
        return next(self.module_.parameters()).dtype

    def _training_set(self, data: Data, exposure: Data | None, device: torch.device) -> TrainingSet:
        graph = Graph.from_data(data, device)
        train_nodes = check_mask(data, "train_mask")
        val_nodes = check_mask(data, "val_mask", required=False)
        assert train_nodes is not None
        if val_nodes is None:
            train_nodes, val_nodes = self._split(data, train_nodes)
        y_train = check_labels(data, train_nodes, "training")
        y_val = check_labels(data, val_nodes, "validation")
        num_classes = int(y_train.max()) + 1
        self._check_classes(y_train, y_val, num_classes)
        dataset = TrainingSet(
            graph=graph,
            train=train_nodes.to(device),
            y_train=y_train.to(device),
            val=val_nodes.to(device),
            y_val=y_val.to(device),
            num_classes=num_classes,
            num_spare_logits=self.num_spare_logits if isinstance(self.backbone, str) else 0,
        )
        if exposure is not None:
            dataset.exposure = Graph.from_data(exposure, device)
            if dataset.exposure.x.shape[1] != graph.x.shape[1]:
                raise GraphError(
                    f"exposure has {dataset.exposure.x.shape[1]} features, but the training graph {graph.x.shape[1]}"
                )
            exposed = check_mask(exposure, "ood_mask", required=False)
            everything = torch.arange(dataset.exposure.num_nodes)
            dataset.exposed = (everything if exposed is None else exposed).to(device)
        return dataset

    def _check_classes(self, y_train: Tensor, y_val: Tensor, num_classes: int) -> None:
        missing = sorted(set(range(num_classes)) - set(y_train.tolist()))
        if missing:
            raise GraphError(
                f"the training nodes have labels up to {num_classes - 1}, but none of class {missing[0]}; "
                "number the classes 0, 1, 2, ... without gaps"
            )
        if int(y_val.max()) >= num_classes:
            raise GraphError(
                f"the validation nodes have class {int(y_val.max())}, which no training node has "
                f"(classes 0..{num_classes - 1})"
            )
        spare = self.num_spare_logits if isinstance(self.backbone, str) else 0
        if num_classes == 1 and spare == 0:
            raise GraphError(
                "all training nodes have one class, and a softmax over one logit cannot learn; "
                "give a second class, or num_spare_logits=1 for one-class detection"
            )

    def _split(self, data: Data, nodes: Tensor) -> tuple[Tensor, Tensor]:
        labels = check_labels(data, nodes, "training")
        counts = torch.bincount(labels)
        if int(counts[counts > 0].min()) < 2:
            lonely = int((counts == 1).nonzero()[0])
            raise GraphError(
                f"class {lonely} has one training node, so no validation node can be split off; "
                "give data.val_mask, or label more nodes"
            )
        num_val = max(round(self.val_share * len(nodes)), int((counts > 0).sum()))
        kept, held_out = train_test_split(
            nodes.cpu().numpy(), test_size=num_val, stratify=labels.cpu().numpy(), random_state=self.seed
        )
        return torch.from_numpy(kept).sort().values, torch.from_numpy(held_out).sort().values

    def _new_module(self, dataset: TrainingSet) -> nn.Module:
        graph = dataset.graph
        if isinstance(self.backbone, nn.Module):
            module = copy.deepcopy(self.backbone).to(graph.device)
            with torch.no_grad():
                width = run_backbone(module.eval(), graph).shape[1]
            if width < dataset.num_classes:
                raise ValueError(
                    f"{type(module).__name__} gives {width} logits, but the data has {dataset.num_classes} classes"
                )
            dataset.num_spare_logits = width - dataset.num_classes
            return module
        if self.backbone not in BACKBONES:
            raise unknown("backbone", self.backbone, BACKBONES)
        module = BACKBONES[self.backbone](
            graph.x.shape[1],
            self.hidden_channels,
            dataset.num_logits,
            num_layers=self.num_layers,
            dropout=self.dropout,
        )
        return module.to(graph.x.dtype)


def _labelled(data: Data, device: torch.device) -> Tensor | None:
    """Positions of the training and validation nodes, where the graph has masks of one boolean per node."""
    masks = [data.get(name) for name in ("train_mask", "val_mask")]
    masks = [m for m in masks if isinstance(m, Tensor) and m.dtype == torch.bool and m.shape == (data.x.shape[0],)]
    if not masks:
        return None
    nodes = torch.stack(masks).any(dim=0).nonzero().squeeze(1)
    return nodes.to(device) if len(nodes) else None
