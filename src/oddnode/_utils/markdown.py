"""Markdown tables, and escaping of markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["escape_markdown", "pipe_table"]

_MARKUP = re.compile(r"([\\`*_\[\]<>|&~$#])")


def pipe_table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table; cells may contain markup, such as ``**bold**``.

    Parameters
    ----------
    head : sequence of str
        Titles of the columns.
    body : iterable of sequences of str
        The rows, each as long as ``head``. Bars and line breaks within cells are escaped.

    Returns
    -------
    str
        The lines, without a line break after the last.

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
    r"""Escape text of any origin, so that Markdown renders it verbatim on one line.

    Parameters
    ----------
    text : str
        For example the message of an error.

    Returns
    -------
    str
        The text with escaped markup; every run of white space, line breaks included, becomes one space.

    Examples
    --------
    >>> print(escape_markdown("shape [2, *]\n# not a heading"))
    shape \[2, \*\] \# not a heading
    """
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
