from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from oddnode._utils.markdown import escape_markdown, pipe_table


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
