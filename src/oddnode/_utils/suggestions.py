"""Errors for names that do not exist, with the nearest one that does."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["UnknownNameError", "unknown"]


class UnknownNameError(ValueError, KeyError):
    """A name that nothing is known by; the message suggests the nearest known one."""

    __str__ = Exception.__str__  # KeyError would quote the message


def unknown(what: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """An error that names the nearest known name and all the others.

    Parameters
    ----------
    what : str
        What was looked for: ``"method"``, ``"task"``, ...
    name : object
        What was asked for.
    known : iterable of str
        What there is.

    Returns
    -------
    UnknownNameError
        The error, to be raised by the caller.
    """
    names = list(known)
    near = get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownNameError(f"unknown {what} {name!r}.{hint} Known: {', '.join(names)}.")
