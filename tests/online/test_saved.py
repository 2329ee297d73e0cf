"""Live graphs on disk: after any changes, one that was opened again answers as one that never stopped, bit for bit."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from oddnode import Detector, Energy, LiveGraph, load_task
from oddnode.graph import GraphError
from oddnode.large import FolderError, GraphFolder, folder_from_data
from oddnode.online import growing
from oddnode.tables import TableModel
from oddnode.tasks import Task
from tests.tables.shop import shop

KINDS = ["weighted", "directed", "folder", "table"]


@pytest.fixture(scope="module")
def task() -> Task:
    return copy.deepcopy(load_task("digits/arrivals/label-scattered"))


@pytest.fixture(scope="module")
def evidence(task: Task) -> Detector:
    return Detector.from_recipe("nodesafe-evidence", epochs=10, device="cpu").fit(task.train)


class Case(NamedTuple):
    """A model, its graph, ids of its nodes, and rows for some ids, as `LiveGraph.change` takes them."""

    model: Any
    graph: Any
    ids: list[Any]
    rows: Callable[[list[Any]], Any]
    weighted: bool = False

    @property
    def new_ids(self) -> list[Any]:
        """Ids for arrivals: numbers in a graph folder that has numbers."""
        return [*range(10_000, 10_030)] if isinstance(self.graph, GraphFolder) else [f"n{k}" for k in range(30)]

    def present(self, live: LiveGraph) -> list[Any]:
        return [node for node in [*self.ids, *self.new_ids] if node in live]

    def opened(self, folder: Path) -> LiveGraph:
        return LiveGraph.open(self.model, folder, graph=self.graph if isinstance(self.graph, GraphFolder) else None)


@pytest.fixture
def case(kind: str, task: Task, evidence: Detector, tmp_path: Path) -> Case:
    if kind == "table":
        nodes, edges = shop(num_old=300, num_known=20, num_planted=10).old
        columns: Any = {"id_column": "id", "label_column": "category"}
        model = TableModel.fit(nodes, edges, **columns, epochs=5, device="cpu")[0]
        model.save(tmp_path / "model")
        known = nodes.astype(object).where(nodes.notna(), None).to_dict("records")

        def records(ids: list[Any]) -> list[Any]:
            return [known[sum(str(node).encode()) % len(known)] | {"id": node} for node in ids]

        return Case(
            TableModel.load(tmp_path / "model", device="cpu"), model.read(nodes, edges), [*nodes["id"]], records
        )
    train = task.train.clone()
    source, target = train.edge_index
    if kind == "weighted":
        train.edge_weight = (0.5 + (source + target) % 7).float() / 7
    elif kind == "directed":
        train.edge_index = train.edge_index[:, (source < target) | (source % 3 == 0)]
    detector = evidence
    if kind in ("weighted", "directed"):
        detector = Detector(scorer=Energy(), epochs=3, device="cpu").fit(train)
    graph = folder_from_data(train, tmp_path / "graph") if kind == "folder" else train

    def features(ids: list[Any]) -> torch.Tensor:
        return task.id_test.data.x[[sum(str(node).encode()) % 900 for node in ids]]

    return Case(detector, graph, list(range(train.num_nodes)), features, kind == "weighted")


def random_change(case: Case, live: LiveGraph, rng: np.random.Generator, count: int) -> dict[str, Any]:
    """A valid change of all kinds; some ids come back after they were removed."""
    present = case.present(live)
    some = [present[place] for place in rng.choice(len(present), 10, replace=False)]
    new = [node for node in (case.new_ids[count % 5], case.new_ids[10 + count]) if node not in live]
    gone, changed, near = some[: count % 2 * 2], some[2:4], some[4:]
    ends = [(new[0], near[0]), (near[1], new[-1]), (new[-1], near[2])]
    edges = [(*pair, 0.1 + float(rng.random())) if case.weighted else pair for pair in ends]
    cut = [(source, near[3]) for source, _ in live.neighbours(near[3], 3) if source not in gone]
    named: Any = {} if isinstance(case.model, TableModel) else {"ids": new, "changed_ids": changed}
    return named | {
        "add_nodes": case.rows(new),
        "add_edges": edges,
        "change_nodes": case.rows(changed),
        "remove_nodes": gone,
        "remove_edges": cut,
    }


def answers(case: Case, live: LiveGraph) -> list[Any]:
    """What a live graph says of all that is in it, and of an arrival."""
    present = case.present(live)
    arrival: Any = {} if isinstance(case.model, TableModel) else {"ids": ["new"]}
    links = [("new", node, 0.7) if case.weighted else ("new", node) for node in present[-12::3]]
    own = [live.score(case.rows(["new"]), links, **arrival), live.rescore(present[-40:]), live.explain(present[:2])]
    return [*own, live.scores_of(present), [live.neighbours(node) for node in present], live.num_nodes, live.next_id]


@pytest.mark.parametrize("kind", KINDS)
def test_a_live_graph_answers_the_same_after_restart_and_after_replay(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "_MOST_CHANGED", 0)  # the overlay is merged several times
    live, rng, log = LiveGraph(case.model, case.graph), np.random.default_rng(0), []
    live.save(tmp_path / "base")
    before, again = answers(case, live), case.opened(tmp_path / "base")
    assert answers(case, again) == before
    for count in range(10):
        log.append(random_change(case, live, rng, count))
        own = live.change(**log[-1])
        assert again.change(**log[-1]) == own
        live.rescore([own[0].id])  # reads change nothing
        if count % 4 == 2:
            (again if count == 2 else live).save_changes(tmp_path / "changes")
            again = case.opened(tmp_path / "base")
            again.load_changes(tmp_path / "changes")
            assert again.version == live.version
    expected = answers(case, live)
    assert answers(case, again) == expected != before
    replayed = case.opened(tmp_path / "base")
    for change in log:
        replayed.change(**change)
    assert answers(case, replayed) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_base_is_computed_beside_a_graph_that_goes_on(kind: str, case: Case, tmp_path: Path) -> None:
    live, rng = LiveGraph(case.model, case.graph), np.random.default_rng(0)
    for count in range(6):
        live.change(**random_change(case, live, rng, count))
    before = answers(case, live)
    present = case.present(live)
    if kind == "table":
        with pytest.raises(ValueError, match="save writes a base that is in memory"):
            live.rebased(tmp_path / "other")
    beside = live.rebased(tmp_path / "other" if kind == "folder" else None)
    assert answers(case, live) == before
    assert beside.version == live.version == 6
    beside.save(tmp_path / "base")
    opened = LiveGraph.open(case.model, tmp_path / "base", graph=tmp_path / "other" if kind == "folder" else None)
    change = random_change(case, live, rng, 6)
    live.rebase()
    for each in (live, opened):  # what came in the meantime
        each.change(**change)
    present = case.present(live)
    assert [{*opened.neighbours(node)} for node in present] == [{*live.neighbours(node)} for node in present]
    found, expected = (torch.tensor(each.scores_of(present).score) for each in (opened, live))
    assert float((found - expected).abs().median()) < 1e-5
    assert (opened.next_id, opened.version) == (live.next_id, 7)


def test_what_does_not_belong_together_is_refused(task: Task, evidence: Detector, tmp_path: Path) -> None:
    live, base, changes = LiveGraph(evidence, task.train), tmp_path / "base", tmp_path / "changes"
    with pytest.raises(ValueError, match="the base is not saved"):
        live.save_changes(changes)
    live.save(base)
    live.commit(task.id_test.data.x[:1], [("a", 3)], ids=["a"])
    live.save_changes(changes)
    with pytest.raises(ValueError, match="the graph has changed since its base was prepared"):
        live.save(base)
    other = copy.deepcopy(evidence)
    with torch.no_grad():
        next(other.state_.module.parameters()).add_(1e-3)
    for model, folder, message in (
        (other, base, "belongs to another model"),
        (evidence, changes, "has the changes of a live graph, expected its base"),
        (evidence, tmp_path / "none", "missing"),
    ):
        with pytest.raises(FolderError, match=message):
            LiveGraph.open(model, folder)
    with pytest.raises(FolderError, match="leave out graph"):
        LiveGraph.open(evidence, base, graph=folder_from_data(task.train, tmp_path / "graph"))
    again = LiveGraph.open(evidence, base)
    again.rebase()
    again.save(tmp_path / "later")
    with pytest.raises(FolderError, match="changes of another base"):
        again.load_changes(changes)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    with pytest.raises(FileExistsError, match="something else"):
        again.save(tmp_path / "mine")


def test_damaged_files_are_found(task: Task, evidence: Detector, tmp_path: Path) -> None:
    live = LiveGraph(evidence, task.train)
    live.save(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        if not whole:
            continue
        path.write_bytes(whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :])
        with pytest.raises(FolderError, match="delete it and save the live graph again"):
            LiveGraph.open(evidence, tmp_path)
        path.write_bytes(whole)
    (tmp_path / "live.json").write_text(json.dumps({"sha256": "0" * 64}))
    with pytest.raises(FolderError, match="damaged"):
        LiveGraph.open(evidence, tmp_path)


def test_what_is_kept_does_not_grow_with_the_number_of_changes(task: Task, evidence: Detector, tmp_path: Path) -> None:
    live, x = LiveGraph(evidence, task.train), task.id_test.data.x
    live.save(tmp_path / "base")
    sizes = []
    for count in range(20):
        live.commit(x[count : count + 2], [("a", 3), ("b", "a")], ids=["a", "b"])
        live.remove(["a", "b"])
        if count in (1, 19):
            live.save_changes(tmp_path / "changes")
            sizes.append(sum(path.stat().st_size for path in (tmp_path / "changes").iterdir()))
    assert sizes[1] < sizes[0] + 100
    assert (live.num_nodes, live.next_id) == (task.train.num_nodes, task.train.num_nodes + 40)
    with pytest.raises(GraphError, match="no node with the id 'a'"):
        live.scores_of(["a"])
