"""A stand-in for the Hugging Face Hub on this machine: it keeps every byte that it is sent, and gives files back."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c" * 40


class FakeHub:
    """The repositories, and everything that was received.

    ``files`` has the content of every repository by path, ``bodies`` the body of every request as it came.
    """

    def __init__(self, address: str):
        self.address = address
        self.files: dict[str, dict[str, bytes]] = {}
        self.created: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []

    def post(self, path: str, body: bytes) -> dict[str, Any] | None:
        self.bodies.append(body)
        if path == "/api/repos/create":
            asked = json.loads(body)
            self.created.append(asked)
            name = "/".join(filter(None, [asked.get("organization"), asked["name"]]))
            self.files.setdefault(name, {})
            return {"url": f"{self.address}/{name}", "name": name}
        if path == "/api/validate-yaml":
            return {"warnings": [], "errors": []}
        if match := re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            names = [file["path"] for file in json.loads(body)["files"]]
            return {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
        if match := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[match[1]][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            url = f"{self.address}/{match[1]}/commit/{COMMIT}"
            return {"success": True, "commitOid": COMMIT, "commitUrl": url, "hookOutput": ""}
        return None

    def get(self, path: str) -> Any:
        """JSON, or the content of a file; ``None`` for what is not there."""
        if match := re.fullmatch(r"/api/models/(.+?)(/revision/.+|/tree/.+)?", path):
            if match[1] not in self.files:
                return None
            names = self.files[match[1]]
            if match[2] and match[2].startswith("/tree/"):
                return [{"type": "file", "path": n, "size": len(raw), "oid": _oid(raw)} for n, raw in names.items()]
            return {"id": match[1], "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
        if match := re.fullmatch(r"/(.+)/resolve/[^/]+/(.+)", path):
            return self.files.get(match[1], {}).get(match[2])
        return None


def _oid(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:40]


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serve a hub that is empty at first."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, found: Any) -> None:
            answer = {"error": "Repository not found"} if found is None else found
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(404 if found is None else 200)
            if found is None:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", str(len(raw)))
            self.send_header("ETag", f'"{_oid(raw)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(raw)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.answer(hub.post(self.path.partition("?")[0], body))

        def do_GET(self) -> None:
            self.answer(hub.get(self.path.partition("?")[0]))

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = FakeHub(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
