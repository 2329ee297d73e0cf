"""Markdown tables, and escaping of markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARKUP = re.compile(r"([\\`*_\[\]<>|&~$#])")


def pipe_table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table; cells may contain markup, such as ``**bold**``.

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

    Examples
    --------
    >>> print(escape_markdown("shape [2, *]\n# not a heading"))
    shape \[2, \*\] \# not a heading
    """
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
