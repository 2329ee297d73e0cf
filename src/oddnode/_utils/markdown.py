"""Markdown that is written by hand in one place only: tables, and text that must not be read as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["escape_markdown", "pipe_table"]

_MARKUP = re.compile(r"([\\`*_\[\]<>|&~$#])")


def pipe_table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table of cells that may hold markup of their own, such as ``**bold**``.

    Parameters
    ----------
    head : sequence of str
        Titles of the columns.
    body : iterable of sequences of str
        The rows, each as long as ``head``. A bar or a line break within a cell does not end it.

    Returns
    -------
    str
        Lines without a line break after the last.

    Examples
    --------
    >>> print(pipe_table(["method", "mean"], [["msp", "**80.0**"]]))
    | method | mean |
    | --- | --- |
    | msp | **80.0** |
    """
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.splitlines()).replace("|", "\\|")


def escape_markdown(text: str) -> str:
    r"""Text of any origin as one line that a reader of Markdown shows as it is.

    Parameters
    ----------
    text : str
        For example the message of an error.

    Returns
    -------
    str
        The text with its markup escaped and every run of white space, line breaks included, as one space.

    Examples
    --------
    >>> print(escape_markdown("shape [2, *]\n# not a heading"))
    shape \[2, \*\] \# not a heading
    """
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
