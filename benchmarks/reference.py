"""A training loop in the style of the code behind the paper's numbers, written from the methods' definitions.

It is what oddnode is timed against: PyG's graph convolution, which normalises the adjacency anew in every pass; the
exposure graph goes through the network also in methods that learn nothing from it; all test graphs are scored and
measured with scikit-learn after every epoch; every method and seed is a training of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import degree

from oddnode.tasks import Task

#: The methods of the comparison: whether the score is propagated, whether exposure is learnt from, whether UB is on.
METHODS = {
    "msp": (False, False, False),
    "energy": (False, False, False),
    "gnnsafe": (True, False, False),
    "nodesafe": (True, False, True),
    "energy-ft": (False, True, False),
    "gnnsafe++": (True, True, False),
    "nodesafe++": (True, True, True),
}
_HOPS, _ETA = 2, 0.5
_LAMBDA1, _LAMBDA2 = 0.001, 1.0
_M_IN, _M_OUT, _HINGE = -5.0, -1.0, 0.01


class ReferenceGCN(nn.Module):
    """Two convolutions with batch norm between."""

    def __init__(self, features: int, classes: int, hidden: int = 64, dropout: float = 0.5):
        super().__init__()
        self.first, self.second = GCNConv(features, hidden), GCNConv(hidden, classes)
        self.norm = nn.BatchNorm1d(hidden)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.relu(self.norm(self.first(x, edge_index)))
        return self.second(F.dropout(hidden, self.dropout, self.training), edge_index)


def propagated(energy: Tensor, edge_index: Tensor) -> Tensor:
    """Scores averaged over the graph; the weights of the edges are computed at every call."""
    source, target = edge_index
    weight = 1.0 / degree(target, energy.shape[0])[target]
    for _ in range(_HOPS):
        mean = torch.zeros_like(energy).index_add_(0, target, weight * energy[source])
        energy = _ETA * energy + (1 - _ETA) * mean
    return energy


def _dispersion(values: Tensor) -> Tensor:
    return values.var() / values.mean().detach().abs()


def _ub(logits: Tensor) -> Tensor:
    return _LAMBDA1 * _dispersion(logits.sum(dim=1)) + (1 - _LAMBDA1) * _dispersion(logits.norm(dim=1))


@dataclass
class Run:
    """One method on one task: `step` trains an epoch, `evaluate` measures everything after it."""

    task: Task
    method: str
    device: str = "cpu"

    def __post_init__(self) -> None:
        self.propagates, self.exposed, self.ub = METHODS[self.method]
        self.train = self.task.train.clone().to(self.device)
        self.exposure = None if self.method == "msp" or self.task.exposure is None else self._moved(self.task.exposure)
        self.id_data, self.id_mask = self._moved(self.task.id_test.data), self.task.id_test.mask.to(self.device)
        self.tests = [self._moved(data) for data in self.task.tests.values()]
        self.model = ReferenceGCN(self.train.x.shape[1], self.task.num_classes + 1).to(self.device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=0.01)

    def _moved(self, data: Data) -> Data:
        return data.clone().to(self.device)

    def step(self) -> Tensor:
        """Forward, losses, backward, optimiser."""
        self.model.train()
        self.optimiser.zero_grad()
        data = self.train
        logits = self.model(data.x, data.edge_index)
        labelled = logits[data.train_mask]
        loss = F.cross_entropy(labelled, data.y[data.train_mask])
        if self.exposure is not None:
            outside = self.model(self.exposure.x, self.exposure.edge_index)
            if self.exposed:
                loss = loss + _HINGE * self._hinge(logits, outside)
            if self.ub:
                loss = loss + _LAMBDA2 * _ub(torch.cat([labelled, outside]) if self.exposed else labelled)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def _hinge(self, logits: Tensor, outside: Tensor) -> Tensor:
        assert self.exposure is not None
        inner, outer = logits.logsumexp(dim=1), outside.logsumexp(dim=1)
        if self.propagates:
            inner = propagated(inner, self.train.edge_index)
            outer = propagated(outer, self.exposure.edge_index)
        energy_in, energy_out = -inner[self.train.train_mask], -outer[self.exposure.ood_mask]
        length = min(len(energy_in), len(energy_out))
        return (F.relu(energy_in[:length] - _M_IN).square() + F.relu(_M_OUT - energy_out[:length]).square()).mean()

    @torch.no_grad()
    def evaluate(self) -> dict[str, Any]:
        """Accuracy, validation loss, and detection on every test graph."""
        self.model.eval()
        logits = self.model(self.train.x, self.train.edge_index)
        val = F.cross_entropy(logits[self.train.val_mask], self.train.y[self.train.val_mask]).item()
        inside = self._scores(self.id_data)[self.id_mask].cpu().numpy()
        known = self.model(self.id_data.x, self.id_data.edge_index).argmax(dim=1)[self.id_mask]
        accuracy = (known == self.id_data.y[self.id_mask]).float().mean().item()
        found = [_measures(inside, self._scores(data)[data.ood_mask].cpu().numpy()) for data in self.tests]
        return {"val_loss": val, "accuracy": accuracy, "detection": found}

    def _scores(self, data: Data) -> Tensor:
        logits = self.model(data.x, data.edge_index)
        if self.method == "msp":
            return logits.softmax(dim=1).amax(dim=1)
        energy = logits.logsumexp(dim=1)
        return propagated(energy, data.edge_index) if self.propagates else energy


def _measures(inside: np.ndarray, outside: np.ndarray) -> tuple[float, float, float]:
    scores = np.concatenate([inside, outside])
    labels = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    return roc_auc_score(labels, scores), average_precision_score(labels, scores), _fpr95(labels, scores)


def _fpr95(labels: np.ndarray, scores: np.ndarray) -> float:
    order = np.argsort(scores, kind="mergesort")[::-1]
    hits = np.cumsum(labels[order])
    misses = 1 + np.arange(len(hits)) - hits
    nearest = np.argmin(np.abs(hits / hits[-1] - 0.95))
    return float(misses[nearest] / (len(labels) - hits[-1]))
