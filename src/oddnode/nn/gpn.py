"""The graph posterior network (GPN; Stadler et al., NeurIPS 2021)."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oddnode.graph import Graph, TrainingSet
from oddnode.nn.base import Backbone
from oddnode.nn.flows import RadialFlows
from oddnode.ops import SparseMatrix

__all__ = ["GPN", "personalised_page_rank"]

_NUM_HOPS = 10
_TELEPORT = 0.1
_MAX_LOG_EVIDENCE = 30.0


def personalised_page_rank(
    values: Tensor, matrix: SparseMatrix, num_hops: int = _NUM_HOPS, teleport: float = _TELEPORT
) -> Tensor:
    r"""Spread values over the graph (APPNP; Gasteiger et al., ICLR 2019, equation 5).

    :math:`h \leftarrow (1 - t) \hat A h + t h^{(0)}`, ``num_hops`` times from :math:`h^{(0)}`, the values.

    Parameters
    ----------
    values : Tensor
        Shape ``[N, C]``.
    matrix : SparseMatrix
        The normalised adjacency :math:`\hat A`, ``[N, N]``.
    num_hops : int
        How many hops.
    teleport : float
        The share of the first values in every hop.

    Returns
    -------
    Tensor
        Shape ``[N, C]``.
    """
    spread = values
    for _ in range(num_hops):
        spread = (1.0 - teleport) * (matrix @ spread) + teleport * values
    return spread


class GPN(Backbone):
    r"""Evidence from class densities of a latent space, spread over the graph.

    A multi-layer perceptron that sees no edges gives a latent position :math:`z_v`; a normalising flow per class gives
    its density there; and evidence is what density says, spread by personalised PageRank:

    .. math:: \beta_{v,c} = \exp(\log p(z_v | c) + \log p(c) + \tfrac{H}{2} \log 4\pi), \qquad
        \alpha_v = 1 + \sum_u \Pi_{vu} \beta_u

    with :math:`H` latent dimensions, the exponent clamped to -30..30, and logits :math:`\log \alpha`. Class priors
    :math:`p(c)` are the shares of the classes among the labelled nodes. A spare logit has no labelled node, so its
    evidence is none and :math:`\alpha = 1`. That gives a single ID class something to be told from.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Width of the features, of the perceptron's hidden layers and of the logits.
    num_layers : int
        Linear layers of the perceptron.
    dropout : float
        Share of hidden features dropped in training.
    latent_channels : int
        Latent dimensions.
    num_radial : int
        Radial layers of each flow.
    warm_up : int
        So many epochs train the flows alone, on a latent space that stands still.
    """

    prior: Tensor
    num_hops = _NUM_HOPS

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        dropout: float = 0.5,
        latent_channels: int = 32,
        num_radial: int = 10,
        warm_up: int = 5,
    ):
        super().__init__()
        if num_layers < 2:
            raise ValueError(f"num_layers is {num_layers}, expected 2 or more")
        self.dropout = dropout
        self.warm_up = warm_up
        widths = [hidden_channels] * (num_layers - 1) + [latent_channels]
        self.first = nn.Linear(in_channels, hidden_channels)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.flows = RadialFlows(out_channels, latent_channels, num_radial)
        self.register_buffer("prior", torch.full((out_channels,), 1.0 / out_channels))
        self._is_warming_up = False

    def prepare(self, data: TrainingSet) -> None:
        self.prior.copy_(torch.bincount(data.y_train, minlength=data.num_logits) / len(data.y_train))

    @property
    def num_dropout_places(self) -> int:
        """One before every layer but the first."""
        return len(self.layers)

    def begin_epoch(self, epoch: int) -> None:
        self._is_warming_up = epoch < self.warm_up

    def embed(self, graph: Graph) -> Tensor:
        hidden = graph.times_features(self.first.weight) + self.first.bias
        for place, layer in enumerate(self.layers):
            hidden = layer(self._drop(F.relu(hidden), place))
        return hidden.detach() if self.training and self._is_warming_up else hidden

    def head(self, hidden: Tensor, graph: Graph) -> Tensor:
        return personalised_page_rank(self.evidence(hidden), graph.gcn_matrix).log1p()

    def evidence(self, hidden: Tensor) -> Tensor:
        """Compute the evidence of every class, before it is spread.

        Parameters
        ----------
        hidden : Tensor
            Latent positions ``[N, H]``.

        Returns
        -------
        Tensor
            Shape ``[N, C]``, positive.
        """
        scale = 0.5 * hidden.shape[1] * math.log(4 * math.pi)
        # A spare logit has no training node: its prior is zero and its evidence the least there is.
        log_evidence = self.flows.log_prob(hidden) + self.prior.log() + scale
        return log_evidence.clamp(-_MAX_LOG_EVIDENCE, _MAX_LOG_EVIDENCE).exp()
