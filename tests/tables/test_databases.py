"""Queries are read like files, and tables of databases are written completely or not at all."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oddnode.tables import Database, TableError, TableModel
from tests.tables.databases import KINDS, PASSWORD, Place, open_place, server
from tests.tables.examples import FIT, example, write_csv

PART = pa.table({"id": ["a", "b"], "score": [0.5, -1.0], "is_ood": [False, True], "why": [None, "it's odd"]})
ROWS = [("a", 0.5, False, None), ("b", -1.0, True, "it's odd")]


@pytest.fixture(scope="module")
def socket() -> Iterator[str]:
    yield from server()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    socket = request.getfixturevalue("socket") if request.param == "postgresql" else None
    return open_place(request.param, tmp_path, socket)


@pytest.fixture
def postgres(socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return open_place("postgresql", tmp_path, socket)


def values(place: Place, sql: str) -> dict[str, list[Any]]:
    """The columns of a query, as `TableModel` reads them."""
    table = Database(place.address).query(sql)
    batches = list(table.batches(table.columns))
    return {name: [v for b in batches for v in b.arrays[i].to_pylist()] for i, name in enumerate(table.columns)}


def test_a_model_from_queries_scores_like_one_from_files(place: Place, tmp_path: Path) -> None:
    nodes, edges = example()
    place.load("nodes", nodes)
    place.load("edges", edges)
    files = write_csv(tmp_path / "nodes.csv", nodes), write_csv(tmp_path / "edges.csv", edges)
    with Database(place.address) as database:
        queries = database.query("select * from nodes order by name;", "nodes"), database.query("select * from edges")
    from_files, report = TableModel.fit(*files, **FIT)
    from_queries, same_report = TableModel.fit(*queries, **FIT)
    assert report == same_report
    expected = from_files.score_frame(*files)
    from_queries.score(*queries, database.table("scores"))
    written = place.run("select name, predicted, score, is_ood, split from scores order by name")
    columns = [expected[name].to_pylist() for name in ("name", "predicted", "score", "is_ood", "split")]
    assert written == list(zip(*columns, strict=True))


def test_cells_keep_their_types(place: Place) -> None:
    place.run(
        "create table t (i bigint, x double precision, s text, n numeric(9,2), empty text)",
        "insert into t values (1, 0.1, 'é', 2.50, null), (9007199254740993, null, '', -1, null)",
    )
    read = values(place, "select * from t order by i -- in order")
    assert [read[name] for name in ("i", "x", "s", "empty")] == [
        *([1, 9007199254740993], [0.1, None], ["é", ""], [None, None])
    ]
    assert [float(value) for value in read["n"]] == [2.5, -1]


def test_a_column_of_sqlite_has_one_type_whatever_its_cells_hold(tmp_path: Path) -> None:
    place = open_place("sqlite", tmp_path)
    place.run("create table t (a, b)", "insert into t values (null, 1), (2, 2.5), ('x', null)")
    assert values(place, "select * from t") == {"a": [None, "2", "x"], "b": [1.0, 2.5, None]}


def test_uuids_and_exact_numbers_of_postgresql_are_text(postgres: Place) -> None:
    name = uuid.UUID(int=7)
    read = values(postgres, f"select '{name}'::uuid id, 1e30::numeric big union all select null, 'NaN'")
    assert read == {"id": [str(name), None], "big": ["1" + "0" * 30, "nan"]}


def test_queries_of_a_block_see_the_same_rows(postgres: Place) -> None:
    postgres.run("create table t as select 1 as i")
    with Database(postgres.address) as database:
        database.query("select * from t")
        postgres.run("insert into t values (2)")
        count = next(database.query("select count(*) as c from t").batches(["c"])).arrays[0].to_pylist()
    assert count == [1]
    assert values(postgres, "select count(*) as c from t") == {"c": [2]}


def test_a_query_cannot_change_anything(place: Place) -> None:
    place.run("create table t as select 1 as i")
    for query in ("with x as (select 1) delete from t", "select 1; drop table t"):
        with pytest.raises(TableError, match="the query for rows failed"):
            Database(place.address).query(query)
    assert place.run("select count(*) from t") == [(1,)]


def test_a_table_is_written_once_unless_it_is_overwritten(place: Place) -> None:
    database = Database(place.address)
    target = database.table('sc"ores')
    target.check()
    assert place.run("select 1") == [(1,)]
    target.write([PART, PART])
    shown = 'select * from "sc""ores" order by id'
    assert place.run(shown) == [row for row in ROWS for _ in range(2)]
    for attempt in (target.check, lambda: target.write([PART])):
        with pytest.raises(TableError, match=r'the table sc"ores exists already; replace it with `overwrite`'):
            attempt()
    other = database.table('sc"ores', overwrite=True)
    other.check()
    assert len(place.run(shown)) == 4
    other.write([PART])
    assert place.run(shown) == ROWS


def test_a_table_of_another_schema_is_written(postgres: Place) -> None:
    postgres.run("create schema risk")
    Database(postgres.address).table("risk.scores").write([PART])
    assert postgres.run("select * from risk.scores order by id") == ROWS
    with pytest.raises(TableError, match=r'cannot write the table nowhere\.scores: schema "nowhere" does not exist'):
        Database(postgres.address).table("nowhere.scores").check()


def test_an_error_while_writing_leaves_the_old_table(place: Place) -> None:
    database = Database(place.address)
    database.table("scores").write([PART])

    def parts() -> Iterator[pa.Table]:
        yield PART.slice(0, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database.table("scores", overwrite=True).write(parts())
    assert place.run("select * from scores order by id") == ROWS


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_process_leaves_the_old_table(place: Place) -> None:
    Database(place.address).table("scores").write([PART])
    code = (
        "import os, signal, sys, pyarrow as pa\nfrom oddnode.tables import Database\n"
        "def parts():\n"
        "    yield pa.table({'id': ['z'] * 10_000})\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "Database(sys.argv[1]).table('scores', overwrite=True).write(parts())\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, place.address], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert place.run("select * from scores order by id") == ROWS


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select * from nowhere", r"no such table: nowhere|nowhere.* does not exist"),
        ("select 1 frm t", r"near \"t\""),
    ],
)
def test_a_wrong_query_is_one_line(place: Place, query: str, message: str) -> None:
    with pytest.raises(TableError, match=message) as caught:
        Database(place.address).query(query, "nodes")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("the query for nodes")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("sqlite:///nowhere.db", "nowhere.db does not exist"),
        ("duckdb:///nowhere.duckdb", "nowhere.duckdb does not exist"),
        ("sqlite:///nodes.csv", "cannot open nodes.csv as SQLite: file is not a database"),
        ("duckdb:///nodes.csv", "cannot open nodes.csv as DuckDB"),
        ("postgresql://me@127.0.0.1:1/x", "cannot connect to PostgreSQL: .*Connection refused"),
        ("postgresql:///?service=nope", 'cannot connect to PostgreSQL: definition of service "nope" not found'),
        ("oracle://host/x", "`db` is no address of a database; expected postgresql://"),
    ],
)
def test_a_database_that_cannot_be_opened_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, message: str
) -> None:
    if address.startswith(("duckdb", "postgresql")):
        pytest.importorskip("duckdb" if address.startswith("duckdb") else "adbc_driver_postgresql")
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text("id,x\n" * 1000, encoding="utf-8")
    with pytest.raises(TableError, match=message) as caught:
        Database(address).query("select 1 as i")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        *("postgresql://me:hunter2@host/x", "postgresql://host/x?password=hunter2", "postgres://me:hun/ter2@host/x"),
        *("postgresql://host/x?pass%77ord=hunter2", "postgresql://h/x?sslpassword=hunter2", "hunter2://me:hunter2@h"),
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(TableError) as caught:
        Database(address)
    assert "hun" not in str(caught.value)


def test_a_wrong_password_is_one_line_without_it(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    with pytest.raises(TableError, match='password authentication failed for user "me"') as caught:
        Database(postgres.address).query("select 1 as i")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "address", "extra"),
    [("adbc_driver_postgresql.dbapi", "postgresql://host/x", "postgres"), ("duckdb", "duckdb:///x", "duckdb")],
)
def test_a_missing_driver_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, address: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TableError, match=rf"pip install 'oddnode\[{extra}\]'"):
        Database(address).query("select 1 as i")


def test_rows_of_an_open_transaction_are_not_read(tmp_path: Path) -> None:
    place = open_place("sqlite", tmp_path)
    place.run("create table t as select 1 as i")
    with closing(sqlite3.connect(tmp_path / "own.db", isolation_level=None)) as other:
        other.execute("begin")
        other.execute("insert into t values (2)")
        assert values(place, "select count(*) as c from t") == {"c": [1]}
        other.execute("commit")
    assert values(place, "select count(*) as c from t") == {"c": [2]}
