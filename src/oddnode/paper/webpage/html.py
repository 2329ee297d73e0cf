"""Puts the page together: one file with everything in it, plotting library included."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path

from oddnode._utils.atomic_files import new_file
from oddnode.paper.webpage.encode import encode
from oddnode.paper.webpage.headline import Headline, headlines
from oddnode.paper.webpage.model import Page
from oddnode.protocols import PROTOCOLS

__all__ = ["render", "write_html"]


def write_html(page: Page, path: Path) -> Path:
    """Write the page, whole or not at all."""
    text = render(page)
    with new_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def render(page: Page) -> str:
    """The page as HTML that opens from disk and asks the network for nothing."""
    parts = {
        "TITLE": escape(page.title),
        "HEADLINE": _headline_html(page),
        "TERMS": _terms_html(page),
        "CSS": _asset("page.css"),
        "PLOTLY": _packed_plotly(),
        "DATA": _packed(json.dumps(encode(page), separators=(",", ":"), allow_nan=False)),
        "SCRIPT": _asset("page.js"),
    }
    pieces = _asset("page.html").split("@@")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _packed(text: str) -> str:
    """Text as gzip in base64: a third of the size, and nothing in it that HTML could trip over."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


@cache
def _packed_plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise RuntimeError("the report needs plotly; install it with: pip install 'oddnode[report]'") from None
    return _packed(get_plotlyjs())


def _asset(name: str) -> str:
    return resources.files("oddnode.paper.webpage").joinpath(f"assets/{name}").read_text(encoding="utf-8")


def _headline_html(page: Page) -> str:
    notice = f'<p class="notice">{escape(page.notice)}</p>' if page.notice else ""
    found = headlines(page.results)
    if not found:
        return f"<h1>Which nodes does a model not know?</h1>{notice}"
    first = found[0]
    lead = f'<h1>{escape(first.sentence)}</h1><p class="lead">{escape(f"{first.terms} {first.comparison}")}</p>'
    return lead + notice + (_pairs_html(found) if len(found) > 1 else "")


def _pairs_html(found: Sequence[Headline]) -> str:
    """All pairs under all protocols, as a small table."""
    printed = any(line.printed is not None for line in found)
    head = ["mean FPR95 ↓, percent", "protocol", "NODESAFE", "GNNSafe", "better in"]
    head += ["paper: NODESAFE", "paper: GNNSafe"] if printed else []
    rows = []
    for line in found:
        kind = "with exposure (++)" if line.method.endswith("++") else "without exposure"
        cells = [kind, line.protocol, *(f"{n:.1f}" for n in line.ours), f"{line.wins} of {line.cells}"]
        cells += ["-" if line.printed is None else f"{line.printed[i]:.1f}" for i in range(2) if printed]
        marks = [f"<td{_NUMBER if i > 1 else ''}>{_strong(escape(c), i == 2)}</td>" for i, c in enumerate(cells)]
        rows.append(f"<tr>{''.join(marks)}</tr>")
    titles = "".join(f'<th scope="col"{_NUMBER if i > 1 else ""}>{escape(title)}</th>' for i, title in enumerate(head))
    table = f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll pairs" tabindex="0" role="region" aria-label="Pairs of methods">{table}</div>'


_NUMBER = ' class="num"'


def _strong(text: str, wanted: bool) -> str:
    return f"<b>{text}</b>" if wanted else text


def _terms_html(page: Page) -> str:
    protocols = dict.fromkeys(r.protocol for r in page.results)
    seeds = sorted({r.seeds for r in page.results})
    facts = {
        "Protocol": " and ".join(f"{name} ({PROTOCOLS[name].summary})" for name in protocols if name in PROTOCOLS),
        "Seeds": " to ".join(dict.fromkeys(str(n) for n in (seeds[:1] + seeds[-1:]))) if seeds else "none",
        "Spread": "standard deviation over the seeds, shown as ±; bars in plots are one of it to each side",
        "Backbone": ", ".join(dict.fromkeys(r.backbone for r in page.results)),
        **page.terms,
    }
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in facts.items() if v)
    return f"<dl>{rows}</dl>"
