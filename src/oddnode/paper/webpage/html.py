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
from oddnode.paper.webpage.headline import headlines
from oddnode.paper.webpage.model import Page

__all__ = ["render", "write_html"]


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
    return (
        _templates()
        .get_template("page.html")
        .render(
            title=page.title,
            notice=page.notice,
            headlines=headlines(page.results),
            facts=_facts(page),
            css=_asset("page.css"),
            plotly=_packed_plotly(),
            data=_packed(json.dumps(encode(page), separators=(",", ":"), allow_nan=False)),
            script=_asset("page.js"),
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


def _facts(page: Page) -> dict[str, Any]:
    """The conditions of the experiments, without empty ones."""
    from oddnode.protocols import PROTOCOLS  # imported here, because the page's data needs no torch

    protocols = dict.fromkeys(r.protocol for r in page.results)
    seeds = sorted({r.seeds for r in page.results})
    facts = {
        "Protocol": " and ".join(f"{name} ({PROTOCOLS[name].summary})" for name in protocols if name in PROTOCOLS),
        "Seeds": " to ".join(dict.fromkeys(str(n) for n in (seeds[:1] + seeds[-1:]))) if seeds else "none",
        "Spread": "standard deviation over the seeds, shown as ±; bars in plots are one of it to each side",
        "Backbone": ", ".join(dict.fromkeys(r.backbone for r in page.results)),
        **page.terms,
    }
    return {name: value for name, value in facts.items() if value}
