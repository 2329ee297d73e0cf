"""A table as data, and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from oddnode._utils.result_tables import (
    Entry,
    Grid,
    Row,
    Table,
    escape_latex,
    escape_markdown,
    latex_comment,
    pipe_table,
)

TABLE = Table(
    "t",
    "A title",
    [
        Grid(
            "FPR95 ↓",
            ("cora/label", "50 % of_it"),
            (
                Row("a", (Entry((10.0, 20.0), paper=12.34), Entry((1.0,))), group="no"),
                Row("b", (Entry((15.02,)), Entry((2.0,))), group="no"),
                Row("c", (Entry((99.0,)), Entry(text="not here")), model_free=True),
            ),
            "the caption",
            "clean",
        )
    ],
    ["a note"],
    "Table 9",
)


def test_markdown_has_spread_paper_and_the_best_in_bold() -> None:
    text = TABLE.to_markdown()
    assert "| a | **15.0 ± 7.1** | **1.0** |" in text  # shown as 15.0 both, so both are the best
    assert "| *paper* | *12.3* | *-* |" in text
    assert "| b | **15.0** | 2.0 |" in text
    assert "| *c* | 99.0 | not here |" in text
    assert "a note" in text
    assert Entry((-0.001,)).shown() == "0.0"  # no minus before zero


def test_latex_is_booktabs_and_escapes() -> None:
    text = TABLE.to_latex()
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
    hostile.grids = [replace(TABLE.grids[0], caption="above\n\n\\input{caption}")]
    read = without_comments(hostile.to_latex())
    assert r"\input" not in read
    caption = next(line for line in read.splitlines() if line.startswith(r"\caption"))
    assert caption.endswith(r"above \textbackslash{}input\{caption\}.}")


def test_csv_has_every_number_unrounded() -> None:
    rows = list(csv.DictReader(io.StringIO(TABLE.to_csv())))
    assert (rows[0]["row"], rows[0]["column"], float(rows[0]["mean"])) == ("a", "cora/label", 15.0)
    assert float(rows[0]["std"]) == stdev([10.0, 20.0])
    assert rows[0]["paper"] == "12.34"
    assert rows[-1]["text"] == "not here"


def test_a_page_gets_the_mean_the_ends_and_the_printed_number() -> None:
    [grid] = TABLE.as_json()["grids"]
    assert grid["title"] == "FPR95 ↓, protocol clean"
    assert grid["rows"][0] == ["a", [15.0, 10.0, 20.0, 12.34, 1], [1.0, None, None, None, 1]]
    assert grid["rows"][2][2] == "not here"
    assert Entry((float("nan"),)).as_json() is None


def test_every_special_letter_is_escaped() -> None:
    assert escape_latex(r"a_b & 5 % $x$ #1 {y} ~ ^ \z") == (
        r"a\_b \& 5 \% \$x\$ \#1 \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )
    assert escape_latex("one\n\ntwo") == "one two"
    assert latex_comment("a\nb\rc").splitlines() == ["% a", "% b", "% c"]


@pytest.mark.parametrize(("columns", "kind"), [(2, "table"), (5, "table"), (6, "table*")])
def test_a_wide_latex_table_spans_the_page(columns: int, kind: str) -> None:
    text = Grid("", tuple(f"c_{i}" for i in range(columns)), ()).to_latex("50 %", "tab:x")
    assert text.splitlines()[0] == rf"\begin{{{kind}}}"
    assert text.rstrip().endswith(rf"\end{{{kind}}}")
    assert rf"\begin{{tabular}}{{l{'r' * columns}}}" in text
    assert ("resizebox" in text) == (kind == "table*")
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert r"\caption{50 \%.}" in text


def test_a_bar_or_a_line_break_does_not_end_a_cell() -> None:
    html = MarkdownIt("gfm-like", {"linkify": False}).render(pipe_table(["a", "b"], [["x|y\nz", "**2**"]]))
    assert "<td>x|y z</td>" in html
    assert "<td><strong>2</strong></td>" in html
    assert html.count("<td>") == 2


@given(st.text(st.characters(codec="ascii"), max_size=40))
def test_escaped_text_is_read_as_it_is(text: str) -> None:
    shown = " ".join(text.split())
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(f"error: {escape_markdown(text)}")
    [inline] = (token for token in tokens if token.type == "inline")
    assert inline.children is not None
    # A zero byte cannot stand in Markdown: readers put U+FFFD in its place.
    assert "".join(child.content for child in inline.children) == f"error: {shown}".strip().replace("\0", "\ufffd")
