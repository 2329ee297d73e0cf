"""Which trainings one process does together."""

from __future__ import annotations

from oddnode.runner.work import Group, Training, cell_groups, one_by_one, stacked_groups


def training(method: str, seed: int, task: str = "digits/label", protocol: str = "clean") -> Training:
    return Training(task, protocol, "gcn", seed, (method,), parameters=method)


def shape(groups: list[Group]) -> list[list[list[tuple[str, int]]]]:
    return [[[(t.methods[0], t.seed) for t in stack] for stack in group.stacks] for group in groups]


TRAININGS = [training(method, seed) for seed in range(2) for method in ("msp", "nodesafe", "gpn")]


def test_on_a_cpu_trainings_are_on_their_own_or_with_those_on_the_same_graph() -> None:
    assert shape(one_by_one(TRAININGS[:2])) == [[[("msp", 0)]], [[("nodesafe", 0)]]]
    assert shape(cell_groups(TRAININGS)) == [
        [[("msp", seed)], [("nodesafe", seed)], [("gpn", seed)]] for seed in range(2)
    ]
    tasks = [f"digits/arrivals/{kind}" for kind in ("feature-scattered", "structure-grouped", "label-scattered")]
    groups = cell_groups([training("msp", seed, task) for task in tasks for seed in range(2)])
    # Classes are left out of the training graph of the last one.
    assert [[t.task for t in group.trainings] for group in groups] == [tasks[:2]] * 2 + [tasks[2:]] * 2


def test_on_a_gpu_seeds_are_stacked_and_several_processes_share_what_cannot_be() -> None:
    [group] = stacked_groups(TRAININGS, jobs=1)
    assert shape([group]) == [[[(m, 0), (m, 1)] for m in ("msp", "nodesafe", "gpn")]]
    assert group.data == ("digits/label", "clean")
    assert shape(stacked_groups(TRAININGS, jobs=4)) == [
        [[("msp", 0), ("msp", 1)], [("nodesafe", 0), ("nodesafe", 1)]],
        [[("gpn", 0)]],
        [[("gpn", 1)]],
    ]
    many = [Training("digits/label", "clean", "gcn", 0, ("msp",), parameters=f"msp{n}") for n in range(9)]
    assert [len(group.stacks) for group in stacked_groups(many, jobs=2)] == [4, 4, 1]
    assert [len(group.stacks) for group in stacked_groups(many, jobs=1)] == [9]


def test_a_group_can_be_cut_down() -> None:
    [group] = stacked_groups(TRAININGS, jobs=1)
    kept = [TRAININGS[0].identity, TRAININGS[3].identity, TRAININGS[4].identity]
    assert shape([group.only(kept)]) == [[[("msp", 0), ("msp", 1)], [("nodesafe", 1)]]]
    assert group.only([]).stacks == ()
