"""Odd graphs, made by hypothesis: an error of oddnode, or a finite score for every node, and the graph untouched."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from oddnode import Detector
from soak.trial import Family, Trial, described, is_ours

__all__ = ["Graphs"]

_QUICK = ("nodesafe", "gnnsafe", "energy", "mahalanobis", "knn", "grasp", "odin", "gpn", "msp-prop")
# The slow ones come once each.
_METHODS = (*_QUICK * 3, "gkde", "evidence")
_SIZES = st.integers(6, 40)
_ODD_NUMBERS = (0.0, -0.0, 1e-45, 1e-30, 1e10, -1e10, 1.7e18, 1e30, 3.4e38, float("nan"), float("inf"))
_DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.complex64)
_INTEGERS = (torch.int32, torch.int16, torch.uint8, torch.float32, torch.bool, torch.uint64, torch.complex64)


class Violation(AssertionError):
    """A broken promise; hypothesis shrinks the graph that shows it."""


def _plain(draw: Any) -> Data:
    """A graph that can be fitted: its sizes are odd, the rest is not."""
    num_nodes, num_classes = draw(_SIZES), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    y = torch.arange(num_nodes) % num_classes
    x = torch.randn(num_nodes, draw(st.integers(1, 7)), generator=generator)
    edges = torch.randint(num_nodes, (2, draw(st.integers(0, 3 * num_nodes))), generator=generator)
    train = torch.arange(num_nodes) < num_nodes // 2
    return Data(x=x, edge_index=edges, y=y, train_mask=train, val_mask=~train)


def _odd_features(draw: Any, graph: Data) -> None:
    change = draw(st.integers(0, 6))
    num_nodes, num_features = graph.x.shape
    if change == 0:
        node, feature = draw(st.integers(0, num_nodes - 1)), draw(st.integers(0, num_features - 1))
        graph.x[node, feature] = draw(st.sampled_from(_ODD_NUMBERS))
    elif change == 1:
        graph.x = graph.x * draw(st.sampled_from(_ODD_NUMBERS))
    elif change == 2:
        graph.x = graph.x.to(draw(st.sampled_from(_DTYPES)))
    elif change == 3:
        graph.x = graph.x.requires_grad_()
    elif change == 4:
        graph.x = draw(
            st.sampled_from([graph.x.to_sparse(), graph.x.to_sparse_csr(), graph.x.to("meta"), None, graph.x[0]])
        )
    elif change == 5:
        graph.x = graph.x.t().contiguous().t()
    else:
        graph.x = graph.x[:1].expand(num_nodes, -1)


def _odd_edges(draw: Any, graph: Data) -> None:
    change, edges = draw(st.integers(0, 7)), graph.edge_index
    num_nodes = graph.x.shape[0]
    if change == 0:
        wrong = torch.tensor([[0], [draw(st.sampled_from([-1, num_nodes, 2**31, 2**62, -(2**63)]))]])
        graph.edge_index = torch.cat([edges, wrong], 1)
    elif change == 1:
        graph.edge_index = edges.to(draw(st.sampled_from(_INTEGERS)))
    elif change == 2:
        graph.edge_index = torch.cat([edges] * draw(st.integers(2, 30)), 1)
    elif change == 3:
        loops = torch.arange(num_nodes).expand(2, -1)
        graph.edge_index = loops if draw(st.booleans()) else torch.cat([edges, loops, loops], 1)
    elif change == 4:
        graph.edge_index = draw(
            st.sampled_from([edges.t(), edges[0], None, [[0], [1]], edges.to("meta"), edges[:, :0]])
        )
    elif change == 5:  # a star: one node has all the edges
        graph.edge_index = torch.stack([torch.zeros(num_nodes, dtype=torch.long), torch.arange(num_nodes)])
    elif change == 6:
        weights = st.sampled_from([0.0, 1e-45, 1e-30, 0.5, 1.0, 1e30, 1e38, -1.0, float("nan"), float("inf")])
        odd = draw(st.lists(weights, min_size=1, max_size=3))
        graph.edge_weight = torch.tensor(odd).repeat(edges.shape[1])[: edges.shape[1]]
    else:
        name = draw(st.sampled_from(["edge_weight", "edge_attr", "adj_t"]))
        graph[name] = torch.ones(edges.shape[1], draw(st.integers(1, 3)))


def _odd_labels(draw: Any, graph: Data) -> None:
    change = draw(st.integers(0, 4))
    if change == 0:
        node = draw(st.integers(0, graph.x.shape[0] - 1))
        graph.y[node] = draw(st.sampled_from([-1, 4, 7, 10**6, 10**9, 2**62, -(2**63)]))
    elif change == 1:
        graph.y = graph.y.to(draw(st.sampled_from(_INTEGERS)))
    elif change == 2:
        graph.y = draw(st.sampled_from([graph.y[:, None], graph.y[None], graph.y[1:], None, graph.y.tolist()]))
    elif change == 3:
        graph.y = graph.y + draw(st.sampled_from([1, -1, 10**9, 2**62]))
    else:
        graph.y = draw(st.sampled_from([torch.zeros_like(graph.y), graph.y.to("meta"), graph.y.to_sparse()]))


def _odd_masks(draw: Any, graph: Data) -> None:
    name = draw(st.sampled_from(["train_mask", "val_mask"]))
    mask = graph[name]
    odd = [~mask, mask[1:], mask.float(), mask[:, None], mask.to_sparse(), mask.nonzero().squeeze(1)]
    odd += [
        torch.zeros_like(mask),
        torch.ones_like(mask),
        None,
        mask.tolist(),
        mask.to("meta"),
        torch.eye(1, len(mask))[0] > 0,
    ]
    graph[name] = draw(st.sampled_from(odd))


def _odd_sizes(draw: Any, graph: Data) -> None:
    keep = draw(st.integers(0, 5))
    graph.x, graph.y = graph.x[:keep], graph.y[:keep]
    graph.train_mask = torch.arange(keep) % 2 == 0
    graph.val_mask = ~graph.train_mask if draw(st.booleans()) else None
    graph.edge_index = torch.randint(max(keep, 1), (2, draw(st.integers(0, 4))))


def _nothing(draw: Any, graph: Data) -> None:
    pass


_CHANGES: dict[str, Callable[[Any, Data], None]] = {
    "sound": _nothing,
    "odd features": _odd_features,
    "odd edges": _odd_edges,
    "odd labels": _odd_labels,
    "odd masks": _odd_masks,
    "odd sizes": _odd_sizes,
}


class Graphs(Family):
    """Graphs that hypothesis makes, several in a trial."""

    name = "graphs"
    quota = 1500
    kinds = tuple(_CHANGES)
    examples = 10
    limit = 180.0  # hypothesis shrinks what it finds
    batch = 6

    def start(self, folder: Path) -> None:
        logging.getLogger("oddnode").setLevel(logging.ERROR)

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        accepted: list[bool] = []

        @hypothesis.seed(rng.getrandbits(32))
        @settings(
            max_examples=self.examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),  # to explain a failure would trace every line
        )
        @hypothesis.given(st.data())
        def run(data: st.DataObject) -> None:
            graph = _plain(data.draw)
            _CHANGES[kind](data.draw, graph)
            accepted.append(_judge(graph, data.draw(st.sampled_from(_METHODS)), data.draw(st.booleans())))

        violation = None
        try:
            run()
        except Violation as found:
            violation = f"{found}; {' '.join(getattr(found, '__notes__', []))}"
        for is_accepted in accepted[: self.examples]:
            yield Trial(kind, None, True, is_accepted)
        if violation is not None:
            yield Trial(kind, violation, True, False)


def _judge(graph: Data, method: str, fit_here: bool) -> bool:
    """Fit on the graph, or score it with a model of another one; return whether it was accepted."""
    before = _snapshot(graph)
    detector = Detector.from_recipe(method, epochs=1, hidden_channels=4)
    try:
        if fit_here:
            detector.fit(graph)
        else:
            detector.fit(_like(graph))
    except Exception as error:
        if not is_ours(error):
            raise Violation(f"fit of {method} raised {described(error)}") from error
        return _untouched(graph, before, False)
    try:
        scores = detector.score_samples(graph)
    except Exception as error:
        if not is_ours(error) and type(error) is not ValueError:  # scores that are not finite are a ValueError
            raise Violation(f"score_samples of {method} raised {described(error)}") from error
        return _untouched(graph, before, False)
    if scores.shape != (graph.x.shape[0],) or not bool(scores.isfinite().all()):
        raise Violation(f"{method} gave scores of shape {list(scores.shape)}, not all of them finite")
    if not torch.equal(scores, detector.score_samples(graph)):
        raise Violation(f"{method} scores the same graph in two ways")
    return _untouched(graph, before, True)


def _like(graph: Data) -> Data:
    """A sound graph with as many features."""
    num_features = graph.x.shape[1] if isinstance(graph.x, Tensor) and graph.x.dim() == 2 else 3
    x = torch.randn(12, num_features, generator=torch.Generator().manual_seed(0))
    train = torch.arange(12) < 6
    edges = torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12])
    return Data(x=x, edge_index=edges, y=torch.arange(12) % 3, train_mask=train, val_mask=~train)


def _snapshot(graph: Data) -> dict[str, tuple[Tensor, Tensor]]:
    found = {}
    for name, value in graph.to_dict().items():
        if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_meta:
            found[name] = value, value.detach().clone()
    return found


def _untouched(graph: Data, before: dict[str, tuple[Tensor, Tensor]], accepted: bool) -> bool:
    for name, (tensor, numbers) in before.items():
        if graph[name] is not tensor or not torch.equal(tensor.detach().nan_to_num(), numbers.nan_to_num()):
            raise Violation(f"the caller's {name} was changed")
        if tensor.grad is not None:
            raise Violation(f"the caller's {name} got gradients")
    return accepted
