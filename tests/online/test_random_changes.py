"""Random changes of a live graph, against a plain dict and the whole graph scored from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode import RECIPES, Detector, LiveGraph
from oddnode.large import folder_from_data
from oddnode.online import Judgement, growing

NUM_KNOWN, NUM_FEATURES, NUM_CLASSES = 90, 6, 3
METHODS = ("msp", "energy", "mahalanobis", "knn", "centred-cosine", "nodesafe", "nodesafe-evidence")
KINDS = ("undirected", "directed", "weighted")
Pair = tuple[Any, Any]


def known_graph(kind: str, seed: int = 0) -> Data:
    """A sparse graph with classes, some isolated nodes and a loop."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(NUM_KNOWN) % NUM_CLASSES
    x = torch.randn(NUM_KNOWN, NUM_FEATURES, generator=generator, dtype=torch.float64)
    x[:, :NUM_CLASSES] += 3 * torch.nn.functional.one_hot(y)
    ends = torch.randint((NUM_KNOWN - 5) // NUM_CLASSES, (2, 140), generator=generator) * NUM_CLASSES
    ends[:, 30:] += torch.arange(110) % NUM_CLASSES  # mostly within classes
    ends = ends[:, (ends[0] != ends[1]) & (ends.amin(dim=0) > 0)].sort(dim=0).values.unique(dim=1)
    ends = torch.cat([ends, torch.zeros(2, 1, dtype=torch.long)], dim=1)
    if kind == "directed":
        ends = torch.where(torch.rand(ends.shape[1], generator=generator) < 0.5, ends, ends.flip(0))
    else:
        ends = torch.cat([ends, ends[:, ends[0] != ends[1]].flip(0)], dim=1)
    data = Data(x=x, y=y, edge_index=ends)
    if kind == "weighted":
        data.edge_weight = 0.1 + (ends.sum(dim=0).double() * 0.37).frac()
    part = torch.arange(NUM_KNOWN) // NUM_CLASSES % 3
    data.train_mask, data.val_mask, data.calibration_mask = (part == number for number in range(3))
    return data


class Model:
    """The graph that a `LiveGraph` should hold: features by id, and weights by source and target."""

    def __init__(self, data: Data, kind: str):
        self.directed, self.weighted = kind == "directed", kind == "weighted"
        self.x: dict[Any, Tensor] = dict(enumerate(data.x))
        self.seen = set(self.x)  # an id may be given to another node later
        weights = data.edge_weight.tolist() if self.weighted else [1.0] * data.num_edges
        self.edges: dict[Pair, float] = dict(zip(map(tuple, data.edge_index.t().tolist()), weights, strict=True))

    def join(self, edges: list[tuple[Any, ...]]) -> None:
        for source, target, *weight in edges:
            for pair in ((source, target),) if self.directed else ((source, target), (target, source)):
                self.edges[pair] = weight[0] if weight else 1.0

    def part(self, pairs: list[Pair]) -> None:
        for source, target in pairs:
            self.edges.pop((source, target))
            if not self.directed and source != target:
                self.edges.pop((target, source))

    def drop(self, node: Any) -> None:
        del self.x[node]
        self.seen.discard(node)
        self.edges = {pair: weight for pair, weight in self.edges.items() if node not in pair}

    def data(self, base: Data, detector: Detector) -> Data:
        index = {node: place for place, node in enumerate(self.x)}
        ends = torch.tensor([[index[a], index[b]] for a, b in self.edges], dtype=torch.long).reshape(-1, 2).t()
        data = Data(x=torch.stack([*self.x.values()]), edge_index=ends)
        if self.weighted:
            data.edge_weight = torch.tensor([*self.edges.values()], dtype=torch.float64)
        references = {int(node) for each in detector.state_.references for node in each.nodes}
        if references:
            data.reference_mask = torch.tensor([node in references & self.seen for node in self.x])
            data.seen_mask = torch.tensor([node in self.seen for node in self.x])
        return data


class Trial:
    """A live graph and its model, which change together."""

    def __init__(self, detector: Detector, base: Data, kind: str, live: LiveGraph, seed: int):
        self.detector, self.base, self.live, self.model = detector, base, live, Model(base, kind)
        self.rng, self.count = np.random.default_rng(seed), 0
        self.num_exact = 0

    def pick(self, most: int) -> list[Any]:
        nodes = list(self.model.x)
        return [nodes[place] for place in self.rng.permutation(len(nodes))[:most]]

    def rows(self, count: int) -> Tensor:
        return torch.from_numpy(self.rng.normal(size=(count, NUM_FEATURES)) * 2)

    def links(self, pairs: list[Pair]) -> list[tuple[Any, ...]]:
        """Those that are no edges yet, each once, with weights if the graph has them."""
        fresh: dict[Pair, tuple[Any, ...]] = {}
        for a, b in pairs:
            is_known = (a, b) in self.model.edges or (not self.model.directed and (b, a) in fresh)
            if not is_known and (a, b) not in fresh:
                fresh[a, b] = (a, b, round(float(self.rng.uniform(0.1, 2)), 3)) if self.model.weighted else (a, b)
        return list(fresh.values())

    def ends(self, edges: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The nodes that edges lead to."""
        return [end for edge in edges for end in edge[self.model.directed : 2]]

    def arrivals(self) -> tuple[Tensor, list[tuple[Any, ...]], list[str]]:
        ids = [f"n{self.count + place}" for place in range(self.rng.integers(1, 4))]
        pairs: list[Pair] = []
        for node in ids:
            near = [*self.pick(int(self.rng.integers(0, 4))), *ids][: int(self.rng.integers(0, 5))]
            pairs += [(node, other) if self.rng.random() < 0.5 else (other, node) for other in near]
        return self.rows(len(ids)), self.links(pairs), ids

    def step(self) -> list[Any]:
        """Change something; returns the nodes of which everything that is kept should be new."""
        model, live, edges = self.model, self.live, [*self.model.edges]
        kind = self.rng.choice(["commit", "update", "join", "part", "remove", "change"])
        if kind in ("commit", "change"):
            x, links, ids = self.arrivals()
            self.count += len(ids)
            gone = [node for node in self.pick(1) if kind == "change" and not any(node in link[:2] for link in links)]
            changed = [node for node in self.pick(2) if kind == "change" and node not in gone]
            rows = self.rows(len(changed))
            near = [b for a, b in edges if a in (*gone, *changed)]
            more: dict[str, Any] = {"change_nodes": rows, "changed_ids": changed} if changed else {}
            answers = live.change(x, links, ids=ids, remove_nodes=gone, **more)
            for node in gone:
                model.drop(node)
            model.x |= dict(zip([*changed, *ids], [*rows, *x], strict=True))
            model.join(links)
            self.check(answers)
            return [*ids, *changed, *self.ends(links), *near]
        if kind == "update":
            nodes = self.pick(2)
            rows = self.rows(2)
            answers = live.update(rows, ids=nodes)
            model.x |= dict(zip(nodes, rows, strict=True))
            self.check(answers)
            return [*nodes, *(b for a, b in edges if a in nodes)]
        if kind == "join":
            links = self.links([(a, b) for a in self.pick(2) for b in self.pick(2)])
            live.add_edges(links)
            model.join(links)
            return self.ends(links)
        if kind == "part":
            pairs = [edges[place] for place in self.rng.permutation(len(edges))[:3]]
            pairs = [(a, b) for place, (a, b) in enumerate(pairs) if model.directed or (b, a) not in pairs[:place]]
            live.remove_edges(pairs)
            model.part(pairs)
            return self.ends(pairs)
        live.remove(nodes := self.pick(2))
        for node in nodes:
            model.drop(node)
        return [b for a, b in edges if a in nodes]

    def whole(self) -> dict[Any, float]:
        """The score of every node, from scratch."""
        scores = self.detector.score_samples(self.detector.outputs(self.model.data(self.base, self.detector), False))
        return dict(zip(self.model.x, scores.tolist(), strict=True))

    def check(self, answers: list[Judgement], expected: dict[Any, float] | None = None) -> None:
        """Compare answers that say that they are exact."""
        exact, expected = [each for each in answers if each.exact], self.whole() if expected is None else expected
        self.num_exact += len(exact)
        assert [each.score for each in exact] == pytest.approx([expected[each.id] for each in exact], abs=1e-5)

    def check_all(self, fresh: list[Any]) -> None:
        """Compare what the live graph holds, what it keeps of some nodes, and what it answers."""
        live, model, expected = self.live, self.model, self.whole()
        nodes = list(model.x)
        assert live.num_nodes == len(nodes)
        for node in nodes:
            assert live.row(node)["x"] == model.x[node].tolist()
            assert dict(live.neighbours(node)) == {a: weight for (a, b), weight in model.edges.items() if b == node}
        answers = live.rescore(nodes)
        self.check(answers, expected)
        fresh = [node for node in dict.fromkeys(fresh) if node in model.x]
        kept = live.scores_of(fresh).score
        exact = {each.id for each in answers if each.exact}
        pairs = [(score, expected[node]) for node, score in zip(fresh, kept, strict=True) if node in exact]
        assert [score for score, _ in pairs] == pytest.approx([score for _, score in pairs], abs=1e-5)
        every = live.scores_of(nodes)
        both = zip(every.score, expected.values(), every.exact, strict=True)
        pairs = [(score, whole) for score, whole, is_exact in both if is_exact]
        assert [score for score, _ in pairs] == pytest.approx([score for _, score in pairs], abs=1e-5)
        (x, links, ids), before = self.arrivals(), (dict(model.x), dict(model.edges))
        model.x |= dict(zip(ids, x, strict=True))
        model.join(links)
        self.check(live.score(x, links, ids=ids))
        model.x, model.edges = before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_answers_that_say_exact_are_those_of_the_whole_graph_after_any_changes(
    method: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = known_graph(kind)
    detector = Detector.from_recipe(method, epochs=3, device="cpu").fit(base)
    trial = Trial(detector, base, kind, LiveGraph(detector, base), seed=len(method) + len(kind))
    assert trial.live.directed == (kind == "directed")
    for number in range(16):
        if number == 8:  # from here on, changes are merged with the base now and then
            monkeypatch.setattr(growing, "_MOST_CHANGED", 0)
        fresh = trial.step()
        if number % 3 == 0 or number > 13:
            trial.check_all(fresh)
    assert trial.num_exact > 0 or method == "nodesafe-evidence"


@pytest.mark.parametrize("name", RECIPES)
def test_changes_of_a_folder_are_those_of_a_graph_in_memory(name: str, tmp_path: Path) -> None:
    base, exposure = known_graph("weighted"), known_graph("weighted", seed=1)
    for data in (base, exposure):
        data.x, data.edge_weight = data.x.float(), data.edge_weight.float()
    exposure.ood_mask = torch.arange(NUM_KNOWN) > 60
    detector = Detector.from_recipe(name, epochs=2, device="cpu")
    detector.fit(base, exposure if RECIPES[name].needs_exposure else None)
    folder, lives, refused = folder_from_data(base, tmp_path / "graph"), [], []
    for graph in (base, folder):
        try:
            lives.append(LiveGraph(detector, graph))
        except ValueError as error:
            refused.append(str(error))
    if refused:
        assert refused == [refused[0]] * 2
        return
    pair = next(pair for pair in base.edge_index.t().tolist() if 4 in pair)
    found: list[list[float]] = []
    for live in lives:
        answers = live.commit(base.x[:2] + 0.1, [("a", 3, 0.5), ("a", 4, 1.5), ("b", "a", 2.0)], ids=["a", "b"])
        answers += live.update(base.x[5:7] + 0.1, ids=[7, "a"])
        live.add_edges([(60, 71, 0.5)])
        live.remove_edges([pair])
        live.remove([9, 3])
        answers += live.change(base.x[:1], [("c", "b", 1.0), (8, 61, 1.0)], ids=["c"], remove_nodes=[12])
        nodes: list[int | str] = [1, 4, 60, 70, "a", "b", "c"]
        found.append([each.score for each in [*answers, *live.rescore(nodes)]] + live.scores_of(nodes).score)
    assert found[1] == pytest.approx(found[0], abs=1e-3)
