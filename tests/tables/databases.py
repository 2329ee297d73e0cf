"""Databases for tests: files of SQLite and DuckDB, and a PostgreSQL server that runs as an ordinary user."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "correct-horse"
KINDS = ("sqlite", "duckdb", "postgresql")


@dataclass(frozen=True)
class Place:
    """A database, and connections to it that know nothing of oddnode."""

    address: str
    connect: Callable[[], Any]

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, commit, and return the rows of the last."""
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            connection.commit()
            return rows

    def load(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Create a table of rows; numbers are doubles, all else is text."""
        kinds = ["double precision" if isinstance(value, float) else "text" for value in rows[0].values()]
        columns = ", ".join(f"{column} {kind}" for column, kind in zip(rows[0], kinds, strict=True))
        values = ", ".join("(" + ", ".join(repr(value) for value in row.values()) + ")" for row in rows)
        self.run(f"create table {name} ({columns})", f"insert into {name} values {values}")


def program(name: str) -> str | None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(found[-1]) if found else None)


def server() -> Iterator[str]:
    """Run PostgreSQL on a socket in a folder of its own, and yield the folder. The user is ``me``."""
    initdb, postgres = program("initdb"), program("postgres")
    if initdb is None or postgres is None or os.name == "nt":
        pytest.skip("PostgreSQL is not installed (on Debian: apt-get install postgresql)")
    # Not pytest's folder: it is closed to other users, and a socket's path is short.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    word = folder / "password"
    word.write_text(PASSWORD, encoding="utf-8")
    own: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        own |= {"user": "nobody", "group": "nogroup", "extra_groups": []}
        for path in (folder, word):
            shutil.chown(path, "nobody", "nogroup")
    try:
        made = [initdb, "-D", "data", "-U", "me", "-A", "scram-sha-256", "--pwfile=password", "--no-sync", "-E", "UTF8"]
        subprocess.run([*made, "--locale=C"], check=True, **own)
        settings = [f"unix_socket_directories={folder}", "listen_addresses=", "fsync=off"]
        running = subprocess.Popen(
            [postgres, "-D", "data", *(word for each in settings for word in ("-c", each))], **own
        )
        try:
            status = folder / "data" / "postmaster.pid"  # the socket is there before connections are accepted
            while not (status.exists() and "\nready" in status.read_text(encoding="utf-8")):
                assert running.poll() is None, "the server did not start"
                time.sleep(0.02)
            yield str(folder)
        finally:
            running.send_signal(signal.SIGINT)  # ends connections, too
            running.wait(30)
    finally:
        shutil.rmtree(folder)


def open_place(kind: str, folder: Path, socket: str | None = None) -> Place:
    """An empty database of a kind."""
    if kind == "sqlite":
        path = folder / "own.db"
        sqlite3.connect(path).close()
        path.touch()
        return Place(f"sqlite:///{path}", lambda: sqlite3.connect(path, timeout=0))
    if kind == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        path = folder / "own.duckdb"
        duckdb.connect(str(path)).close()
        return Place(f"duckdb:///{path}", lambda: duckdb.connect(str(path)).begin())
    driver = pytest.importorskip("adbc_driver_postgresql.dbapi")
    address, name = f"postgresql://me@/postgres?host={socket}", f"own_{time.monotonic_ns()}"
    with closing(driver.connect(address, autocommit=True)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"create database {name}")
    address = address.replace("/postgres?", f"/{name}?")
    return Place(address, lambda: driver.connect(address))
