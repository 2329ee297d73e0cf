"""Graph-based kernel Dirichlet estimation (GKDE; Zhao et al., NeurIPS 2020).

A graph convolutional network predicts evidence. A prior limits the evidence by the hops between a node and the
labelled nodes, and a teacher, an ordinary classifier, keeps the classes apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode._utils.random import new_weights
from oddnode.functional import dirichlet_kl
from oddnode.graph import Graph, TrainingSet
from oddnode.nn import GCN
from oddnode.objectives.base import Term, Train, TrainingPass
from oddnode.objectives.terms import CrossEntropy

# The kernel of ten hops is 8e-23, so farther nodes do not change the prior in floating point.
_MAX_HOPS = 10
# Number of simultaneous breadth-first searches; limits memory to a few numbers per node and search.
_SEARCHES = 512


def hop_counts(graph: Graph, sources: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Count, for each node, the sources of each class that are exactly 0, 1, ..., 10 hops away, ``[11, N, C]``.

    All searches advance by one hop in one sparse product.

    Parameters
    ----------
    graph : Graph
        Edges are followed from source to target.
    sources, labels : Tensor
        Indices and classes of the nodes that the searches start from.
    num_classes : int
        Number of classes.

    Examples
    --------
    >>> path = Graph(torch.zeros(3, 1), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))  # 0 - 1 - 2
    >>> hop_counts(path, torch.tensor([0]), torch.tensor([0]), num_classes=1)[:3, :, 0]
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """
    counts = graph.x.new_zeros(_MAX_HOPS + 1, graph.num_nodes, num_classes)
    for nodes, y in zip(sources.split(_SEARCHES), labels.split(_SEARCHES), strict=True):
        classes = F.one_hot(y, num_classes).to(graph.x.dtype)
        frontier = graph.x.new_zeros(graph.num_nodes, len(nodes))
        frontier[nodes, torch.arange(len(nodes), device=nodes.device)] = 1.0
        reached = frontier.bool()
        for hops in range(_MAX_HOPS + 1):
            counts[hops] += frontier @ classes
            new = (graph.random_walk @ frontier > 0) & ~reached
            reached |= new
            frontier = new.to(frontier.dtype)
    return counts


def kernel_prior(graph: Graph, sources: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    r"""Compute the Dirichlet parameters of the prior from the labelled nodes, ``[N, C]`` (Zhao et al., equation 6).

    .. math:: \hat\alpha_{v,c} = 1 + \sum_{u: y_u = c} \frac{1}{\sqrt{2\pi}} e^{-d(u, v)^2 / 2}

    with :math:`d` the hops from ``u`` to ``v``; nodes more than ten hops away add nothing.

    Parameters
    ----------
    graph : Graph
        Edges are followed from source to target.
    sources, labels : Tensor
        Indices and classes ``[n]`` of the labelled nodes.
    num_classes : int
        Number of classes.
    """
    hops = torch.arange(_MAX_HOPS + 1, dtype=graph.x.dtype, device=graph.device)
    kernel = (-hops.square() / 2).exp() / math.sqrt(2 * math.pi)
    return 1.0 + torch.einsum("d,dnc->nc", kernel, hop_counts(graph, sources, labels, num_classes))


@dataclass(frozen=True, repr=False)
class KernelPrior(Term):
    """Divergence of every node's Dirichlet distribution from its `kernel_prior`, summed over all nodes.

    Parameters
    ----------
    prior : Tensor, optional
        The prior ``[N, C]``; `prepare` computes it.
    start : int
        Number of epochs before the term takes effect.
    """

    prior: Tensor | None = field(default=None, kw_only=True, compare=False)

    def prepare(self, data: TrainingSet, train: Train) -> KernelPrior:
        sources, labels = self.labelled(data)
        return replace(self, prior=kernel_prior(data.graph, sources, labels, data.num_logits))

    def labelled(self, data: TrainingSet) -> tuple[Tensor, Tensor]:
        """Choose the nodes that the prior starts from: their indices and classes, ``[n]`` each.

        Parameters
        ----------
        data : TrainingSet
            The training data.
        """
        return data.train, data.y_train

    def __call__(self, step: TrainingPass) -> Tensor:
        return dirichlet_kl(step.logits, _prepared(self.prior, self)).sum()


@dataclass(frozen=True, repr=False)
class Teacher(Term):
    r"""Divergence of the Dirichlet means from a plain GCN that is trained first, summed over all nodes.

    :math:`\min(1, t / T) \sum_v KL(\bar p_v \,\Vert\, q_v)` in epoch ``t``, where ``q`` are the teacher's probabilities
    and ``T`` is ``ramp``.

    Parameters
    ----------
    ramp : int
        Number of epochs until the term has its full weight.
    hidden_channels : int
        Width of the teacher's hidden layer.
    dropout : float
        Dropout probability of the teacher.
    epochs : int
        Number of the teacher's epochs.
    lr, weight_decay : float
        Adam's settings for the teacher.
    log_probabilities : Tensor, optional
        Log-probabilities of the teacher, ``[N, C]``; `prepare` computes them.
    start : int
        Number of epochs before the term takes effect.
    """

    ramp: int = 200
    hidden_channels: int = 16
    dropout: float = 0.5
    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4
    log_probabilities: Tensor | None = field(default=None, kw_only=True, compare=False)

    def prepare(self, data: TrainingSet, train: Train) -> Teacher:
        graph = data.graph
        shape = graph.x.shape[1], self.hidden_channels, data.num_logits
        with new_weights():
            teacher = GCN(*shape, dropout=self.dropout, batch_norm=False)
        teacher = teacher.to(graph.device, graph.x.dtype)
        train(teacher, CrossEntropy(), data, epochs=self.epochs, lr=self.lr, weight_decay=self.weight_decay)
        with torch.no_grad():
            return replace(self, log_probabilities=teacher.run(graph).log_softmax(dim=-1))

    def __call__(self, step: TrainingPass) -> Tensor:
        taught = _prepared(self.log_probabilities, self)
        divergence = F.kl_div(taught, step.logits.log_softmax(dim=-1), reduction="sum", log_target=True)
        return min(1.0, step.epoch / self.ramp) * divergence


def _prepared(tensor: Tensor | None, term: Term) -> Tensor:
    if tensor is None:
        raise RuntimeError(f"{term!r} has no data yet; call prepare(data, train) and use the term it returns")
    return tensor
