"""Tables of results as data, and their outputs: text, Markdown, LaTeX (booktabs), CSV, and JSON for an HTML page."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

_MARKUP = re.compile(r"([\\`*_\[\]<>|&~$#])")
_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "±": r"$\pm$",
}  # fmt: skip

_CSV_COLUMNS = ("protocol", "block", "row", "column", "mean", "std", "seeds", "paper", "text")

# LaTeX tables with more columns span the page.
_WIDE = 5


@dataclass(frozen=True)
class Entry:
    """A number over seeds with the paper's number, or text."""

    values: tuple[float, ...] = ()  # One number per seed; may be empty
    paper: float | None = None
    text: str | None = None  # Shown if there is no number
    digits: int = 1  # Number of decimal places
    seeds: tuple[int, ...] = ()  # The seeds of the values, if they matter

    @classmethod
    def of(cls, by_seed: Mapping[int, float], paper: float | None = None) -> Entry:
        """Make an entry with the seeds of its values."""
        return cls(tuple(by_seed.values()), paper, seeds=tuple(by_seed))

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Standard deviation over the seeds (unbiased), for two or more."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def rounded(self) -> float | None:
        """The mean as it is shown."""
        return None if self.mean is None else round(self.mean, self.digits) + 0.0  # turns -0.0 into 0.0

    def shown(self, with_paper: bool = False) -> str:
        """The text of the cell, optionally with the paper's number in brackets."""
        if self.mean is None:
            return self.text or "-"
        spread = "" if self.std is None else f" ± {self.std:.{self.digits}f}"
        paper = f" ({self.shown_paper()})" if with_paper and self.paper is not None else ""
        return f"{self.rounded:.{self.digits}f}{spread}{paper}"

    def shown_paper(self) -> str:
        return "-" if self.paper is None else f"{self.paper:.{self.digits}f}"

    def as_json(self) -> str | list[float | None] | None:
        """Mean, lowest and highest seed, the paper's number and digits; or the text."""
        if self.mean is None:
            return self.text or (None if self.paper is None else f"paper {self.shown_paper()}")
        if not math.isfinite(self.mean):
            return None
        low, high = (min(self.values), max(self.values)) if len(self.values) > 1 else (None, None)
        return [round(self.mean, 6), low, high, self.paper, self.digits]


@dataclass(frozen=True)
class Row:
    """A line of a grid."""

    name: str
    entries: tuple[Entry, ...]
    group: str | None = None  # The best number of every group is bold; a row without a group never is
    model_free: bool = False  # Whether it is the row of a model-free score


@dataclass(frozen=True)
class Grid:
    """One grid of a table."""

    title: str  # Shown above the grid
    columns: tuple[str, ...]  # Titles of the columns, without the first, which has the names of the rows
    rows: tuple[Row, ...]
    caption: str = ""  # Protocol, seeds and unit of the numbers, shown below the grid
    protocol: str = ""  # The protocol of its numbers
    row_title: str = "method"  # The title of the first column

    def best(self) -> set[tuple[int, int]]:
        """The (row, column) of the best rounded numbers of every column and group, if an arrow says what is better."""
        best = set()
        for column, title in enumerate(self.columns):
            choose = min if "↓" in title + self.title else max if "↑" in title + self.title else None
            for group in {row.group for row in self.rows if row.group and choose}:
                shown = {
                    i: mean
                    for i, row in enumerate(self.rows)
                    if row.group == group and (mean := row.entries[column].rounded) is not None
                }
                if choose and len(shown) > 1:
                    top = choose(shown.values())
                    best |= {(i, column) for i, mean in shown.items() if mean == top}
        return best

    def to_markdown(self) -> str:
        """Format as Markdown: the paper's numbers in italics below ours, the best of a group in bold."""
        best = self.best()
        body = []
        for i, row in enumerate(self.rows):
            shown = [f"**{e.shown()}**" if (i, j) in best else e.shown() for j, e in enumerate(row.entries)]
            body.append([f"*{row.name}*" if row.model_free else row.name, *shown])
            if any(entry.paper is not None for entry in row.entries):
                body.append(["*paper*", *(f"*{entry.shown_paper()}*" for entry in row.entries)])
        return f"{pipe_table(['', *self.columns], body)}\n\n{self.caption}\n"

    def to_latex(self, caption: str, label: str) -> str:
        r"""Format as a floating table; needs ``\usepackage{booktabs,graphicx}``. A wide one spans the page."""
        best, lines = self.best(), []
        group = self.rows[0].group if self.rows else None
        for i, row in enumerate(self.rows):
            if row.group != group:
                lines.append(r"\midrule")
                group = row.group
            cells = [escape_latex(entry.shown()) for entry in row.entries]
            cells = [rf"\textbf{{{cell}}}" if (i, j) in best else cell for j, cell in enumerate(cells)]
            lines.append(" & ".join([escape_latex(row.name), *cells]) + r" \\")
            if any(entry.paper is not None for entry in row.entries):
                printed = [rf"\textit{{{entry.shown_paper()}}}" for entry in row.entries]
                lines.append(" & ".join([r"\quad\textit{paper}", *printed]) + r" \\")
        return _booktabs(caption, label, self.columns, lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "title": f"{self.title}, protocol {self.protocol}" if self.protocol else self.title,
            "caption": self.caption,
            "columns": [self.row_title, *self.columns],
            "rows": [[row.name, *(entry.as_json() for entry in row.entries)] for row in self.rows],
        }


@dataclass
class Table:
    """A table of one or more grids."""

    name: str  # The name of its files and labels
    title: str
    grids: Sequence[Grid]  # Grouped by protocol
    notes: Sequence[str] = field(default_factory=list)  # Notes below the grids
    where: str = ""  # Its counterpart in the paper

    def to_markdown(self, level: int = 1) -> str:
        """Format as Markdown with headings from a level on."""
        hashes = "#" * level
        parts = [f"{hashes} {self.title}\n", *([f"Counterpart of: {self.where}.\n"] if self.where else [])]
        protocol = ""
        for grid in self.grids:
            if grid.protocol != protocol:
                protocol = grid.protocol
                parts.append(f"{hashes}# Protocol {protocol}\n")
            parts.append(f"**{grid.title}**\n\n{grid.to_markdown()}")
        if not self.grids:
            parts.append("No numbers.\n")
        return "\n".join([*parts, *(f"{note}\n" for note in self.notes)])

    def to_latex(self) -> str:
        r"""Format as LaTeX, one ``table`` per grid; needs ``\usepackage{booktabs,graphicx}``."""
        parts = [latex_comment(f"{self.title}. Needs \\usepackage{{booktabs,graphicx}}.") + "\n"]
        for number, grid in enumerate(self.grids, 1):
            caption = f"{self.title}: {grid.title}; {grid.caption}"
            parts.append(grid.to_latex(caption, f"tab:{self.name}-{number}"))
        return "\n".join([*parts, *map(latex_comment, self.notes)]) + "\n"

    def to_csv(self) -> str:
        """Format as CSV, with one line per unrounded number."""
        lines = []
        for grid in self.grids:
            for row in grid.rows:
                for column, entry in zip(grid.columns, row.entries, strict=True):
                    names = (grid.protocol, _without_arrow(grid.title), row.name, _without_arrow(column))
                    numbers = (entry.mean, entry.std, len(entry.values), entry.paper, entry.text)
                    lines.append(dict(zip(_CSV_COLUMNS, (*names, *numbers), strict=True)))
        return csv_text(lines, _CSV_COLUMNS)

    def as_json(self) -> dict[str, Any]:
        title = f"{self.title} ({self.where})" if self.where else self.title
        return {"title": title, "notes": list(self.notes), "grids": [grid.as_json() for grid in self.grids]}


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
    cells = ([" ".join(text.splitlines()).replace("|", "\\|") for text in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def escape_markdown(text: str) -> str:
    r"""Escape text of any origin, so that Markdown renders it verbatim on one line.

    Examples
    --------
    >>> print(escape_markdown("shape [2, *]\n# not a heading"))
    shape \[2, \*\] \# not a heading
    """
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def csv_text(lines: Sequence[dict[str, Any]], columns: Iterable[str] = ()) -> str:
    """Format rows as CSV with the given columns first; a column that a row lacks is empty in it."""
    text = io.StringIO()
    columns = dict.fromkeys([*columns, *(name for line in lines for name in line)])
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _without_arrow(title: str) -> str:
    return title.replace(" ↑", "").replace(" ↓", "")


def escape_latex(text: str) -> str:
    r"""Escape text for TeX; line breaks become spaces, because an empty line would end a caption or cell.

    Examples
    --------
    >>> print(escape_latex("50 % of_it"))
    50 \% of\_it
    """
    return "".join(_TEX.get(letter, letter) for letter in " ".join(text.split()))


def latex_comment(text: str) -> str:
    """Turn every line of a text into a TeX comment."""
    return "\n".join(f"% {line}" for line in text.splitlines())


def _booktabs(caption: str, label: str, columns: Sequence[str], lines: Iterable[str]) -> str:
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
