from __future__ import annotations

import pytest

from oddnode._utils.latex import booktabs_table, escape_latex, latex_comment


def test_every_special_letter_is_escaped() -> None:
    assert escape_latex(r"a_b & 5 % $x$ #1 {y} ~ ^ \z") == (
        r"a\_b \& 5 \% \$x\$ \#1 \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )
    assert escape_latex("one\n\ntwo") == "one two"


def test_no_line_of_a_comment_escapes_from_it() -> None:
    assert latex_comment("a\nb\rc").splitlines() == ["% a", "% b", "% c"]


@pytest.mark.parametrize(("columns", "kind"), [(2, "table"), (5, "table"), (6, "table*")])
def test_a_wide_table_spans_the_page(columns: int, kind: str) -> None:
    text = booktabs_table("50 %", "tab:x", [f"c_{i}" for i in range(columns)], [r"a & b \\"])
    assert text.splitlines()[0] == rf"\begin{{{kind}}}"
    assert text.rstrip().endswith(rf"\end{{{kind}}}")
    assert rf"\begin{{tabular}}{{l{'r' * columns}}}" in text
    assert ("resizebox" in text) == (kind == "table*")
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert r"\caption{50 \%.}" in text
