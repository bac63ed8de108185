"""Append-only migrations of the index.

A migration is never edited once released; a new one is added at the end. `m001` renders the tables as today's row
types want them, so a later migration that adds a column says ADD COLUMN IF NOT EXISTS: a blank index and the oldest
one then arrive at the same columns (tests/test_store_schema.py). Whoever edits a view appends a migration too, be it
an empty one: the views are made again after any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from store import schema
from store.errors import StoreError
from store.rows import Decision, Figure, Metric, Rating, Refined, Remark, Span, Vote


class Connection(Protocol):
    """What a migration needs of a DuckDB connection."""

    def execute(self, query: str, parameters: Any = None, /) -> Any: ...


def m001_tables(connection: Connection) -> None:
    for ddl in schema.tables():
        connection.execute(ddl)


def m002_optimiser_steps(connection: Connection) -> None:
    """Figures of each optimiser step, and which step's weights sampled a rollout."""
    connection.execute(schema.table_ddl(Metric))
    connection.execute("ALTER TABLE trajectory ADD COLUMN IF NOT EXISTS policy_step BIGINT")


def m003_refining(connection: Connection) -> None:
    """Remarks on responses, and what became of each sample."""
    connection.execute(schema.table_ddl(Remark))
    connection.execute(schema.table_ddl(Refined))


def m004_redistributable(connection: Connection) -> None:
    """Whether a task's text may be passed on. The tasks of before may: no environment had others."""
    connection.execute("ALTER TABLE task ADD COLUMN IF NOT EXISTS redistributable BOOLEAN DEFAULT true")
    connection.execute("ALTER TABLE task ALTER COLUMN redistributable SET NOT NULL")


def m005_judging(connection: Connection) -> None:
    """Votes of judges, ratings of people, and what an exploration was told besides its signal."""
    connection.execute(schema.table_ddl(Vote))
    connection.execute(schema.table_ddl(Rating))
    connection.execute("ALTER TABLE exploration ADD COLUMN IF NOT EXISTS guide JSON")
    connection.execute("ALTER TABLE candidate ADD COLUMN IF NOT EXISTS rewords VARCHAR")


def m006_flywheel(connection: Connection) -> None:
    """How a snapshot is sampled, the curves of a run, and what its guards decided."""
    connection.execute("ALTER TABLE snapshot ADD COLUMN IF NOT EXISTS mix JSON")
    connection.execute(schema.table_ddl(Figure))
    connection.execute(schema.table_ddl(Decision))


def m007_spans(connection: Connection) -> None:
    """What each node of a graph run did, and which lines of the journal could not be read."""
    connection.execute(schema.table_ddl(Span))
    connection.execute(schema.DAMAGE)


def m008_polishing(connection: Connection) -> None:
    """What an editor made of a task's words."""
    connection.execute("ALTER TABLE verdict ADD COLUMN IF NOT EXISTS edit JSON")


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    m001_tables,
    m002_optimiser_steps,
    m003_refining,
    m004_redistributable,
    m005_judging,
    m006_flywheel,
    m007_spans,
    m008_polishing,
)


def version(connection: Connection) -> int:
    """How many migrations the index has had; 0 = blank."""
    known = connection.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'migration'").fetchall()
    if known == [(0,)]:
        return 0
    (row,) = connection.execute("SELECT coalesce(max(version), 0) FROM migration").fetchall()
    return int(row[0])


def migrate(connection: Connection) -> None:
    """Bring the index up to date, in one transaction. StoreError if it is newer than this code."""
    have, want = version(connection), len(MIGRATIONS)
    if have > want:
        raise StoreError(
            f"the store has schema version {have}, this coevolve knows up to {want}: it was written by a newer "
            "version; upgrade coevolve"
        )
    if have == want:
        return
    connection.execute("BEGIN")
    try:
        _apply(connection, have)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _apply(connection: Connection, have: int) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS migration (version BIGINT PRIMARY KEY, name VARCHAR NOT NULL)")
    for number, migration in enumerate(MIGRATIONS[have:], start=have + 1):
        migration(connection)
        connection.execute("INSERT INTO migration VALUES (?, ?)", (number, migration.__name__))
    for ddl in schema.views():
        connection.execute(ddl)
