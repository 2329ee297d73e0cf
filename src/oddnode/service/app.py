"""The HTTP face of a state: routes, limits and problems."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException

from oddnode._version import __version__
from oddnode.service.batches import CSV, NDJSON, PARQUET, read_batch, write_answers
from oddnode.service.guard import Access, Guard, problem_body, problem_headers
from oddnode.service.metrics import Metrics
from oddnode.service.page import page_routes
from oddnode.service.requests import Change, ChangeAnswer, KeptRequest, Problem, QueryRequest, ScoreRequest, decoded
from oddnode.service.state import Event, State

_log = logging.getLogger("oddnode.service")
T = TypeVar("T")
_JSON = "application/json"
_MOST_KEY = 255
_MOST_LISTENERS = 100
# A listener that is this many events behind is disconnected; it may connect again.
_MOST_BEHIND = 1000

IdKind = Annotated[Literal["integer", "string"] | None, Query(description="The type of the id, where both exist.")]
Explain = Annotated[bool, Query(description="Say why in words.")]


@dataclass(frozen=True)
class Limits:
    """How much one request may ask."""

    body: int = 64 * 2**20  #: Bytes of a body.
    nodes: int = 50_000  #: Rows that the networks compute.
    edges: int = 500_000  #: Edges.
    ids: int = 1_000_000  #: Ids whose kept scores are asked.
    seconds: float = 30.0  #: How long a body may take to arrive.


def create_app(state: State, access: Access | None = None, limits: Limits | None = None) -> FastAPI:
    """Make the application that serves a state.

    Parameters
    ----------
    state : State
        Started, but not necessarily ready.
    access : Access, optional
        Who may do what; by default everybody on this machine everything.
    limits : Limits, optional
        How much one request may ask.
    """
    app = FastAPI(
        title="oddnode",
        version=__version__,
        description="Which nodes of a graph does a model not know?",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service, app.state.limits, app.state.metrics = state, limits or Limits(), Metrics(state)
    from oddnode.service.alert_routes import router as alerts  # which use the helpers below
    from oddnode.service.inference import router as inference
    from oddnode.service.openapi import document
    from oddnode.service.openapi import router as pages

    for router in (health, questions, changes, alerts, inference, pages):
        app.include_router(router)
    described = cache(lambda: document(app))
    app.openapi = described  # type: ignore[method-assign]
    app.router.routes.extend(page_routes())
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(Guard, access=access or Access(), metrics=app.state.metrics)
    return app


# --- problems ---


async def _on_problem(request: Request, problem: Any) -> Response:
    return Response(problem_body(problem), problem.status, problem_headers(problem))


async def _on_invalid(request: Request, error: Any) -> Response:
    errors = [{"field": ".".join(map(str, each["loc"])), "detail": each["msg"]} for each in error.errors()]
    text = "; ".join(f"{each['field']}: {each['detail']}" for each in errors)
    return await _on_problem(request, Problem(422, text, errors=errors))


async def _on_http_error(request: Request, error: Any) -> Response:
    text = {404: "there is nothing at this address", 405: f"this address has no {request.method}"}
    answer = await _on_problem(request, Problem(error.status_code, text.get(error.status_code, str(error.detail))))
    answer.headers.update(error.headers or {})
    return answer


# --- helpers of routes, also of those in other modules ---


def service(request: Request) -> State:
    """The state that answers a request."""
    return request.app.state.service


async def answer(future: Future[T]) -> T:
    """Wait for what the thread of the graph computes."""
    return await asyncio.wrap_future(future)


async def body_of(request: Request, *types: str) -> bytearray:
    """Read a body of one of some content types, within the limits of size and time."""
    limits: Limits = request.app.state.limits
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in types:
        raise Problem(415, f"the Content-Type is {kind[:100]!r}, expected {' or '.join(types)}", "content-type")
    too_large = Problem(413, f"the body has more than {limits.body} bytes; send it in parts", "too-large")
    length = request.headers.get("content-length", "0")
    if len(length) > 18 or (length.isdecimal() and int(length) > limits.body):
        raise too_large
    raw = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                raw += part
                if len(raw) > limits.body:
                    raise too_large
    except TimeoutError:
        raise Problem(408, f"the body took more than {limits.seconds:g} seconds to arrive", "slow") from None
    return raw


def check_size(what: str, count: int, most: int) -> None:
    """Raise a problem for more than a request may have."""
    if count > most:
        raise Problem(413, f"{what}: {count}, expected at most {most}; send them in parts", "too-large")


def as_json(raw: bytes, **headers: str) -> Response:
    """An answer that is JSON already."""
    return Response(raw, headers=headers, media_type=_JSON)


# --- health ---

health = APIRouter(tags=["health"])


@health.get("/healthz")
async def healthz(request: Request) -> Response:
    """Whether the process is well."""
    if service(request).failure is not None:
        raise Problem(503, "the graph could not be loaded; restart the service", "failed")
    return as_json(b'{"status":"ok"}')


@health.get("/readyz")
async def readyz(request: Request) -> Response:
    """Whether questions are answered."""
    reasons = service(request).reasons_not_ready()
    if reasons:
        raise Problem(503, "; ".join(reasons), "not-ready")
    return as_json(b'{"status":"ready"}')


@health.get("/metrics")
async def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4")


# --- questions ---

questions = APIRouter(prefix="/v1", tags=["questions"])


@questions.post("/score")
async def score(request: Request) -> Response:
    """Score arrivals; the graph does not change."""
    asked, limits = decoded(await body_of(request, _JSON), ScoreRequest), request.app.state.limits
    check_size("nodes", len(asked.nodes), limits.nodes)
    check_size("edges", len(asked.edges), limits.edges)
    state = service(request)
    return as_json(await answer(state.read(state.score, asked)))


@questions.post("/nodes/query")
async def query(request: Request) -> Response:
    """Score nodes of the graph as it is now."""
    asked = decoded(await body_of(request, _JSON), QueryRequest)
    check_size("ids", len(asked.ids), request.app.state.limits.nodes)
    state = service(request)
    return as_json(await answer(state.read(state.query, asked.ids, asked.explain)))


@questions.post("/nodes/scores")
async def kept(request: Request) -> Response:
    """Kept scores of many nodes; nothing is computed."""
    asked = decoded(await body_of(request, _JSON), KeptRequest)
    check_size("ids", len(asked.ids), request.app.state.limits.ids)
    state = service(request)
    return as_json(await answer(state.read(state.kept, asked.ids)))


@questions.post("/batches")
async def batches(
    request: Request,
    commit: Annotated[bool, Query(description="Add the rows to the graph.")] = False,
    explain: Explain = False,
    neighbours: Annotated[str, Query(description="The column with lists of neighbours.")] = "neighbours",
) -> Response:
    """Score or add many rows: NDJSON, CSV or Parquet in and out"""
    state, limits = service(request), request.app.state.limits
    if commit and not request.state.may_write:
        raise Problem(403, "this token allows reading only", "token")
    raw = await body_of(request, NDJSON, CSV, PARQUET)
    kind = request.headers["content-type"].partition(";")[0].strip().lower()
    target = _accepted(request.headers.get("accept", "*/*"), kind)
    schema, integers = await answer(state.read(state.form_of_rows))
    batch = await asyncio.to_thread(read_batch, raw, kind, schema, neighbours, integers, limits.nodes)
    check_size("edges", len(batch.edges), limits.edges)
    found: list[Any]
    if commit:
        asked = await asyncio.to_thread(batch.as_change, explain)
        made, _ = await answer(state.write(state.change, asked, _key_of(request)))
        found = decoded(made, ChangeAnswer).answers
    else:
        found = await answer(state.read(state.score_batch, batch, explain))
    return Response(await asyncio.to_thread(write_answers, found, target), media_type=target)


def _accepted(accept: str, kind: str) -> str:
    """The format that the client wants."""
    wanted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for each in wanted:
        if each in (NDJSON, CSV, PARQUET):
            return each
        if each in ("*/*", "", "text/*" if kind == CSV else "application/*"):
            return kind
    raise Problem(406, f"the Accept is {accept[:100]!r}, expected {NDJSON}, {CSV} or {PARQUET}")


@questions.get("/nodes/{id:path}")
async def node(request: Request, id: str, kind: IdKind = None, explain: Explain = False) -> Response:
    """A node: its row, neighbours and score."""
    state = service(request)
    return as_json(await answer(state.read(state.node, id, kind, explain)))


@questions.get("/neighbourhood/{id:path}")
async def neighbourhood(
    request: Request,
    id: str,
    kind: IdKind = None,
    hops: Annotated[int, Query(ge=0, le=4)] = 2,
    limit: Annotated[int, Query(ge=1, le=500)] = 60,
) -> Response:
    """Nodes around a node, for a picture."""
    state = service(request)
    return as_json(await answer(state.read(state.neighbourhood, id, kind, hops, limit)))


@questions.get("/arrivals")
async def arrivals(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    before: Annotated[int | None, Query(ge=1, le=2**62, description="Only changes before this version.")] = None,
    flagged: Annotated[bool | None, Query(description="Only flagged nodes, or only others.")] = None,
) -> Response:
    """Nodes that were added or changed, the newest first."""
    state = service(request)
    return as_json(await answer(state.read(state.arrivals, before, limit, flagged)))


@questions.get("/status")
async def status(request: Request) -> Response:
    """Facts about the model, the graph and the service."""
    state = service(request)
    return as_json(await answer(state.read(state.status)))


@questions.get("/events")
async def events(request: Request) -> Response:
    """What happens, as server-sent events."""
    state, loop = service(request), asyncio.get_running_loop()
    if state.num_subscribers >= _MOST_LISTENERS:
        raise Problem(503, f"{_MOST_LISTENERS} listeners are connected already", "busy")
    waiting: asyncio.Queue[Event | None] = asyncio.Queue()

    def put(event: Event) -> None:
        if waiting.qsize() < _MOST_BEHIND:
            waiting.put_nowait(event)
        elif waiting.qsize() == _MOST_BEHIND:
            waiting.put_nowait(None)

    def tell(event: Event) -> None:
        loop.call_soon_threadsafe(put, event)

    async def stream() -> AsyncIterator[ServerSentEvent]:
        while (event := await waiting.get()) is not None:
            yield ServerSentEvent(event.data.decode(), event=event.name)

    class Events(EventSourceResponse):
        async def __call__(self, *asgi: Any) -> None:
            stop = state.subscribe(tell)  # before the headers: who has those misses nothing
            try:
                await super().__call__(*asgi)
            finally:
                stop()

    return Events(stream())


# --- changes ---


def _key_of(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= _MOST_KEY:
        raise Problem(422, f"the Idempotency-Key has {len(key)} characters, expected 1 to {_MOST_KEY}")
    return key


changes = APIRouter(prefix="/v1", tags=["changes"])


@changes.post("/changes")
async def change(request: Request) -> Response:
    """Add, change and remove nodes and edges."""
    key = _key_of(request)
    asked, limits = decoded(await body_of(request, _JSON), Change), request.app.state.limits
    num_nodes = len(asked.add_nodes) + len(asked.change_nodes) + len(asked.remove_nodes)
    check_size("nodes", num_nodes, limits.nodes)
    check_size("edges", len(asked.add_edges) + len(asked.remove_edges), limits.edges)
    state = service(request)
    raw, was_made = await answer(state.write(state.change, asked, key))
    return as_json(raw, **{"idempotency-replayed": "true" if was_made else "false"})


@changes.post("/compactions", status_code=202)
async def compact(request: Request) -> Response:
    """Compute the scores of the whole graph anew, while the service goes on answering"""
    started = service(request).compact()
    return Response(b'{"started":true}' if started else b'{"started":false}', 202, media_type=_JSON)
