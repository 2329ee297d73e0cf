"""Trainers, which turn networks, an objective and data into trained networks.

May import: objectives and below.
"""

from oddnode.training.base import (
    BatchNormStatistics,
    Trainer,
    TrainingConfig,
    TrainingError,
    TrainingHandle,
    TrainingResult,
)
from oddnode.training.engine import FullBatch, Loop, train
from oddnode.training.single import Network
from oddnode.training.stacked_gcn import Networks, why_not_side_by_side

__all__ = [
    "BatchNormStatistics",
    "FullBatch",
    "Loop",
    "Network",
    "Networks",
    "Trainer",
    "TrainingConfig",
    "TrainingError",
    "TrainingHandle",
    "TrainingResult",
    "train",
    "why_not_side_by_side",
]
