"""LaTeX tables, and escaping of markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["booktabs_table", "escape_latex", "latex_comment"]

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "±": r"$\pm$",
}  # fmt: skip

_WIDE = 5


def escape_latex(text: str) -> str:
    r"""Escape text for TeX; line breaks become spaces, because an empty line would end a caption or cell.

    Parameters
    ----------
    text : str
        Any text.

    Examples
    --------
    >>> print(escape_latex("50 % of_it"))
    50 \% of\_it
    """
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def latex_comment(text: str) -> str:
    """Turn every line of a text into a TeX comment.

    Parameters
    ----------
    text : str
        Any text.
    """
    return "\n".join(f"% {line}" for line in text.splitlines())


def booktabs_table(caption: str, label: str, columns: Sequence[str], lines: Iterable[str]) -> str:
    r"""Format a floating table; needs ``\usepackage{booktabs,graphicx}``. A wide one spans the page.

    Parameters
    ----------
    caption, label : str
        Text, which is escaped, and the name to refer to it by, which is not.
    columns : sequence of str
        Titles of the columns after the first, which has the names of the rows; they are escaped.
    lines : iterable of str
        The lines of the body, as LaTeX.
    """
    wide = len(columns) > _WIDE
    kind = "table*" if wide else "table"
    return "\n".join(
        [
            rf"\begin{{{kind}}}",
            r"\centering\small",
            rf"\caption{{{escape_latex(caption)}.}}",
            rf"\label{{{label}}}",
            *([r"\resizebox{\textwidth}{!}{%"] if wide else []),
            rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
            r"\toprule",
            " & ".join(["", *map(escape_latex, columns)]) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}}" if wide else r"\end{tabular}",
            rf"\end{{{kind}}}",
            "",
        ]
    )
