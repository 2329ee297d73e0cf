"""`Detector`: a backbone, an objective and a scorer, with the estimator contract of scikit-learn."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from torch import nn

from oddnode._utils.suggestions import unknown
from oddnode.detector import model_folder
from oddnode.detector.fitting import fit_together, wrapped_state
from oddnode.detector.inference import FittedEstimator
from oddnode.detector.registry import get_recipe
from oddnode.detector.training_key import TrainingKey
from oddnode.graph import GraphSource, check_source
from oddnode.objectives import Objective
from oddnode.scoring import Scorer
from oddnode.training import BatchNormStatistics, Trainer

__all__ = ["Detector"]


class Detector(FittedEstimator):
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
        Whether a scorer that propagates keeps its hops on a graph whose edges mostly join different classes. ``"auto"``
        takes fewer or none there, by the labels of training and validation nodes, and logs a message.
    ensemble : int
        How many networks to train, from different seeds. Their scores and their probabilities are averaged. On a GPU
        they train as one stack where the backbone and the objective allow it.
    seed : int
        Same seed, same machine: the same scores, on a CPU (with as many threads) bit for bit.
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"``, ...
    trainer : Trainer, optional
        What trains the networks; `oddnode.training.FullBatch` if left out.

    Attributes
    ----------
    state_ : FittedState
        Everything learnt, as plain data; the attributes that follow read it.
    calibration_ : Calibration or None
        Set by `calibrate`.
    module_ : torch.nn.Module
        The trained network, or an `oddnode.nn.Ensemble` of them.
    scorer_ : Scorer
        The fitted scorer.
    num_classes_, n_features_in_ : int
        How many ID classes it knows, and how many features a node has.
    best_epoch_ : int
        The epoch whose weights were kept; of the first network in an ensemble.
    history_ : list of dict
        Training and validation loss of every epoch; in an ensemble with the number of the member.
    class_means_ : Tensor or None
        Mean logits of every class over the training nodes ``[C, C]``.
    graph_profile_ : GraphProfile
        Size, degrees and homophily of the training graph.
    advice_ : list of str
        What was found and changed for this graph.
    threshold_, false_alarm_rate_ : float
        Of the calibration.

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
        """Make a detector by the name of its method, with the method's settings.

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
        self, data: GraphSource, exposure: GraphSource | None = None, *, on_epoch: Callable[[int], None] | None = None
    ) -> Detector:
        """Train on a graph.

        Parameters
        ----------
        data : GraphSource
            A PyG ``Data``, or another graph with ``x``, ``edge_index``, ``y`` and ``train_mask``; validation nodes
            are split off where it has no ``val_mask``.
        exposure : GraphSource, optional
            A graph with known OOD nodes (those of its ``ood_mask``; all nodes without one), for objectives that
            use them.
        on_epoch : callable, optional
            Called with the number of epochs done.

        Returns
        -------
        Detector
            Itself.
        """
        fit_together([self], [data], [exposure], on_epoch=on_epoch)
        return self

    @classmethod
    def wrap(
        cls,
        module: nn.Module,
        scorer: Scorer | None = None,
        data: GraphSource | None = None,
        *,
        num_classes: int | None = None,
        propagation: Literal["auto", "as-given"] = "auto",
        device: str = "auto",
    ) -> Detector:
        """Detect on a network that is already trained, without training it again.

        The module is copied: its weights, its mode and its batch-norm statistics stay as they are.

        Parameters
        ----------
        module : torch.nn.Module
            Trained, with ``forward(x, edge_index) -> logits``.
        scorer : Scorer, optional
            How outputs become scores; energy propagated over the graph if left out.
        data : GraphSource
            A graph of the kind the module was trained on. With ``train_mask`` and ``y`` it also gives the number of
            classes, and scorers that learn from training nodes can be used.
        num_classes : int, optional
            How many of the logits are classes; from the training labels if left out, else all of them.
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
        check_source(data)
        assert data is not None
        detector = cls(module, None, scorer, propagation=propagation, device=device)
        return detector._with_state(wrapped_state(detector, module, data, num_classes))

    def with_scorer(self, scorer: Scorer) -> Detector:
        """Put another scorer on the same trained network, as given, without training again.

        Parameters
        ----------
        scorer : Scorer
            One that learns from the training graph needs a detector that was fitted, not loaded.

        Returns
        -------
        Detector
            A new detector. A threshold belongs to its scorer, so it is not calibrated.
        """
        other = copy.copy(self)
        other.scorer = scorer
        return other._with_state(replace(self.state_.with_scorer(scorer), advice=[]))

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted detector to a folder: ``config.json`` and ``model.safetensors``, whole or not at all.

        Parameters
        ----------
        path : path
            The folder. One that holds a saved detector is replaced; any other that is not empty is refused.
        """
        model_folder.save(self, path)

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

        Nothing in the folder can run: parts are made by name from the classes of this library and of loaded plugins.

        Parameters
        ----------
        path : path
            The folder.
        backbone, objective, scorer
            Parts of your own, which are not in the folder; a copy of the module gets the saved weights.
        device : str
            As for `Detector`.

        Raises
        ------
        ModelFileError
            The folder is damaged, incomplete, or not a saved detector.
        """
        return model_folder.load(cls, path, backbone=backbone, objective=objective, scorer=scorer, device=device)[0]

    @property
    def needs_exposure(self) -> bool:
        """Whether `fit` needs a graph with known OOD nodes."""
        return self.objective is not None and self.objective.needs_exposure

    def training_key(self, include_seed: bool = True) -> TrainingKey:
        """Say what the training of this detector depends on, so that detectors can share one.

        Parameters
        ----------
        include_seed : bool
            Whether detectors that differ in their seed only have different keys.

        Returns
        -------
        TrainingKey
            Equal for detectors that train the same network on the same data.
        """
        return TrainingKey.of(self, include_seed)
