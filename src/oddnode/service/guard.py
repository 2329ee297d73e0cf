"""What every request passes first: host, origin, token, request id, headers of the answer, and counting."""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.requests import ClientDisconnect

from oddnode.service.metrics import Metrics
from oddnode.service.requests import Problem

_log = logging.getLogger("oddnode.service")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Without data: they say whether the process is well, or how to ask.
_OPEN = ("/", "/healthz", "/readyz", "/docs", "/docs/style.css", "/openapi.json", "/v2/health/live", "/v2/health/ready")
_OPEN_FOLDERS = ("/assets/",)
# These take a body, but change nothing; a batch that is committed asks for the other token itself.
_READING_POSTS = ("/v1/score", "/v1/nodes/query", "/v1/nodes/scores", "/v1/batches", "/v1/replay")
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_SAFE = ("GET", "HEAD", "OPTIONS")
_TITLES = {
    400: "Bad request",
    401: "A token is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Another method is needed",
    406: "No such format",
    408: "The body came too slowly",
    409: "Conflict",
    413: "Too large",
    415: "No such format",
    422: "The request does not fit",
    500: "A fault of the service",
    503: "Not now",
    507: "No room",
}


@dataclass(frozen=True)
class Access:
    """Who may do what."""

    #: With it everything is allowed. Without one, everybody who reaches the port may do everything.
    token: str | None = None
    read_token: str | None = None  #: With it everything is allowed that changes nothing.
    hosts: Sequence[str] = LOOPBACK  #: The names under which the service is asked, without ports; empty = any.

    def __post_init__(self) -> None:
        if self.read_token is not None and self.token is None:
            raise ValueError("ODDNODE_READ_TOKEN is set, but not ODDNODE_TOKEN, so that anybody could write; set both")
        if self.token is None and not self.hosts:
            raise ValueError("without a token the service answers to names of this machine only; set ODDNODE_TOKEN")
        for token in (self.token, self.read_token):
            if token is not None and len(token) < 16:
                raise ValueError(
                    f"a token has {len(token)} characters, expected 16 or more, for example from `openssl rand -hex 24`"
                )

    def check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse other names: a page in a browser could otherwise ask under a name of its own (DNS rebinding)."""
        name = _host_name(headers.get(b"host", b"").decode("latin-1"))
        if self.hosts and name not in self.hosts:
            raise Problem(
                403, f"the service does not answer to the host {name[:100]!r}; start it with --allowed-host", "host"
            )

    def check_origin(self, method: str, headers: dict[bytes, bytes]) -> None:
        """Refuse what a page of another site sends."""
        if method in _SAFE:
            return
        origin, host = headers.get(b"origin"), headers.get(b"host", b"").decode("latin-1")
        is_other = origin is not None and origin.decode("latin-1").partition("://")[2].lower() != host.lower()
        if is_other or headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            raise Problem(403, "the request comes from a page of another site", "origin")

    def may_write(self, headers: dict[bytes, bytes], method: str, path: str) -> bool:
        """Check the token; whether it allows changes."""
        if self.token is None:
            return True
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        given = given.strip() if scheme.lower() == b"bearer" else b""
        writes = hmac.compare_digest(given, self.token.encode())
        reads = writes or (self.read_token is not None and hmac.compare_digest(given, self.read_token.encode()))
        if not reads and path not in _OPEN and not path.startswith(_OPEN_FOLDERS):
            raise Problem(401, "give a token: Authorization: Bearer ...", "token")
        is_reading = method in _SAFE or path in _READING_POSTS or path.endswith("/infer")
        if not writes and not is_reading:
            raise Problem(403, "this token allows reading only", "token")
        return writes


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: Any, access: Access, metrics: Metrics):
        self.app, self.access, self.metrics = app, access, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16).encode()
        scope.setdefault("state", {})
        status, start = 0, time.perf_counter()

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in own]
                message["headers"] = [*message["headers"], *more, (b"x-request-id", request_id)]
            await send(message)

        self.metrics.in_progress.inc()
        try:
            try:
                self.access.check_host(headers)
                self.access.check_origin(scope["method"], headers)
                scope["state"]["may_write"] = self.access.may_write(headers, scope["method"], scope["path"])
            except Problem as problem:
                await send_problem(problem, send_with_headers)
            else:
                await self.app(scope, receive, send_with_headers)
        except ClientDisconnect:
            pass  # nobody is there to be told
        except Exception:
            _log.exception("request %s failed", request_id.decode())
            if not status:
                detail = f"the server's log has the cause, under the request id {request_id.decode()}"
                await send_problem(Problem(500, detail), send_with_headers)
        finally:
            self.metrics.in_progress.dec()
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.count(route, scope["method"], status, time.perf_counter() - start)


def problem_body(problem: Problem) -> bytes:
    """A problem as RFC 9457 has it."""
    body: dict[str, Any] = {
        "type": f"urn:oddnode:{problem.kind}" if problem.kind else "about:blank",
        "title": _TITLES.get(problem.status, "Error"),
        "status": problem.status,
        "detail": problem.detail,
    }
    return msgspec.json.encode(body | ({"errors": problem.errors} if problem.errors else {}))


def problem_headers(problem: Problem) -> dict[str, str]:
    """The headers of a problem."""
    more = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(problem.status, {})
    return {"content-type": "application/problem+json", **more}


async def send_problem(problem: Problem, send: Send) -> None:
    """Send a problem as the answer."""
    body = problem_body(problem)
    headers = [(name.encode(), value.encode()) for name, value in problem_headers(problem).items()]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _host_name(text: str) -> str:
    """The name of a Host header, without the port."""
    try:
        return (urlsplit(f"//{text}").hostname or "").lower()
    except ValueError:
        return ""
