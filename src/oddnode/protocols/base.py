"""The contract of a protocol: everything that differs between the rules a task can be run under."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from oddnode._utils.registry import Registry
from oddnode.detector import Detector
from oddnode.tasks import RULES, Task, TaskRules

__all__ = ["PROTOCOLS", "EvaluationProtocol", "get_protocol", "register_protocol"]


class EvaluationProtocol(ABC):
    """The rules that a method is fitted and measured by. Code that runs methods asks this object, never its name."""

    #: What the command line and tables call it.
    name: ClassVar[str]
    #: One line about it for people.
    summary: ClassVar[str]
    #: What is different about its tasks.
    rules: ClassVar[TaskRules]
    #: How long a training takes, where that of the clean protocol takes 1.
    relative_cost: ClassVar[float] = 1.0

    @abstractmethod
    def methods(self) -> list[str]:
        """Names of the methods that have settings under this protocol, in the order of tables."""

    @abstractmethod
    def detector(
        self,
        method: str,
        task: Task,
        backbone: str | nn.Module = "gcn",
        seed: int = 0,
        device: str = "auto",
        **overrides: Any,
    ) -> Detector:
        """An unfitted detector of a method, with this protocol's settings for a task.

        Parameters
        ----------
        method : str
            One of `methods`.
        task : Task
            What it will be fitted on.
        backbone : str or torch.nn.Module
            The network, unless the method has one of its own.
        seed, device
            As for `oddnode.Detector`.
        **overrides
            Settings of the method or of the detector that take the place of the protocol's.
        """

    @abstractmethod
    def hyper_parameters(self, method: str, task: str) -> dict[str, Any]:
        """The method's own settings on a task, by name: those that ``overrides`` of `detector` may replace.

        Parameters
        ----------
        method : str
            One of `methods`.
        task : str
            The task's name.
        """

    @abstractmethod
    def fpr_at_tpr(self, id_scores: Tensor, ood_scores: Tensor, tpr: float = 0.95) -> float:
        """The share of OOD nodes that are accepted where ``tpr`` of the ID nodes are.

        Parameters
        ----------
        id_scores, ood_scores : Tensor
            Scores ``[n]`` of ID nodes and ``[m]`` of OOD nodes, higher = more in-distribution.
        tpr : float
            The share of ID nodes that are accepted.
        """

    @abstractmethod
    def id_accuracy(self, predicted: Tensor, probabilities: Tensor, y: Tensor, task: str) -> float:
        """How well ID nodes are classified, from 0 to 1.

        Parameters
        ----------
        predicted : Tensor
            Predicted classes of the ID test nodes ``[n]``.
        probabilities : Tensor
            Their class probabilities ``[n, C]``.
        y : Tensor
            Their classes ``[n]``.
        task : str
            The task's name.
        """

    def notes(self, tasks: Sequence[str]) -> list[str]:
        """What a reader of a table of these tasks has to know about the protocol.

        Parameters
        ----------
        tasks : sequence of str
            Names of the tasks.
        """
        return []

    def __repr__(self) -> str:
        return f"<protocol {self.name}>"


#: The protocols by name.
PROTOCOLS: Registry[EvaluationProtocol] = Registry("protocol")


def get_protocol(name: str) -> EvaluationProtocol:
    """The protocol of a name, or an error that suggests the nearest one.

    Parameters
    ----------
    name : str
        The protocol's name.
    """
    return PROTOCOLS[name]


def register_protocol(protocol: EvaluationProtocol) -> None:
    """Add a protocol and the rules that its tasks are made under.

    Parameters
    ----------
    protocol : EvaluationProtocol
        The protocol; its rules name it.
    """
    if protocol.rules.protocol != protocol.name:
        raise ValueError(f"the rules of protocol {protocol.name!r} belong to {protocol.rules.protocol!r}")
    PROTOCOLS.register(protocol.name, protocol)
    RULES.register(protocol.name, protocol.rules)
