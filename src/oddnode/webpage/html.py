"""Rendering of a page as one self-contained file, and the encoding of its arrays."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

_PACKAGE = "oddnode.webpage"


def render_page(
    package: str,
    data: Mapping[str, Any],
    *,
    title: str,
    description: str,
    scripts: Sequence[str],
    template: str = "page.html",
    links: Mapping[str, str] | None = None,
    **content: Any,
) -> str:
    """Render a template as HTML; every string in the data and the content is escaped.

    Templates and scripts are those of ``package`` or of this one. ``links`` appear at the end of the page; addresses
    that do not begin with ``https://`` are left out.
    """
    return (
        templates(package)
        .get_template(template)
        .render(
            title=title,
            description=description,
            icon=_asset(package, "icon.svg").strip(),
            links={name: address for name, address in (links or {}).items() if address.startswith("https://")},
            css=_asset(package, "base.css"),
            plotly=packed_plotly(),
            data=_packed(json.dumps(data, separators=(",", ":"), allow_nan=False)),
            script="\n".join(_asset(package, name) for name in scripts),
            **content,
        )
    )


@cache
def templates(package: str) -> Environment:
    """The templates of a package and of this one."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(_PACKAGE)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _asset(package: str, name: str) -> str:
    files = (resources.files(home).joinpath(f"assets/{name}") for home in (package, _PACKAGE))
    return next(file for file in files if file.is_file()).read_text(encoding="utf-8")


def _packed(text: str) -> str:
    """Compress text to gzip in base64: a third of the size, and no characters that need escaping in HTML."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


@cache
def packed_plotly() -> str:
    """The plotting library."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise RuntimeError("the report needs plotly; install it with: pip install 'oddnode[report]'") from None
    return _packed(get_plotlyjs())


class ArrayPool:
    """Numbered arrays without duplicates. Floats become 32-bit, integers the smallest type that fits."""

    def __init__(self) -> None:
        self.arrays: list[list[str]] = []
        self._known: dict[tuple[str, bytes], int] = {}

    def add(self, array: np.ndarray) -> int:
        """Store an array and return its number."""
        array = np.ascontiguousarray(array)
        kind = "f4" if array.dtype.kind == "f" else _smallest(array)
        raw = array.astype(f"<{kind}").tobytes()
        if (kind, raw) not in self._known:
            self._known[kind, raw] = len(self.arrays)
            self.arrays.append([kind, base64.b64encode(raw).decode("ascii")])
        return self._known[kind, raw]


def _smallest(array: np.ndarray) -> str:
    for kind in ("i1", "i2"):
        limits = np.iinfo(kind)
        if array.size == 0 or (array.min() >= limits.min and array.max() <= limits.max):
            return kind
    return "i4"
