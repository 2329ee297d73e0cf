"""The contract of a protocol: everything that differs between the ways to evaluate a method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from oddnode._utils.registry import Registry
from oddnode.tasks import RULES, Task, TaskRules

if TYPE_CHECKING:
    from torch import Tensor, nn

    from oddnode.detector import Detector


class EvaluationProtocol(ABC):
    """The rules for fitting and evaluating methods. Other code calls this object and never compares its name."""

    #: Its name on the command line and in tables.
    name: ClassVar[str]
    #: A description in one line.
    summary: ClassVar[str]
    #: The rules for making its tasks.
    rules: ClassVar[TaskRules]
    #: The time of a training, relative to the clean protocol.
    relative_cost: ClassVar[float] = 1.0

    @abstractmethod
    def methods(self) -> list[str]:
        """List the methods that have settings under this protocol, in the order of tables."""

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
        """Build an unfitted detector of a method, with this protocol's settings for a task.

        Parameters
        ----------
        method : str
            One of `methods`.
        task : Task
            The task it will be fitted on.
        backbone : str or torch.nn.Module
            The network, unless the method has its own.
        seed, device
            As for `oddnode.Detector`.
        **overrides
            Settings of the method or of the detector that replace the protocol's.
        """

    @abstractmethod
    def hyper_parameters(self, method: str, task: str) -> dict[str, Any]:
        """Return the hyper-parameters of a method on a task, which ``overrides`` of `detector` can replace.

        Parameters
        ----------
        method : str
            One of `methods`.
        task : str
            The task's name.
        """

    @abstractmethod
    def fpr_at_tpr(self, id_scores: Tensor, ood_scores: Tensor, tpr: float = 0.95) -> float:
        """Measure the share of OOD nodes accepted at a threshold that accepts ``tpr`` of the ID nodes.

        Parameters
        ----------
        id_scores, ood_scores : Tensor
            Scores ``[n]`` of ID nodes and ``[m]`` of OOD nodes, higher = more in-distribution.
        tpr : float
            The share of ID nodes that are accepted.
        """

    @abstractmethod
    def id_accuracy(self, predicted: Tensor, probabilities: Tensor, y: Tensor, task: str) -> float:
        """Measure the accuracy on ID nodes, from 0 to 1.

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
        """List notes on the protocol for the readers of a table of some tasks.

        Parameters
        ----------
        tasks : sequence of str
            Names of the tasks.
        """
        return []

    def __repr__(self) -> str:
        return f"<protocol {self.name}>"


#: The protocols by name. Those of the library are imported when they are used, so that names need no torch.
PROTOCOLS: Registry[EvaluationProtocol] = Registry("protocol")
PROTOCOLS.register_place("clean", "oddnode.protocols.clean:CLEAN")
PROTOCOLS.register_place("published", "oddnode.protocols.published:PUBLISHED")


def get_protocol(name: str) -> EvaluationProtocol:
    """Look up a protocol by name; the error for an unknown name suggests the nearest one.

    Parameters
    ----------
    name : str
        The protocol's name.
    """
    return PROTOCOLS[name]


def register_protocol(protocol: EvaluationProtocol) -> None:
    """Add a protocol and its rules for making tasks.

    Parameters
    ----------
    protocol : EvaluationProtocol
        The protocol; its rules must have its name.
    """
    if protocol.rules.protocol != protocol.name:
        raise ValueError(f"the rules of protocol {protocol.name!r} belong to {protocol.rules.protocol!r}")
    PROTOCOLS.register(protocol.name, protocol)
    RULES.register(protocol.name, protocol.rules)
