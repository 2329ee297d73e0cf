"""Trainers, which turn networks, an objective and data into trained networks.

`FullBatch` is the default trainer; the contract is in `base`. It drives a `Trainee` (one network, or several stacked
ones) with a `TrainingLoop`, on a GPU through `CapturedSteps`. `MiniBatch` trains on sampled neighbourhoods,
`PackedRows` on graphs on disk as a whole.

May import: objectives and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports

if TYPE_CHECKING:
    from oddnode.training.base import BatchNormStatistics as BatchNormStatistics
    from oddnode.training.base import Trainer as Trainer
    from oddnode.training.base import TrainingConfig as TrainingConfig
    from oddnode.training.base import TrainingError as TrainingError
    from oddnode.training.base import TrainingHandle as TrainingHandle
    from oddnode.training.base import TrainingResult as TrainingResult
    from oddnode.training.cuda_graphs import CapturedSteps as CapturedSteps
    from oddnode.training.full_batch import FullBatch as FullBatch
    from oddnode.training.full_batch import train as train
    from oddnode.training.loop import Trainee as Trainee
    from oddnode.training.loop import TrainingLoop as TrainingLoop
    from oddnode.training.mini_batch import MiniBatch as MiniBatch
    from oddnode.training.mini_batch import MiniBatches as MiniBatches
    from oddnode.training.mini_batch import NeighbourBatch as NeighbourBatch
    from oddnode.training.packed_rows import PackedRows as PackedRows
    from oddnode.training.single import SingleTrainee as SingleTrainee
    from oddnode.training.stacked import StackedGCNs as StackedGCNs
    from oddnode.training.stacked import stacking_blocker as stacking_blocker
else:
    __getattr__, __dir__, __all__ = exports(__name__)
