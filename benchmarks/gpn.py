"""An epoch of GPN against an epoch of a reference-style GNNSafe, side by side in one process.

The reference style is that of the published code: PyG's `GCNConv` without a cache, so that the normalisation is
computed in every layer of every pass; the ID and the exposure graph forwarded in every step; and after every epoch all
test graphs evaluated with scikit-learn. GPN is this library's: a training step and the validation of its result.

The two take turns in several rounds, so that whatever else the machine does meets both.

    python benchmarks/gpn.py --task pubmed/structure --epochs 10
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import degree, scatter

from oddnode import Detector, load_task
from oddnode.tasks import Task

#: A GPN epoch may cost so many epochs of the reference.
BUDGET = 12.0


class ReferenceGCN(nn.Module):
    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int):
        super().__init__()
        self.first = GCNConv(in_channels, hidden_channels)
        self.norm = nn.BatchNorm1d(hidden_channels)
        self.second = GCNConv(hidden_channels, out_channels)

    def forward(self, data: Data) -> Tensor:
        return self.second(F.relu(self.norm(self.first(data.x, data.edge_index))), data.edge_index)

    def score(self, data: Data) -> Tensor:
        scores = torch.logsumexp(self(data), dim=-1)
        source, target = data.edge_index
        for _ in range(2):
            weight = 1.0 / degree(target, data.num_nodes)[target]
            scores = 0.5 * scores + 0.5 * scatter(weight * scores[source], target, dim_size=data.num_nodes)
        return scores


def reference_epochs(task: Task) -> Iterator[None]:
    """One epoch of training and evaluation per step of the iterator."""
    data, exposure = task.train, task.exposure
    assert exposure is not None
    model = ReferenceGCN(data.num_features, 64, task.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.01)
    while True:
        model.train()
        loss = F.cross_entropy(model(data)[data.train_mask], data.y[data.train_mask])
        loss = loss + 0.0 * model(exposure).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        model.eval()
        with torch.no_grad():
            _evaluate(model, task)
        yield


def _evaluate(model: ReferenceGCN, task: Task) -> None:
    data = task.train
    predicted = model(data)
    for mask in (data.train_mask, data.val_mask, data.test_mask):
        (predicted[mask].argmax(dim=-1) == data.y[mask]).double().mean().item()
    F.cross_entropy(predicted[data.val_mask], data.y[data.val_mask]).item()
    inside = model.score(task.id_test.data)[task.id_test.mask].numpy()
    for graph in task.tests.values():
        outside = model.score(graph)[graph.ood_mask].numpy()
        labels = np.concatenate([np.ones_like(inside), np.zeros_like(outside)])
        scores = np.concatenate([inside, outside])
        roc_auc_score(labels, scores)
        average_precision_score(labels, scores)
        np.mean(outside >= np.quantile(inside, 0.05))


def gpn_epochs(task: Task, epochs: int) -> list[float]:
    """Seconds between the ends of this library's epochs, without the first: it builds the graph's matrices."""
    ends: list[float] = []
    detector = Detector.from_recipe("gpn", epochs=epochs + 1, device="cpu")
    detector.fit(task.train, on_epoch=lambda _: ends.append(time.perf_counter()))
    return np.diff(ends).tolist()


def reference_times(task: Task, epochs: int) -> list[float]:
    stepper = reference_epochs(task)
    next(stepper)
    return [_seconds(lambda: next(stepper)) for _ in range(epochs)]


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="pubmed/structure")
    parser.add_argument("--epochs", type=int, default=10, help="epochs of each, in each round")
    parser.add_argument("--rounds", type=int, default=3, help="how often the two take turns")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    task = load_task(args.task, protocol="published")
    gpn, reference = [], []
    for _ in range(args.rounds):
        reference += reference_times(task, args.epochs)
        gpn += gpn_epochs(task, args.epochs)
    ours, theirs = float(np.median(gpn)), float(np.median(reference))
    print(f"{args.task}, {args.threads} thread(s), median of {len(gpn)} epochs each")
    print(f"reference-style GNNSafe {1e3 * theirs:.0f} ms, GPN {1e3 * ours:.0f} ms")
    print(f"ratio {ours / theirs:.2f} (at most {BUDGET:g})")


if __name__ == "__main__":
    main()
