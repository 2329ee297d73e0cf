"""A client of `oddnode serve` in one file that needs the standard library only: copy it where you need it.

from client import Client

service = Client("http://127.0.0.1:8080", token="...")
answer = service.score([{"id": "new", "price": 12.5}], [["new", "p17"]])["answers"][0]
if answer["is_ood"]:
    print(answer["reason"])
"""

from __future__ import annotations

import http.client
import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

_AGAIN = (429, 503)


class ServiceError(Exception):
    """What the service has refused.

    Parameters
    ----------
    status : int
        The HTTP status.
    problem : mapping
        The body of the answer, as RFC 9457 has it: ``type``, ``title``, ``detail``, and perhaps ``errors``.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]):
        super().__init__(f"{status}: {problem.get('detail') or problem.get('title')}")
        self.status, self.problem = status, dict(problem)


class Client:
    """Asks a service. Not for several threads at once: make a client for each.

    Parameters
    ----------
    address : str
        Such as ``http://127.0.0.1:8080``.
    token : str, optional
        The token, if the service wants one.
    timeout : float
        Seconds to wait for an answer.
    tries : int
        How often a request is sent, if the service is busy or the connection breaks. Changes have a key, so that none
        is made twice.
    """

    def __init__(self, address: str, token: str | None = None, timeout: float = 60.0, tries: int = 5):
        self._address, self._timeout, self._tries = urlsplit(address), timeout, tries
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None

    def score(self, nodes: list[dict[str, Any]], edges: Iterable[Any] = (), explain: bool = False) -> dict[str, Any]:
        """Score arrivals; the graph does not change.

        Parameters
        ----------
        nodes : list of dict
            A row each.
        edges : iterable
            ``(source, target)`` or ``(source, target, weight)``.
        explain : bool
            Whether to say why in words.
        """
        return self._json("POST", "/v1/score", {"nodes": nodes, "edges": list(edges), "explain": explain})

    def query(self, ids: list[int | str], explain: bool = False) -> dict[str, Any]:
        """Score nodes of the graph as it is now.

        Parameters
        ----------
        ids : list of int or str
            Their ids.
        explain : bool
            Whether to say why in words.
        """
        return self._json("POST", "/v1/nodes/query", {"ids": ids, "explain": explain})

    def scores_of(self, ids: list[int | str]) -> dict[str, Any]:
        """Return the kept scores of many nodes.

        Parameters
        ----------
        ids : list of int or str
            Their ids.
        """
        return self._json("POST", "/v1/nodes/scores", {"ids": ids})

    def node(self, node: int | str, explain: bool = False) -> dict[str, Any]:
        """Return a node's row, neighbours and score.

        Parameters
        ----------
        node : int or str
            Its id.
        explain : bool
            Whether to say why in words.
        """
        kind = "integer" if isinstance(node, int) else "string"
        asked = urlencode({"kind": kind, "explain": str(explain).lower()})
        return self._json("GET", f"/v1/nodes/{quote(str(node), safe='')}?{asked}")

    def change(self, key: str | None = None, **parts: Any) -> dict[str, Any]:
        """Change the graph; all of it happens, or an error says why nothing did.

        Parameters
        ----------
        key : str, optional
            A name of the change, under which it is made once; by default a random one.
        **parts
            ``add_nodes``, ``add_edges``, ``change_nodes``, ``remove_nodes``, ``remove_edges``, ``explain``.
        """
        return self._json("POST", "/v1/changes", parts, {"Idempotency-Key": key or secrets.token_hex(16)})

    def batch(
        self, rows: Iterable[Mapping[str, Any]], commit: bool = False, explain: bool = False, key: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Score many rows, or add them; ``neighbours`` of a row are the ids at the other ends of its edges.

        Parameters
        ----------
        rows : iterable of mapping
            The rows.
        commit : bool
            Whether to add them to the graph.
        explain : bool
            Whether to say why in words.
        key : str, optional
            As for `change`.
        """
        asked = urlencode({"commit": str(commit).lower(), "explain": str(explain).lower()})
        body = "\n".join(map(json.dumps, rows)).encode()
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key or secrets.token_hex(16)}
        return map(json.loads, self._send("POST", f"/v1/batches?{asked}", body, headers).splitlines())

    def status(self) -> dict[str, Any]:
        """Return facts about the model, the graph and the service."""
        return self._json("GET", "/v1/status")

    def arrivals(self, flagged: bool | None = None) -> Iterator[dict[str, Any]]:
        """Read nodes that were added or changed, the newest first.

        Parameters
        ----------
        flagged : bool, optional
            Only flagged nodes, or only others.
        """
        asked: dict[str, Any] = {"limit": 1000} | ({} if flagged is None else {"flagged": str(flagged).lower()})
        while True:
            page = self._json("GET", f"/v1/arrivals?{urlencode(asked)}")
            yield from page["arrivals"]
            if page["next"] is None:
                return
            asked["before"] = page["next"]

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _json(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        raw = None if body is None else json.dumps(body, allow_nan=False).encode()
        return json.loads(self._send(method, path, raw, {"Content-Type": "application/json", **(headers or {})}))

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        for left in reversed(range(self._tries)):
            try:
                status, raw = self._once(method, self._address.path.rstrip("/") + path, body, headers)
            except (OSError, http.client.HTTPException):
                self.close()
                if not left:
                    raise
            else:
                if status < 400:
                    return raw
                if status not in _AGAIN or not left:
                    raise ServiceError(status, _problem_of(raw))
            time.sleep(0.2 * 2 ** (self._tries - left - 1))
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self._address.hostname or "localhost", self._address.port, timeout=self._timeout)
        self._connection.request(method, path, body, {**self._headers, **headers})
        answer = self._connection.getresponse()
        return answer.status, answer.read()


def _problem_of(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"detail": raw[:200].decode("utf-8", "replace")}
