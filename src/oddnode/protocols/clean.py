"""The clean protocol, the default: nothing leaks, and each method has the same settings on all data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oddnode._utils.lazy import LazyModule
from oddnode.detector import RECIPES, get_recipe
from oddnode.protocols.base import EvaluationProtocol
from oddnode.tasks import RULES, Task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from oddnode.detector import Detector

# The command line asks for the names of methods before it imports torch.
_detector, _functional = LazyModule("oddnode.detector"), LazyModule("oddnode.functional")


class CleanProtocol(EvaluationProtocol):
    """Training never uses OOD nodes, unless the method declares exposure; methods have their default settings."""

    name = "clean"
    summary = "nothing leaks; one setting per method for all data sets"
    rules = RULES["clean"]

    def methods(self) -> list[str]:
        return list(RECIPES)

    def detector(
        self,
        method: str,
        task: Task,
        backbone: str | nn.Module = "gcn",
        seed: int = 0,
        device: str = "auto",
        **overrides: Any,
    ) -> Detector:
        backbone = get_recipe(method).backbone or backbone
        # A benchmark compares methods as published, so nothing is adapted to the graph.
        settings = {"propagation": "as-given"} | overrides
        detector = _detector.Detector.from_recipe(method, backbone, seed, device, **settings)
        # What a task tests is not rehearsed, nor is anything like it.
        detector._adapt_scorer(lambda scorer: scorer.rehearsing_without(task.not_rehearsed))
        return detector

    def hyper_parameters(self, method: str, task: str) -> dict[str, Any]:
        return get_recipe(method).hyper_parameters

    def fpr_at_tpr(self, id_scores: Tensor, ood_scores: Tensor, tpr: float = 0.95) -> float:
        return _functional.fpr_at_tpr(id_scores, ood_scores, tpr)

    def id_accuracy(self, predicted: Tensor, probabilities: Tensor, y: Tensor, task: str) -> float:
        return (predicted == y).double().mean().item()


CLEAN = CleanProtocol()
