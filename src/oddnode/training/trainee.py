"""The contract between the training loop and what it trains."""

from __future__ import annotations

from typing import Protocol, TypeVar

from torch import Tensor, nn

__all__ = ["Trainee"]

S = TypeVar("S")


class Trainee(Protocol[S]):
    """One or more networks with their data and objective, as `oddnode.training.TrainingLoop` drives them.

    An epoch validates the weights it starts from and takes a step from them. Both share a part of the forward pass, an
    object of type ``S`` that the loop drops before the weights change. In epoch ``t`` the loop calls, in this order,

    1. ``shared = shared_forward(t)``,
    2. ``validation_loss(shared)`` and, where any network got better, ``update_best``; both not in epoch 0,
    3. ``loss(shared, t)``, whose sum it differentiates,

    and then moves the parameters and advances ``epoch_counter`` by one. After the last epoch it calls 1 and 2 once
    more, and ``load_best``. No method may wait for the device, and none may keep ``shared`` or a part of it.

    Attributes
    ----------
    size : int
        How many networks are trained.
    epoch_counter : Tensor
        The number of steps taken, ``[1]`` whole numbers on the device; the loop advances it.
    starts : frozenset of int
        Epochs in which the loss becomes another function, because a term of the objective begins to count.
    capture_blocker : str or None
        Why a step cannot be captured as a CUDA graph; ``None`` where it can.
    """

    @property
    def size(self) -> int: ...

    @property
    def epoch_counter(self) -> Tensor: ...

    @property
    def starts(self) -> frozenset[int]: ...

    @property
    def capture_blocker(self) -> str | None: ...

    def parameters(self) -> list[nn.Parameter]:
        """The parameters to train."""
        ...

    def tensors(self) -> list[Tensor]:
        """All tensors that make up the networks at this moment, not copied."""
        ...

    def shared_forward(self, epoch: int) -> S:
        """Compute what validation and a training pass share.

        Parameters
        ----------
        epoch : int
            The number of steps taken.

        Returns
        -------
        object
            For `validation_loss` and `loss` of the same epoch.
        """
        ...

    def validation_loss(self, shared: S) -> Tensor:
        """Evaluate the present weights on the validation nodes.

        Parameters
        ----------
        shared : object
            From `shared_forward`.

        Returns
        -------
        Tensor
            One loss per network, ``[size]``, without a gradient.
        """
        ...

    def loss(self, shared: S, epoch: int) -> Tensor:
        """Compute the loss of a training pass.

        Parameters
        ----------
        shared : object
            From `shared_forward`.
        epoch : int
            The number of steps taken.

        Returns
        -------
        Tensor
            One loss per network, ``[size]``, with a gradient.
        """
        ...

    def update_best(self, better: Tensor, best: list[Tensor]) -> None:
        """Copy the present tensors of the networks that got better.

        Parameters
        ----------
        better : Tensor
            Whether each network did, ``[size]``.
        best : list of Tensor
            Copies of `tensors`, to be updated in place.
        """
        ...

    def load_best(self, best: list[Tensor]) -> None:
        """Give every network its best tensors, and leave it in evaluation mode.

        Parameters
        ----------
        best : list of Tensor
            As for `update_best`.
        """
        ...
