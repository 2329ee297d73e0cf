"""The state of a service: a live graph, its log, and the one thread that uses them.

Every question and every change goes through one queue, in order. Changes that wait together share a transaction; no
answer that knows of a change leaves before the change is on disk. If the transaction fails, all of them fail, and the
graph is computed again from the base and the log, because in memory it has changes that the log does not have.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from oddnode.detector import Detector, read_config
from oddnode.graph import GraphError
from oddnode.online import Judgement, LiveGraph
from oddnode.service.alerts import AlertLog
from oddnode.service.batches import Batch
from oddnode.service.drift import DriftBet
from oddnode.service.log import ChangeLog, LogError, LoggedChange, NoRoomError, folder_hash
from oddnode.service.requests import (
    Answer,
    Answers,
    Arrival,
    Arrivals,
    Change,
    ChangeAnswer,
    GraphVersion,
    KeptAnswers,
    Neighbour,
    NeighbourhoodAnswer,
    NodeAnswer,
    NodeAnswers,
    Problem,
    ScoreRequest,
    arguments_of,
    rows_of,
    with_unknown,
)
from oddnode.service.saved import UNDONE, SavedGraphs
from oddnode.service.status import facts_of
from oddnode.tables import TableError, TableModel, TableSchema

_log = logging.getLogger("oddnode.service")
T = TypeVar("T")
_encode = msgspec.json.encode

# A transaction is committed as soon as no change waits, and at the latest after this long or this many changes.
_SECONDS_TO_SHARE = 0.02
_MOST_SHARING = 64
# How often a replica looks for new changes.
_SECONDS_TO_FOLLOW = 0.05
# How often it looks for a new base.
_SECONDS_TO_LOOK = 2.0
# Changes between two times that they are saved, at least; after a kill these are made again.
_CHANGES_TO_SAVE = 1000
# Changes that are made again on a new base between two answers.
_MOST_AT_ONCE = 16
_MOST_TOUCHED = 1000
_MOST_NEIGHBOURS = 100
# How far the clock may be set back and times of changes stand still; if further, it was wrong before.
_SECONDS_APART = 600.0
_PHASES = {
    "loading": "the graph is being loaded",
    "rebuilding": "a change could not be written; the graph is computed again from the base and the log",
    "stopped": "the service is stopping",
}
# Whatever is wrong with rows and edges raises one of these before anything changes.
_REFUSALS = (GraphError, TableError)


@dataclass(frozen=True)
class Source:
    """Where a model and the graph it serves come from."""

    model: Path  #: The folder of a saved model.
    graph: Path | None = None  #: A graph folder, in place of tables.
    nodes: Sequence[Path] = ()  #: `nodes`, `edges`: files of tables, for a model of tables.
    edges: Sequence[Path] = ()
    max_neighbours: int = 256  #: As for `LiveGraph`.

    def facts(self) -> dict[str, str]:
        """What changes are relative to: the hashes of the model and of the base, and the settings."""
        files = [self.graph] if self.graph is not None else [*self.nodes, None, *self.edges]
        parts = ["" if file is None else folder_hash(file) for file in files]
        base = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return {"model": folder_hash(self.model), "base": base, "max_neighbours": str(self.max_neighbours)}

    def load(self) -> Detector | TableModel:
        """Load the model."""
        kind: Any = TableModel if "table" in read_config(self.model) else Detector
        return kind.load(self.model, device="cpu")

    def live(self, model: Detector | TableModel) -> LiveGraph:
        """Compute what is known of the base."""
        graph: Any = self.graph
        if graph is None:
            if not isinstance(model, TableModel):
                raise ValueError(
                    "the model was not fitted on tables; give --graph, a folder that folder_from_data wrote"
                )
            graph = model.read(list(self.nodes), list(self.edges))
        return LiveGraph(model, graph, max_neighbours=self.max_neighbours)


@dataclass
class _Task:
    run: Callable[[], Any]
    writes: bool
    future: Future
    deadline: float


_NOTHING = _Task(lambda: None, False, Future(), 0.0)


@dataclass(frozen=True)
class Event:
    """Something that happened, for subscribers: ``arrival``, ``alert``, ``feedback`` or ``state``."""

    name: str
    data: bytes  #: JSON.


class State:
    """A live graph behind a queue, with a log.

    Parameters
    ----------
    source : Source
        The model and the base.
    folder : Path, optional
        The folder of the log; without one, changes are refused.
    follow : bool
        Read the changes that another process writes to the folder.
    max_waiting : int
        Number of requests that may wait; more are refused.
    max_seconds : float
        How long a request may wait.
    budget : int, optional
        The most alerts a day; by default every flagged arrival is an alert.
    compact_after : int, optional
        Number of changes after which a new base is computed; by default only when asked (`compact`).
    """

    def __init__(
        self,
        source: Source,
        folder: Path | None = None,
        *,
        follow: bool = False,
        max_waiting: int = 1000,
        max_seconds: float = 30.0,
        budget: int | None = None,
        compact_after: int | None = None,
    ):
        self.source, self.follow = source, follow
        self.max_waiting, self.max_seconds = max_waiting, max_seconds
        self.hashes = source.facts()
        self.config = read_config(source.model)
        self.model, self.base = self.hashes["model"][:12], self.hashes["base"][:12]
        self.log: ChangeLog | None = None
        self.saved: SavedGraphs | None = None
        self.alerts: AlertLog | None = None
        self.drift: DriftBet | None = None
        if folder is not None:
            self.log = log = ChangeLog(folder, self.hashes, read_only=follow)
            try:
                self.saved = SavedGraphs(log)
                self.alerts = AlertLog(lambda: log.connection, self.model, budget=budget, read_only=follow)
            except BaseException:
                log.close()
                raise
        self.compact_after = compact_after
        self._compacting = threading.Lock()
        self._tried_version = 0  # of the last new base that was tried, to compute it or, in a replica, to open it
        self._told_version: int | None = None
        self._next_look = 0.0
        self.phase = "loading"
        self.failure: Exception | None = None
        self.started = time.time()
        self.num_scored = self.num_flagged = self._counted_version = 0  # as the log has them, not what may be undone
        self.on_failure: Callable[[], None] = lambda: None
        self.on_ready: Callable[[], None] = lambda: None
        self._subscribers: dict[Callable[[Event], None], None] = {}
        self._events: list[Event] = []
        self._unbet: list[tuple[list[Judgement], list[Any], float]] = []
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._worker = threading.Thread(target=self._work, name="oddnode-service", daemon=True)

    # --- life ---

    @classmethod
    def open(
        cls, model: Any, folder: Any = None, *, graph: Any = None, nodes: Any = (), edges: Any = (), **rest: Any
    ) -> State:
        """Start a state, and wait until it is ready.

        Parameters
        ----------
        model, graph, nodes, edges
            As for `Source`.
        folder, **rest
            As for `State`.
        """
        tables = [Path(each) for each in nodes], [Path(each) for each in edges]
        source = Source(Path(model), None if graph is None else Path(graph), *tables)
        state = cls(source, None if folder is None else Path(folder), **rest)
        state.start()
        state.wait()
        return state

    def start(self) -> None:
        """Start to load the graph, in another thread."""
        self._worker.start()

    def wait(self) -> None:
        """Wait until the graph is loaded; raises the error if that fails."""
        self._ready.wait()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Finish what was asked so far, and close the log."""
        self._tasks.put(None)
        if self._worker.is_alive():
            self._worker.join()
        elif self.log is not None:
            self.log.close()

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait."""
        return self._tasks.qsize()

    @property
    def num_subscribers(self) -> int:
        """Number of functions that are called with every event."""
        return len(self._subscribers)

    def reasons_not_ready(self) -> list[str]:
        """Why questions cannot be answered now; empty if they can."""
        if self.failure is not None:
            return ["the graph could not be loaded; the server's log says why"]
        return [] if self.phase == "ready" else [_PHASES[self.phase]]

    @property
    def version(self) -> GraphVersion:
        """The version of the graph that is in memory."""
        return GraphVersion(self.base, self.live.version if self.phase == "ready" else 0)

    # --- the queue ---

    def read(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call a function in the thread that owns the graph.

        Parameters
        ----------
        function : callable
            It may use `live` and read `log`.
        *args
            Its arguments.
        """
        return self._ask(function, args, False)

    def write(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call a function in the thread that owns the graph, in a transaction of the log.

        The future has a result once the transaction is on disk.

        Parameters
        ----------
        function : callable
            It may write to ``log.connection``. It raises `Problem` before it has changed anything, or any other error,
            which undoes the transaction and has the graph computed again.
        *args
            Its arguments.
        """
        if self.log is None:
            raise Problem(409, "the service takes no changes; start it with --state FOLDER", "read-only")
        if self.follow:
            raise Problem(409, "this is a read replica; send changes to the service that it follows", "read-only")
        return self._ask(function, args, True)

    def _ask(self, function: Callable[..., T], args: tuple[Any, ...], writes: bool) -> Future[T]:
        if self.phase != "ready":
            raise Problem(503, "; ".join(self.reasons_not_ready()) + "; try again later", "not-ready")
        if self._tasks.qsize() >= self.max_waiting:
            raise Problem(503, f"{self.max_waiting} requests are waiting; try again later", "busy")
        return self._put(function, args, writes, time.monotonic() + self.max_seconds)

    def _put(self, function: Callable[..., T], args: tuple[Any, ...], writes: bool, deadline: float) -> Future[T]:
        future: Future[T] = Future()
        self._tasks.put(_Task(lambda: function(*args), writes, future, deadline))
        if self.phase == "stopped":  # perhaps after the thread had refused all that waited
            self._refuse_all()
        return future

    def _work(self) -> None:
        try:
            self._load()
            self._ready.set()
            self._answer_all()
            self.phase = "stopped"
            self._refuse_all()
            if self.saved is not None and not self.follow and self._num_unsaved:
                self.saved.save_changes(self.live)
        except Exception as error:  # for whoever waits
            _log.error("the service stops: %s", error)
            self.failure = error
        finally:
            self.phase = "stopped"
            self._refuse_all()
            if self.log is not None:
                self.log.close()
            # Last: whoever waits for a failure may start again at once, and needs the lock of the log.
            self._ready.set()
        if self.failure is not None:
            self.on_failure()

    def _refuse_all(self) -> None:
        with suppress(queue.Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is not None:
                    _settle(task, Problem(503, "the service is stopping", "not-ready"))

    def _answer_all(self) -> None:
        while True:
            task: _Task | None = _NOTHING
            with suppress(queue.Empty):
                task = self._tasks.get(timeout=_SECONDS_TO_FOLLOW if self.follow else None)
            if task is None:
                return
            if self.follow:
                self._follow()
            if task.writes:
                if not self._share(task):
                    return
            elif task is not _NOTHING:
                _settle(task, self._outcome(task))

    def _share(self, task: _Task) -> bool:
        """Run a change and what waits behind it in one transaction; whether to go on."""
        assert self.log is not None
        try:
            self.log.begin()
        except NoRoomError as error:
            _settle(task, Problem(507, f"{error}; nothing was changed", "no-room"))
            return True
        held: list[tuple[_Task, Any]] = []
        following: _Task | None = task
        stop, until = False, time.monotonic() + _SECONDS_TO_SHARE
        try:
            while following is not None:
                held.append((following, self._outcome(following, undo=True)))
                if len(held) >= _MOST_SHARING or time.monotonic() > until:
                    break
                try:
                    following = self._tasks.get_nowait()
                    stop = following is None
                except queue.Empty:
                    break
            self.log.commit()
        except Exception as error:
            self._undo(following or task, held, error)
            return not stop
        self._count()
        for each, outcome in held:
            _settle(each, outcome)
        self._send_events()
        self._keep_up()
        return not stop

    def _outcome(self, task: _Task, undo: bool = False) -> Any:
        """The result of a task, or the problem to report."""
        if not task.future.set_running_or_notify_cancel():
            return None
        if time.monotonic() > task.deadline:
            return Problem(503, f"the request waited for more than {self.max_seconds:g} seconds; try again", "busy")
        before = self._versions()
        try:
            return task.run()
        except Exception as error:
            if undo and isinstance(error, sqlite3.OperationalError):
                raise NoRoomError(f"the log cannot be written: {error}") from None
            if undo and task.writes and (self._versions() != before or not isinstance(error, (Problem, *_REFUSALS))):
                raise RuntimeError("a change failed half-way") from error
            if isinstance(error, Problem):
                return error
            if isinstance(error, _REFUSALS):
                return Problem(422, str(error))
            _log.exception("a question failed")
            return error

    def _versions(self) -> tuple[int, int]:
        """The versions of the graph and of the log, which a change that is refused leaves as they are."""
        return self.live.version, 0 if self.log is None else self.log.version

    def _undo(self, task: _Task, held: list[tuple[_Task, Any]], error: Exception) -> None:
        """Nothing of a transaction is acknowledged."""
        assert self.log is not None
        self._events.clear()
        self._unbet.clear()
        if isinstance(error, NoRoomError):
            _log.error("%s; nothing was acknowledged", error)
            problem = Problem(507, f"{error}; nothing was changed", "no-room")
        else:
            _log.exception("a change failed; nothing of it was kept", exc_info=error)
            problem = Problem(503, "a change of the same moment failed; nothing was changed, try again", "try-again")
        self.phase = "rebuilding"
        for each, _ in held:
            _settle(each, problem)
        if not task.future.done():
            _settle(task, problem if isinstance(error, NoRoomError) else error)
        self.log.rollback()
        self._load()

    # --- the graph ---

    def _load(self) -> None:
        """Compute the base, and make the changes in the log again."""
        if not hasattr(self, "_model"):
            self._model = self.source.load()
        model = self._model
        self.schema = model.schema if isinstance(model, TableModel) else None
        self.detector = model.detector if isinstance(model, TableModel) else model
        calibration = self.detector.calibration_
        can_bet = self.log is not None and calibration is not None and calibration.weights is None
        if can_bet and calibration is not None and self.drift is None:  # it goes on when the graph is computed again
            self.drift = DriftBet(calibration)
        if self.log is not None and self.saved is not None:
            self.log.verify()
            if not self.follow and not self._compacting.locked():
                self.saved.clean()
        opened = None if self.saved is None else self.saved.open(self._model, self.source.graph)
        live, base_version = opened if opened is not None else (self.source.live(self._model), 0)
        if opened is None and self.saved is not None and not self.follow:
            self.saved.save_base(live, 0)
        saved_version = live.version
        self._replay(live)
        self.live, self._base_version, self._saved_version = live, base_version, saved_version
        self._told_version = live.version
        self.num_scored = self.num_flagged = self._counted_version = 0
        self._count()
        self._name_base()
        self.phase = "ready"
        self.on_ready()

    def _count(self) -> None:
        """Count the nodes of new changes, once these are on disk."""
        if self.log is not None:
            nodes, flagged = self.log.totals(self._counted_version, self.live.version)
            self.num_scored, self.num_flagged = self.num_scored + nodes, self.num_flagged + flagged
            self._counted_version = self.live.version

    def _name_base(self) -> None:
        if self.saved is not None:
            self.base = self.saved.mark(self._base_version)[:12]

    def _replay(self, live: LiveGraph, most: int | None = None) -> int:
        """Make changes of the log again, all or at most so many; how many there were."""
        if self.log is None:
            return 0
        start = live.version
        for entry in self.log.after(start, self.log.chain_of(start)):
            try:
                found = live.change(**arguments_of(decoded_change(entry), self.schema))
            except Exception as error:
                raise LogError(f"change {entry.version} cannot be made again: {error}") from error
            if live.version != entry.version:
                raise LogError(f"change {entry.version} led to version {live.version}")
            if self.follow and self._told_version is not None and entry.version > self._told_version:
                self._told_version = entry.version
                self._tell_arrivals(entry, found)
                self._send_events()
            if live.version - start == most:
                break
        return live.version - start

    def _follow(self) -> None:
        """Read new changes, and open a new base once there is one."""
        assert self.log is not None
        assert self.saved is not None
        if self.log.head() > self.live.version:
            self._replay(self.live)
            self._count()
        if time.monotonic() > self._next_look:
            self._next_look = time.monotonic() + _SECONDS_TO_LOOK
            newest = max((base.version for base in self.saved.all("base")), default=0)
            if newest > max(self._base_version, self._tried_version):
                self._tried_version = newest  # one that cannot be opened is not tried again
                self._load()  # questions wait meanwhile

    # --- compaction ---

    def compact(self) -> bool:
        """Start to compute a new base in another thread; whether none was being computed already."""
        if self.log is None or self.saved is None or self.follow:
            raise Problem(409, "only a service that takes changes computes a new base", "read-only")
        if self.phase != "ready":
            raise Problem(503, "; ".join(self.reasons_not_ready()) + "; try again later", "not-ready")
        if not self._compacting.acquire(blocking=False):
            return False
        threading.Thread(target=self._compact, name="oddnode-compaction", daemon=True).start()
        return True

    def _compact(self) -> None:
        """Compute a new base, make the changes since then on it, and let it take the place of the graph."""
        assert self.saved is not None
        live = self.live
        try:
            # A change that the graph has may yet be undone; then another graph takes its place.
            other = self.saved.compacted(self._model, live, self.source.graph is not None, lambda: self.live is live)
            version = other.version
            while self._put(self._replay, (other, _MOST_AT_ONCE), False, math.inf).result() == _MOST_AT_ONCE:
                pass
            self._put(self._swap, (live, other, version), False, math.inf).result()
            _log.info("the base is that of version %s", version)
        except Exception as error:  # the graph as it was goes on
            _log.error("no new base: %s", error)
        finally:
            self._compacting.release()

    def _swap(self, live: LiveGraph, other: LiveGraph, version: int) -> None:
        assert self.saved is not None
        if self.live is not live:
            raise RuntimeError(UNDONE)
        self._replay(other)
        self.live, self._base_version, self._saved_version = other, version, version
        self._name_base()
        self.saved.remove("base", "graph", "changes", before=version)

    @property
    def _num_unsaved(self) -> int:
        """Number of changes that a start would make again."""
        return self.live.version - max(self._base_version, self._saved_version)

    def _keep_up(self) -> None:
        """Save changes now and then, and compute a new base if that was asked for."""
        if self.saved is None or self.follow:
            return
        since_base = self.live.version - self._base_version
        if self._num_unsaved >= max(_CHANGES_TO_SAVE, since_base // 10):
            self._saved_version = self.live.version
            self.saved.save_changes(self.live)
        since_tried = self.live.version - max(self._base_version, self._tried_version)
        if self.compact_after is not None and since_tried >= self.compact_after:
            self._tried_version = self.live.version  # if it fails, the next one is as far away
            self.compact()

    # --- what runs in the thread: questions ---

    def score(self, request: ScoreRequest) -> bytes:
        """Score arrivals; edges to nodes that the graph does not have are left out and reported."""
        if not request.nodes:
            raise Problem(422, "nodes: there are none", errors=[{"field": "nodes", "detail": "there are none"}])
        rows, ids = rows_of(request.nodes, self.schema, "nodes")
        own = ids if self.schema is None else [row.get(self.schema.id_column) for row in request.nodes]
        found = self.score_rows(rows, ids, own or (), request.edges, request.explain)
        return _encode(Answers(found, self.model, self.version))

    def score_rows(self, rows: Any, ids: Any, own: Sequence[Any], edges: list[Any], explain: bool) -> list[Answer]:
        """Score rows as `rows_of` returns them, or a table; ``own`` are the ids of all arrivals."""
        known, unknown = self._known_edges(edges, own)
        return with_unknown(self.live.score(rows, known, ids=ids, explain=explain), unknown)

    def form_of_rows(self) -> tuple[TableSchema | None, bool]:
        """The schema of rows, and whether their ids are integers."""
        return self.schema, self.live.id_type == "int"

    def score_batch(self, batch: Batch, explain: bool) -> list[Answer]:
        """Score a batch, all of which is in the graph for that."""
        rows, ids = batch.rows, None
        if isinstance(rows, list):
            rows, ids = rows_of(rows, self.schema, "rows")
        return self.score_rows(rows, ids, batch.ids, batch.edges, explain) if len(batch.ids) else []

    def _known_edges(self, edges: list[Any], own: Sequence[Any]) -> tuple[list[Any], dict[Any, list[Any]]]:
        """The edges whose ends are known, and by arrival the ends that are not."""
        arrivals = set(own)
        others = list(dict.fromkeys(end for edge in edges for end in edge[:2] if end not in arrivals))
        if any(isinstance(end, float) for end in others):
            return edges, {}  # an error that `LiveGraph` puts into words
        missing = {end for end, known in zip(others, self.live.contains(others).tolist(), strict=True) if not known}
        if not missing:
            return edges, {}
        unknown: dict[Any, list[Any]] = {}
        for a, b in (edge[:2] for edge in edges):
            for end, other in ((a, b), (b, a)):
                if end in missing and other in arrivals:
                    unknown.setdefault(other, []).append(end)
                elif end in missing:
                    raise Problem(422, f"edges: {[a, b]!r} joins no arrival, and the graph does not have {end!r}")
        return [edge for edge in edges if missing.isdisjoint(edge[:2])], unknown

    def query(self, ids: list[Any], explain: bool) -> bytes:
        """Score nodes as the graph is now."""
        known, unknown = self._divided(ids)
        return _encode(NodeAnswers(self.live.rescore(known, explain=explain), self.model, self.version, unknown))

    def kept(self, ids: list[Any]) -> bytes:
        """Return kept scores of nodes."""
        known, unknown = self._divided(ids)
        return _encode(KeptAnswers(self.live.scores_of(known), self.model, self.version, unknown))

    def _divided(self, ids: list[Any]) -> tuple[list[Any], list[Any]]:
        is_known = self.live.contains(ids)
        if is_known.all():
            return ids, []
        known, unknown = ([ids[place] for place in np.flatnonzero(each).tolist()] for each in (is_known, ~is_known))
        return known, unknown

    def find(self, text: str, kind: str | None = None) -> int | str:
        """Find the id that a text stands for: a string, or an integer in its only form."""
        found: list[int | str] = [text] if kind != "integer" and text in self.live else []
        with suppress(ValueError):
            if kind != "string" and len(text) < 21 and str(int(text)) == text and int(text) in self.live:
                found.append(int(text))
        if len(found) > 1:
            raise Problem(
                409, f"there are two nodes {text!r}, an integer and a string; add ?kind=integer or ?kind=string"
            )
        if not found:
            raise Problem(404, f"there is no node with the id {text[:200]!r}")
        return found[0]

    def node(self, text: str, kind: str | None, explain: bool) -> bytes:
        """Everything about a node."""
        node, live = self.find(text, kind), self.live
        [answer] = live.rescore([node], explain=explain)
        edges = live.neighbours(node)
        some = [Neighbour(*each) for each in edges[:: 1 + max(len(edges) - 1, 0) // _MOST_NEIGHBOURS]]
        return _encode(NodeAnswer(live.row(node), some, len(edges), answer, self.model, self.version))

    def neighbourhood(self, text: str, kind: str | None, hops: int, limit: int) -> bytes:
        """Nodes around a node."""
        found = self.live.neighbourhood([self.find(text, kind)], hops=hops, limit=limit)
        return _encode(NeighbourhoodAnswer(found, self.model, self.version))

    def arrivals(self, before: int | None, limit: int, flagged: bool | None) -> bytes:
        """Arrivals from the log, the newest first; those of one change stay together."""
        found: list[Arrival] = []
        last = before
        for entry in () if self.log is None else self.log.arrivals(before, limit, flagged):
            alerts = {} if self.alerts is None else self.alerts.numbers(entry.version)
            for answer in json.loads(entry.answer)["answers"]:
                if flagged is None or bool(answer["is_ood"]) == flagged:
                    found.append(Arrival(entry.version, entry.time, answer, alerts.get(answer["id"])))
            last = entry.version
            if len(found) >= limit:
                break
        more = last if found and last is not None and last > 1 else None
        return _encode(Arrivals(found, more, self.model, self.version))

    def status(self) -> bytes:
        """Facts about the model, the graph, the log and what arrived."""
        return _encode(facts_of(self))

    # --- what runs in the thread: changes ---

    def change(self, change: Change, key: str | None = None) -> tuple[bytes, bool]:
        """Change the graph, and write the change to the log; run it by `write`.

        Parameters
        ----------
        change : Change
            What changes.
        key : str, optional
            An idempotency key: a second change with it is not made, but answered as the first.

        Returns
        -------
        bytes
            A `ChangeAnswer` as JSON.
        bool
            Whether it was made before.
        """
        assert self.log is not None
        body = _encode(change)
        request = hashlib.sha256(body).digest()
        made = None if key is None else self.log.of_key(key)
        if made is not None:
            if made.request != request:
                raise Problem(
                    422,
                    f"the Idempotency-Key {key!r} was used for another change (version {made.version}); use a new key",
                    "key-reused",
                )
            return made.answer, True
        version = self.live.version
        found = self.live.change(**arguments_of(change, self.schema))
        if self.live.version == version:
            raise Problem(
                422, "the change is empty; give add_nodes, add_edges, change_nodes, remove_nodes or remove_edges"
            )
        own = {each.id for each in found}.union(change.remove_nodes)
        edges = (*change.add_edges, *change.remove_edges)
        ends: dict[Any, None] = dict.fromkeys(end for edge in edges for end in edge[:2])
        touched = self.live.scores_of([end for end in ends if end not in own][:_MOST_TOUCHED])
        answer = _encode(ChangeAnswer(found, touched, self.live.version, self.model, self.version))
        num_flagged = sum(each.is_ood is True for each in found)
        now = self._now()
        entry = LoggedChange(self.live.version, now, key, request, "json", body, answer, len(found), num_flagged)
        self.log.append(entry)
        self._record_alerts(change, entry, found)
        self._unbet.append((found[: len(change.add_nodes)], change.add_edges, entry.time))
        self._tell_arrivals(entry, found)
        return answer, False

    def _now(self) -> float:
        """The time of a change: not before the last one, unless the clock was wrong then."""
        assert self.log is not None
        now, last = time.time(), self.log.last_time
        if last <= now + _SECONDS_APART:
            return max(now, last)
        _log.warning("the last change is %.0f minutes ahead; changes have the clock's time again", (last - now) / 60)
        return now

    def _record_alerts(self, change: Change, entry: LoggedChange, found: list[Judgement]) -> None:
        """Record which of the added nodes are alerts; they come first among the answers."""
        assert self.alerts is not None
        added = found[: len(change.add_nodes)]
        if added:
            for record in self.alerts.record(self.live, added, change.add_nodes, entry.time, self.base):
                self.tell("alert", record)

    # --- events ---

    def tell(self, name: str, data: Any) -> None:
        """Tell subscribers of something, once the transaction is on disk."""
        self._events.append(Event(name, _encode(data)))

    def _send_events(self) -> None:
        events, self._events, unbet, self._unbet = self._events, [], self._unbet, []
        if self.drift is not None:
            for each in unbet:
                self.drift.observe(*each)
        for event in events:
            for tell in list(self._subscribers):
                try:
                    tell(event)
                except Exception:
                    _log.exception("a subscriber failed, and is told no more")
                    self._subscribers.pop(tell, None)

    def _tell_arrivals(self, entry: LoggedChange, found: list[Judgement]) -> None:
        alerts = {} if self.alerts is None else self.alerts.numbers(entry.version)
        for each in found:
            alert = alerts.get(each.id)
            self.tell("arrival", {"version": entry.version, "time": entry.time, "alert": alert, "answer": each})
        if not found:
            self.tell("state", {"version": entry.version, "nodes": self.live.num_nodes})

    def subscribe(self, tell: Callable[[Event], None]) -> Callable[[], object]:
        """Have a function called with every event, in the thread that owns the graph; returns how to end that.

        Parameters
        ----------
        tell : callable
            It must return at once.
        """
        self._subscribers[tell] = None
        return lambda: self._subscribers.pop(tell, None)


def decoded_change(entry: LoggedChange) -> Change:
    """The change of a row of the log."""
    return msgspec.json.decode(entry.body, type=Change)


def _settle(task: _Task, outcome: Any) -> None:
    future = task.future
    if future.done() or not (future.running() or future.set_running_or_notify_cancel()):  # cancelled
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
