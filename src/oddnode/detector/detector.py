"""`Detector`: a backbone, an objective and a scorer, with the estimator contract of scikit-learn."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

from torch import nn

from oddnode._utils.suggestions import unknown
from oddnode.detector import model_folder
from oddnode.detector.adaptation import scorer_of
from oddnode.detector.fitting import fit_together
from oddnode.detector.hub import HubMixin
from oddnode.detector.inference import FittedEstimator
from oddnode.detector.own_parts import as_scorer
from oddnode.detector.reference_calibration import calibration_by_references
from oddnode.detector.registry import get_recipe
from oddnode.detector.training_key import TrainingKey
from oddnode.detector.wrapping import wrapped_state
from oddnode.graph import GraphSource, as_source
from oddnode.objectives import Objective
from oddnode.scoring import Scorer
from oddnode.training import BatchNormStatistics, Trainer

__all__ = ["Detector"]


class Detector(HubMixin, FittedEstimator):
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
        Number of additional logits that belong to no class, for a backbone given by name. Cross-entropy pushes them
        down on ID nodes only. They are never predicted.
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
        Training and validation loss of every epoch; in an ensemble with the number of the member.
    class_means_ : Tensor or None
        Mean logits of every class over the training nodes ``[C, C]``.
    graph_profile_ : GraphProfile
        Size, degrees and homophily of the training graph.
    advice_ : list of str
        Messages on the graph, on how the scorer was adapted to it, and on scores to be doubted.
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

    _made: tuple[str | None, dict[str, Any], Objective | None, Scorer | str | None] = (None, {}, None, None)

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
        recipe = get_recipe(name)
        own = set(recipe.hyper_parameters)
        general = set(inspect.signature(cls.__init__).parameters) - {"self", "objective", "scorer"}
        for key in overrides:
            if key not in own | general:
                raise unknown(f"setting of {name}", key, sorted(own) + sorted(general))
        given = {k: v for k, v in overrides.items() if k in own}
        objective, scorer = recipe.build(**given)
        rest = recipe.settings | {k: v for k, v in overrides.items() if k not in own}
        if recipe.backbone and backbone not in ("gcn", recipe.backbone):
            raise ValueError(f"{name} has its own network ({recipe.backbone}); leave backbone out")
        backbone = recipe.backbone or backbone
        return cls(backbone, objective, scorer, seed=seed, device=device, **rest)._made_of(name, given)

    def fit(
        self, data: GraphSource, exposure: GraphSource | None = None, *, on_epoch: Callable[[int], None] | None = None
    ) -> Detector:
        """Train on a graph.

        Parameters
        ----------
        data : GraphSource
            A PyG ``Data``, or another graph with ``x``, ``edge_index``, ``y`` and ``train_mask``
            (`oddnode.graph.as_source`); validation nodes are split off if it has no ``val_mask``.
        exposure : GraphSource, optional
            A graph with known OOD nodes (those in its ``ood_mask``, or all nodes without one), for objectives and
            scorers that learn from them.
        on_epoch : callable, optional
            Called with the number of finished epochs.

        Returns
        -------
        Detector
            The detector itself.
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

    def save(self, path: str | os.PathLike) -> None:
        """Save the fitted detector atomically as a folder with ``config.json`` and ``model.safetensors``.

        Parameters
        ----------
        path : path
            The folder. A saved detector is replaced; any other folder must be empty.
        """
        model_folder.save(self, path)

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
            Your own parts, which are not in the folder; a copy of the module gets the saved weights. With another
            scorer than the saved one, the detector has no threshold until it is calibrated.
        device : str
            As for `Detector`.

        Raises
        ------
        ModelFileError
            If the folder is damaged, incomplete, or not a saved detector.
        """
        return model_folder.load(cls, path, backbone=backbone, objective=objective, scorer=scorer, device=device)[0]

    def _made_of(self, method: str | None, hyper_parameters: dict[str, Any]) -> Self:
        """Remember which method the objective and the scorer were built from."""
        self._made = method, hyper_parameters, self.objective, self.scorer
        return self

    @property
    def method(self) -> str | None:
        """The method that `from_recipe` made it of; ``None`` if its parts were chosen one by one, or changed since."""
        name, _, objective, scorer = self._made
        return name if objective is self.objective and scorer is self.scorer else None

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """The hyper-parameters of `method` that were given to `from_recipe`; the others have their defaults."""
        return {} if self.method is None else dict(self._made[1])

    @property
    def needs_exposure(self) -> bool:
        """Whether `fit` needs a graph with known OOD nodes."""
        parts = self.objective, scorer_of(self)
        return any(part is not None and part.needs_exposure for part in parts)

    def training_key(self, include_seed: bool = True) -> TrainingKey:
        """Return everything that the training of this detector depends on, so that detectors can share a training.

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
