"""What is asked of the service and what it answers, as data; decoded and checked by msgspec."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import asdict

from oddnode.online import Judgement, KeptScores, Neighbourhood
from oddnode.tables import TableSchema

T = TypeVar("T")

_INT64 = Meta(ge=-(2**63), le=2**63 - 1)
#: An id, as it stands in the table.
Id = Annotated[int, _INT64] | Annotated[str, Meta(max_length=4096)]
#: The value of a column; a list of numbers is the features ``x`` of a model without tables.
Value = Annotated[int, _INT64] | float | str | bool | None | list[float]
#: Source, target and, in a weighted graph, a weight.
Edge = Annotated[
    list[Annotated[int, _INT64] | float | Annotated[str, Meta(max_length=4096)]], Meta(min_length=2, max_length=3)
]
Row = dict[str, Value]

_LINES = msgspec.json.Decoder(
    dict[str, Annotated[int, _INT64] | float | str | bool | list[Annotated[int, _INT64] | float | str] | None]
)


class Problem(Exception):
    """What a client gets in place of an answer (RFC 9457).

    Parameters
    ----------
    status : int
        The HTTP status.
    detail : str
        What was found, what was expected and what to do.
    kind : str, optional
        The name of the kind of problem; by default that of the status.
    errors : list of dict, optional
        Fields with something wrong: ``{"field": ..., "detail": ...}``.
    """

    def __init__(self, status: int, detail: str, kind: str = "", errors: Iterable[dict[str, str]] = ()):
        super().__init__(detail)
        self.status, self.detail, self.kind, self.errors = status, detail, kind, list(errors)


class ScoreRequest(Struct, forbid_unknown_fields=True):
    """Arrivals to score; the graph does not change."""

    nodes: list[Row]  #: A row each: its columns with the id, or ``{"id": ..., "x": [...]}``.
    edges: list[Edge] = []  #: Edges with an arrival at one end at least.
    explain: bool = False  #: Whether to say why in words.


class QueryRequest(Struct, forbid_unknown_fields=True):
    """Nodes of the graph to score as it is now."""

    ids: list[Id]
    explain: bool = False


class KeptRequest(Struct, forbid_unknown_fields=True):
    """Nodes of the graph whose kept scores are wanted."""

    ids: list[Id]


class Change(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A change of the graph, all of it or nothing; an edge or a node that it removes cannot be added by it again."""

    add_nodes: list[Row] = []
    add_edges: list[Edge] = []
    change_nodes: list[Row] = []
    remove_nodes: list[Id] = []
    remove_edges: list[Edge] = []
    explain: bool = False


class GraphVersion(Struct, frozen=True):
    """Which graph an answer is about."""

    base: str  #: The first 12 digits of the hash of the base.
    version: int  #: The number of changes since.


class Answer(Judgement, frozen=True, kw_only=True):
    """What the model says of one arrival."""

    unknown_neighbours: tuple[int | str, ...] = ()  #: Other ends of its edges, left out as the graph lacks them.


class Answers(Struct, frozen=True):
    """Answers about arrivals."""

    answers: list[Answer]
    model: str
    graph: GraphVersion


class NodeAnswers(Struct, frozen=True):
    """Answers about nodes of the graph."""

    answers: list[Judgement]
    model: str
    graph: GraphVersion
    unknown: list[int | str]  #: Ids of the question that no node has.


class KeptAnswers(Struct, frozen=True):
    """Kept scores of nodes, by column."""

    scores: KeptScores
    model: str
    graph: GraphVersion
    unknown: list[int | str] = []


class ChangeAnswer(Struct, frozen=True):
    """What a change led to."""

    answers: list[Judgement]  #: One for every added node, then one for every changed node.
    touched: KeptScores  #: New scores of the other ends of edges that were added or removed, at most 1,000.
    version: int
    model: str
    graph: GraphVersion


class Neighbour(Struct, frozen=True):
    """An edge that leads to a node."""

    id: int | str
    weight: float


class NodeAnswer(Struct, frozen=True):
    """Everything about a node."""

    row: dict[str, Any]
    neighbours: list[Neighbour]  #: Where edges come from that lead to it, at most 100.
    num_neighbours: int  #: Number of these edges.
    answer: Judgement
    model: str
    graph: GraphVersion


class NeighbourhoodAnswer(Struct, frozen=True):
    """Nodes around one, for a picture."""

    neighbourhood: Neighbourhood
    model: str
    graph: GraphVersion


class Arrival(Struct, frozen=True):
    """A node that was added or changed, as it was judged then."""

    version: int
    time: float  #: In seconds since 1970.
    answer: dict[str, Any]
    alert: int | None = None  #: The number of its alert, if there is one.


class Arrivals(Struct, frozen=True):
    """Arrivals, the newest first."""

    arrivals: list[Arrival]
    next: int | None  #: Give this as ``before`` to get older ones; null at the end.
    model: str
    graph: GraphVersion


def decoded(raw: bytes | bytearray, kind: type[T]) -> T:
    """Decode the body of a request."""
    is_collecting = gc.isenabled()
    gc.disable()  # collections take ten times as long as the rest of a body with millions of lists
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `")
        field = re.sub(r"^\$\.?", "", place.rstrip("`")) or "body"
        raise Problem(422, f"{field}: {text}", errors=[{"field": field, "detail": text}]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not valid JSON: {error}", "json") from None
    finally:
        if is_collecting:
            gc.enable()


def decoded_lines(raw: bytes | bytearray, neighbours: str) -> list[dict[str, Any]]:
    """Decode lines of JSON, a row each, of which one value may be a list of ids."""
    try:
        rows = _LINES.decode_lines(raw)
    except msgspec.ValidationError as error:
        raise Problem(422, f"a line of the body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not lines of JSON: {error}", "json") from None
    for place, row in enumerate(rows):
        x = row.get("x")
        if isinstance(x, list) and neighbours != "x" and str in set(map(type, x)):
            raise _wrong(f"line {place + 1}: x", "expected numbers")
        if not isinstance(row.get(neighbours), (list, type(None))):
            raise _wrong(f"line {place + 1}: {neighbours}", "expected a list of ids")
    return rows


def rows_of(rows: list[Row], schema: TableSchema | None, field: str) -> tuple[Any, list[int | str] | None]:
    """Rows as `LiveGraph` reads them, and their ids where these are not a column."""
    if not rows:
        return None, None
    if schema is not None:
        _check_columns(rows, schema.id_column, field)
        return rows, None
    ids, features = [], []
    for place, row in enumerate(rows):
        x = row.get("x")
        if row.keys() != {"id", "x"} or not isinstance(row["id"], (int, str)) or not isinstance(x, list):
            raise _wrong(f"{field}[{place}]", 'expected an id and features: {"id": "a", "x": [0.5, ...]}')
        ids.append(row["id"])
        features.append(x)
    width = {len(x) for x in features}
    if len(width) > 1:
        raise _wrong(field, f"rows have {min(width)} to {max(width)} features, expected equally many")
    return np.array(features, dtype=np.float64), ids


def arguments_of(change: Change, schema: TableSchema | None) -> dict[str, Any]:
    """A change as `LiveGraph.change` takes it."""
    added, ids = rows_of(change.add_nodes, schema, "add_nodes")
    changed, changed_ids = rows_of(change.change_nodes, schema, "change_nodes")
    own = {"add_nodes": added, "ids": ids, "change_nodes": changed, "changed_ids": changed_ids}
    names = ("add_edges", "remove_nodes", "remove_edges", "explain")
    return own | {name: getattr(change, name) for name in names}


def _check_columns(rows: list[Row], id_column: str, field: str) -> None:
    names = rows[0].keys()
    if id_column not in names:
        raise _wrong(f"{field}[0]", f"the row has no {id_column!r}, the column with the ids")
    for place, row in enumerate(rows):
        if row.keys() != names:  # Arrow would take the columns of the first row
            other = sorted(names ^ row.keys())[0]
            raise _wrong(
                f"{field}[{place}]", f"the column {other[:60]!r} is in some rows only; give null where it is empty"
            )
        for name, value in row.items():
            if isinstance(value, list):
                raise _wrong(f"{field}[{place}].{name[:60]}", "a list is no value of a column")


def _wrong(field: str, detail: str) -> Problem:
    return Problem(422, f"{field}: {detail}", errors=[{"field": field, "detail": detail}])


def with_unknown(found: list[Judgement], unknown: dict[Any, list[int | str]]) -> list[Answer]:
    """Add to answers which of the neighbours the graph does not have."""
    return [Answer(**asdict(each), unknown_neighbours=tuple(unknown.get(each.id, ()))) for each in found]
