"""Outcomes and errors on their way from another process."""

from __future__ import annotations

import copy
import traceback

from oddnode.runner.work import Outcome

__all__ = ["is_lost_device", "portable", "portable_error"]


def is_lost_device(error: Exception | None) -> bool:
    """Whether CUDA refuses all further work of this process, so that only a new process can go on.

    Parameters
    ----------
    error : Exception, optional
        The error of a training.
    """
    import torch

    return "CUDA error" in str(error) and not isinstance(error, torch.OutOfMemoryError)


def portable(outcome: Outcome) -> Outcome:
    """Make the error of an outcome fit for another process.

    Parameters
    ----------
    outcome : Outcome
        The outcome, which is changed and returned.
    """
    if outcome.error is not None:
        outcome.error = portable_error(outcome.error)
    return outcome


def portable_error(error: Exception) -> Exception:
    """Add the traceback to an error as a note, or make a new one of its text if the error itself cannot be sent.

    Parameters
    ----------
    error : Exception
        The error.
    """
    if not isinstance(error, ValueError):  # those are messages for the user
        error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)).rstrip())
    try:
        # Copying uses the same protocol as sending to another process.
        return error if isinstance(copy.copy(error), type(error)) else RuntimeError(str(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
