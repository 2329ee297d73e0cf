"""Tables of our numbers and the paper's as data, and their output as Markdown, LaTeX (booktabs) and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev

from oddnode._utils.latex import booktabs_table, escape_latex, latex_comment
from oddnode._utils.markdown import pipe_table

__all__ = ["Block", "Entry", "Row", "Table", "block_markdown", "to_csv", "to_latex", "to_markdown"]

_LOWER_IS_BETTER = ("FPR95", "best epoch", "training", "inference")


@dataclass(frozen=True)
class Entry:
    """A number over seeds with the paper's number, or a text.

    Parameters
    ----------
    values : tuple of float
        One number per seed; may be empty.
    paper : float, optional
        The paper's number.
    text : str, optional
        The text if there is no number.
    digits : int
        Number of decimal places.
    seeds : tuple of int
        The seeds of the values, if they matter.
    """

    values: tuple[float, ...] = ()
    paper: float | None = None
    text: str | None = None
    digits: int = 1
    seeds: tuple[int, ...] = ()

    @classmethod
    def of(cls, by_seed: Mapping[int, float], paper: float | None = None) -> Entry:
        """Make an entry with the seeds of its values.

        Parameters
        ----------
        by_seed : mapping of int to float
            The number of every seed.
        paper : float, optional
            The paper's number.
        """
        return cls(tuple(by_seed.values()), paper, seeds=tuple(by_seed))

    @property
    def mean(self) -> float | None:
        """Mean over the seeds."""
        return fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Standard deviation over the seeds (unbiased), for two or more."""
        return stdev(self.values) if len(self.values) > 1 else None

    def shown(self) -> str:
        """The text of the cell."""
        if self.mean is None:
            return self.text or "-"
        spread = "" if self.std is None else f" ± {self.std:.{self.digits}f}"
        return f"{self.rounded:.{self.digits}f}{spread}"

    @property
    def rounded(self) -> float | None:
        """The rounded mean."""
        return None if self.mean is None else round(self.mean, self.digits) + 0.0  # turns -0.0 into 0.0

    def shown_paper(self) -> str:
        """The text of the paper's number."""
        return "-" if self.paper is None else f"{self.paper:.{self.digits}f}"


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Parameters
    ----------
    name : str
        The first cell.
    entries : tuple of Entry
        One per column.
    group : str, optional
        The group within which the best numbers are marked; rows without a group are not compared.
    model_free : bool
        Whether it is the row of a model-free score.
    """

    name: str
    entries: tuple[Entry, ...]
    group: str | None = None
    model_free: bool = False


@dataclass(frozen=True)
class Block:
    """One grid of a table.

    Parameters
    ----------
    title : str
        Shown above the grid.
    protocol : str
        The protocol of its numbers.
    columns : tuple of str
        Titles of the columns, without the first, which has the names of the rows.
    rows : tuple of Row
        The lines.
    caption : str
        Protocol, seeds and unit of the numbers, shown below the grid.
    row_title : str
        The title of the first column.
    """

    title: str
    protocol: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    row_title: str = "method"

    def best(self) -> set[tuple[int, int]]:
        """Find the positions (row, column) of the best rounded numbers of every column and group."""
        found = set()
        for column, title in enumerate(self.columns):
            lower = any(word in title or word in self.title for word in _LOWER_IS_BETTER)
            for group in {row.group for row in self.rows if row.group}:
                shown = {
                    i: mean
                    for i, row in enumerate(self.rows)
                    if row.group == group and (mean := row.entries[column].rounded) is not None
                }
                if len(shown) > 1:
                    top = (min if lower else max)(shown.values())
                    found |= {(i, column) for i, mean in shown.items() if mean == top}
        return found


@dataclass
class Table:
    """A table of the paper.

    Parameters
    ----------
    name : str
        Its name among the items, and that of its files.
    where : str
        Its place in the paper.
    title : str
        What it shows.
    blocks : list of Block
        Its grids, grouped by protocol.
    notes : list of str
        Notes below the grids.
    """

    name: str
    where: str
    title: str
    blocks: list[Block]
    notes: list[str] = field(default_factory=list)


# Writing


def block_markdown(block: Block) -> str:
    """Format one grid as Markdown: the paper's numbers in italics below ours, the best of a group in bold.

    Parameters
    ----------
    block : Block
        The grid.
    """
    best = block.best()
    body = []
    for i, row in enumerate(block.rows):
        shown = [f"**{e.shown()}**" if (i, j) in best else e.shown() for j, e in enumerate(row.entries)]
        body.append([f"*{row.name}*" if row.model_free else row.name, *shown])
        if any(entry.paper is not None for entry in row.entries):
            body.append(["*paper*", *(f"*{entry.shown_paper()}*" for entry in row.entries)])
    return f"{pipe_table(['', *block.columns], body)}\n\n{block.caption}\n"


def to_markdown(table: Table, level: int = 1) -> str:
    """Format a table as Markdown.

    Parameters
    ----------
    table : Table
        The table.
    level : int
        The level of its heading.
    """
    hashes = "#" * level
    parts = [f"{hashes} {table.title}\n", f"Counterpart of: {table.where}.\n"]
    protocol = None
    for block in table.blocks:
        if block.protocol != protocol:
            protocol = block.protocol
            parts.append(f"{hashes}# Protocol {protocol}\n")
        parts.append(f"**{block.title}**\n\n{block_markdown(block)}")
    if not table.blocks:
        parts.append("No numbers.\n")
    return "\n".join([*parts, *(f"{note}\n" for note in table.notes)])


def to_latex(table: Table) -> str:
    r"""Format a table as LaTeX, one ``table`` per grid; needs ``\usepackage{booktabs,graphicx}``.

    Parameters
    ----------
    table : Table
        The table; its notes become comments.
    """
    parts = [latex_comment(f"{table.title}. Needs \\usepackage{{booktabs,graphicx}}.") + "\n"]
    for number, block in enumerate(table.blocks, 1):
        parts.append(_block_latex(table, block, number))
    return "\n".join([*parts, *map(latex_comment, table.notes)]) + "\n"


def _block_latex(table: Table, block: Block, number: int) -> str:
    best, lines = block.best(), []
    group = block.rows[0].group if block.rows else None
    for i, row in enumerate(block.rows):
        if row.group != group:
            lines.append(r"\midrule")
            group = row.group
        cells = [escape_latex(entry.shown()) for entry in row.entries]
        cells = [rf"\textbf{{{cell}}}" if (i, j) in best else cell for j, cell in enumerate(cells)]
        lines.append(" & ".join([escape_latex(row.name), *cells]) + r" \\")
        if any(entry.paper is not None for entry in row.entries):
            printed = [rf"\textit{{{entry.shown_paper()}}}" for entry in row.entries]
            lines.append(" & ".join([r"\quad\textit{paper}", *printed]) + r" \\")
    caption = f"{table.title}: {block.title}; {block.caption}"
    return booktabs_table(caption, f"tab:{table.name}-{number}", block.columns, lines)


def to_csv(table: Table) -> str:
    """Format a table as CSV, with one line per unrounded number.

    Parameters
    ----------
    table : Table
        The table.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["protocol", "block", "row", "column", "mean", "std", "seeds", "paper", "text"])
    for block in table.blocks:
        for row in block.rows:
            for column, entry in zip(block.columns, row.entries, strict=True):
                std = "" if entry.std is None else repr(entry.std)
                mean = "" if entry.mean is None else repr(entry.mean)
                paper = "" if entry.paper is None else repr(entry.paper)
                place = [block.protocol, _bare(block.title), row.name, _bare(column)]
                writer.writerow([*place, mean, std, len(entry.values), paper, entry.text or ""])
    return text.getvalue()


def _bare(title: str) -> str:
    return title.replace(" ↑", "").replace(" ↓", "")
