"""Every number in the sentences, recomputed in double precision from the scores, the edges and learnt values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from oddnode import GCN, Detector, Scorer
from oddnode.detector import kinds_of_evidence
from oddnode.detector.fitted import members_of
from oddnode.graph import Graph
from oddnode.scoring import (
    KNN,
    CentredCosine,
    Energy,
    EnsembleMean,
    Evidence,
    Finding,
    MaxSoftmax,
    Names,
    Outputs,
    Propagated,
    TwoSided,
    View,
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
        mean = matrix @ values / np.maximum(degree, 1)
        values = np.where(degree == 0, values, eta * values + (1 - eta) * mean)
    return values


@dataclass
class Network:
    """A graph as one network and its fitted scorer see it, and the part of the known graph that they have learnt from.

    What a scorer computes is recomputed in its own tests.
    """

    outputs: Outputs
    part: Outputs
    references: np.ndarray
    scorer: Any

    def margin(self, source: int, target: int) -> float:
        """How far an edge scores above the lowest twentieth of the edges in training."""
        known = np.sort(self.scorer._edge_scores(self.part, self.part.graph.edge_index).double().numpy())
        limit = known[math.floor(0.05 * len(known))]
        return float(self.scorer._edge_scores(self.outputs, torch.tensor([[source], [target]]))[0] - limit)


class Recomputed:
    """What the sentences should say about the nodes of a graph."""

    def __init__(self, detector: Detector, known: Data, scored: Data):
        outputs, scorer = detector.outputs(scored), detector.scorer_
        self.detector, self.scored = detector, scored
        self.networks, edges = [], scored.edge_index.numpy()
        whole = getattr(scorer, "scorers", ()) if len(detector.state_.references) > 1 else (scorer,)
        for network, each in enumerate(whole):
            references = detector.state_.references[network].nodes
            inner = each.scorers[0]
            hops, eta = 0, 0.0
            while hasattr(inner, "scorer"):
                hops, eta = (inner.num_hops, inner.eta) if isinstance(inner, Propagated) else (hops, eta)
                inner = inner.scorer
            own = (outputs.members or [outputs])[network]
            unseen = torch.cat([each.nodes for each in detector.state_.references]) if inner.is_shared else references
            part = Outputs(own.module, Graph(known.x, known.edge_index).without(unseen)[0], own.num_classes)
            self.networks.append(Network(own, part, references.numpy(), inner))
        self.around, self.subject = hops > 0, inner.kind
        own_scores = [each.scorer.score(each.outputs).double().numpy() for each in self.networks]
        self.scores = [propagated(each, edges, hops, eta) for each in own_scores]
        self.value = np.mean(self.scores, axis=0)
        self.known = [s[each.references] for s, each in zip(self.scores, self.networks, strict=True)]
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
    margins = [[network.margin(a, b) for network in r.networks] for a, b in links]
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
    "degree": check_range,
    "knn": check_share,
    "energy": check_share,
    "closeness of neighbours": check_share,
    "degrees of neighbours": check_share,
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("fitted", [cross_fitted, one_network])
def test_every_number_in_a_sentence_is_that_of_the_graph(fitted: Callable[[Data], Detector], seed: int) -> None:
    known = known_graph(seed)
    scored, detector = grown_graph(known, seed), fitted(known)
    assert len(detector.state_.references) == (4 if fitted is cross_fitted else 1)
    for scorer in (*kinds_of_evidence(), CentredCosine(), KNN(), TwoSided(Energy())):
        alone = detector.with_scorer(Evidence((scorer,)))
        texts = alone.reasons(scored, range(scored.num_nodes), node_names=NAMES, class_names=CLASSES)
        recomputed, found = Recomputed(alone, known, scored), alone.explain(scored)
        assert found.kinds == (scorer.kind,)
        speaks = (found.evidence[:, 0] >= -math.log(0.1)).tolist()
        assert [text != UNUSUAL for text in texts] == speaks
        # Nothing speaks only if it is no evidence in this graph.
        members: Any = members_of(alone.scorer_)
        assert any(speaks) or not any(bool(each.weights_.any()) for each in members)
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
    scorer = detector.scorer
    assert isinstance(scorer, Evidence)
    detector = detector.with_scorer(replace(scorer, rehearses=False, uses_batch=False, around_hops=0))
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


@pytest.mark.parametrize(
    ("scorer", "score", "text"),
    [
        (KNN(), 2.5, "Its hidden features are farther from any training node than those of 98.5 % of known nodes."),
        (TwoSided(Energy()), 300.0, "The network responds to it more strongly than to all known nodes."),
        # A prior makes the score no average, and an average over no hops is the node's own.
        (Propagated(MaxSoftmax(), prior_nodes=10.0), 0.2, "Its score by confidence around (0.2) is lower than that of "
         "99.5 % of known nodes."),
        (Propagated(MaxSoftmax(), num_hops=0), 0.2, "The classifier is unsure of it: its highest probability is 20 %, "
         "that of known nodes 9950 % in the median."),
    ],
)  # fmt: skip
def test_what_scorers_say_of_a_score(scorer: Scorer, score: float, text: str) -> None:
    nothing: Any = None
    view = View(scorer, nothing, score, torch.arange(200.0))
    assert scorer.reason(Finding(scorer.kind, 0, nothing, (view,))) == text


def test_kinds_of_the_same_name_are_numbered() -> None:
    assert Evidence((KNN(1), Energy(), KNN(5), Propagated(KNN()))).kinds == ("knn", "energy", "knn 2", "knn around")


def test_nodes_are_numbered_where_they_have_no_names() -> None:
    assert Names().of_nodes([4]) == "node 4"
    assert Names().of_nodes([4, 7, 9, 11, 12]) == "nodes 4, 7, 9 and 2 more"
    assert Names(nodes="abcdef").of_nodes([1, 4]) == "b, e"
    assert (Names().of_class(2), Names(classes=["x", "y"]).of_class(1)) == ("class 2", "y")
