"""Queries as tables to read, and tables of databases to write: PostgreSQL, SQLite and DuckDB.

A query runs once, in a transaction that all queries of a `with` block share. Rows are kept in a temporary file, because
tables are read in several passes, and a database may return rows in another order each time.
"""

from __future__ import annotations

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from oddnode.tables.formats import ROWS, TableTarget
from oddnode.tables.reader import QueryTable
from oddnode.tables.values import TableError, pa, pyarrow

_ADDRESSES = "postgresql://host/name, sqlite:///file.db or duckdb:///file.duckdb"
_QUERY = re.compile(r"[\s(]*(select|with|values|from|table)\b.*\s", re.IGNORECASE | re.DOTALL)
_NAMED = "table:"
# What stands before the '@' of an address may be a password, even if it has a '/' that should have been escaped.
_CREDENTIALS = re.compile(r"[^@]*://[^@]*:[^@]*@")
_PREFIXES = re.compile(r"^(.*\b(ERROR|FATAL): +|[A-Z_]+: (\[libpq\] )?(Failed to connect: )?)")


def is_query(text: str) -> bool:
    """Whether a text is a query, or ``table:`` with the name of a table, rather than the name of a file.

    Examples
    --------
    >>> is_query("select * from accounts"), is_query("table:risk.scores"), is_query("selected.csv")
    (True, True, False)
    """
    return text.startswith(_NAMED) or (_QUERY.match(text + " ") is not None and len(text.split()) > 1)


class Database:
    """A database whose tables hold nodes, edges or scores.

    Parameters
    ----------
    address : str
        ``"postgresql://host/name"`` (the extra ``postgres``), ``"sqlite:///file.db"``, or
        ``"duckdb:///file.duckdb"`` (the extra ``duckdb``). It must not contain a password: PostgreSQL reads it from
        ``PGPASSWORD``, ``~/.pgpass`` or a service file.

    Examples
    --------
    >>> import os, sqlite3, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "shop.db")
    >>> with sqlite3.connect(path) as shop:
    ...     _ = shop.execute("create table products as select 7 as id, 2.5 as price")
    >>> shop.close()
    >>> with Database(f"sqlite:///{path}") as database:
    ...     database.query("select * from products").columns
    ['id', 'price']
    """

    def __init__(self, address: str):
        kind = address.partition(":")[0]
        if kind not in _CONNECTIONS:
            # The address is not shown: a password may be in it.
            raise TableError(f"`db` is no address of a database; expected {_ADDRESSES}")
        secrets = {"password", "sslpassword"} & parse_qs(urlsplit(address).query, keep_blank_values=True).keys()
        if secrets or _CREDENTIALS.match(address):
            raise TableError(
                "the address in `db` contains a password, which other users of this machine and the shell's history "
                "can see; leave it out, and set PGPASSWORD, or use ~/.pgpass or a service file "
                "(postgresql:///?service=NAME)"
            )
        self._address, self._kind = address, _CONNECTIONS[kind]
        self._reading: _Connection | None = None

    def __enter__(self) -> Self:
        """Start a transaction, in which all queries see the same rows."""
        self._reading = self._kind(self._address, writes=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection; the results of queries stay."""
        if self._reading is not None:
            self._reading.close()
        self._reading = None

    def query(self, sql: str, what: str = "rows") -> QueryTable:
        """Run a query, and keep its rows in a temporary file.

        Parameters
        ----------
        sql : str
            One statement that returns rows, or ``"table:NAME"`` for all rows of a table.
        what : str
            What they are, for messages: ``"nodes"``, ``"edges"``.

        Returns
        -------
        QueryTable
            A table for `TableModel` and `oddnode.tables.open_table`.
        """
        if not is_query(sql):
            raise TableError(f"the query for {what} must start with select, with, values, from or table")
        if self._reading is None:
            with self:
                return self.query(sql, what)
        name = f"the query for {what}"
        if sql.startswith(_NAMED):
            table = self.table(sql.removeprefix(_NAMED))
            name, sql = str(table), f"SELECT * FROM {table.quoted}"  # nosec B608
        statement = sql.strip().rstrip(";") + "\n"  # drivers put it into another, which a comment must not swallow
        with _errors(f"the query for {what} failed"):
            return QueryTable(self._reading.stream(statement), name)

    def table(self, name: str, overwrite: bool | None = False) -> DatabaseTable:
        """Name a table to write scores to, as ``out`` of `TableModel.score`.

        Parameters
        ----------
        name : str
            Its name, with its schema if it is not in the default one: ``"risk.scores"``.
        overwrite : bool or None
            Whether to replace an existing table; if not, it is an error, which for ``None`` does not suggest it.
        """
        return DatabaseTable(self, name, overwrite)

    def _writing(self) -> closing[_Connection]:
        return closing(self._kind(self._address, writes=True))


class DatabaseTable(TableTarget):
    """A table of a database to write. It appears, or replaces the old one, in one transaction.

    Parameters
    ----------
    database : Database
        Where it is.
    name, overwrite
        As for `Database.table`, which makes it.
    """

    def __init__(self, database: Database, name: str, overwrite: bool | None):
        self._database, self._name, self._overwrite = database, tuple(name.split(".", 1)), overwrite
        if not all(self._name):
            raise TableError(f"{name!r} is no name of a table; expected for example scores or risk.scores")

    def __str__(self) -> str:
        return f"the table {'.'.join(self._name)}"

    @property
    def quoted(self) -> str:
        """Its name in SQL."""
        return _quoted(self._name)

    def check(self) -> None:
        """Create the table and take it back, which finds missing permissions and an existing table."""
        with self._errors(), self._database._writing() as connection:
            self._drop(connection)
            connection.execute(f"CREATE TABLE {_quoted(self._name)} (score double precision)")

    def write(self, parts: Iterable[Any]) -> None:
        """Write tables with the same columns, one after another, all of them or none.

        Parameters
        ----------
        parts : iterable of pyarrow.Table
            At least one.
        """
        with self._errors(), self._database._writing() as connection:
            self._drop(connection)
            for number, part in enumerate(parts):
                connection.insert(self._name, part, create=number == 0)
            connection.commit()

    def _drop(self, connection: _Connection) -> None:
        if self._overwrite:
            connection.execute(f"DROP TABLE IF EXISTS {_quoted(self._name)}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with _errors(f"cannot write {self}"):
                yield
        except TableError as error:
            if "already exists" in str(error) and not self._overwrite:
                advice = (
                    "give another `out`" if self._overwrite is None else "replace it with `overwrite`, or name another"
                )
                raise TableError(f"{self} exists already; {advice}") from None
            raise


class _Connection(ABC):
    """A connection in a transaction, which `close` takes back unless `commit` came first."""

    @abstractmethod
    def __init__(self, address: str, writes: bool): ...

    @abstractmethod
    def stream(self, sql: str) -> Any:
        """Run a query; returns a reader of record batches."""

    @abstractmethod
    def execute(self, sql: str) -> None: ...

    @abstractmethod
    def insert(self, name: tuple[str, ...], rows: Any, create: bool) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class _Postgres(_Connection):
    def __init__(self, address: str, writes: bool):
        driver = _driver("adbc_driver_postgresql.dbapi", "postgres")
        with _errors("cannot connect to PostgreSQL"):
            self._connection = driver.connect(address)
        self._cursor = self._connection.cursor()
        if not writes:
            self.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def stream(self, sql: str) -> Any:
        self._cursor.execute(sql)
        return self._cursor.fetch_record_batch()

    def execute(self, sql: str) -> None:
        self._cursor.execute(sql)

    def insert(self, name: tuple[str, ...], rows: Any, create: bool) -> None:
        schema = {"db_schema_name": name[0]} if len(name) == 2 else {}
        self._cursor.adbc_ingest(name[-1], rows, mode="create" if create else "append", **schema)

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._cursor.close()
        self._connection.close()


class _Sqlite(_Connection):
    def __init__(self, address: str, writes: bool):
        path, mode = _existing_file(address), "rw" if writes else "ro"
        with _errors(f"cannot open {path} as SQLite"):
            self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None)
            self._connection.execute("BEGIN")
            self._connection.execute("SELECT count(*) FROM sqlite_master")  # reads the file, so the snapshot is taken

    def stream(self, sql: str) -> Any:
        # Every cell of SQLite has a type of its own, so one look at all of them finds a type that holds them.
        # The user's own query, in a database that is open for reading only.
        rows = f"FROM ({sql})"
        names = [name for name, *_ in self._connection.execute(f"SELECT * {rows} LIMIT 0").description]
        ranks = "".join(f" WHEN '{kind}' THEN {rank}" for rank, kind in enumerate(("null", "integer", "real", "text")))
        looked = ", ".join(f"max(CASE typeof({_quoted((name,))}){ranks} ELSE 4 END)" for name in names)
        [found] = self._connection.execute(f"SELECT {looked} {rows}")
        kinds = [(pa.null(), pa.int64(), pa.float64(), pa.string(), pa.binary())[rank or 0] for rank in found]
        schema = pa.schema(list(zip(names, kinds, strict=True)))
        return pa.RecordBatchReader.from_batches(schema, self._batches(sql, schema))

    def _batches(self, sql: str, schema: Any) -> Iterator[Any]:
        cursor = self._connection.execute(sql)
        while rows := cursor.fetchmany(ROWS):
            arrays = [_array(cells, kind) for cells, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
            yield pa.record_batch(arrays, schema=schema)

    def execute(self, sql: str) -> None:
        self._connection.execute(sql)

    def insert(self, name: tuple[str, ...], rows: Any, create: bool) -> None:
        if create:
            kinds = (
                "TEXT" if pa.types.is_string(k) else "REAL" if pa.types.is_floating(k) else "INTEGER"
                for k in rows.schema.types
            )
            columns = ", ".join(f"{_quoted((n,))} {k}" for n, k in zip(rows.column_names, kinds, strict=True))
            self.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
        places = ", ".join("?" * rows.num_columns)
        cells = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        statement = f"INSERT INTO {_quoted(name)} VALUES ({places})"  # the name is quoted  # nosec B608
        self._connection.executemany(statement, cells)

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


class _DuckDb(_Connection):
    def __init__(self, address: str, writes: bool):
        self._driver, path = _driver("duckdb", "duckdb"), _existing_file(address)
        with _errors(f"cannot open {path} as DuckDB"):
            # Otherwise a query could name variables of this program.
            settings = {"python_enable_replacements": "false"}
            self._connection = self._driver.connect(str(path), read_only=not writes, config=settings)
            self._connection.begin()

    def stream(self, sql: str) -> Any:
        if len(self._connection.extract_statements(sql)) != 1:
            raise self._driver.InvalidInputException("expected one statement")
        return self._connection.sql(sql).to_arrow_reader(ROWS)

    def execute(self, sql: str) -> None:
        self._connection.execute(sql)

    def insert(self, name: tuple[str, ...], rows: Any, create: bool) -> None:
        self._connection.register("oddnode_rows", rows)
        start = "CREATE TABLE {} AS" if create else "INSERT INTO {}"
        self.execute(f"{start.format(_quoted(name))} FROM oddnode_rows")
        self._connection.unregister("oddnode_rows")

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


_CONNECTIONS: dict[str, type[_Connection]] = {
    "postgresql": _Postgres,
    "postgres": _Postgres,
    "sqlite": _Sqlite,
    "duckdb": _DuckDb,
}


def _driver(module: str, extra: str) -> Any:
    pyarrow()
    try:
        return import_module(module)
    except ImportError:
        raise TableError(f"this database needs a driver; install it with: pip install 'oddnode[{extra}]'") from None


def _existing_file(address: str) -> Path:
    path = Path(address.partition(":")[2].removeprefix("///"))
    if not path.is_file():
        raise TableError(
            f"{path} does not exist; `db` names a file like sqlite:///file.db, or sqlite:////folder/file.db"
        )
    return path


def _quoted(name: tuple[str, ...]) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name)


def _array(cells: Iterable[Any], kind: Any) -> Any:
    convert = {pa.float64(): float, pa.string(): str}.get(kind)
    return pa.array([cell if cell is None or convert is None else convert(cell) for cell in cells], kind)


@contextmanager
def _errors(message: str) -> Iterator[None]:
    """Re-raise the errors of all drivers as a `TableError` of one line."""
    try:
        yield
    except TableError:
        raise
    except Exception as error:
        # The drivers have no common class of errors, and some need not be installed.
        own = type(error).__module__.partition(".")[0] in ("adbc_driver_manager", "_duckdb", "duckdb", "sqlite3")
        if not (own or isinstance(error, pa.ArrowException) or (isinstance(error, OSError) and error.errno is None)):
            raise
        lines = [_PREFIXES.sub("", line).strip() for line in str(error).splitlines()]
        raise TableError(f"{message}: {next(filter(None, lines), type(error).__name__)}") from None
