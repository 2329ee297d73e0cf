"""`Detector`: a backbone, an objective and a scorer, with the estimator contract of scikit-learn."""

from __future__ import annotations

import copy
import inspect
import logging
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode._utils.devices import resolve_device
from oddnode._utils.random import new_dropout_seed, seeded
from oddnode._utils.suggestions import unknown
from oddnode.detector import model_folder as saving
from oddnode.detector.decisions import Decisions
from oddnode.detector.registry import get_recipe
from oddnode.functional import negative_energy
from oddnode.graph import Graph, GraphError, TrainingSet, check_labels, check_mask, profile_graph, training_set
from oddnode.nn import BACKBONES, Backbone, Ensemble, member_seeds, run_backbone
from oddnode.objectives import CrossEntropy, Objective
from oddnode.scoring import Energy, MemberMean, Outputs, Propagated, Scorer, advised_scorer
from oddnode.training import BatchNormStatistics, FullBatch, Trainer, TrainingConfig, TrainingHandle, TrainingResult

__all__ = ["Detector", "fit_together", "start_fitting"]

_log = logging.getLogger("oddnode")


class Detector(Decisions, BaseEstimator):
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
    propagation : {"auto", "as-given"}
        Whether a `Propagated` scorer keeps its hops on a graph whose edges mostly join different classes. ``"auto"``
        takes fewer or none there, by the labels of training and validation nodes, and logs a message.
    ensemble : int
        How many networks to train, from different seeds. Their scores and their probabilities are averaged. On a GPU
        they train side by side where the backbone and the objective allow it.
    seed : int
        Same seed, same machine: the same scores, on a CPU (with as many threads) bit for bit.
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"``, ...
    trainer : Trainer, optional
        What trains the networks; `oddnode.training.FullBatch` if left out.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained network, or an `oddnode.nn.ensemble.Ensemble` of them.
    num_classes_ : int
        How many ID classes it knows.
    best_epoch_ : int
        The epoch whose weights were kept; of the first network in an ensemble.
    history_ : list of dict
        Training and validation loss of every epoch; in an ensemble with the number of the member.
    graph_profile_ : GraphProfile
        Size, degrees and homophily of the training graph.
    advice_ : list of str
        What was found and changed for this graph.

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
        if recipe.backbone and backbone not in ("gcn", recipe.backbone):
            raise ValueError(f"{name} has a network of its own ({recipe.backbone}); leave backbone out")
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
        fit_together([self], [data], [exposure], on_epoch=on_epoch)
        return self

    def _training_parts(self, data: Data, exposure: Data | None) -> tuple[TrainingSet, list[nn.Module], list[int]]:
        """Checked data, new networks, and seeds for what is random when they are trained."""
        self._check_exposure(self.objective or CrossEntropy(), exposure)
        self._check_settings()
        device = self._device()
        num_spare_logits = self.num_spare_logits if isinstance(self.backbone, str) else 0
        dataset = training_set(data, exposure, device, num_spare_logits, self.val_share, self.seed)
        if isinstance(self.backbone, nn.Module):
            dataset.to_dtype(_dtype_of(self.backbone))
        modules, seeds = [], []
        for place, seed in enumerate(member_seeds(self.seed, self.ensemble)):
            with seeded(seed, device):
                modules.append(self._new_module(dataset).to(device))
                if place > 0 and isinstance(self.backbone, nn.Module):
                    _reset(modules[-1])
                seeds.append(new_dropout_seed())
        return dataset, modules, seeds

    def _take_trained(self, dataset: TrainingSet, modules: list[nn.Module], outcomes: list[TrainingResult]) -> None:
        """Become the fitted detector of networks that were trained on the data."""
        self.module_ = self._joined(modules)
        self.num_features_in_ = dataset.graph.x.shape[1]
        self.num_classes_ = dataset.num_classes
        self.best_epoch_ = outcomes[0].best_epoch
        self.history_ = outcomes[0].history
        if len(outcomes) > 1:
            self.history_ = [{"member": m} | row for m, outcome in enumerate(outcomes) for row in outcome.history]
        labelled = torch.cat([dataset.train, dataset.val])
        outputs = Outputs(self.module_, dataset.graph, self.num_classes_, labelled)
        self._training = (outputs, dataset.train, dataset.y_train)
        self.class_means_ = _class_means(outputs, dataset.train, dataset.y_train)
        self.graph_profile_ = profile_graph(dataset.graph, labelled, torch.cat([dataset.y_train, dataset.y_val]))
        self._fit_scorer(self._advised(self.scorer or Propagated(Energy())))

    @staticmethod
    def _joined(modules: list[nn.Module]) -> nn.Module:
        return modules[0] if len(modules) == 1 else Ensemble(modules).eval()

    @classmethod
    def wrap(
        cls,
        module: nn.Module,
        scorer: Scorer | None = None,
        data: Data | None = None,
        *,
        num_classes: int | None = None,
        propagation: Literal["auto", "as-given"] = "auto",
        device: str = "auto",
    ) -> Detector:
        """Detection on a network that is already trained, with no retraining.

        The module is copied: its weights, its mode and its batch-norm statistics stay as they are.

        Parameters
        ----------
        module : torch.nn.Module
            Trained, with ``forward(x, edge_index) -> logits``.
        scorer : Scorer, optional
            How outputs become scores; energy propagated over the graph if left out.
        data : Data
            A graph of the kind the module was trained on. With ``train_mask`` and ``y`` it also gives the number of
            classes, and scorers that learn from training nodes can be used.
        num_classes : int, optional
            How many of the logits are classes; from the training labels if left out, else all of them.
        propagation, device
            As for `Detector`.

        Examples
        --------
        >>> import torch
        >>> from oddnode import Detector, Energy, GCN, Propagated, load_task
        >>> graph = load_task("digits/label").train
        >>> trained = GCN(64, 16, 5)  # yours would be trained
        >>> detector = Detector.wrap(trained, scorer=Propagated(Energy()), data=graph)
        >>> detector.score_samples(graph).shape[0] == graph.num_nodes
        True
        """
        if not isinstance(data, Data):
            raise TypeError(f"data is {type(data).__name__}, expected a torch_geometric.data.Data to try the module on")
        detector = cls(module, None, scorer, propagation=propagation, device=device)
        detector._take_over(module, data, num_classes)
        return detector

    def _take_over(self, module: nn.Module, data: Data, num_classes: int | None) -> None:
        """Become the fitted detector of somebody else's trained module."""
        device = self._device()
        self.module_ = copy.deepcopy(module).to(device).eval()
        graph = Graph.from_data(data, device)
        graph = graph.with_features(graph.x.to(self._dtype()))
        with torch.no_grad():
            logits = run_backbone(self.module_, graph)
        width = logits.shape[1]
        labelled = data.get("train_mask") is not None and isinstance(data.y, Tensor)
        nodes = y = cast(Any, saving.NoTrainingGraph("was wrapped without training nodes (train_mask and y)"))
        if labelled:
            found = check_mask(data, "train_mask")
            assert found is not None
            y = check_labels(data, found, "training").to(device)
            nodes = found.to(device)
        self.num_classes_ = num_classes if num_classes is not None else (int(y.max()) + 1 if labelled else width)
        if not 1 <= self.num_classes_ <= width or (labelled and int(y.max()) >= self.num_classes_):
            raise ValueError(
                f"{type(module).__name__} gives {width} logits, but the data has "
                f"{max(self.num_classes_, int(y.max()) + 1 if labelled else 0)} classes"
            )
        _refuse_log_probabilities(module, logits[:, : self.num_classes_], self.scorer)
        self.num_features_in_ = graph.x.shape[1]
        self.best_epoch_, self.history_ = 0, []
        outputs = Outputs(self.module_, graph, self.num_classes_, _labelled(data, device)) if labelled else nodes
        self._training = (outputs, nodes, y)
        self.class_means_ = _class_means(outputs, nodes, y) if labelled else None
        empty = torch.empty(0, dtype=torch.long, device=device)
        self.graph_profile_ = profile_graph(graph, *((nodes, y) if labelled else (empty, empty)))
        self._fit_scorer(self._advised(self.scorer or Propagated(Energy())))

    def with_scorer(self, scorer: Scorer) -> Detector:
        """The same trained network under another scorer, as given, without training again.

        The threshold belongs to the scorer, so the new detector is to be calibrated anew.
        """
        self._check_fitted()
        other = copy.copy(self)
        other.scorer = scorer
        other.advice_ = []
        other._fit_scorer(scorer)
        return other

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted detector to a folder: ``config.json`` and ``model.safetensors``, whole or not at all.

        A folder that holds a saved detector is replaced; any other that is not empty is refused.
        """
        self._check_fitted()
        saving.save(self, path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        backbone: nn.Module | None = None,
        objective: Objective | None = None,
        scorer: Scorer | None = None,
        device: str = "auto",
    ) -> Detector:
        """Read a detector that `save` wrote; it scores as before, bit for bit.

        Nothing in the folder can run: parts are made by name from this library's own. A part of your own (a module,
        an objective, a scorer) is not in the folder and is given here; a module gets the saved weights in a copy.

        Raises
        ------
        ModelFileError
            The folder is damaged, incomplete, or not a saved detector.
        """
        return saving.load(cls, path, backbone=backbone, objective=objective, scorer=scorer, device=device)[0]

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
        return _beside(data, self.scorer_.score(outputs).detach())

    def predict(self, data: Data | Outputs) -> Tensor:
        """The most likely ID class of every node."""
        outputs = data if isinstance(data, Outputs) else self.outputs(data)
        return _beside(data, outputs.logits.argmax(dim=-1))

    def predict_proba(self, data: Data | Outputs) -> Tensor:
        """Probabilities of the ID classes."""
        outputs = data if isinstance(data, Outputs) else self.outputs(data)
        return _beside(data, outputs.logits.softmax(dim=-1))

    def _advised(self, scorer: Scorer) -> Scorer:
        """The scorer with as much propagation as the training graph bears; the user is told where that is less."""
        advised, message = advised_scorer(scorer, self.graph_profile_, apply=self.propagation == "auto")
        self.advice_ = [message] if message else []
        if message:
            _log.warning(message)
        return advised

    def _fit_scorer(self, scorer: Scorer) -> None:
        self._forget_calibration()
        outputs, nodes, y = self._training
        known = not isinstance(nodes, saving.NoTrainingGraph)
        if known and not isinstance(self.module_, (Backbone, Ensemble)):
            _refuse_log_probabilities(self.module_, outputs.logits, scorer)
        members = outputs.members if known else [outputs] * self.ensemble
        self.scorer_ = self._fitted(scorer, nodes, y, members, outputs)

    def _fitted(self, scorer: Scorer, nodes: Tensor, y: Tensor, members: list[Outputs], outputs: Outputs) -> Scorer:
        if isinstance(self.module_, Ensemble):
            return MemberMean.of(scorer, members, nodes, y)
        return scorer.fit(outputs, nodes, y)

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

    def _trainer(self) -> Trainer:
        return FullBatch() if self.trainer is None else self.trainer

    def _device(self) -> torch.device:
        return resolve_device(self.device)

    def _dtype(self) -> torch.dtype:
        return _dtype_of(self.module_)

    def _check_settings(self) -> None:
        for name, least in (("epochs", 1), ("hidden_channels", 1), ("num_spare_logits", 0), ("ensemble", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, expected {least} or more")
        for name in ("lr", "weight_decay"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}, expected a number of 0 or more")
        if not 0.0 < self.val_share < 1.0:
            raise ValueError(f"val_share is {self.val_share}, expected a share between 0 and 1")
        if self.batch_norm not in get_args(BatchNormStatistics):
            raise unknown("batch_norm", self.batch_norm, get_args(BatchNormStatistics))
        if self.propagation not in ("auto", "as-given"):
            raise unknown("propagation", self.propagation, ("auto", "as-given"))

    def _new_module(self, dataset: TrainingSet) -> nn.Module:
        graph = dataset.graph
        if isinstance(self.backbone, nn.Module):
            module = copy.deepcopy(self.backbone).to(graph.device)
            with torch.no_grad():
                logits = run_backbone(module.eval(), graph)
            width = logits.shape[1]
            _refuse_log_probabilities(module, logits[:, : dataset.num_classes], self.scorer)
            if width < dataset.num_classes:
                raise ValueError(
                    f"{type(module).__name__} gives {width} logits, but the data has {dataset.num_classes} classes"
                )
            dataset.num_spare_logits = width - dataset.num_classes
            return module
        return self._named_module(graph.x.shape[1], dataset.num_classes).to(graph.x.dtype)

    def _named_module(self, num_features: int, num_classes: int) -> nn.Module:
        """A new backbone of the settings' shape; training and loading both make theirs here."""
        width = num_classes + self.num_spare_logits
        return BACKBONES[cast(str, self.backbone)](
            num_features, self.hidden_channels, width, num_layers=self.num_layers, dropout=self.dropout
        )


def fit_together(
    detectors: Sequence[Detector],
    data: Sequence[Data],
    exposures: Sequence[Data | None],
    *,
    on_epoch: Callable[[int], None] | None = None,
) -> None:
    """Fit detectors that differ in nothing but their seed and scorer, each on its own data.

    On a GPU their networks train side by side where that is possible. Each becomes what `Detector.fit` makes of it, up
    to the order of floating-point sums.
    """
    start_fitting(detectors, data, exposures, on_epoch=on_epoch).result()


def start_fitting(
    detectors: Sequence[Detector],
    data: Sequence[Data],
    exposures: Sequence[Data | None],
    *,
    on_epoch: Callable[[int], None] | None = None,
) -> TrainingHandle[None]:
    """`fit_together` in two parts: the detectors are fitted when what comes back has been called.

    A GPU may train several that are started before the first is waited for at the same time.
    """
    first = detectors[0]
    if len({_training_settings(detector) for detector in detectors}) > 1:
        raise ValueError("detectors that are fitted together must have the same settings but for seed and scorer")
    parts = [detector._training_parts(d, e) for detector, d, e in zip(detectors, data, exposures, strict=True)]
    handle = first._trainer().start(
        [module for _, modules, _ in parts for module in modules],
        first.objective or CrossEntropy(),
        [dataset for dataset, modules, _ in parts for _ in modules],
        [seed for _, _, seeds in parts for seed in seeds],
        TrainingConfig(first.epochs, first.lr, first.weight_decay, first.batch_norm),
        on_epoch,
    )

    def finish() -> None:
        outcomes = handle.result()
        for place, (detector, (dataset, modules, _)) in enumerate(zip(detectors, parts, strict=True)):
            own = outcomes[place * first.ensemble : (place + 1) * first.ensemble]
            detector._take_trained(dataset, modules, own)

    return TrainingHandle(finish)


def _training_settings(detector: Detector) -> str:
    params = detector.get_params(deep=False)
    return repr(sorted((k, repr(v)) for k, v in params.items() if k not in ("scorer", "seed", "propagation")))


def _refuse_log_probabilities(module: nn.Module, logits: Tensor, scorer: Scorer | None) -> None:
    """Many networks end in log_softmax, after which plain energies say nothing."""
    while isinstance(scorer, Propagated):
        scorer = scorer.scorer
    takes_energies = scorer is None or (isinstance(scorer, Energy) and not scorer.centred)
    if takes_energies and logits.shape[1] > 1 and bool((negative_energy(logits).abs() < 1e-3).all()):
        raise ValueError(
            f"{type(module).__name__} returns log-probabilities, of which the energy is 0 at every node; "
            "return logits, without log_softmax at the end, or score by MaxSoftmax()"
        )


def _class_means(outputs: Outputs, nodes: Tensor, y: Tensor) -> Tensor | None:
    """Mean logits of every class; a wrapped module may know classes of which the data has no training node."""
    members = F.one_hot(y, outputs.num_classes).to(outputs.logits.dtype)
    counts = members.sum(dim=0).unsqueeze(1)
    return members.t() @ outputs.logits[nodes] / counts if bool((counts > 0).all()) else None


def _dtype_of(module: nn.Module) -> torch.dtype:
    weights = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(weights, torch.get_default_dtype())


def _beside(data: Data | Outputs, result: Tensor) -> Tensor:
    """The result on the device of the data that was given, so that its masks fit."""
    return result if isinstance(data, Outputs) else result.to(data.x.device)


def _reset(module: nn.Module) -> None:
    """Give a user's network new weights: members of an ensemble that start alike may end alike."""
    resets: list[Any] = [layer.reset_parameters for layer in module.modules() if hasattr(layer, "reset_parameters")]
    if not resets:
        raise ValueError(
            f"no layer of {type(module).__name__} has reset_parameters, so all networks of an ensemble would start "
            "from the same weights; build it from layers that have one (torch.nn.Linear, a PyG convolution, ...)"
        )
    for reset in resets:
        reset()


def _labelled(data: Data, device: torch.device) -> Tensor | None:
    """Positions of the training and validation nodes, where the graph has masks of one boolean per node."""
    masks = [data.get(name) for name in ("train_mask", "val_mask")]
    masks = [m for m in masks if isinstance(m, Tensor) and m.dtype == torch.bool and m.shape == (data.x.shape[0],)]
    if not masks:
        return None
    nodes = torch.stack(masks).any(dim=0).nonzero().squeeze(1)
    return nodes.to(device) if len(nodes) else None
