"""Draws docs/images/architecture.svg: the packages, from the import contract in pyproject.toml.

    python docs/draw_architecture.py

Every layer of the contract is a row, the highest first; a package imports those below it. The text of a box is the
first sentence of the package's docstring. A test draws the picture again and compares.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "architecture.svg"

WIDTH, MARGIN, GAP = 880, 20, 10
TITLE, LINE, PADDING = 22, 17, 12

STYLE = """
  text { font-family: system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1d2733; }
  .name { font-size: 15px; font-weight: 600; }
  .purpose { font-size: 12.5px; fill: #46525f; }
  .side { font-size: 12.5px; fill: #6b7682; }
  rect { fill: #f5f8fb; stroke: #b9c6d3; }
  .core { fill: #e6f0fb; stroke: #7ea9d6; }
  .arrow { stroke: #9aa7b4; stroke-width: 1.5; fill: none; }
  .head { fill: #9aa7b4; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6ebf0; }
    .purpose { fill: #b3bec9; }
    .side { fill: #8b97a3; }
    rect { fill: #1b232c; stroke: #3b4856; }
    .core { fill: #1d3147; stroke: #41709f; }
  }
"""

#: The three parts of a detector, and the detector itself.
CORE = ("nn", "objectives", "scoring", "detector")


def layers() -> list[list[str]]:
    """The rows of the contract, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = [c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    return [[name.strip() for name in row.split("|")] for row in contract["layers"]]


def purpose(package: str) -> str:
    """The first sentence of a package's docstring."""
    path = ROOT / "src" / "oddnode" / package / "__init__.py"
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").replace("`", "")


def draw() -> str:
    """The picture as SVG."""
    top = MARGIN
    parts: list[str] = []
    inner = WIDTH - 2 * MARGIN - 40
    for row in layers():
        width = (inner - GAP * (len(row) - 1)) / len(row)
        wrapped = [textwrap.wrap(purpose(name), int((width - 2 * PADDING) / 6.3)) for name in row]
        height = 2 * PADDING + TITLE + LINE * max(map(len, wrapped)) - 6
        for place, (name, lines) in enumerate(zip(row, wrapped, strict=True)):
            parts += _box(MARGIN + place * (width + GAP), top, width, height, name, lines)
        top += height + GAP
    return _page(top - GAP + MARGIN, parts)


def _box(x: float, y: float, width: float, height: float, name: str, lines: list[str]) -> list[str]:
    kind = ' class="core"' if name in CORE else ""
    title = y + PADDING + 12
    drawn = [f'<rect{kind} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>']
    drawn.append(f'<text class="name" x="{x + PADDING:g}" y="{title:g}">{escape(name)}</text>')
    for number, line in enumerate(lines, 1):
        drawn.append(
            f'<text class="purpose" x="{x + PADDING:g}" y="{title + 3 + LINE * number:g}">{escape(line)}</text>'
        )
    return drawn


def _page(height: float, parts: list[str]) -> str:
    right = WIDTH - MARGIN - 14
    arrow = [
        f'<path class="arrow" d="M {right} {MARGIN + 8} V {height - MARGIN - 12:g}"/>',
        f'<path class="head" d="M {right - 5} {height - MARGIN - 13:g} h 10 l -5 9 z"/>',
        f'<text class="side" transform="translate({right + 16} {height / 2:g}) rotate(-90)" '
        'text-anchor="middle">imports go down, never up or sideways</text>',
    ]
    body = "\n  ".join([*parts, *arrow])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" role="img" aria-label="The packages of oddnode and what they may import">\n'
        f"  <style>{STYLE}  </style>\n  {body}\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    print(PICTURE)
