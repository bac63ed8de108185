"""The Store: rows go to the journal, questions go to its DuckDB index. The only file that imports duckdb.

A DuckDB file belongs to one process at a time, so the index is opened for one operation and closed again, and
whoever finds it locked reads a private copy: the last export plus the journal's tail, which is everything.

    root/journal/*.jsonl   the truth (store/journal.py)
    root/index.duckdb      its index: made from the journal, and made again whenever it is damaged
    root/export.duckdb     a copy for readers, replaced by rename whenever `ingest` found new rows

Results of a DuckDB connection stream and hold it; everything here fetches all rows at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from store.arrow import from_tuples, to_arrow
from store.errors import StoreError, UsageError
from store.journal import START, Cursor, Journal, Problem, read, segments, set_aside, size
from store.migrations import migrate
from store.repair import FRESH, Rebuilt, bad_segments, differences, journal_problems, salvage
from store.rows import Row
from store.schema import KINDS, columns, insertion, kind_of
from store.typo import offer

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R", bound=Row)
Connection = duckdb.DuckDBPyConnection
Params = Sequence[Any] | Mapping[str, Any]
"""For `?` or for `$name` in the SQL."""

_CONFIG: dict[str, Any] = {"storage_compatibility_version": "v1.5.0", "autoinstall_known_extensions": False}
"""Files that DuckDB 1.5 tools open too; never a download."""
_PUBLIC: dict[str, Any] = {
    "enable_external_access": False,
    "lock_configuration": True,
    "autoinstall_known_extensions": False,
}
"""For users' SQL: it reads this file and nothing else of the machine."""
_CHECK_S = 30.0
"""Seconds that `check` waits for the index; it only looks."""
_CHUNK = 50_000
"""Rows a transaction of `ingest` holds at least, if there are so many."""
_THREADS: dict[Path, threading.RLock] = {}
"""{root: lock}: one operation at a time within a process; a DuckDB connection must not be shared by threads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    columns: list[str]
    rows: list[tuple[Any, ...]]


class Locked(StoreError):
    """Another process holds the index."""


class Damaged(StoreError):
    """The index or the export can't be read. Nearly always it is made again before anyone sees this."""

    def __init__(self, path: Path, words: str) -> None:
        super().__init__(f"{path} is damaged ({words})")
        self.path = path


class Store:
    """Rows in, answers out. What was appended, by any process, is seen by every later reading.

    >>> store.append(task, trajectory)
    >>> store.rows(Task, "origin = ?", ["seed"])
    >>> store.query("SELECT count(*) FROM trajectory")
    """

    def __init__(self, root: Path, *, wait_s: float = 1.0, patience_s: float = 600.0) -> None:
        self.root = root
        self.journal = Journal(root / "journal")
        self.index = root / "index.duckdb"
        self.export = root / "export.duckdb"
        self.wait_s = wait_s
        """Seconds that a reader waits for the index while another process holds it, then it reads a copy."""
        self.patience_s = patience_s
        """Seconds that `ingest` and `rebuild` wait; they must have it, so all others leave it to them meanwhile."""
        self.as_of = 0.0
        """Unix seconds: the last reading saw all that was appended before this moment."""
        self._threads = _THREADS.setdefault(root.resolve(), threading.RLock())
        self._open: Connection | None = None
        self._still = False
        """Whether the open reading stays at its moment (`browsing`)."""

    # ---- writing

    def append(self, *rows: Row | Iterable[Row]) -> None:
        """Store rows, or iterables of rows, as one batch: durable on return, all or none. StoreError if it can't."""
        batch: list[Row] = []
        for item in rows:
            if isinstance(item, Row):
                batch.append(item)
            else:
                batch.extend(item)
        self.journal.append(batch)

    def ingest(self) -> int:
        """Bring index and export up to date; how many rows were read. Locked if another process keeps the index."""
        return self._repaired(lambda: self._with_index(self._update, self.patience_s, must=True))

    def rebuild(self) -> Rebuilt:
        """Make index and export again from the journal, after what only they have is written back to it.

        Nothing is discarded before it is durable in the journal, so a crash costs nothing; damaged segments are kept
        in journal/damaged. Locked as `ingest`.
        """
        salvaged, unreadable = list[int](), ""
        self.journal.close()  # else our own segment would look like one that is written to
        with self._repairing():
            absent = not self.index.exists()
            try:
                self._with_index(lambda connection: self._salvage_all(connection, salvaged), self.patience_s, must=True)
            except Damaged as damage:
                unreadable = str(damage)
                _discard(self.index)
            if absent or unreadable:
                self._salvage_export(salvaged)
            aside = [segment for segment in bad_segments(self.journal.directory) if set_aside(segment)]
            _discard(self.export)
        rows = self._repaired(lambda: self._with_index(self._update_and_count, self.patience_s, must=True))
        return Rebuilt(rows=rows, salvaged=sum(salvaged), unreadable=unreadable, set_aside=len(aside))

    # ---- reading

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees every row appended so far. Keep it short: others wait for it."""
        with self._threads, contextlib.ExitStack() as stack:
            if self._open is not None:  # nested: the outer reading's connection, with what was appended since
                if not self._still:
                    self._ingest(self._open)
                yield self._open
                return
            self._open = self._repaired(lambda: stack.enter_context(self._current()))
            try:
                yield self._open
            finally:
                self._open = None

    @contextlib.contextmanager
    def browsing(self) -> Iterator[Connection]:
        """A reading of one moment, on a copy that nobody waits for: for long looks such as an export."""
        with self._threads, contextlib.ExitStack() as stack:

            def copy() -> Connection:
                path = stack.enter_context(self._readable_copy())
                return stack.enter_context(_opened(path, read_only=True))

            self._open = self._repaired(copy)
            self._still = True
            try:
                yield self._open
            finally:
                self._open, self._still = None, False

    def query(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        """All rows of one statement of ours (users' SQL goes to `sql`)."""
        return self.table(sql, params).rows

    def table(self, sql: str, params: Params = ()) -> Table:
        def ask() -> Table:
            with self.reading() as connection:
                return _fetch(connection, sql, params)

        return self._repaired(ask)

    def rows(self, row_type: type[R], where: str = "", params: Params = (), *, order: str = "") -> list[R]:
        """Typed rows that satisfy the SQL condition `where`, ordered by `order` (default: the row type's key)."""
        names = ", ".join(f'"{column.name}"' for column in columns(row_type))
        keys = order or ", ".join(f'"{name}"' for name in row_type.KEY)
        sql = f'SELECT {names} FROM "{kind_of(row_type)}" WHERE {where or "true"} ORDER BY {keys}'
        return list(from_tuples(row_type, self.query(sql, params)))

    def sql(self, query: str) -> Table:
        """A user's statement: one, read-only, on a copy that nobody waits for. UsageError in DuckDB's words."""

        def ask() -> Table:
            with self._readable_copy() as path, _opened(path, read_only=True) as connection:
                return _ask(connection, query)

        return self._repaired(ask)

    # ---- checking

    def check(self) -> list[Problem]:
        """Damaged and torn lines of the journal, and tables in which index and journal differ. [] = all is well."""
        return [*journal_problems(self.journal.directory), *self._repaired(self._compare)]

    def _compare(self) -> list[Problem]:
        """On a copy of the index, which others wait for only while it is made; with the journal as far as the copy has
        it, so that what a writer appends meanwhile is no difference."""
        with tempfile.TemporaryDirectory(prefix="coevolve-") as directory:
            path = Path(directory) / f"{self.index.stem}.duckdb"
            self._with_index(lambda connection: self._copy_current(connection, path), min(_CHECK_S, self.patience_s))
            with _opened(path) as connection, self._beside_journal(connection, until=_cursors(connection)):
                return list(differences(connection))

    def _copy_current(self, connection: Connection, path: Path) -> None:
        self._ingest(connection)
        self._copy(connection, path)

    @contextlib.contextmanager
    def _beside_journal(self, connection: Connection, until: Mapping[str, Cursor] | None = None) -> Iterator[None]:
        """Attach an index made from the journal alone, up to the cursors `until`. Without them it is read after the
        connection's file was closed to others, so that whatever a writer appends meanwhile can't look as if the
        journal lacked it."""
        with tempfile.TemporaryDirectory(prefix="coevolve-") as directory:
            path = Path(directory) / "fresh.duckdb"
            with _opened(path) as fresh:
                self._ingest(fresh, until)
            with _attached(connection, path, FRESH, "READ_ONLY"):
                yield

    # ---- rows that the journal has lost, back into it

    def _salvage_all(self, connection: Connection, counts: list[int]) -> None:
        """Then nobody needs the index. It is discarded while it is still ours: were it closed first, another process
        might be at work on the file that goes, and leave its log beside the one that comes."""
        self._salvage(connection, counts)
        connection.execute("CHECKPOINT")
        _discard(self.index)

    def _salvage(self, connection: Connection, counts: list[int]) -> None:
        """In a segment of its own, behind which no writer's half line can stand."""
        with contextlib.closing(Journal(self.journal.directory)) as journal, self._beside_journal(connection):
            counts.extend(salvage(connection, journal.append))

    def _salvage_export(self, counts: list[int]) -> None:
        """The export is a copy of an earlier index: where that is gone, it may be all that has a row."""
        with contextlib.suppress(Damaged), self._private_copy() as path:
            if path.exists():
                with _opened(path) as connection:
                    self._salvage(connection, counts)

    # ---- the journal's rows into a connection

    def _ingest(self, connection: Connection, until: Mapping[str, Cursor] | None = None) -> int:
        """Insert what the segments hold past the stored cursors, in transactions that move the cursors too; with
        `until` no more than is before these."""
        now, count = time.time(), 0
        known = _cursors(connection)
        pending: list[Row] = []
        damaged: list[Problem] = []
        moved: dict[str, Cursor] = {}
        for segment in segments(self.journal.directory):
            start = known.get(segment.name, START)
            if size(segment) <= start.offset:
                continue
            end = start if until is None else until.get(segment.name, START)
            for batch in read(segment, start):
                if until is not None and start.offset >= end.offset:
                    break
                start = batch.end
                for problem in batch.problems:
                    log.warning("journal %s; skipped", problem)
                damaged += batch.problems
                pending += batch.rows
                moved[segment.name] = batch.end
                count += len(batch.rows)
                if len(pending) >= _CHUNK:
                    _insert(connection, pending, moved, damaged)
                    pending, moved, damaged = [], {}, []
        if moved:
            _insert(connection, pending, moved, damaged)
        self.as_of = now
        return count

    # ---- opening, and making again what is damaged

    def _with_index(self, action: Callable[[Connection], T], wait_s: float, *, must: bool = False) -> T:
        with self._threads, self._index(wait_s, must=must) as connection:
            return action(connection)

    @contextlib.contextmanager
    def _index(self, wait_s: float, *, must: bool = False) -> Iterator[Connection]:
        """The index, writable. Waits for another process to let go of it, then raises Locked. Who can do without it
        leaves it to those who wait and `must` have it, lest many short looks keep a run waiting."""
        self._make_root()
        deadline = time.monotonic() + wait_s
        with contextlib.ExitStack() as stack:
            with self._waiting(must) as may_try:
                while True:
                    try:
                        if not may_try():
                            raise Locked(f"{self.index} is awaited by another process; run again")
                        connection = stack.enter_context(_opened(self.index))
                        break
                    except Locked:
                        if time.monotonic() >= deadline:
                            raise
                        time.sleep(0.02)
            yield connection

    @contextlib.contextmanager
    def _waiting(self, must: bool) -> Iterator[Callable[[], bool]]:
        """Whether to try for the index now. Those who must have it share a lock as long as they wait; the others try
        only while nobody holds it."""
        folder = os.open(self.root, os.O_RDONLY)
        try:
            if must:
                fcntl.flock(folder, fcntl.LOCK_SH)
            yield lambda: must or _lockable(folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _current(self) -> Iterator[Connection]:
        """The index, or a private copy of it while another process holds it, with the journal's tail ingested."""
        with contextlib.ExitStack() as stack:
            try:
                connection = stack.enter_context(self._index(self.wait_s))
            except Locked:
                connection = stack.enter_context(_opened(stack.enter_context(self._private_copy())))
            self._ingest(connection)
            yield connection

    def _make_root(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot use the store {self.root}: {error.strerror}") from error

    def _repaired(self, action: Callable[[], T]) -> T:
        """The action's result. If it finds the index, the export or a copy of that damaged, it is made again."""
        try:
            return action()
        except Damaged as damage:
            log.warning("%s; making it again from the journal", damage)
        with self._repairing():
            try:
                return action()  # another process may have made it again meanwhile
            except Damaged as damage:
                if damage.path == self.index:
                    self._salvage_export([])
                _discard(self.index if damage.path == self.index else self.export)
            return action()

    @contextlib.contextmanager
    def _repairing(self) -> Iterator[None]:
        """Held by whoever discards a damaged file, lest another process discards the one that is being made."""
        self._make_root()
        with self._threads, (self.root / "repair.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # ---- copies for readers

    def _update(self, connection: Connection) -> int:
        count = self._ingest(connection)
        self._publish(connection)
        return count

    def _update_and_count(self, connection: Connection) -> int:
        """All rows: another process may have ingested them before."""
        self._update(connection)
        return sum(_count(connection, kind) for kind in KINDS)

    def _publish(self, connection: Connection) -> None:
        """Replace the export if the index holds more."""
        if _file_extent(self.export) == _extent(connection):
            return
        for left_over in self.root.glob(".export-*"):
            left_over.unlink()
        path = self.root / f".export-{os.getpid()}.duckdb"
        self._copy(connection, path)
        path.replace(self.export)

    def _copy(self, connection: Connection, path: Path) -> None:
        with _attached(connection, path, "copy", "STORAGE_VERSION 'v1.5.0'"):
            connection.execute(f'COPY FROM DATABASE "{self.index.stem}" TO "copy"')

    @contextlib.contextmanager
    def _readable_copy(self) -> Iterator[Path]:
        with contextlib.ExitStack() as stack:
            try:
                self._repaired(lambda: self._with_index(self._update, self.wait_s))
                path = self.export
            except Locked:
                path = stack.enter_context(self._private_copy())
                with _opened(path) as connection:
                    self._ingest(connection)
            yield path

    @contextlib.contextmanager
    def _private_copy(self) -> Iterator[Path]:
        """The last export as a file of our own; it still lacks the journal's tail."""
        with tempfile.TemporaryDirectory(prefix="coevolve-") as directory:
            path = Path(directory) / "copy.duckdb"
            if _file_extent(self.export) >= 0:
                shutil.copyfile(self.export, path)
            yield path


@contextlib.contextmanager
def _opened(path: Path, *, read_only: bool = False) -> Iterator[Connection]:
    """A connection, closed at the end; migrated if it is writable. DuckDB's errors become ours."""
    try:
        connection = duckdb.connect(str(path), read_only=read_only, config=_PUBLIC if read_only else _CONFIG)
        try:
            if not read_only:
                migrate(connection)
        except BaseException:
            connection.close()
            raise
    except duckdb.Error as error:
        raise _translated(path, error, opening=True) from error
    try:
        yield connection
    except duckdb.Error as error:
        raise _translated(path, error) from error
    finally:
        with contextlib.suppress(duckdb.Error):
            connection.close()


@contextlib.contextmanager
def _attached(connection: Connection, path: Path, name: str, option: str) -> Iterator[None]:
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS \"{name}\" ({option})")
    try:
        yield
    finally:
        connection.execute(f'DETACH "{name}"')


def _lockable(file: int) -> bool:
    """Whether nobody else holds a lock of the open file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _discard(path: Path) -> None:
    path.unlink(missing_ok=True)
    Path(f"{path}.wal").unlink(missing_ok=True)


def _insert(connection: Connection, rows: list[Row], cursors: dict[str, Cursor], damaged: list[Problem]) -> None:
    connection.execute("BEGIN")
    try:
        for row_type, unique in _grouped(rows).items():
            connection.register("incoming", to_arrow(row_type, unique))
            connection.execute(insertion(kind_of(row_type)))
            connection.unregister("incoming")
        at = [(name, *cursor) for name, cursor in cursors.items()]
        connection.executemany("INSERT OR REPLACE INTO cursor VALUES (?, ?, ?)", at)
        if damaged:
            lines = [(problem.where, problem.detail) for problem in damaged]
            connection.executemany("INSERT INTO damage VALUES (?, ?) ON CONFLICT DO NOTHING", lines)
    except BaseException:
        with contextlib.suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _grouped(rows: Iterable[Row]) -> dict[type[Row], list[Row]]:
    """Rows by type; of several with one key the first."""
    groups: dict[type[Row], dict[Any, Row]] = {}
    for row in rows:
        groups.setdefault(type(row), {}).setdefault(attrgetter(*row.KEY)(row), row)
    return {row_type: list(unique.values()) for row_type, unique in groups.items()}


def _cursors(connection: Connection) -> dict[str, Cursor]:
    """How far the file holds each segment."""
    return {name: Cursor(*at) for name, *at in connection.execute("FROM cursor").fetchall()}


def _count(connection: Connection, kind: str) -> int:
    ((count,),) = connection.execute(f'SELECT count(*) FROM "{kind}"').fetchall()
    return int(count)


def _extent(connection: Connection) -> int:
    """Bytes of the journal that the file holds."""
    ((extent,),) = connection.execute('SELECT coalesce(sum("offset"), 0)::BIGINT FROM cursor').fetchall()
    return int(extent)


def _file_extent(path: Path) -> int:
    """The same of a file that nobody has open; -1 if it is absent or damaged."""
    if not path.exists():
        return -1
    try:
        with _opened(path, read_only=True) as connection:
            return _extent(connection)
    except StoreError:
        return -1


def _fetch(connection: Connection, sql: str, params: Params = ()) -> Table:
    result = connection.execute(sql, params)
    return Table(columns=[name for name, *_ in result.description or []], rows=result.fetchall())


def _ask(connection: Connection, query: str) -> Table:
    if query != query.encode(errors="replace").decode():
        raise UsageError("sql: the statement is not valid text (UTF-8)")
    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1:
            raise UsageError(f"sql: expected one statement, got {len(statements)}; give one SELECT")
        if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
            raise UsageError(f"sql: {statements[0].type.name} is refused, the store is read-only here; give one SELECT")
        return _fetch(connection, query)
    except duckdb.Error as error:
        if _is_damage(error):
            raise
        words = _one_line(error)
        raise UsageError(f"sql: {words}{offer(connection, query, words)}") from error


def _translated(path: Path, error: duckdb.Error, *, opening: bool = False) -> StoreError:
    words = _one_line(error)
    if "Could not set lock" in words:
        holder = re.search(r"PID (\d+)", words)
        who = f"process {holder[1]}" if holder else "another process"
        return Locked(f"{path} is held by {who}; wait for it or end it, then run again")
    if re.search("No space|Permission denied|Read-only|Too many open", words, re.IGNORECASE):
        return StoreError(f"cannot use {path}: {words}")
    if opening or _is_damage(error):
        return Damaged(path, words)
    return StoreError(f"{path}: {words}")


def _is_damage(error: duckdb.Error) -> bool:
    """What a query on a damaged file raises; opening one may raise any other error too."""
    kinds = (duckdb.IOException, duckdb.SerializationException, duckdb.InternalException, duckdb.FatalException)
    return isinstance(error, kinds) or str(error).startswith("Corrupt database file")


def _one_line(error: Exception) -> str:
    """DuckDB's message without the line of carets, its lines joined."""
    return re.sub(r"\s*\n\s*", " | ", re.sub(r"\n\s*\^+\s*$", "", str(error)).strip())
