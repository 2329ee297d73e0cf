"""What can be asked, as an OpenAPI document with examples, and as a page without scripts."""

from __future__ import annotations

import html
import json
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from msgspec import Struct

from oddnode.service import alert_routes as alerts
from oddnode.service import inference
from oddnode.service.batches import CSV, NDJSON, PARQUET
from oddnode.service.requests import (
    Answers,
    Arrivals,
    Change,
    ChangeAnswer,
    KeptAnswers,
    KeptRequest,
    NeighbourhoodAnswer,
    NodeAnswer,
    NodeAnswers,
    QueryRequest,
    ScoreRequest,
)

router = APIRouter(include_in_schema=False)
_JSON = "application/json"
_STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
  color-scheme: light dark; }
pre { overflow: auto; padding: .75rem; border: 1px solid #8886; border-radius: 6px; }
h2 { margin-top: 3rem; } h3 code { font-size: 1.1em; } td { padding-right: 1.5rem; vertical-align: top; }
"""


class ProblemBody(Struct):
    """An error (RFC 9457)."""

    type: str  #: ``about:blank``, or ``urn:oddnode:`` and the kind of problem.
    title: str
    status: int
    detail: str  #: What was found, what was expected and what to do.
    errors: list[dict[str, str]] = []  #: Fields with something wrong.


class _Body(NamedTuple):
    asked: Any
    answered: Any
    example: dict[str, Any] | None = None


_ROW = {"id": "new", "x": [0.5, 0.0, 1.0]}
_BODIES = {
    ("post", "/v1/score"): _Body(ScoreRequest, Answers, {"nodes": [_ROW], "edges": [["new", "a"]], "explain": True}),
    ("post", "/v1/nodes/query"): _Body(QueryRequest, NodeAnswers, {"ids": ["a", "b"], "explain": True}),
    ("post", "/v1/nodes/scores"): _Body(KeptRequest, KeptAnswers, {"ids": ["a", "b", 3]}),
    ("post", "/v1/changes"): _Body(Change, ChangeAnswer, {"add_nodes": [_ROW], "add_edges": [["new", "a"]]}),
    ("get", "/v1/nodes/{id}"): _Body(None, NodeAnswer),
    ("get", "/v1/neighbourhood/{id}"): _Body(None, NeighbourhoodAnswer),
    ("get", "/v1/arrivals"): _Body(None, Arrivals),
    ("post", "/v1/alerts/{number}/feedback"): _Body(
        alerts.FeedbackRequest, alerts.Feedback, {"verdict": "known", "note": "a new shop of ours"}
    ),
    ("post", "/v1/draws"): _Body(alerts.DrawRequest, None, {"n": 100}),
    ("post", "/v1/replay"): _Body(alerts.ReplayRequest, None, {"since": 0}),
    ("post", "/v2/models/{name}/infer"): _Body(
        inference.Inference,
        None,
        {"inputs": [{"name": "id", "shape": [1], "datatype": "BYTES", "data": ["a"]}]},
    ),
}
_TYPES = {"/metrics": "text/plain", "/v1/events": "text/event-stream", "/v1/alerts/{number}/page": "text/html"}
_ANY_TYPE = ("/v1/alerts/export", "/v1/feedback/export", "/v1/batches")


def document(app: FastAPI) -> dict[str, Any]:
    """Describe everything that an application answers.

    Parameters
    ----------
    app : FastAPI
        The application.
    """
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    kinds = [kind for body in _BODIES.values() for kind in body[:2] if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [*kinds, ProblemBody], ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip([*kinds, ProblemBody], schemas, strict=True))
    found["components"] = {
        "schemas": components,
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    }
    found["security"] = [{}, {"token": []}]
    paths = {}
    for path, operations in found["paths"].items():
        paths[path.replace(":path}", "}")] = operations
        for method, operation in operations.items():
            _describe(operation, method, path.replace(":path}", "}"), schema_of)
    return found | {"paths": paths}


def _describe(operation: dict[str, Any], method: str, path: str, schema_of: dict[Any, Any]) -> None:
    """Complete what FastAPI knows of an operation: it has no body, and its answers have no type."""
    operation["summary"] = operation.pop("description", operation["summary"]).partition("\n")[0].rstrip(".")
    body = _BODIES.get((method, path), _Body(None, None))
    answered = {} if body.answered is None else schema_of[body.answered]
    content: dict[str, Any] = {_TYPES.get(path, _JSON): {"schema": answered}}
    if path in _ANY_TYPE:
        content = {kind: {} for kind in (NDJSON, CSV, PARQUET, _JSON)}
    problem = {"content": {"application/problem+json": {"schema": schema_of[ProblemBody]}}}
    status = next(each for each in operation["responses"] if each.startswith("2"))
    operation["responses"] = {
        status: {"description": "The answer", "content": content},
        "4XX": {"description": "What is wrong with the request", **problem},
        "5XX": {"description": "Why it cannot be answered now", **problem},
    }
    if body.asked is not None:
        described = {"schema": schema_of[body.asked], "example": body.example}
        operation["requestBody"] = {"required": True, "content": {_JSON: described}}
    elif path == "/v1/batches":
        lines = {"schema": {"type": "string"}, "example": json.dumps(_ROW | {"neighbours": ["a", "b"]})}
        binary = {"schema": {"type": "string", "format": "binary"}}
        content = {NDJSON: lines, CSV: {"schema": {"type": "string"}}, PARQUET: binary}
        operation["requestBody"] = {"required": True, "content": content}
    if path in ("/v1/changes", "/v1/batches"):
        key = {"type": "string", "minLength": 1, "maxLength": 255}
        text = "A second change with the same key is not made, but answered as the first."
        header = {"name": "Idempotency-Key", "in": "header", "schema": key, "description": text}
        operation.setdefault("parameters", []).append(header)


@router.get("/docs")
async def page(request: Request) -> Response:
    """What can be asked, to read"""
    return Response(_page(request.app.openapi()), media_type="text/html; charset=utf-8")


@router.get("/docs/style.css")
async def style(request: Request) -> Response:
    """How the page looks"""
    return Response(_STYLE, media_type="text/css")


def _page(found: dict[str, Any]) -> str:
    tags: dict[str, list[str]] = {}
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation.get("tags", ["others"])[0], []).append(_section(path, method, operation))
    info, escape = found["info"], html.escape
    parts = "".join(f"<h2>{escape(tag)}</h2>{''.join(sections)}" for tag, sections in tags.items())
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/docs/style.css"></head>'
        f"<body><h1>{title}</h1><p>{escape(info['description'])} Errors are problems as in RFC 9457. The same as a "
        f'document for programs: <a href="/openapi.json">openapi.json</a>.</p>{parts}</body></html>'
    )


def _section(path: str, method: str, operation: dict[str, Any]) -> str:
    escape = html.escape
    text = f"<h3><code>{method.upper()} {escape(path)}</code></h3><p>{escape(operation['summary'])}.</p>"
    rows = [
        f"<tr><td><code>{escape(each['name'])}</code></td><td>in the {each['in']}</td>"
        f"<td>{escape(each.get('description', ''))}</td></tr>"
        for each in operation.get("parameters", [])
    ]
    text += f"<table>{''.join(rows)}</table>" if rows else ""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        example = content.get("example")
        if example is not None:
            shown = example if isinstance(example, str) else json.dumps(example, indent=2)
            text += f"<p>{escape(kind)}</p><pre>{escape(shown)}</pre>"
    return text
