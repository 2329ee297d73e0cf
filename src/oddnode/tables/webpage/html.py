"""Rendering of the page: its data as compact JSON, and the values for its template."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from oddnode._utils.atomic_files import write_text
from oddnode._version import __version__
from oddnode.tables.webpage.model import ScorePage
from oddnode.webpage import KNOWN, OTHER, UNKNOWN, ArrayPool, Source, draw_picture, render_page

_SCRIPTS = ("tools.js", "tables.js", "rows.js")
# So many rows are listed, those with the lowest scores, and so many links of each are drawn.
_MOST_ROWS = 1000
_MOST_LINKS = 16
_MOST_SCORES = 200_000
_DRAWN = 260


def write_page(page: ScorePage, path: str | os.PathLike) -> Path:
    """Write the page as one self-contained file, atomically, and return its path.

    Parameters
    ----------
    page : ScorePage
        What to show. Every string in it is escaped.
    path : path
        The file; an existing one is replaced.
    """
    html = render_page(
        "oddnode.tables.webpage",
        _encoded(page),
        title="oddnode: rows that do not fit",
        description=page.headline,
        scripts=_SCRIPTS,
        page=page,
        written=datetime.now(UTC).strftime("%Y-%m-%d"),
        version=__version__,
    )
    return write_text(Path(path), html)


def _encoded(page: ScorePage) -> dict[str, Any]:
    pool, judged = ArrayPool(), page.judged
    # With a budget of each day, flagged rows need not be the oddest.
    listed = judged[np.lexsort((page.scores[judged], ~page.is_flagged[judged]))][:_MOST_ROWS]
    listed = listed[np.argsort(page.scores[listed], kind="stable")]
    drawn, links = _links_around(page, listed)
    finding = np.zeros(len(page.ids), dtype=np.int64)
    for group in page.findings:
        finding[list(group.rows)] = group.number
    calibration = page.calibration
    weights = np.ones(len(calibration.scores)) if calibration.weights is None else calibration.weights.numpy()
    rates = np.cumsum(weights) / (weights.sum() + weights)
    rng = np.random.default_rng(0)
    sample = rng.permutation(judged)[:_MOST_SCORES]
    return {
        "arrays": pool.arrays,
        "rows": page.rows,
        "threshold": page.threshold,
        "total": len(judged),
        "listed": len(listed),
        "numFlagged": page.num_flagged,
        "rate": page.false_alarm_rate,
        "known": pool.add(calibration.scores.numpy().astype(np.float32)),
        # Of a known row, the probability to score below each of these, and the share of known rows that it stands for.
        "rates": pool.add(rates.astype(np.float32)),
        "shares": pool.add((weights / weights.sum()).astype(np.float32)),
        "scores": pool.add(np.sort(page.scores[sample]).astype(np.float32)),
        "nodes": [
            {
                "id": page.ids[row],
                "score": None if np.isnan(page.scores[row]) else float(page.scores[row]),
                "label": page.predicted[row],
                "flagged": bool(page.is_flagged[row]),
                "new": bool(page.is_new[row]),
                "finding": int(finding[row]),
                "why": page.why.get(row, ""),
            }
            for row in drawn.tolist()
        ],
        "from": pool.add(links[0]),
        "to": pool.add(links[1]),
        "degree": pool.add(np.bincount(page.edges[1], minlength=len(page.ids))[drawn]),
        "picture": _picture(page, pool),
    }


def _links_around(page: ScorePage, listed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The listed rows, some that they are linked to, flagged ones first, and the links between all these."""
    source, target = page.edges[:, page.edges[0] != page.edges[1]]
    chosen = np.isin(target, listed)
    source, target = source[chosen], target[chosen]
    order = np.lexsort((source, ~page.is_flagged[source], target))
    source, target = source[order], target[order]
    rank = np.arange(len(target)) - np.searchsorted(target, target)  # of each link among those of its row
    near = np.setdiff1d(source[rank < _MOST_LINKS], listed)
    drawn = np.concatenate([listed, near])
    place = np.full(len(page.ids), -1)
    place[drawn] = np.arange(len(drawn))
    ends = place[page.edges]
    ends = ends[:, (ends >= 0).all(axis=0) & (ends[0] != ends[1])]
    return drawn, np.unique(np.sort(ends, axis=0), axis=1)


def _picture(page: ScorePage, pool: ArrayPool) -> dict[str, Any]:
    """A part of the graph, with flagged and other judged rows."""
    kind = np.full(len(page.ids), OTHER)
    kind[page.judged] = KNOWN
    kind[page.judged[page.is_flagged[page.judged]]] = UNKNOWN
    source = Source("", page.edges, kind, kind, {}, {})
    drawn = draw_picture([source], _DRAWN)
    place = np.round(1000 * drawn.place).astype(np.int64)
    arrays = {"x": place[:, 0], "y": place[:, 1], "kind": drawn.kind, "from": drawn.edges[0], "to": drawn.edges[1]}
    return {name: pool.add(array) for name, array in arrays.items()}
