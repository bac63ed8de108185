"""SQLite under lock: what runs, what is refused, whose fault a slow query is."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs.text2sql import engine
from envs.text2sql.engine import Database, Limits, QueryError, Result, build, tables
from envs.text2sql.world import Populations, SqlWorld
from tests.tiny_sql import DDL, ROWS, tiny_world

COUNT_UP = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r WHERE x < {}) SELECT count(*) FROM r"


@contextmanager
def opened(limits: Limits | None = None, *, reverse: bool = False) -> Iterator[Database]:
    database = Database(build(DDL, ROWS[0]), limits, reverse=reverse)
    yield database
    database.close()


def run(sql: str, limits: Limits | None = None) -> Result | QueryError:
    with opened(limits) as database:
        return database.run(sql)


def rows(sql: str) -> list[tuple[engine.Value, ...]]:
    result = run(sql)
    assert isinstance(result, Result), result
    return result.rows


def kind(sql: str, limits: Limits | None = None) -> str:
    result = run(sql, limits)
    return result.kind if isinstance(result, QueryError) else "ran"


def test_a_select_gives_columns_and_rows() -> None:
    result = run("-- comment\n/* another */ SELECT name, sales FROM shop WHERE stars = 3 ORDER BY sales DESC;")
    assert result == Result(columns=["name", "sales"], rows=[("Ann", 10.5), ("Cy", 3.5)])
    assert rows("WITH q AS (SELECT max(stars) m FROM shop) SELECT name FROM shop, q WHERE stars = m") == [("Bo",)]


def test_a_population_is_the_same_bytes_each_time_and_each_database_its_own_copy() -> None:
    assert build(DDL, ROWS[0]) == build(DDL, ROWS[0])
    with pytest.raises(ValueError, match="1 rows point at nothing, the first in table shop"):
        build(DDL, {"shop": [(1, "Ann", 99, 1.0, 1)]})


def test_the_schema_as_data() -> None:
    city, shop = tables(build(DDL, {}))
    assert [(c.name, c.type, c.primary_key) for c in city.columns] == [
        ("id", "INTEGER", True),
        ("name", "TEXT", False),
        ("country", "TEXT", False),
    ]
    assert [c.references for c in shop.columns] == [None, None, ("city", "id"), None, None]
    (bare,) = tables(build("CREATE TABLE p (k INTEGER PRIMARY KEY, q INTEGER REFERENCES p);", {}))
    assert bare.columns[1].references == ("p", "k")


def test_odd_names_are_quoted_where_a_model_reads_them() -> None:
    assert [engine.sql_name(text) for text in ("name", "order", "Free Meal (%)", 'a"b', "2nd", "é")] == [
        "name",
        '"order"',
        '"Free Meal (%)"',
        '"a""b"',
        '"2nd"',
        '"é"',
    ]
    source = build('CREATE TABLE "my order" ("group" INTEGER, k INTEGER, PRIMARY KEY ("group", k));', {})
    world = SqlWorld(id="odd", split="train", tables=tuple(tables(source)), populations=(source,))
    assert world.compact() == '"my order"("group",k)'
    assert (
        world.describe()
        == 'CREATE TABLE "my order" (\n  "group" INTEGER,\n  k INTEGER,\n  PRIMARY KEY ("group", k)\n);'
    )
    assert tables(build(world.describe(), {})) == list(world.tables)


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("SELECT date('2024-02-28', '+2 days')", "2024-03-01"),
        ("SELECT strftime('%Y', '2024-02-28')", "2024"),
        ("SELECT strftime('%Y', NULL)", None),
        ("SELECT julianday('2000-01-01') - julianday('1999-12-31')", 1.0),
        ("SELECT unixepoch('1970-01-02')", 86400),
        ("SELECT round(sum(sales), 1) FROM shop", 22.5),
        ("SELECT upper(substr(name, 1, 2)) FROM city WHERE name LIKE 'o%'", "OS"),
        ("SELECT CAST(x'ff41' AS TEXT)", "\ufffdA"),
        ("SELECT row_number() OVER (ORDER BY stars) FROM shop LIMIT 1", 1),
    ],
)
def test_pure_functions_work(sql: str, value: engine.Value) -> None:
    assert rows(sql) == [(value,)]


@pytest.mark.parametrize(
    "call",
    [
        "date()",
        "date('now')",
        "date('NOW', '+1 day')",
        "date('n' || 'ow')",
        "date(x'6e6f77')",
        "date('now' || char(0) || 'x')",
        "time('12:00', 'localtime')",
        "datetime('2020-01-01', 'utc')",
        "julianday('now')",
        "unixepoch()",
        "strftime('%Y')",
        "strftime('%Y', 'now')",
        "date('subsec')",
        "CURRENT_DATE",
        "current_timestamp",
    ],
)
def test_the_present_moment_is_not_available(call: str) -> None:
    assert kind(f"SELECT {call}") == "refused"


@pytest.mark.parametrize(
    "call",
    [
        "random()",
        "randomblob(4)",
        "zeroblob(9)",
        "load_extension('x')",
        "printf('%d', 1)",
        "sqlite_version()",
        "json('1')",
    ],
)
def test_only_listed_functions_are_available(call: str) -> None:
    name = call.split("(")[0]
    assert run(f"SELECT {call}") == QueryError(kind="refused", message=f"the function {name} is not available")


def test_errors_are_in_sqlites_words() -> None:
    assert run("SELECT nope FROM shop") == QueryError(kind="runtime", message="no such column: nope")
    assert run("SELECT * FROM nope") == QueryError(kind="runtime", message="no such table: nope")
    assert run("SELECT name FRM shop city") == QueryError(kind="syntax", message='near "shop": syntax error')


def test_a_database_is_usable_after_every_kind_of_failure() -> None:
    with opened(Limits(vm_steps=5000, rows=3)) as database:
        for sql in (
            "SELECT (",
            COUNT_UP.format(10**9),
            "SELECT 1 FROM shop, city",
            "SELECT random()",
            "SELECT date('now')",
        ):
            assert isinstance(database.run(sql), QueryError)
            assert database.run("SELECT count(*) FROM city") == Result(columns=["count(*)"], rows=[(3,)])


def test_rows_bytes_and_values_are_bounded() -> None:
    numbers = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r WHERE x < 1001) SELECT x FROM r"
    assert run(numbers) == QueryError(kind="too_large", message="the result has more than 1000 rows")
    assert kind(f"{numbers} LIMIT 1000") == "ran"
    text = "replace('" + "a" * 100 + "', 'a', '" + "b" * 100 + "')"
    assert kind(f"SELECT {text}, name FROM shop", Limits(result_bytes=30_000)) == "too_large"
    assert kind(f"SELECT {text}", Limits(value_bytes=9_000)) == "too_large"


def test_the_budget_of_steps_is_the_same_each_time() -> None:
    most = max(n for n in range(10, 200, 5) if kind(COUNT_UP.format(n), Limits(vm_steps=1000)) == "ran")
    assert 20 < most < 150
    assert all(kind(COUNT_UP.format(most), Limits(vm_steps=1000)) == "ran" for _ in range(5))
    assert kind(COUNT_UP.format(most + 50), Limits(vm_steps=1000)) == "budget"


def test_reverse_shows_which_results_hang_on_an_open_order() -> None:
    with opened(reverse=True) as database:
        assert database.run("SELECT id FROM city LIMIT 1") == Result(columns=["id"], rows=[(3,)])
        assert database.run("SELECT id FROM city ORDER BY id LIMIT 1") == Result(columns=["id"], rows=[(1,)])


def _clock(monkeypatch: pytest.MonkeyPatch, *statements: bool) -> None:
    """Each statement in turn finds its deadline passed (True) or not, whatever the real time."""
    slow = iter(statements)
    ticks = itertools.count()

    def monotonic() -> float:
        # a statement looks at the clock when it starts, then while it runs
        nonlocal late
        now = next(ticks)
        if now % 2 == 0:
            late = next(slow)
        return 1e9 if late and now % 2 else 0.0

    late = False
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=monotonic))


ONE_LOOK = COUNT_UP.format(20)
"""Long enough for exactly one look at the clock."""


def test_a_query_that_is_late_once_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    _clock(monkeypatch, True, False)
    populations = Populations(tiny_world())
    result = populations.run(0, ONE_LOOK)
    populations.close()
    assert result == Result(columns=["count(*)"], rows=[(20,)])


def test_a_query_that_is_late_twice_is_its_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    _clock(monkeypatch, True, True, False)
    populations = Populations(tiny_world())
    late, next_one = populations.run(0, ONE_LOOK), populations.run(0, ONE_LOOK)
    populations.close()
    assert late == QueryError(kind="deadline", message="the query ran over 5 s: it was stopped")
    assert isinstance(next_one, Result)


def test_a_real_deadline_stops_a_real_query() -> None:
    limits = Limits(vm_steps=10**12, deadline_s=0.05)
    populations = Populations(tiny_world(limits))
    result = populations.run(0, COUNT_UP.format(10**12))
    populations.close()
    assert isinstance(result, QueryError)
    assert result.kind == "deadline"


def test_a_file_is_opened_read_only(tmp_path: Path) -> None:
    path = tmp_path / "a b#?.sqlite"
    path.write_bytes(build(DDL, ROWS[0]))
    before = path.read_bytes()
    database = Database(path)
    assert database.run("SELECT count(*) FROM shop") == Result(columns=["count(*)"], rows=[(4,)])
    assert isinstance(database.run("WITH q AS (SELECT 1) DELETE FROM shop"), QueryError)
    database.close()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    with pytest.raises(sqlite3.Error):
        Database(tmp_path / "missing.sqlite")
