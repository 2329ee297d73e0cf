"""A table as data, and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from statistics import stdev

from oddnode.paper.grid import Block, Entry, Row, Table, to_csv, to_latex, to_markdown

TABLE = Table(
    "t",
    "Table 9",
    "A title",
    [
        Block(
            "FPR95 ↓",
            "clean",
            ("cora/label", "50 % of_it"),
            (
                Row("a", (Entry((10.0, 20.0), paper=12.34), Entry((1.0,))), group="no"),
                Row("b", (Entry((15.02,)), Entry((2.0,))), group="no"),
                Row("c", (Entry((99.0,)), Entry(text="not here")), model_free=True),
            ),
            "the caption",
        )
    ],
    ["a note"],
)


def test_markdown_has_spread_paper_and_the_best_in_bold() -> None:
    text = to_markdown(TABLE)
    assert "| a | **15.0 ± 7.1** | **1.0** |" in text  # shown as 15.0 both, so both are the best
    assert "| *paper* | *12.3* | *-* |" in text
    assert "| b | **15.0** | 2.0 |" in text
    assert "| *c* | 99.0 | not here |" in text
    assert "a note" in text


def test_latex_is_booktabs_and_escapes() -> None:
    text = to_latex(TABLE)
    assert text.count(r"\begin{tabular}{lrr}") == text.count(r"\end{tabular}") == 1
    assert r"\toprule" in text
    assert r"50 \% of\_it" in text
    assert r"\textbf{15.0 $\pm$ 7.1}" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") - line.count(r"\&") for line in body} == {2}


def without_comments(text: str) -> str:
    """What TeX reads of a file: a line up to its first percent sign that is not escaped."""
    return "\n".join(re.split(r"(?<!\\)%", line)[0] for line in re.split(r"[\n\r]", text))


def test_no_line_break_leads_out_of_a_latex_comment_or_ends_a_paragraph() -> None:
    hostile = replace(
        TABLE, title="one\n\\input{title}", notes=["first\n\\input{note}\r\\input{more}", "\n\\input{last}"]
    )
    hostile.blocks = [replace(TABLE.blocks[0], caption="above\n\n\\input{caption}")]
    read = without_comments(to_latex(hostile))
    assert r"\input" not in read
    caption = next(line for line in read.splitlines() if line.startswith(r"\caption"))
    assert caption.endswith(r"above \textbackslash{}input\{caption\}.}")


def test_csv_has_every_number_unrounded() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert (rows[0]["row"], rows[0]["column"], float(rows[0]["mean"])) == ("a", "cora/label", 15.0)
    assert float(rows[0]["std"]) == stdev([10.0, 20.0])
    assert rows[0]["paper"] == "12.34"
    assert rows[-1]["text"] == "not here"


def test_a_minus_before_zero_is_not_shown() -> None:
    assert Entry((-0.001,)).shown() == "0.0"
