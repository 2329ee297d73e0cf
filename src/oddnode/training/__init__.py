"""Trainers, which turn networks, an objective and data into trained networks.

`FullBatch` is the default trainer; the contract is in `base`. It drives a `Trainee` (one network, or several stacked
ones) with a `TrainingLoop`, on a GPU through `CapturedSteps`. `MiniBatch` trains on sampled neighbourhoods.

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
from oddnode.training.cuda_graphs import CapturedSteps
from oddnode.training.full_batch import FullBatch, train
from oddnode.training.loop import TrainingLoop
from oddnode.training.mini_batch import MiniBatch
from oddnode.training.sampling import MiniBatches, NeighbourBatch
from oddnode.training.single import SingleTrainee, last_pass_statistics
from oddnode.training.stacked_gcn import StackedGCNs
from oddnode.training.stacking import stacking_blocker
from oddnode.training.trainee import Trainee

__all__ = [
    "BatchNormStatistics",
    "CapturedSteps",
    "FullBatch",
    "MiniBatch",
    "MiniBatches",
    "NeighbourBatch",
    "SingleTrainee",
    "StackedGCNs",
    "Trainee",
    "Trainer",
    "TrainingConfig",
    "TrainingError",
    "TrainingHandle",
    "TrainingLoop",
    "TrainingResult",
    "last_pass_statistics",
    "stacking_blocker",
    "train",
]
