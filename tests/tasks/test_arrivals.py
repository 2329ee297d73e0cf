"""Arrivals: nothing of them is in the training graph, and they are what their kind says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from oddnode.graph.alterations import ALTERATIONS
from oddnode.tasks import (
    KINDS,
    PLACEMENTS,
    TASKS,
    UNSEEN_KINDS,
    Arrivals,
    Task,
    arrivals_task,
    dataset_states,
    expand_tasks,
    induced,
    load_task,
)
from tests.cli.test_app import CLI
from tests.tasks.test_registry import assert_same
from tests.tasks.test_shifts import is_mixture

ALTERED = tuple(ALTERATIONS)
OF_EDGES = ("rewired", "overlinked", "bridged", "ringed")
OF_BOTH = ("merged",)


def numbered_graph(num_nodes: int = 600, num_classes: int = 6, seed: int = 0) -> Data:
    """Nodes whose first feature is their number; edges mostly within a class, sorted, both ways and once each."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(num_classes, (num_nodes,), generator=generator)
    x = (torch.rand(num_nodes, 12, generator=generator) < 0.4).float()
    x[:, 0] = torch.arange(1, num_nodes + 1)
    source = torch.arange(num_nodes).repeat_interleave(3)
    first, second = torch.randint(num_nodes, (2, len(source)), generator=generator)
    target = torch.where(y[first] == y[source], first, second)
    edges = torch.stack([source, target])[:, source != target]
    return Data(x=x, edge_index=coalesce(torch.cat([edges, edges.flip(0)], dim=1)), y=y)


def made(kind: str, placement: str = "scattered", seed: int = 0, data: Data | None = None, **others: float) -> Task:
    graph = numbered_graph() if data is None else data
    return arrivals_task("t", graph, Arrivals(kind, placement, **others), seed)  # type: ignore[arg-type]


def numbers(x: Tensor) -> list[int]:
    return [int(value) - 1 for value in x[:, 0].tolist()]


def edge_set(edge_index: Tensor, names: list[int] | None = None) -> set[tuple[int, int]]:
    pairs = [tuple(edge) for edge in edge_index.t().tolist()]
    return {(u, v) if names is None else (names[u], names[v]) for u, v in pairs}


def arrived(task: Task) -> tuple[Data, int, Tensor, Tensor]:
    """The scored graph, the size of the training graph, and positions of known and unknown arrivals."""
    [scored] = task.tests.values()
    known, unknown = (mask.nonzero().squeeze(1) for mask in (task.id_test.mask, scored.ood_mask))
    return scored, task.train.num_nodes, known, unknown


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("kind", ["label", *ALTERED])
def test_nothing_of_any_arrival_is_in_the_training_graph(kind: str, placement: str) -> None:
    data = numbered_graph()
    task = made(kind, placement, data=data)
    assert all(torch.equal(data[key], value) for key, value in numbered_graph().to_dict().items())  # as it was given
    names = numbers(task.train.x)
    assert len(set(names)) == len(names)
    assert torch.equal(task.train.x, data.x[names])
    inside = set(names)
    expected = {(u, v) for u, v in edge_set(data.edge_index) if u in inside and v in inside}
    assert edge_set(task.train.edge_index, names) == expected
    # Of another graph in which everything of the arrivals is different, the training graph is the same.
    outside = torch.tensor([node for node in range(600) if node not in inside])
    other = data.clone()
    other.x[outside, 1:] = 7.0
    other.y[outside] = (other.y[outside] + 1) % 6
    if kind != "label":
        again = made(kind, placement, data=other)
        assert torch.equal(again.train.x, task.train.x)
        assert torch.equal(again.train.edge_index, task.train.edge_index)
        assert torch.equal(again.train.y, task.train.y)
    assert task.id_test.data is next(iter(task.tests.values()))
    scored, num_train, known, unknown = arrived(task)
    assert int(torch.cat([known, unknown]).min()) >= num_train
    assert len(known) + len(unknown) == scored.num_nodes - num_train
    assert not set(known.tolist()) & set(unknown.tolist())
    # The training graph comes first in the scored graph.
    assert torch.equal(scored.x[:num_train], task.train.x)
    assert torch.equal(scored.y[:num_train], task.train.y)
    both = (scored.edge_index < num_train).all(dim=0)
    assert edge_set(scored.edge_index[:, both]) == edge_set(task.train.edge_index)
    for mask in ("train_mask", "val_mask"):
        assert torch.equal(scored[mask][:num_train], task.train[mask])
        assert not bool(scored[mask][num_train:].any())


def test_kinds_and_placements_of_a_seed_share_a_training_graph() -> None:
    tasks = [made(kind, placement, seed=3) for kind in ALTERED for placement in PLACEMENTS]
    for task in tasks[1:]:
        for key in ("x", "edge_index", "y", "train_mask", "val_mask"):
            assert torch.equal(task.train[key], tasks[0].train[key]), task.name
    by_class = [made("label", placement, seed=3).train for placement in PLACEMENTS]
    assert all(torch.equal(by_class[0][key], by_class[1][key]) for key in ("x", "edge_index", "y", "train_mask"))
    assert not torch.equal(made("feature", seed=4).train.x, tasks[0].train.x)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(("share", "unknown"), [(0.01, 20), (0.05, 30), (0.2, 120)])
def test_shares_are_those_of_the_known_nodes(share: float, unknown: int, placement: str) -> None:
    scored, num_train, known, found = arrived(made("feature", placement, share=share))
    assert len(found) == unknown  # at least twenty
    assert scored.num_nodes == 600
    # Unknown nodes of the other placement arrive unaltered, so there are as many known arrivals for both.
    num_arrivals = max(2 * unknown, round((share + 0.3) * 600))
    assert len(known) + len(found) == num_arrivals
    assert num_train == 600 - num_arrivals


def test_shares_of_classes_are_those_of_the_known_classes() -> None:
    known_nodes = int((numbered_graph().y >= 3).sum())
    for share in (0.01, 0.05, 0.2):
        _, num_train, known, unknown = arrived(made("label", "grouped", share=share))
        assert len(unknown) == max(20, round(share * known_nodes))
        assert len(known) == round(0.3 * known_nodes)
        assert num_train == known_nodes - len(known)


@pytest.mark.parametrize("kind", ["label", "feature"])
def test_twenty_train_and_forty_validate_in_every_class(kind: str) -> None:
    task = made(kind, data=numbered_graph(1200))
    assert torch.bincount(task.train.y[task.train.train_mask]).tolist() == [20] * task.num_classes
    assert torch.bincount(task.train.y[task.train.val_mask]).tolist() == [40] * task.num_classes
    assert not bool((task.train.train_mask & task.train.val_mask).any())
    assert not bool(task.train.test_mask.any())


def group_sizes(graph: Data) -> list[int]:
    """The sizes of the connected groups of unknown nodes."""
    edges = induced(graph, graph.ood_mask).edge_index.numpy()
    number = int(graph.ood_mask.sum())
    joined = coo_array((np.ones(edges.shape[1]), tuple(edges)), shape=(number, number))
    return np.bincount(connected_components(joined, directed=False)[1]).tolist()


@pytest.mark.parametrize("kind", ["label", "feature"])
def test_scattered_arrivals_have_a_known_neighbour_and_grouped_ones_are_groups_of_about_eight(kind: str) -> None:
    grouped, _, _, unknown = arrived(made(kind, "grouped", share=0.1))
    groups = group_sizes(grouped)
    # The last group may be cut, and groups that touch look like one.
    assert sum(size < 4 for size in groups) <= 1
    assert len(groups) <= len(unknown) / 6
    scattered, _, _, unknown = arrived(made(kind, "scattered", share=0.1))
    assert len(group_sizes(scattered)) > 2 * len(groups)
    for node in unknown.tolist():
        neighbours = scattered.edge_index[0][scattered.edge_index[1] == node]
        assert bool((~scattered.ood_mask[neighbours]).any())


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("chosen", [None, (1, 5)])
def test_unknown_classes_are_those_that_training_lacks(placement: str, chosen: tuple[int, ...] | None) -> None:
    data = numbered_graph()
    task = arrivals_task("t", data, Arrivals("label", placement, unknown_classes=chosen))  # type: ignore[arg-type]
    scored, num_train, known, unknown = arrived(task)
    names = numbers(scored.x)
    lacking = chosen or (0, 1, 2)
    left = torch.tensor([number for number in range(6) if number not in lacking])
    assert task.num_classes == len(left)
    assert {int(data.y[names[node]]) for node in unknown.tolist()} <= set(lacking)
    assert scored.y[unknown].unique().tolist() == [-1]
    for nodes in (torch.arange(num_train), known):
        assert torch.equal(left[scored.y[nodes]], data.y[[names[node] for node in nodes.tolist()]])


@pytest.mark.parametrize("classes", [(0, 1, 2, 3, 4, 5), (9,)])
def test_unknown_classes_that_leave_none_or_do_not_exist_are_refused(classes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected some of 0..5, not all"):
        arrivals_task("t", numbered_graph(), Arrivals("label", "scattered", unknown_classes=classes))


@pytest.mark.parametrize(("num_classes", "unknown"), [(2, 1), (3, 1), (4, 2), (7, 3)])
def test_at_least_two_classes_stay_known_where_there_are_three(num_classes: int, unknown: int) -> None:
    task = made("label", data=numbered_graph(num_classes=num_classes))
    assert task.num_classes == num_classes - unknown


@pytest.mark.parametrize("kind", ALTERED)
def test_alterations_change_what_they_say_and_nothing_else(kind: str) -> None:
    data = numbered_graph()
    task = made(kind)
    scored, _, known, unknown = arrived(task)
    # Positions of the scored graph are nodes of the graph in the order of the training graph, then of the arrivals.
    train = numbers(task.train.x)
    rest = [node for node in range(600) if node not in set(train)]
    names = train + rest
    unaltered = torch.ones(600, dtype=torch.bool)
    unaltered[unknown] = False
    assert torch.equal(scored.x[unaltered], data.x[names][unaltered])
    assert torch.equal(scored.y, data.y[names])
    before, after = edge_set(data.edge_index), edge_set(scored.edge_index, names)
    strange = {names[node] for node in unknown.tolist()}
    away = {(u, v) for u, v in before ^ after if u not in strange and v not in strange}
    assert away == set()
    assert (after == before) == (kind not in (*OF_EDGES, *OF_BOTH))
    same = (scored.x == data.x[names]).all(dim=1)[unknown]
    assert bool(same.all()) == (kind in OF_EDGES)
    assert float((~same).double().mean()) > (0.9 if kind not in OF_EDGES else -1)
    assert {(v, u) for u, v in after} == after  # both ways
    assert all(u != v for u, v in after)
    assert len(known) > len(unknown)


ROWS = torch.tensor([[1.0, 0, 2, 0], [0, 3, 0, 0], [0, 0, 0, 0], [4, 5, 6, 7]])


def altered(kind: str, data: Data, nodes: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    chosen = torch.tensor(nodes)
    changed = ALTERATIONS[kind].alter(data, chosen, np.random.default_rng(seed))
    assert changed.edge_weight is None
    return changed.features(data.x, chosen), data.edge_index if changed.edge_index is None else changed.edge_index


def test_mixed_and_swapped_features_are_those_of_others() -> None:
    data, nodes = numbered_graph(), list(range(40))
    x, _ = altered("mixed", data, [3, 9])
    assert is_mixture(x[3], data.x)
    assert is_mixture(x[9], data.x)
    assert not is_mixture(data.x[3] + 0.5, data.x)
    x, _ = altered("swapped", data, nodes)
    for node in nodes:
        giver = int(x[node, 0]) - 1
        assert torch.equal(x[node], data.x[giver])
        assert int(data.y[giver]) != int(data.y[node])


def test_shuffled_features_are_the_same_values() -> None:
    x, _ = altered("shuffled", Data(x=ROWS, edge_index=torch.zeros(2, 0, dtype=torch.long)), [0, 3])
    assert x[0].sort().values.tolist() == [0.0, 0.0, 1.0, 2.0]
    assert x[3].sort().values.tolist() == [4.0, 5.0, 6.0, 7.0]
    orders = {tuple(altered("shuffled", Data(x=ROWS, edge_index=None), [3], seed)[0][3].tolist()) for seed in range(9)}
    assert len(orders) > 4


def test_thinned_features_are_kept_or_gone_and_noisy_ones_get_as_many_more() -> None:
    x, _ = altered("thinned", Data(x=torch.ones(50, 100), edge_index=None), list(range(50)))
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert float(x.mean()) == pytest.approx(0.3, abs=0.03)
    x, _ = altered("noisy", Data(x=ROWS, edge_index=None), [0, 1, 2])
    # Row 0: two of four get the mean 1.5; row 1: one gets 3; row 2, which is empty: one gets 1.
    for row, mean, count in ((0, 1.5, 2), (1, 3.0, 1), (2, 1.0, 1)):
        assert int((x[row] == mean).sum()) >= count
        assert all(a in (b, mean) for a, b in zip(x[row].tolist(), ROWS[row].tolist(), strict=True))


def test_rewired_edges_keep_their_near_end_and_bridges_lead_to_one_other_class() -> None:
    data = numbered_graph()
    nodes = [5, 77]
    for kind in ("rewired", "bridged"):
        _, edges = altered(kind, data, nodes)
        for node in nodes:
            before, after = (data.edge_index[1][data.edge_index[0] == node], edges[1][edges[0] == node])
            assert len(after) <= len(before)
            assert len(after) >= len(before) - 2  # two may fall together, or on the node itself
            if kind == "bridged":
                [other] = set(data.y[after].tolist())
                assert other != int(data.y[node])
    # The far ends are drawn among all nodes, so arrivals stay joined to the training graph.
    scored, num_train, _, unknown = arrived(made("structure"))
    far = scored.edge_index[0][torch.isin(scored.edge_index[1], unknown)]
    assert float((far < num_train).double().mean()) == pytest.approx(num_train / 600, abs=0.12)


def test_overlinked_nodes_have_twice_their_edges_or_three_more() -> None:
    data = numbered_graph()
    nodes = list(range(0, 600, 20))
    _, edges = altered("overlinked", data, nodes)
    assert edge_set(data.edge_index) <= edge_set(edges)
    for node in nodes:
        before, after = (int((each[0] == node).sum()) for each in (data.edge_index, edges))
        assert before + max(3, before) - 3 <= after <= before + max(3, before) + 2


def ends(edges: Tensor, node: int) -> set[int]:
    return set(edges[1][edges[0] == node].tolist())


def test_patched_features_are_those_of_neighbours() -> None:
    data, nodes = numbered_graph(), list(range(40))
    x, _ = altered("patched", data, nodes)
    for node in nodes:
        rows = data.x[sorted(ends(data.edge_index, node))]
        assert bool((rows == x[node]).any(dim=0).all())
    assert len({tuple(altered("patched", data, [3], seed)[0][3].tolist()) for seed in range(9)}) > 4
    alone = Data(x=ROWS, edge_index=torch.zeros(2, 0, dtype=torch.long))
    assert torch.equal(altered("patched", alone, [0, 3])[0], ROWS)


def test_stamped_nodes_share_five_rare_features_and_have_no_more_than_before() -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(200, 40, generator=generator) < torch.linspace(0.05, 0.6, 40)).float() * 2
    x[:, :4] = 0.0  # features that no node has are not rare ones
    after, _ = altered("stamped", Data(x=x, edge_index=None), list(range(0, 200, 2)))
    shared = (after[::2] == 2).all(dim=0).nonzero().squeeze(1).tolist()
    assert len(shared) == 5
    assert all(4 <= feature < 22 + 4 for feature in shared)
    assert bool(((after[::2] != 0).sum(dim=1) <= (x[::2] != 0).sum(dim=1).clamp_min(5)).all())
    assert torch.equal(after[1::2], x[1::2])


def test_ringed_nodes_are_linked_in_groups_of_five_or_a_few_more() -> None:
    data, nodes = numbered_graph(), list(range(0, 600, 26))
    _, edges = altered("ringed", data, nodes)
    added = edge_set(edges) - edge_set(data.edge_index)
    assert {node for edge in added for node in edge} == set(nodes)
    joined = coo_array((np.ones(len(added)), tuple(np.array(sorted(added)).T)), shape=(600, 600))
    sizes = np.bincount(connected_components(joined, directed=False)[1])
    assert sorted(sizes[sizes > 1].tolist()) == [6, 6, 6, 6]
    assert len(added) >= 24 * 5 - 8


def test_merged_nodes_are_two_in_one() -> None:
    data, nodes = numbered_graph(), list(range(0, 600, 50))
    x, edges = altered("merged", data, nodes)
    for node in nodes:
        other = int(2 * x[node, 0] - data.x[node, 0]) - 1
        assert int(data.y[other]) != int(data.y[node])
        assert torch.equal(x[node], (data.x[node] + data.x[other]) / 2)
        both = (ends(data.edge_index, node) | ends(data.edge_index, other)) - {node}
        assert both <= ends(edges, node)
        assert ends(edges, node) - both <= set(nodes)


def weight_of(u: Tensor, v: Tensor) -> Tensor:
    """A weight of every pair of nodes, by their numbers."""
    return 1.0 + torch.minimum(u, v) + torch.maximum(u, v) / 1000


@pytest.mark.parametrize("kind", ["label", *ALTERED])
def test_weights_stay_with_their_edges_and_change_no_draw(kind: str) -> None:
    data = numbered_graph()
    data.edge_weight = weight_of(*data.edge_index)
    task, plain = made(kind, data=data), made(kind)
    assert task.exposure is not None
    assert plain.exposure is not None
    for graph, expected in (
        (task.train, plain.train),
        (task.tests["arrivals"], plain.tests["arrivals"]),
        (task.exposure, plain.exposure),
    ):
        assert torch.equal(graph.edge_index, expected.edge_index)
        assert torch.equal(graph.x, expected.x)
    names = torch.tensor(numbers(task.train.x))[task.train.edge_index]
    assert torch.equal(task.train.edge_weight, weight_of(*names))
    for graph in (task.tests["arrivals"], task.exposure):
        assert graph.edge_weight.shape == (graph.num_edges,)
        both = dict(zip(map(tuple, graph.edge_index.t().tolist()), graph.edge_weight.tolist(), strict=True))
        assert all(both[v, u] == weight for (u, v), weight in both.items())
        assert set(graph.edge_weight.tolist()) <= set(data.edge_weight.tolist())


def test_a_moved_edge_keeps_its_weight() -> None:
    data = numbered_graph()
    data.edge_weight = weight_of(*data.edge_index)
    _, edges, weight = ALTERATIONS["rewired"].alter(data, torch.tensor([5]), np.random.default_rng(0))
    assert edges is not None
    assert weight is not None
    before, after = data.edge_weight[data.edge_index[0] == 5].tolist(), weight[edges[0] == 5].tolist()
    assert len(after) >= len(before) - 2
    assert len(set(after) - set(before)) <= 1  # but for one edge of another node that moved to this one


@pytest.mark.parametrize("kind", ["label", "feature", "structure"])
def test_exposed_nodes_are_others_than_the_arrivals(kind: str) -> None:
    task = made(kind)
    scored, num_train, _, _ = arrived(task)
    assert task.exposure is not None
    exposed = task.exposure.ood_mask
    assert bool(exposed.any())
    if kind == "label":
        few = Arrivals("label", "scattered", share=0.2, unknown_classes=(0,))  # no unknown node is left
        assert arrivals_task("t", numbered_graph(num_classes=12), few).exposure is None
        arrivals = set(numbers(scored.x[num_train:]))
        assert not set(numbers(task.exposure.x[exposed])) & arrivals
        assert torch.equal(task.exposure.x[:num_train], task.train.x)
    else:
        assert task.exposure.num_nodes == num_train
        assert torch.equal(task.exposure.x[~exposed], task.train.x[~exposed])
        is_altered = (
            not torch.equal(task.exposure.x, task.train.x),
            not torch.equal(coalesce(task.exposure.edge_index), coalesce(task.train.edge_index)),
        )
        assert is_altered == (kind == "feature", kind == "structure")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lable", "scattered"), "arrivals of kind 'lable', 'scattered': expected one of label, feature"),
        (("label", "alone"), "one of scattered, grouped"),
        (("label", "scattered", 0.0), "0 % unknown and 30 % known arrivals, expected positive shares"),
        (("label", "scattered", 0.5, 0.5), "with some left for training"),
        (("label", "scattered", float("nan")), "expected positive shares"),
    ],
)
def test_arrivals_that_make_no_sense_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Arrivals(*arguments)
    with pytest.raises(ValueError, match=r"digits/arrivals/label-scattered: the protocol 'published' keeps unknown"):
        load_task("digits/arrivals/label-scattered", protocol="published")


def test_groups_stand_for_their_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODDNODE_CACHE", str(tmp_path / "cache"))
    six = [f"cora/arrivals/{kind}-{placement}" for kind in KINDS for placement in PLACEMENTS]
    assert expand_tasks(["cora/arrivals"]) == six
    assert all(name in TASKS for name in six)
    for group, count in (("arrivals", 6), ("arrivals-1%", 6), ("arrivals-20%", 6), ("unseen", 8)):
        names = expand_tasks([group], tmp_path)  # without the optional data sets
        assert len(names) == 4 * count
        assert {name.split("/")[0] for name in names} == {"digits", "cora", "citeseer", "pubmed"}
        assert {name.split("/")[1] for name in names} == {group}
    assert {name.split("/")[2].split("-")[0] for name in expand_tasks(["unseen"])} == set(UNSEEN_KINDS)
    assert not set(UNSEEN_KINDS) & set(KINDS)
    assert expand_tasks(["cora/arrivals", "cora/arrivals/label-scattered"]) == six
    assert set(expand_tasks(["arrivals"])) <= set(expand_tasks(["all"]))
    assert not set(expand_tasks(["unseen"])) & set(expand_tasks(["all"]))
    with pytest.raises(ValueError, match=r"unknown task 'cora/arrival'. Did you mean 'cora/arrivals'"):
        expand_tasks(["cora/arrival"])


def test_the_list_of_data_sets_names_groups_instead_of_their_tasks(cli: CLI) -> None:
    [digits] = [state for state in dataset_states() if state.name == "digits"]
    groups = ("digits/arrivals", "digits/arrivals-1%", "digits/arrivals-20%", "digits/unseen")
    assert digits.tasks == ("digits/label", "digits/structure", "digits/feature", *groups)
    assert expand_tasks(digits.tasks)
    listed = {row["name"]: row["tasks"] for row in json.loads(cli("datasets", "--json").stdout)}
    assert listed["digits"] == list(digits.tasks)
    assert all(len(tasks) <= 8 for tasks in listed.values())
    table = cli("datasets").stdout
    assert "scattered" not in table


@pytest.mark.parametrize(
    "name",
    [
        *expand_tasks([f"{name}/arrivals" for name in ("digits", "cora", "citeseer", "pubmed")]),
        *expand_tasks(["digits/unseen"]),
        "photo/arrivals/label-grouped",
        *(f"digits/arrivals-{share}/feature-scattered" for share in ("1%", "20%")),
    ],
)
def test_arrivals_of_every_data_set_are_sound_and_set_by_the_seed(name: str, request: pytest.FixtureRequest) -> None:
    folder = None if name.startswith("digits") else request.getfixturevalue("real_data")
    task, again = (load_task(name, folder, seed=2) for _ in range(2))
    assert task.name == name
    scored, num_train, known, unknown = arrived(task)
    data = load_task(f"{name.split('/')[0]}/structure", folder).train
    num_known = int(num_train + len(known)) if "label" in name else data.num_nodes
    share = {"arrivals-1%": 0.01, "arrivals-20%": 0.2}.get(name.split("/")[1], 0.05)
    assert len(unknown) == max(20, round(share * num_known))
    inside = scored.edge_index[:, (scored.edge_index < num_train).all(dim=0)]
    assert edge_set(inside) == edge_set(task.train.edge_index)
    assert torch.equal(scored.x[:num_train], task.train.x)
    assert set(scored.y[known].tolist()) <= set(range(task.num_classes))
    assert task.exposure is not None
    assert again.exposure is not None
    for one, other in ((task.train, again.train), (scored, arrived(again)[0]), (task.exposure, again.exposure)):
        assert_same(one, other)


def test_edges_that_join_a_weighted_graph_without_edges_have_weight_one() -> None:
    data = Data(x=torch.eye(8), y=torch.arange(8) % 2, edge_index=torch.empty(2, 0, dtype=torch.long))
    data.edge_weight = torch.empty(0)
    _, edges, weight = ALTERATIONS["overlinked"].alter(data, torch.tensor([5]), np.random.default_rng(0))
    assert edges is not None
    assert edges.shape[1] > 0
    assert weight is not None
    assert weight.tolist() == [1.0] * edges.shape[1]
