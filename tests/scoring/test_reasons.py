"""Every number in the sentences, recomputed in double precision from raw edges, raw features and learnt values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from oddnode import GCN, Detector, Scorer
from oddnode.detector import kinds_of_evidence
from oddnode.scoring import (
    KNN,
    CentredCosine,
    ClassAgreement,
    Energy,
    EnsembleMean,
    Evidence,
    Finding,
    MaxSoftmax,
    Names,
    NeighbourhoodCosine,
    Outputs,
    Propagated,
    TwoSided,
    View,
    reasons,
)

NAMES = [f"n{i:03d}" for i in range(400)]
CLASSES = ["birds", "fish", "cats"]
UNUSUAL = "No kind of evidence is unusual by itself."


def known_graph(seed: int) -> Data:
    """Three classes with their own words, joined to their own class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=150)
    chance = np.full((3, 30), 0.08)
    for c in range(3):
        chance[c, 10 * c : 10 * c + 10] = 0.5
    x = (rng.random((150, 30)) < chance[y]).astype(np.float32)
    pairs = [(a, b) for a, b in rng.integers(150, size=(900, 2)) if a != b and (y[a] == y[b] or rng.random() < 0.1)]
    edges = torch.tensor(pairs).t()
    part = torch.from_numpy(rng.permutation(150))
    data = Data(x=torch.from_numpy(x), edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=torch.from_numpy(y))
    data.train_mask, data.val_mask, data.reference_mask = part < 60, (part >= 60) & (part < 105), part >= 105
    return data


def grown_graph(data: Data, seed: int) -> Data:
    """The same with 40 new nodes: known ones, mixtures, empty ones; most with random edges, repeated ones and loops."""
    rng = np.random.default_rng(seed + 1000)
    new = data.x.numpy()[rng.integers(150, size=40)].copy()
    new[10:20] = np.maximum(new[10:20], data.x.numpy()[rng.integers(150, size=10)])
    new[20:24] = 0.0
    new[24:28] = 1.0
    pairs = [(150 + i, int(j)) for i in range(36) for j in rng.integers(186, size=rng.integers(1, 7))]
    edges = torch.tensor([*pairs, *pairs[:20], (155, 155)]).t()
    both = torch.cat([data.edge_index, edges, edges.flip(0)], dim=1)
    return Data(x=torch.cat([data.x, torch.from_numpy(new)]), edge_index=both)


def cross_fitted(data: Data) -> Detector:
    del data.reference_mask
    return Detector.from_recipe("evidence", epochs=15, device="cpu").fit(data)


def one_network(data: Data) -> Detector:
    trained = Detector(GCN(30, 16, 3), epochs=15, device="cpu").fit(data).module_
    return Detector.wrap(trained, Evidence(kinds_of_evidence()), data, device="cpu")


def propagated(values: np.ndarray, edges: np.ndarray, hops: int, eta: float) -> np.ndarray:
    """Averages over the graph, with a dense matrix."""
    size = len(values)
    matrix = np.zeros((size, size))
    np.add.at(matrix, (edges[1], edges[0]), 1.0)
    degree = matrix.sum(axis=1)
    for _ in range(hops):
        mean = matrix @ values / np.maximum(degree, 1).reshape(-1, *[1] * (values.ndim - 1))
        kept = (degree == 0).reshape(-1, *[1] * (values.ndim - 1))
        values = np.where(kept, values, eta * values + (1 - eta) * mean)
    return values


@dataclass
class Raw:
    """A graph in double precision, as one network and its fitted scorer see it."""

    x: np.ndarray
    edges: np.ndarray
    known_x: np.ndarray
    known_edges: np.ndarray
    references: np.ndarray
    outputs: Outputs
    scorer: Any

    def coordinates(self, x: np.ndarray) -> np.ndarray:
        centred = x.astype(float) - self.scorer.centre_.double().numpy()
        length = np.linalg.norm(centred, axis=1, keepdims=True)
        return centred @ self.scorer.basis_.double().numpy() / np.where(length > 1e-6, length, 1.0)

    def edge_scores(self, x: np.ndarray, graph: np.ndarray, edges: np.ndarray) -> np.ndarray:
        """Some edges of a graph, by log-odds or by the cosine to the surroundings of their sources."""
        if not hasattr(self.scorer, "left_"):
            centred = x.astype(float) - self.known_x.mean(axis=0)
            unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
            around, degree = unit.copy(), np.bincount(graph[1], minlength=len(x))
            np.add.at(around, graph[1], unit[graph[0]])
            source, target = edges
            without = (around[source] - unit[target]) / degree[source, None]
            length = np.maximum(np.linalg.norm(around, axis=1), np.sqrt(degree + 1.0))[source] / (degree[source] + 1)
            return (without * unit[target]).sum(axis=1) / length
        z = self.coordinates(x)
        left, right = z @ self.scorer.left_.double().numpy(), z @ self.scorer.right_.double().numpy()
        both = (left[edges[0]] * right[edges[1]]).sum(axis=1) + (right[edges[0]] * left[edges[1]]).sum(axis=1)
        return both / 2 + float(self.scorer.bias_)

    def margin(self, source: int, target: int) -> float:
        """How far an edge scores above the lowest twentieth of the edges in training."""
        known = np.sort(self.edge_scores(self.known_x, self.known_edges, self.known_edges))
        limit = known[math.floor(0.05 * len(known))]
        return float(self.edge_scores(self.x, self.edges, np.array([[source], [target]]))[0] - limit)

    def mean_over_edges(self, of_edges: np.ndarray) -> np.ndarray:
        total, degree = np.zeros(len(self.x)), np.bincount(self.edges[1], minlength=len(self.x))
        np.add.at(total, self.edges[1], of_edges)
        return (total + float(self.scorer.mean_)) / (degree + 1)

    def scores(self, kind: str) -> np.ndarray:
        """The scores of all nodes."""
        probabilities = self.outputs.all_logits.double().softmax(dim=1).numpy()
        if kind == "confidence":
            return probabilities[:, :3].max(axis=1)
        if kind == "hidden distance":
            away = self.outputs.hidden.double().numpy()[:, None] - self.scorer.means_.numpy()
            return -((away @ self.scorer.precision_.numpy()) * away).sum(axis=2).min(axis=1)
        if kind in ("links", "link similarity"):
            mean = self.mean_over_edges(self.edge_scores(self.x, self.edges, self.edges))
            degree = np.bincount(self.edges[1], minlength=len(self.x))
            return mean * np.sqrt(degree + 1) if kind == "links" else mean
        if kind == "class agreement":
            alone = torch.zeros(2, 0, dtype=torch.long)
            with torch.no_grad():
                own = self.outputs.module(torch.from_numpy(self.x), alone).double().softmax(dim=1).numpy()
            return self.mean_over_edges((own[self.edges[1], :3] * probabilities[self.edges[0], :3]).sum(axis=1))
        if kind == "neighbourhood":
            z = propagated(self.coordinates(self.x), self.edges, 2, 0.5)
            z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
            return np.sort(z @ self.scorer.bank_.double().numpy().T, axis=1)[:, -4:-1].mean(axis=1)
        if kind == "feature likelihood":
            shares = self.scorer.log_shares_.double().numpy()[:, :30]
            return (self.x @ shares.T).max(axis=1) / np.maximum(self.x.sum(axis=1), 1)
        return {"number of features": -(self.x != 0).sum(axis=1), "sum of features": self.x.sum(axis=1)}[kind] * 1.0


class Recomputed:
    """What the sentences should say about the nodes of a graph."""

    def __init__(self, detector: Detector, known: Data, scored: Data):
        outputs, scorer = detector.outputs(scored), detector.scorer_
        self.detector, self.scored = detector, scored
        self.raws = []
        whole = getattr(scorer, "scorers", ()) if len(detector.state_.references) > 1 else (scorer,)
        for network, each in enumerate(whole):
            references = detector.state_.references[network].nodes.numpy()
            inner = each.scorers[0]
            self.kind, self.two_sided = inner.kind, inner.two_sided
            hops, eta = 0, 0.0
            while hasattr(inner, "scorer"):
                hops, eta = (inner.num_hops, inner.eta) if isinstance(inner, Propagated) else (hops, eta)
                inner = inner.scorer
            rest = np.setdiff1d(np.arange(known.num_nodes), references)
            place = np.full(known.num_nodes, -1)
            place[rest] = np.arange(len(rest))
            edges = place[known.edge_index.numpy()]
            own = (outputs.members or [outputs])[network]
            raw = Raw(
                scored.x.numpy(), scored.edge_index.numpy(), known.x.numpy()[rest], edges[:, (edges >= 0).all(axis=0)],
                references, own, inner,
            )  # fmt: skip
            self.raws.append(raw)
        self.around, self.subject = hops > 0, inner.kind
        self.scores = [propagated(r.scores(self.subject), r.edges, hops, eta) for r in self.raws]
        self.value = np.mean(self.scores, axis=0)
        self.known = [s[r.references] for s, r in zip(self.scores, self.raws, strict=True)]
        self.median = np.mean([np.median(each) for each in self.known])

    def neighbours(self, node: int) -> list[int]:
        source, target = self.scored.edge_index.tolist()
        return sorted({a for a, b in zip(source, target, strict=True) if b == node and a != node})

    def links(self, node: int) -> list[tuple[int, int]]:
        ends = self.neighbours(node) if self.around else [node]
        return [(source, end) for end in ends for source in self.neighbours(end)]

    def shares(self, node: int) -> set[str]:
        """The share of known nodes on the other side; two texts where rounding decides on which side a node is."""
        sign = -1.0 if self.value[node] > self.median else 1.0
        found = set()
        for slack in (-1e-4, 0.0, 1e-4):
            pairs = zip(self.known, self.scores, strict=True)
            share = np.mean([np.mean(sign * known > sign * scores[node] + slack) for known, scores in pairs])
            found.add("all known nodes" if share == 1 else f"{math.floor(1000 * share + 1e-9) / 10:g} % of known nodes")
        return found


def close(printed: str, value: float) -> bool:
    decimals = len(printed.partition(".")[2])
    return abs(float(printed) - value) <= 0.51 * 10.0**-decimals + 1e-4 * abs(value)


def counted(text: str, what: str) -> tuple[int, int] | None:
    if f"the only {what}" in text:
        return 1, 1
    if found := re.search(rf"all (\d+) {what}s", text):
        return int(found[1]), int(found[1])
    found = re.search(rf"(\d+) of (\d+) {what}s", text)
    return found and (int(found[1]), int(found[2]))


def listed(nodes: list[int]) -> str:
    return ", ".join(NAMES[node] for node in nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")


def check_values(text: str, node: int, r: Recomputed) -> None:
    scale = 100 if r.subject == "confidence" else 1
    numbers = re.findall(r"is (\S+?),? (?:%|for|on)|nodes (\S+) (?:% )?in the median", text)
    [value], [median] = [a for a, _ in numbers if a], [b for _, b in numbers if b]
    assert close(value, scale * r.value[node]), text
    assert close(median, scale * r.median), text
    assert ("unusually sure" in text) == (r.subject == "confidence" and r.value[node] > r.median)


def check_distance(text: str, node: int, r: Recomputed) -> None:
    [times] = re.findall(r"are (?:only )?(\S+) times as far", text)
    assert float(times) == pytest.approx(math.sqrt(r.value[node] / r.median), rel=0.006)
    assert ("only" in text) == (r.value[node] > r.median)


def check_range(text: str, node: int, r: Recomputed) -> None:
    value, low, high = (
        float(number) for number in re.findall(r"(?<!\d)\d+\.?\d*(?! %)(?!\d)", text.replace("95 %", ""))
    )
    mine = (-1 if r.subject == "number of features" else 1) * r.value[node]
    known = (-1 if r.subject == "number of features" else 1) * np.concatenate(r.known)
    assert value == pytest.approx(mine)
    assert {low, high} <= set(known)
    assert np.mean((known >= low) & (known <= high)) >= 0.95 > np.mean((known > low) & (known < high))


def check_share(text: str, node: int, r: Recomputed) -> None:
    assert any(share in text for share in r.shares(node)), (text, r.shares(node))


def check_links(text: str, node: int, r: Recomputed) -> None:
    links = r.links(node)
    margins = [[raw.margin(a, b) for raw in r.raws] for a, b in links]
    surely, maybe = (
        [link[0] for link, each in zip(links, margins, strict=True) if np.mean(np.array(each) < slack) > 0.5]
        for slack in (-1e-5, 1e-5)
    )
    found = counted(text, "link" if r.subject == "links" else "neighbour")
    if found is None:
        assert links
        assert not surely
        return check_share(text, node, r)
    assert len(surely) <= found[0] <= len(maybe), text
    assert found[1] == len(links), text
    assert r.around or listed(surely) in text or surely != maybe
    return None


def check_classes(text: str, node: int, r: Recomputed) -> None:
    alone = Data(x=r.scored.x, edge_index=torch.zeros(2, 0, dtype=torch.long))
    own, predicted = int(r.detector.predict(alone)[node]), r.detector.predict(r.scored).tolist()
    neighbours = r.neighbours(node)
    other = [each for each in neighbours if predicted[each] != own]
    if not other:
        return check_share(text, node, r)
    classes = {CLASSES[predicted[each]] for each in other}
    assert counted(text, "neighbour") == (len(other), len(neighbours))
    assert f"suggest {CLASSES[own]}," in text
    assert f"({listed(other)})" in text
    assert text.endswith(f"predicted as {classes.pop() if len(classes) == 1 else 'other classes'}.")
    return None


CHECKS: dict[str, Callable[[str, int, Recomputed], None]] = {
    "confidence": check_values,
    "neighbourhood": check_values,
    "hidden distance": check_distance,
    "links": check_links,
    "link similarity": check_links,
    "class agreement": check_classes,
    "feature likelihood": check_share,
    "number of features": check_range,
    "sum of features": check_range,
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("fitted", [cross_fitted, one_network])
def test_every_number_in_a_sentence_is_that_of_the_graph(fitted: Callable[[Data], Detector], seed: int) -> None:
    known = known_graph(seed)
    scored, detector = grown_graph(known, seed), fitted(known)
    assert len(detector.state_.references) == (4 if fitted is cross_fitted else 1)
    for scorer in kinds_of_evidence():
        alone = detector.with_scorer(Evidence((scorer,)))
        texts = alone.reasons(scored, range(scored.num_nodes), node_names=NAMES, class_names=CLASSES)
        recomputed, found = Recomputed(alone, known, scored), alone.explain(scored)
        assert found.kinds == (scorer.kind,)
        speaks = (found.evidence[:, 0] >= -math.log(0.1)).tolist()
        assert [text != UNUSUAL for text in texts] == speaks
        assert any(speaks)
        for node, text in enumerate(texts):
            if not speaks[node]:
                continue
            if text.startswith("Its score by"):
                assert not recomputed.neighbours(node)
                check_share(text, node, recomputed)
            else:
                CHECKS[recomputed.subject](text, node, recomputed)


def test_the_strongest_kinds_speak_first_and_each_subject_once() -> None:
    known = known_graph(3)
    scored, detector = grown_graph(known, 3), cross_fitted(known)
    found, kinds = detector.explain(scored), kinds_of_evidence()
    texts = detector.reasons(scored, range(scored.num_nodes), node_names=NAMES, class_names=CLASSES)
    alone = {
        scorer.kind: detector.with_scorer(Evidence((scorer,))).reasons(
            scored, range(scored.num_nodes), node_names=NAMES, class_names=CLASSES
        )
        for scorer in kinds
    }
    assert found.kinds == tuple(scorer.kind for scorer in kinds)
    assert isinstance(detector.scorer_, EnsembleMean)
    pairs: list[Any] = list(zip(detector.scorer_.scorers, detector.outputs(scored).members, strict=True))
    surprises = np.stack([scorer.surprises(own).numpy() for scorer, own in pairs])
    np.testing.assert_allclose(found.evidence.numpy(), surprises.mean(axis=0))
    weight = np.stack([np.tile(scorer.weights_.numpy(), (scored.num_nodes, 1)) for scorer, _ in pairs])
    for own, (scorer, outputs) in zip(weight, pairs, strict=True):
        own[: known.num_nodes] = scorer.seen_weights_.numpy()
        own[outputs.reference.numpy()] = scorer.weights_.numpy()
    contribution = (weight * surprises**2).mean(axis=0)
    for node, text in enumerate(texts):
        evidence = zip(found.kinds, found.evidence[node], strict=True)
        speaking = [kind for kind, value in evidence if value >= -math.log(0.1)]
        subjects = {kind.removesuffix(" around") for kind in speaking}
        said = [kind for kind in speaking if alone[kind][node] in text]
        assert len(said) == min(2, len(subjects)) == len({kind.removesuffix(" around") for kind in said})
        for kind in said:  # of one subject, what is nearest to the node
            assert kind.removesuffix(" around") not in speaking or not kind.endswith(" around")
        if said:
            strongest = max(speaking, key=lambda kind: contribution[node, found.kinds.index(kind)])
            first = [alone[kind][node] for kind in said if kind.startswith(strongest.removesuffix(" around"))]
            assert text.startswith(tuple(first))


def test_a_node_between_two_groups_is_told_by_its_neighbours() -> None:
    """Two groups of twelve, each with a word of its own; node 24 has the word of the first and links to the second."""
    x = torch.zeros(25, 2)
    x[:12, 0] = x[12:24, 1] = x[24, 0] = 1.0
    pairs = [(a, b) for start in (0, 12) for a in range(start, start + 12) for b in range(a + 1, start + 12)]
    new = [(24, 3), (24, 15), (24, 17)]

    def graph(edges: list[tuple[int, int]], size: int) -> Data:
        index = torch.tensor(edges).t()
        return Data(x=x[:size], edge_index=torch.cat([index, index.flip(0)], dim=1))

    class ByWord(torch.nn.Module):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return 5.0 * x

    known = graph(pairs, 24)
    known.y = (torch.arange(24) >= 12).long()
    known.train_mask = torch.arange(24) % 3 > 0
    known.reference_mask = ~known.train_mask
    scored = graph(pairs + new, 25)
    names = {"node_names": [f"v{i}" for i in range(25)], "class_names": ["left", "right"]}

    def reason(scorer: Scorer) -> str:
        [text] = Detector.wrap(ByWord(), Evidence((scorer,)), known, device="cpu").reasons(scored, [24], **names)
        return text

    assert reason(ClassAgreement()) == (
        "Its own features suggest left, but 2 of 3 neighbours (v15, v17) are predicted as right."
    )
    assert reason(CentredCosine()) == (
        "Its features are unlike those of its neighbours: 2 of 3 neighbours (v15, v17) are less similar to it than the "
        "nodes at 95 % of the links seen in training are to each other."
    )
    # Around node 3 everything has the new node's word; around the other two there is only the other word.
    assert reason(NeighbourhoodCosine()) == (
        "Its features are unlike those around 2 of 3 neighbours (v15, v17): they are less similar than at 95 % of the "
        "links seen in training."
    )


def finding(scorer: Scorer, score: float, known: list[float]) -> Finding:
    nothing: Any = None
    return Finding(scorer.kind, 0, nothing, (View(scorer, nothing, score, torch.tensor(known)),))


def test_scorers_without_words_of_their_own_tell_on_which_side_a_score_is() -> None:
    known = [float(value) for value in range(200)]
    assert KNN().reason(finding(KNN(), 2.5, known)) == (
        "Its score by knn (2.5) is lower than that of 98.5 % of known nodes."
    )
    scorer = TwoSided(Energy())
    assert scorer.reason(finding(scorer, 300.0, known)) == (
        "Its score by energy (300) is higher than that of all known nodes."
    )


def test_a_prior_makes_the_score_no_average() -> None:
    scorer = Propagated(MaxSoftmax(), prior_nodes=10.0)
    assert scorer.reason(finding(scorer, 0.2, [0.5, 0.7])).startswith("Its score by confidence around (0.2)")


def test_an_average_over_no_hops_is_the_nodes_own() -> None:
    scorer = Propagated(MaxSoftmax(), num_hops=0)
    assert scorer.reason(finding(scorer, 0.2, [0.5, 0.7])) == (
        "The classifier is unsure of it: its highest probability is 20 %, that of known nodes 60 % in the median."
    )


def test_kinds_of_the_same_name_are_numbered() -> None:
    assert Evidence((KNN(1), Energy(), KNN(5), Propagated(KNN()))).kinds == ("knn", "energy", "knn 2", "knn around")


@pytest.mark.parametrize(
    ("score", "own", "share", "text"),
    [
        (1.5, None, None, "Its score is 1.5."),
        (1.5, None, 0.999, "Its score is 1.5, lower than that of 99.9 % of known nodes."),
        (1.5, 2.0, 1.0, "Its score is 1.5, lower than that of all known nodes. Its own score is 2; its neighbourhood "
         "lowers it."),
        (1.5, 1.25, None, "Its score is 1.5. Its own score is 1.25; its neighbourhood raises it."),
        (1.5, 1.5, None, "Its score is 1.5. Its own score is 1.5; its neighbourhood does not change it."),
    ],
)  # fmt: skip
def test_without_evidence_the_score_speaks(score: float, own: float | None, share: float | None, text: str) -> None:
    assert reasons.by_score_alone(score, own, share) == text


def test_nodes_are_numbered_where_they_have_no_names() -> None:
    assert Names().of_nodes([4]) == "node 4"
    assert Names().of_nodes([4, 7, 9, 11, 12]) == "nodes 4, 7, 9 and 2 more"
    assert Names(nodes="abcdef").of_nodes([1, 4]) == "b, e"
    assert (Names().of_class(2), Names(classes=["x", "y"]).of_class(1)) == ("class 2", "y")
