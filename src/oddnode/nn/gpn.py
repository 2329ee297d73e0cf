"""The graph posterior network (GPN; Stadler et al., NeurIPS 2021), and the normalising flows that it uses."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oddnode.graph import Graph, TrainingSet
from oddnode.nn.base import Backbone
from oddnode.nn.stages import Linear, NodeMatrix, RowWise, Stage, Stages, Stream
from oddnode.ops import SparseMatrix

_NUM_HOPS = 10
_TELEPORT = 0.1
_MAX_LOG_EVIDENCE = 30.0
# Keeps the slope of a square root finite for a point that lies on a centre.
_TINY = 1e-12


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
        Number of hops.
    teleport : float
        The share of the first values in every hop.
    """
    spread = values
    for _ in range(num_hops):
        spread = (1.0 - teleport) * (matrix @ spread) + teleport * values
    return spread


class RadialFlows(nn.Module):
    r"""Several radial flows (Rezende and Mohamed, ICML 2015, equation 14), all in one computation.

    A layer moves points along the rays from its centre :math:`z_0`. With :math:`r = \lVert z - z_0 \rVert`, and with
    :math:`a > 0` and :math:`b = a + \beta > 0`, which keeps it invertible, the paper's
    :math:`z' = z + \frac{\beta}{a + r} (z - z_0)` is

    .. math:: z' = z_0 + \frac{r + b}{r + a} (z - z_0), \qquad
        \left|\det \frac{\partial z'}{\partial z}\right|
        = \left(\frac{r + b}{r + a}\right)^{d-1} \frac{r^2 + 2 a r + a b}{(r + a)^2}

    where every factor is positive, so that the logarithms are finite.

    Parameters
    ----------
    num_flows : int
        Number of densities.
    dim : int
        Dimension of the points.
    num_layers : int
        Radial layers of each flow.
    """

    def __init__(self, num_flows: int, dim: int, num_layers: int = 10):
        super().__init__()
        self.dim = dim
        self.centre = nn.Parameter(torch.empty(num_layers, num_flows, dim))
        self.raw_a = nn.Parameter(torch.empty(num_layers, num_flows, 1))
        self.raw_b = nn.Parameter(torch.empty(num_layers, num_flows, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew: ``a`` and ``b`` about equal, so that the maps start near the identity."""
        bound = 1.0 / math.sqrt(self.dim)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def log_prob(self, z: Tensor) -> Tensor:
        r"""Compute log-densities of points under every flow, ``[N, flows]``.

        The final point does not matter, only its distances do. A layer moves it on the line through the centre,
        :math:`z' = (1-s) z_0 + s z`, so by Stewart's theorem its squared distance to any point :math:`p` becomes
        :math:`(1-s) |z_0 - p|^2 + s |z - p|^2 - s (1-s) |z - z_0|^2`. Tracking those to the later centres and
        to the origin takes a few numbers per point instead of ``d``.

        Parameters
        ----------
        z : Tensor
            Points ``[N, d]``.
        """
        places = torch.cat([self.centre, self.centre.new_zeros(1, *self.centre.shape[1:])])
        apart = (places.unsqueeze(1) - places.unsqueeze(0)).square().sum(dim=-1, keepdim=True)
        squares = _squared_distances(places, z)
        log_det = z.new_zeros(())
        for layer, (a, b) in enumerate(zip(F.softplus(self.raw_a), F.softplus(self.raw_b), strict=True)):
            r = squares[0].clamp_min(_TINY).sqrt()
            stretch = (r + b) / (r + a)
            slope = (r * (r + 2 * a) + a * b) / (r + a).square()
            log_det = log_det + (self.dim - 1) * stretch.log() + slope.log()
            rest = apart[layer, layer + 1 :]
            squares = rest + stretch * (squares[1:] - rest - (1 - stretch) * squares[0])
        return (log_det - 0.5 * (squares[0] + self.dim * math.log(2 * math.pi))).t()

    forward = log_prob

    def __repr__(self) -> str:
        layers, flows = self.centre.shape[:2]
        return f"RadialFlows({flows} flows, dim={self.dim}, num_layers={layers})"


def _squared_distances(places: Tensor, z: Tensor) -> Tensor:
    """From places ``[..., d]`` to points ``[N, d]``: ``[..., N]``."""
    flat = places.flatten(0, -2)
    squares = flat.square().sum(dim=1, keepdim=True) + z.square().sum(dim=1) - 2.0 * (flat @ z.t())
    return squares.view(*places.shape[:-1], -1)


class PageRank(Stage):
    """`personalised_page_rank` over the graph convolution."""

    num_hops = _NUM_HOPS

    def run(self, values: Tensor, graph: Graph, backbone: Backbone) -> Tensor:
        return personalised_page_rank(values, graph.gcn_matrix)

    def stream(self, values: NodeMatrix | None, stream: Stream) -> NodeMatrix:
        assert values is not None
        spread = personalised_page_rank(stream.stored(values), _Convolution(stream.graph))  # type: ignore[arg-type]
        return lambda rows: spread[rows]


class _Convolution:
    """The matrix of the graph convolution, for products that may be on disk."""

    def __init__(self, graph: Graph):
        self._graph = graph

    def __matmul__(self, values: Tensor) -> Tensor:
        return self._graph.convolve(values)


class GPN(Backbone):
    r"""Evidence from class densities of a latent space, spread over the graph.

    A multi-layer perceptron that uses no edges gives a latent position :math:`z_v`; a normalising flow per class gives
    its density there; these are the evidence, spread by personalised PageRank:

    .. math:: \beta_{v,c} = \exp(\log p(z_v | c) + \log p(c) + \tfrac{H}{2} \log 4\pi), \qquad
        \alpha_v = 1 + \sum_u \Pi_{vu} \beta_u

    with :math:`H` latent dimensions, the exponent clamped to -30..30, and logits :math:`\log \alpha`. Class priors
    :math:`p(c)` are the shares of the classes among the labelled nodes. A spare logit has no labelled node, so it
    has no evidence and :math:`\alpha = 1`. Thus even a single ID class has an alternative.

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
        Number of epochs that train only the flows, on a fixed latent space.
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

    def begin_epoch(self, epoch: int) -> None:
        self._is_warming_up = epoch < self.warm_up

    def stages(self) -> Stages:
        hidden: list[Stage] = [Linear(self.first)]
        for place, layer in enumerate(self.layers):
            hidden += [RowWise(F.relu, place), Linear(layer)]  # type: ignore[arg-type]
        hidden.append(RowWise(self._held))
        return Stages(hidden, [RowWise(self.evidence), PageRank(), RowWise(torch.log1p)])

    def _held(self, hidden: Tensor) -> Tensor:
        """Latent positions, which are fixed while the flows warm up."""
        return hidden.detach() if self.training and self._is_warming_up else hidden

    def evidence(self, hidden: Tensor) -> Tensor:
        """Compute the evidence of every class before it is spread, ``[N, C]``, positive.

        Parameters
        ----------
        hidden : Tensor
            Latent positions ``[N, H]``.
        """
        scale = 0.5 * hidden.shape[1] * math.log(4 * math.pi)
        # A spare logit has no training node: its prior is zero, and its evidence minimal.
        log_evidence = self.flows.log_prob(hidden) + self.prior.log() + scale
        return log_evidence.clamp(-_MAX_LOG_EVIDENCE, _MAX_LOG_EVIDENCE).exp()
