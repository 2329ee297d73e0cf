"""Errors for names that do not exist, with the nearest one that does."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["unknown"]


def unknown(what: str, name: object, known: Iterable[str]) -> ValueError:
    """A ``ValueError`` that names the nearest known name and all the others."""
    names = list(known)
    near = get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ValueError(f"unknown {what} {name!r}.{hint} Known: {', '.join(names)}.")
