"""The live page at ``/``: a template and static files from this package, none of which holds data.

The page asks the service for everything else, as any other client does, with the token that its user types in. It
shares its colours and its icon with the reports (`oddnode.webpage`).

May import: webpage.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

#: What the page may do: load its own files, talk to its own server, and never make markup from text.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_SHARED = ("base.css", "icon.svg")


class _Files(NamedTuple):
    page: bytes
    assets: dict[str, bytes]
    version: str  # A hash of all of them: modules import each other by name, so that they change together.


@cache
def _files() -> _Files:
    shared, own = (resources.files(f"oddnode.{package}") / "assets" for package in ("webpage", "service.page"))
    found = {name: (shared / name).read_bytes() for name in _SHARED}
    found |= {file.name: file.read_bytes() for file in own.iterdir() if file.name.rpartition(".")[2] in _TYPES}
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(name.encode() + b"\0" + found[name] + b"\0")
    version = digest.hexdigest()[:16]
    environment = Environment(loader=PackageLoader("oddnode.service.page"), autoescape=True, undefined=StrictUndefined)
    page = environment.get_template("live.html").render(assets=f"assets/{version}")
    return _Files(page.encode(), found, version)


def _response(request: Request, body: bytes, media_type: str, cache_control: str) -> Response:
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": cache_control, "X-Content-Type-Options": "nosniff"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


async def _page(request: Request) -> Response:
    answer = _response(request, _files().page, "text/html", "no-cache")
    answer.headers["Content-Security-Policy"] = CSP
    answer.headers["Referrer-Policy"] = "no-referrer"
    return answer


async def _asset(request: Request) -> Response:
    files, name = _files(), request.path_params["name"]
    if request.path_params["version"] != files.version or name not in files.assets:
        return PlainTextResponse("There is no such file; load the page again.", status_code=404)
    media_type = _TYPES[name.rpartition(".")[2]]
    return _response(request, files.assets[name], media_type, "public, max-age=31536000, immutable")


def page_routes() -> list[Route]:
    """The routes of the page and of its files; they need no token."""
    return [Route("/", _page), Route("/assets/{version}/{name}", _asset)]
