"""Rendering of the page as one self-contained file, including the plotting library."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from oddnode._utils.atomic_files import new_file
from oddnode.paper.webpage.encode import encode
from oddnode.paper.webpage.model import Page
from oddnode.paper.webpage.opening import choose_opening
from oddnode.paper.webpage.pairs import compare_pairs

__all__ = ["render", "write_html"]

# The parts of the page's script, in the order in which they run, inside one function.
_SCRIPTS = ("tools.js", "overview.js", "scores.js", "graph.js", "images.js", "tables.js", "page.js")


def write_html(page: Page, path: Path) -> Path:
    """Write the page atomically.

    Parameters
    ----------
    page : Page
        What to show.
    path : Path
        The file; one that was there is replaced.

    Returns
    -------
    Path
        The same path.
    """
    text = render(page)
    with new_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def render(page: Page) -> str:
    """Render the page as HTML that works from disk, without a network.

    Parameters
    ----------
    page : Page
        What to show. Every text in it is escaped.

    Raises
    ------
    RuntimeError
        Where the plotting library is not installed; the message says how to get it.
    """
    opening = choose_opening(page)
    return (
        _templates()
        .get_template("page.html")
        .render(
            title=page.title,
            notice=page.notice,
            description=opening.sentence if opening else "Which nodes of a graph does a model not know?",
            icon=_asset("icon.svg").strip(),
            opening=opening,
            pairs=compare_pairs(page.results),
            protocols=_protocols(page),
            facts=_facts(page),
            links={name: address for name, address in page.links.items() if address.startswith("https://")},
            css=_asset("page.css"),
            plotly=_packed_plotly(),
            data=_packed(json.dumps(encode(page), separators=(",", ":"), allow_nan=False)),
            script="\n".join(map(_asset, _SCRIPTS)),
        )
    )


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("oddnode.paper.webpage"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _packed(text: str) -> str:
    """Compress text to gzip in base64: a third of the size, and no characters that need escaping in HTML."""
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


def _protocols(page: Page) -> dict[str, str]:
    """What each protocol of the page is, in words."""
    from oddnode.protocols import PROTOCOLS  # imported here, because the page's data needs no torch

    used = dict.fromkeys([*(r.protocol for r in page.results), *(cell.protocol for cell in page.cells)])
    return {name: PROTOCOLS[name].summary for name in used if name in PROTOCOLS}


def _facts(page: Page) -> dict[str, Any]:
    """The conditions of the experiments, without empty ones."""
    seeds = sorted({r.seeds for r in page.results})
    facts = {
        "Protocol": " and ".join(f"{name} ({summary})" for name, summary in _protocols(page).items()),
        "Seeds": " to ".join(dict.fromkeys(str(n) for n in (seeds[:1] + seeds[-1:]))) if seeds else "none",
        "Spread": "the lowest and the highest seed, as bars in plots and as two numbers in tables",
        "Backbone": ", ".join(dict.fromkeys(r.backbone for r in page.results)),
        **page.terms,
    }
    return {name: value for name, value in facts.items() if value}
