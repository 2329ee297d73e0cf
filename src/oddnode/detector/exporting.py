"""The fitted scorer as a plain torch program, for use without this library."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from oddnode._utils.checked_json import first_line, show
from oddnode.detector.feature_range import FAR
from oddnode.detector.fitted import Calibration, FittedState, gradients_enabled
from oddnode.graph.traceable import TraceableGraph
from oddnode.scoring import Outputs

# A small graph to trace, of any size but 0 or 1, which torch treats as constants.
_NODES, _EDGES = 5, 7


@gradients_enabled()
def exported(state: FittedState, calibration: Calibration | None) -> ExportedProgram:
    """Export the scores of a fitted detector."""
    if not state.scorer.supports_export:
        raise TypeError(
            f"{show(state.base_scorer)} cannot be exported: it needs more than the network and the edges of the scored "
            "graph. The scorers of msp and energy, MaxLogit() and Propagated around one of these can be exported, the "
            "latter with prior_nodes=0"
        )
    module = _Scores(state, calibration).eval()
    device = next((each.device for each in module.parameters()), torch.device("cpu"))
    x = torch.ones(_NODES, state.num_features, dtype=state.dtype, device=device)
    edges = torch.arange(2 * _EDGES, device=device).view(2, _EDGES) % _NODES
    sizes = {"x": {0: Dim.DYNAMIC}, "edge_index": {1: Dim.DYNAMIC}}
    try:
        with torch.no_grad():
            return torch.export.export(module, (x, edges), dynamic_shapes=sizes, strict=False)
    except Exception as error:  # tracing fails in as many ways as there are networks
        name = type(state.module).__name__
        raise TypeError(f"torch.export cannot trace {name} for graphs of any size: {first_line(error)}") from error


class _Scores(nn.Module):
    """The scores of a detector as a module, in operations that can be traced."""

    def __init__(self, state: FittedState, calibration: Calibration | None):
        super().__init__()
        self.module = copy.deepcopy(state.module).requires_grad_(False)
        for each in self.module.parameters():
            each.data = each.data.contiguous()  # files of exported programs hold contiguous tensors
        self._scorer = state.scorer
        self._num_classes = state.num_classes
        self._max_abs_feature = state.max_abs_feature
        self._lowest_known = torch.inf if calibration is None else float(calibration.scores[0])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        limit = self._max_abs_feature
        is_far = x.abs() > (FAR * limit or torch.inf)
        graph = TraceableGraph(torch.where(is_far, x.clamp(-limit, limit), x), edge_index)
        scores = self._scorer.score(Outputs(self.module, graph, self._num_classes))
        far = is_far.any(dim=1)
        lowest = scores.masked_fill(far, torch.inf).min().clamp(max=self._lowest_known)
        below = torch.nextafter(lowest, torch.full_like(lowest, -torch.inf))
        return torch.where(far, torch.minimum(scores, below), scores)
