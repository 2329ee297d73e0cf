from __future__ import annotations

from dataclasses import replace

import pytest
from torch import Tensor

from oddnode import Detector, evaluate, load_task
from oddnode.protocols import PROTOCOLS, CleanProtocol, get_protocol, register_protocol
from oddnode.tasks import TaskRules

pytestmark = pytest.mark.usefixtures("own_registries")


class LenientProtocol(CleanProtocol):
    """The clean protocol, but left-out nodes stay, and every OOD node counts as rejected."""

    name = "lenient"
    rules = TaskRules("lenient", keep_left_out_nodes=True)

    def fpr_at_tpr(self, id_scores: Tensor, ood_scores: Tensor, tpr: float = 0.95) -> float:
        return 0.0


def test_a_new_protocol_makes_its_tasks_and_measures_them() -> None:
    register_protocol(LenientProtocol())
    task = load_task("digits/label", protocol="lenient")
    assert task.protocol == "lenient"
    assert task.train.num_nodes == 1797 > load_task("digits/label").train.num_nodes
    assert int(task.train.y.max()) == 9
    detector = get_protocol("lenient").detector("msp", task, device="cpu", epochs=3).fit(task.train)
    assert isinstance(detector, Detector)
    assert evaluate(detector, task)["fpr95"] == 0.0
    clean = replace(task, protocol="clean")
    assert evaluate(detector, clean)["fpr95"] > 0.0


def test_rules_of_another_name_are_refused() -> None:
    class Misnamed(LenientProtocol):
        name = "misnamed"

    with pytest.raises(ValueError, match="the rules of protocol 'misnamed' belong to 'lenient'"):
        register_protocol(Misnamed())
    assert "misnamed" not in PROTOCOLS
