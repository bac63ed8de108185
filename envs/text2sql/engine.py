"""SQLite, locked down: one read-only SELECT at a time, under budgets that a hostile text can't get around.

    build      DDL and rows -> the bytes of a database; a population is built once and copied for each session
    Database   a connection to one population; `run` gives a Result or a QueryError and never raises for the text
    tables     the schema as data: tables, columns, keys

What holds a statement back:
- SQLite's authorizer lets through SELECT, reads, and a list of pure functions; no write, table-valued function,
  PRAGMA, ATTACH, extension, randomness. Date functions refuse `now`, so that a result never depends on the day.
- A budget of virtual-machine steps, the same on every machine, is what normally stops a runaway query; a wall-clock
  deadline stands behind it (whoever runs the query decides whose fault that was, see session.py).
- Limits on the statement's and a value's length, on nesting, columns, rows, total size and SQLite's heap.
- SQLite prepares a statement outside of any budget, and unfolds WITH clauses there: their unfolded size is bounded.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from envs.text2sql.sqltext import MAX_CHARS, cte_expansion, strip_comments

Value = str | int | float | bytes | None
Source = bytes | Path
"""A serialized database, or a database file (opened read-only and immutable)."""
ErrorKind = Literal["refused", "syntax", "runtime", "budget", "deadline", "too_large"]

_START = re.compile(r"\s*(?:select|with)\b", re.IGNORECASE)
_WITH = re.compile(r"\bwith\b", re.IGNORECASE)
_MAX_UNFOLDED = 200
_STEPS_PER_CHECK = 200
"""Virtual-machine steps between two looks at the budgets; one step can be as slow as one call of `instr`."""
_HEAP_BYTES = 512 * 2**20
"""SQLite's heap in this process, shared by all its connections: a sorter fed with big values stops here."""
_FUNCTIONS = frozenset(
    # printf and format are not among them: one call with a width of 10^9 runs for seconds, out of reach of any budget
    """
    abs acos asin atan atan2 avg ceil ceiling char coalesce concat concat_ws cos count cume_dist date datetime degrees
    dense_rank exp first_value floor glob group_concat hex ifnull iif instr julianday lag last_value lead length like ln
    log log10 log2 lower ltrim max min mod nth_value ntile nullif percent_rank pi pow power quote radians rank replace
    round row_number rtrim sign sin sqrt strftime string_agg substr substring sum tan time total trim trunc typeof
    unicode unixepoch upper
    """.split()  # noqa: SIM905
)
_DATE_FUNCTIONS = ("date", "time", "datetime", "julianday", "unixepoch", "strftime")
_TODAY = frozenset({"now", "localtime", "utc", "subsec", "subsecond"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    vm_steps: int = 20_000_000
    """Virtual-machine steps of one statement, about 1 s of one core."""
    deadline_s: float = 5.0
    """Wall-clock seconds of one statement; far above what `vm_steps` takes on a machine that is not overloaded."""
    rows: int = 1000
    """Rows of one result."""
    result_bytes: int = 1_000_000
    """Text and blobs of one result together."""
    value_bytes: int = 20_000
    """One text, blob or row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    columns: list[str]
    rows: list[tuple[Value, ...]]
    """[rows][columns], in the order in which SQLite gave them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryError:
    kind: ErrorKind
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    name: str
    type: str
    primary_key: bool
    references: tuple[str, str] | None
    """(table, column) that a foreign key points at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    name: str
    columns: tuple[Column, ...]


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=4096)
def sql_name(text: str) -> str:
    """A table's or column's name as SQL must write it: quoted if it is a keyword, has spaces, ..."""
    if not re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII):
        return quote(text)
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(f"SELECT {text} FROM (SELECT 1 AS {text}) AS {text}")
        except sqlite3.Error:
            return quote(text)
    return text


def build(ddl: str, rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> bytes:
    """The database of `ddl` filled with `rows` ({table: tuples in column order}), as bytes."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(ddl)
        for table, values in rows.items():
            if values:
                marks = ", ".join("?" * len(values[0]))
                connection.executemany(f"INSERT INTO {quote(table)} VALUES ({marks})", values)
        connection.commit()
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        if broken:
            raise ValueError(f"{len(broken)} rows point at nothing, the first in table {broken[0][0]}")
        return connection.serialize()


def tables(source: Source) -> list[Table]:
    """The schema's tables in order of creation. `sqlite3.DatabaseError` if the file is no database."""
    with closing(_connect(source)) as connection:
        return [_table(connection, name) for name in _table_names(connection)]


def _table_names(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY rowid"
    ).fetchall()
    return [name for (name,) in found if not name.startswith("sqlite_")]


def _table(connection: sqlite3.Connection, name: str) -> Table:
    columns = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
    keys = connection.execute('SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', (name,)).fetchall()
    # "to" is NULL where the foreign key names no column: it means the primary key of the other table
    references = {column.lower(): (table, target or _primary_key(connection, table)) for column, table, target in keys}
    return Table(
        name=name,
        columns=tuple(
            Column(name=column, type=kind, primary_key=pk > 0, references=references.get(column.lower()))
            for column, kind, pk in columns
        ),
    )


def _primary_key(connection: sqlite3.Connection, table: str) -> str:
    found = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk = 1", (table,)).fetchone()
    return str(found[0]) if found else "rowid"


def _connect(source: Source) -> sqlite3.Connection:
    # one session uses a connection from one task, but garbage collection may close it in any thread
    if isinstance(source, bytes):
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.deserialize(source)
    else:
        uri = f"{source.resolve().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


class Database:
    """A connection to one population. Use it from one task at a time; close it."""

    def __init__(self, source: Source, limits: Limits | None = None, *, reverse: bool = False) -> None:
        """`reverse` makes SQLite visit rows backwards wherever a statement leaves the order open."""
        self.limits = limits or Limits()
        self._connection = _connect(source)
        self._calendar = sqlite3.connect(":memory:", check_same_thread=False)
        self._refusal: str | None = None
        self._stop: ErrorKind | None = None
        self._lock_down(reverse)

    def close(self) -> None:
        self._connection.close()
        self._calendar.close()

    def run(self, sql: str) -> Result | QueryError:
        """Run one SELECT. Every failure is a QueryError in words that a model can act on."""
        sql = strip_comments(sql) if len(sql) <= MAX_CHARS else sql
        refusal = _refusal(sql)
        if refusal:
            return QueryError(kind="refused", message=refusal)
        self._refusal = self._stop = None
        self._watch()
        try:
            with closing(self._connection.cursor()) as cursor:
                return self._fetch(cursor.execute(sql))
        # a NUL byte is a ValueError, and sqlite3.Warning ("one statement at a time") is no sqlite3.Error
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            return self._explain(error)
        finally:
            self._connection.set_progress_handler(None, 0)

    def _fetch(self, cursor: sqlite3.Cursor) -> Result | QueryError:
        rows: list[tuple[Value, ...]] = []
        size = 0
        for row in cursor:
            rows.append(row)
            size += sum(len(value) for value in row if isinstance(value, str | bytes))
            if len(rows) > self.limits.rows:
                return QueryError(kind="too_large", message=f"the result has more than {self.limits.rows} rows")
            if size > self.limits.result_bytes:
                return QueryError(kind="too_large", message=f"the result is over {self.limits.result_bytes} bytes")
        return Result(columns=[column[0] for column in cursor.description or ()], rows=rows)

    def _explain(self, error: BaseException) -> QueryError:
        text = str(error)
        if self._stop == "budget":
            return QueryError(kind="budget", message="the query takes too long: it was stopped")
        if self._stop == "deadline":
            return QueryError(
                kind="deadline", message=f"the query ran over {self.limits.deadline_s:g} s: it was stopped"
            )
        if self._refusal:
            return QueryError(kind="refused", message=self._refusal)
        if isinstance(error, MemoryError) or "too big" in text:
            return QueryError(kind="too_large", message="a value or an intermediate result is too big")
        if "one statement" in text:
            return QueryError(kind="refused", message="only one SELECT statement is allowed")
        unreadable = any(
            word in text for word in ("syntax error", "incomplete input", "unrecognized token", "null char")
        )
        return QueryError(kind="syntax" if unreadable else "runtime", message=text)

    def _watch(self) -> None:
        """Start the two budgets of one statement."""
        left = self.limits.vm_steps
        end = time.monotonic() + self.limits.deadline_s

        def tick() -> bool:
            nonlocal left
            left -= _STEPS_PER_CHECK
            self._stop = "budget" if left < 0 else "deadline" if time.monotonic() > end else None
            return self._stop is not None

        self._connection.set_progress_handler(tick, _STEPS_PER_CHECK)

    def _lock_down(self, reverse: bool) -> None:
        connection = self._connection
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")  # a bomb must not fill the disk
        connection.execute(f"PRAGMA hard_heap_limit = {_HEAP_BYTES}")
        connection.execute(f"PRAGMA reverse_unordered_selects = {int(reverse)}")
        for name in _DATE_FUNCTIONS:
            connection.create_function(name, -1, self._date_function(name), deterministic=True)
        for limit, value in (
            (sqlite3.SQLITE_LIMIT_LENGTH, self.limits.value_bytes),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 4 * MAX_CHARS),
            (sqlite3.SQLITE_LIMIT_COLUMN, 200),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
            (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
            (sqlite3.SQLITE_LIMIT_VDBE_OP, 100_000),
            (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, 50),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
            (sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 0),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
        ):
            connection.setlimit(limit, value)
        connection.set_authorizer(self._authorize)

    def _authorize(self, action: int, _first: str | None, second: str | None, *_: str | None) -> int:
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS:
            return sqlite3.SQLITE_OK
        function = action == sqlite3.SQLITE_FUNCTION
        self._refusal = f"the function {second} is not available" if function else "only SELECT statements are allowed"
        return sqlite3.SQLITE_DENY

    def _date_function(self, name: str) -> Callable[..., Value]:
        """SQLite's own function, run beside, for arguments that do not mean the present moment."""

        def call(*args: Value) -> Value:
            values = args[1:] if name == "strftime" else args
            if not values or any(_means_today(value) for value in values):
                self._refusal = f"{name} of the present moment is not available"
                raise ValueError(self._refusal)
            marks = ", ".join("?" * len(args))
            found: Value = self._calendar.execute(f"SELECT {name}({marks})", args).fetchone()[0]
            return found

        return call


def _means_today(value: Value) -> bool:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.split("\0")[0].strip().lower() in _TODAY


def _refusal(sql: str) -> str | None:
    """Why the text is not even given to SQLite, or None."""
    if len(sql) > MAX_CHARS:
        return f"the statement has more than {MAX_CHARS} characters"
    if any("\ud800" <= char <= "\udfff" for char in sql):
        return "the statement is not valid Unicode"
    if not _START.match(sql):
        return "only one SELECT statement is allowed"
    if _WITH.search(sql):
        unfolded = cte_expansion(sql)
        if unfolded is None:
            return "the WITH clause cannot be read"
        if unfolded > _MAX_UNFOLDED:
            return "the WITH clauses refer to each other too often"
    return None
