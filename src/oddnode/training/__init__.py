"""Trainers, which turn networks, an objective and data into trained networks.

May import: objectives and below.
"""

from oddnode.training.engine import Loop, Pending, Trained, TrainingError, start_training, train, train_together
from oddnode.training.single import BatchNormStatistics, Network
from oddnode.training.stacked_gcn import Networks, why_not_side_by_side

__all__ = [
    "BatchNormStatistics",
    "Loop",
    "Network",
    "Networks",
    "Pending",
    "Trained",
    "TrainingError",
    "start_training",
    "train",
    "train_together",
    "why_not_side_by_side",
]
