"""Errors for unknown names that suggest the nearest known one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# Longer lists hide the suggestion; then only the nearest names are listed.
_MOST_NAMES = 50
_NEAREST_NAMES = 12


class UnknownNameError(ValueError, KeyError):
    """An unknown name; the message suggests the nearest known one."""

    __str__ = Exception.__str__  # KeyError would quote the message


def unknown(what: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """Build an error that suggests the nearest known name and lists all of them, or only the nearest of many."""
    names = list(known)
    near = get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    if len(names) > _MOST_NAMES:
        nearest = get_close_matches(str(name).lower(), names, n=_NEAREST_NAMES, cutoff=0.0)
        names = [*nearest, f"and {len(names) - len(nearest)} more"]
    return UnknownNameError(f"unknown {what} {name!r}.{hint} Known: {', '.join(names)}.")
