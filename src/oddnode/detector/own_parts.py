"""Checks of what a user brings along: scorers by name or of their own, and the outputs of their own networks."""

from __future__ import annotations

from torch import Tensor, nn

from oddnode.detector.checked_json import show
from oddnode.detector.registry import RECIPES
from oddnode.functional import negative_energy
from oddnode.scoring import Energy, Outputs, Propagated, Scorer

__all__ = ["as_scorer", "check_logits", "node_scores"]

# Sums of probabilities, and energies of log-probabilities, are off by rounding errors only.
_ROUNDING = 1e-3


def as_scorer(scorer: Scorer | str | None) -> Scorer:
    """Return the scorer that a user asked for.

    Parameters
    ----------
    scorer : Scorer, str or None
        A scorer; the name of a method whose scorer it is (``"msp"``), with the method's settings; or ``None`` for the
        energy, propagated over the graph.
    """
    if scorer is None:
        return Propagated(Energy())
    if isinstance(scorer, str):
        recipe = RECIPES[scorer]
        if recipe.backbone is not None:
            raise ValueError(
                f"the scorer of {scorer} reads the outputs of its own network ({recipe.backbone}); name another method"
            )
        return recipe.build()[1]
    if not isinstance(scorer, Scorer):
        found = f"the class {scorer.__name__}" if isinstance(scorer, type) else type(scorer).__name__
        raise TypeError(
            f"scorer is {found}, expected a Scorer such as MaxSoftmax(), or the name of a method such as 'msp'; for a "
            "score of your own, subclass oddnode.Scorer with a method score(outputs) that returns one number per node"
        )
    return scorer


def check_logits(module: nn.Module, logits: Tensor, num_classes: int, scorer: Scorer) -> None:
    """Raise an error if a network returns probabilities, or log-probabilities although the scorer needs logits.

    Parameters
    ----------
    module : torch.nn.Module
        The network, for the message.
    logits : Tensor
        Its logits ``[N, L]``.
    num_classes : int
        Number of ID classes, whose logits come first.
    scorer : Scorer
        The scorer to be used on it.
    """
    if logits.shape[1] < 2:
        return
    name = type(module).__name__
    if bool((logits >= 0).all()) and bool(((logits.sum(dim=1) - 1).abs() < _ROUNDING).all()):
        raise ValueError(
            f"{name} returns probabilities, which sum to 1 at every node; return logits, without softmax at the end"
        )
    energy = negative_energy(logits[:, :num_classes])
    if scorer.needs_raw_logits and num_classes > 1 and bool((energy.abs() < _ROUNDING).all()):
        raise ValueError(
            f"{name} returns log-probabilities, whose energy is 0 at every node; "
            "return logits, without log_softmax at the end, or use MaxSoftmax()"
        )


def node_scores(scorer: Scorer, outputs: Outputs) -> Tensor:
    """Score every node, and raise an error if a scorer does not return one number per node.

    Parameters
    ----------
    scorer : Scorer
        A fitted scorer.
    outputs : Outputs
        The network's outputs on a graph of N nodes.

    Returns
    -------
    Tensor
        Scores ``[N]``, detached.
    """
    scores = outputs.scores_of(scorer)
    expected = (outputs.graph.num_nodes,)
    if not isinstance(scores, Tensor) or scores.shape != expected:
        found = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"{show(scorer)} returned {found}, expected one score per node, {list(expected)}")
    return scores.detach()
