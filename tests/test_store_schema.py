"""The index's columns are frozen: whoever changes a row type or a view sees it here, and adds a migration."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from store import migrations, schema
from store.db import Store
from store.errors import StoreError
from store.migrations import migrate, version
from store.rows import Task
from tests.store_rows import task

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def blank() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def described(connection: duckdb.DuckDBPyConnection) -> str:
    """One line a table or view: its columns with their types, in order; `!` = not null."""
    found = connection.execute("""
        SELECT table_name, list(column_name || ' ' || data_type || if(is_nullable, '', '!') ORDER BY column_index)
        FROM duckdb_columns() WHERE NOT internal GROUP BY table_name ORDER BY table_name""").fetchall()
    return "".join(f"{table}({', '.join(columns)})\n" for table, columns in found)


def test_the_columns_of_tables_and_views_are_frozen(blank: duckdb.DuckDBPyConnection) -> None:
    migrate(blank)
    assert described(blank) == (GOLDEN / "index_columns.txt").read_text()


def test_the_oldest_index_arrives_at_the_columns_of_a_blank_one(blank: duckdb.DuckDBPyConnection) -> None:
    blank.execute((GOLDEN / "index_m001.sql").read_text())
    assert version(blank) == 1
    migrate(blank)
    for ddl in schema.views():
        blank.execute(ddl)
    with duckdb.connect() as fresh:
        migrate(fresh)
        assert described(blank) == described(fresh)
        assert version(blank) == version(fresh) == len(migrations.MIGRATIONS)


def test_tasks_of_an_older_index_may_be_passed_on(blank: duckdb.DuckDBPyConnection) -> None:
    blank.execute((GOLDEN / "index_m001.sql").read_text())
    blank.execute("""
        INSERT INTO task (id, env, env_version, world, split, user_turns, tools, structure, difficulty, origin)
        VALUES ('x', 'e', '1', 'w', 'train', [], [], 's', 1, 'seed')""")
    migrate(blank)
    assert blank.execute("SELECT id, redistributable FROM task").fetchall() == [("x", True)]


def test_whether_a_task_may_be_passed_on_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    mine, theirs = task(1), task(2, redistributable=False)
    store.append(mine, theirs)
    assert store.rows(Task, "redistributable") == [mine]
    assert store.rows(Task, "NOT redistributable") == [theirs]


def test_a_task_of_an_older_journal_may_be_passed_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append(task(1, redistributable=False))
    store.journal.close()
    (segment,) = (tmp_path / "journal").glob("*.jsonl")
    _, comma, body = segment.read_bytes().rstrip(b"\n").partition(b'",')
    before = body.replace(b',"redistributable":false', b"")
    assert before != body
    segment.write_bytes(b'{"crc":"%08x%s%s\n' % (zlib.crc32(before), comma, before))
    assert [each.redistributable for each in Store(tmp_path).rows(Task)] == [True]


def test_migrating_again_changes_nothing(blank: duckdb.DuckDBPyConnection) -> None:
    migrate(blank)
    blank.execute("INSERT INTO cursor VALUES ('s', 1, 1)")
    migrate(blank)
    assert blank.execute("FROM cursor").fetchall() == [("s", 1, 1)]


def test_a_migration_that_fails_leaves_the_index_as_it_was(
    blank: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(blank)
    before = described(blank)

    def broken(connection: migrations.Connection) -> None:
        connection.execute("CREATE TABLE half (a INT)")
        raise RuntimeError("broken")

    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, broken))
    with pytest.raises(RuntimeError):
        migrate(blank)
    assert described(blank) == before


def test_an_index_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append(task(1))
    store.ingest()
    with store.reading() as connection:
        connection.execute("INSERT INTO migration VALUES (99, 'm099_future')")
    for action in (store.ingest, store.rebuild, store.check, lambda: store.query("SELECT 1")):
        with pytest.raises(StoreError, match=r"schema version 99.*upgrade coevolve"):
            action()
    with duckdb.connect(str(store.index)) as connection:
        assert connection.execute("SELECT count(*) FROM task").fetchall() == [(1,)]


def test_every_view_says_what_its_rows_are() -> None:
    assert all(select.strip().startswith("-- ") for select in schema.VIEWS.values())
