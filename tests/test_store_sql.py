"""Users' SQL: one read-only statement, errors in DuckDB's words, nothing else of the machine within reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.db import Store
from store.errors import UsageError
from tests.store_rows import task


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("store"))
    store.append(task(1), task(2))
    return store


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM task",
        "select count(*) from task;",
        "FROM task SELECT count(*)",
        "WITH x AS (FROM task) SELECT count(*) FROM x",
        "-- how many?\nSELECT count(*) FROM task",
    ],
)
def test_a_question_is_answered(store: Store, query: str) -> None:
    table = store.sql(query)
    assert (table.columns, table.rows) == (["count_star()"], [(2,)])


@pytest.mark.parametrize("query", ["SHOW TABLES", "DESCRIBE task", "SUMMARIZE task", "EXPLAIN SELECT 1"])
def test_looking_around_is_allowed(store: Store, query: str) -> None:
    assert store.sql(query).rows


def test_reference_and_expected_are_json(store: Store) -> None:
    assert store.sql("SELECT expected ->> '$.rows[0][1]' FROM task").rows == [("0.5",), ("0.5",)]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELCT 1", 'syntax error at or near "SELCT"'),
        ("SELECT tokns FROM step", 'Candidate bindings: "tokens"'),
        ("SELECT s.indx FROM step s", '"index"'),
        ("SELECT step.tokns FROM step", '"tokens"'),
        ("SELECT v_rollout.stps FROM v_rollout", "nearest columns of v_rollout are steps, "),
        (
            "SELECT r.stps FROM v_rollout AS r JOIN task t ON t.id = r.task_id",
            "nearest columns of v_rollout are steps, ",
        ),
        ("SELECT x.stps FROM (SELECT 1 AS steps) x", 'does not have a column named "stps"'),
        ("SELECT * FROM tsk", 'Did you mean "task"?'),
        ("SELECT world::INT FROM task", "Could not convert string 'shop'"),
        ("SELECT 'x' + 1", "Could not choose a best candidate function"),
        ("SELECT 1; SELECT 2", "expected one statement, got 2"),
        ("", "expected one statement, got 0"),
        ("-- nothing", "expected one statement, got 0"),
        ("SELECT \ud800", "not valid text"),
    ],
)
def test_a_malformed_question_is_one_clear_line(store: Store, query: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        store.sql(query)
    message = str(caught.value)
    assert message.startswith("sql: ")
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO withdrawal VALUES ('r', 't', 0, 'x')",
        "DELETE FROM task",
        "UPDATE task SET world = ''",
        "DROP TABLE task",
        "CREATE TABLE x (a INT)",
        "CREATE TEMP TABLE x (a INT)",
        "ATTACH ':memory:' AS x",
        "COPY task TO '{out}'",
        "COPY (SELECT 1) TO '{out}'",
        "EXPORT DATABASE '{out}'",
        "PRAGMA database_list",
        "SET threads = 1",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CALL pragma_version()",
        "CHECKPOINT",
        "BEGIN",
        "USE memory",
        "EXPLAIN ANALYZE INSERT INTO withdrawal VALUES ('r', 't', 0, 'x')",
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM glob('{secret}')",
        "SELECT * FROM read_csv('{secret}')",
        "WITH x AS (INSERT INTO withdrawal VALUES ('r', 't', 0, 'x') RETURNING *) SELECT * FROM x",
    ],
)
def test_all_else_is_refused_and_changes_nothing(store: Store, tmp_path: Path, query: str) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with pytest.raises(UsageError, match=r"^sql: "):
        store.sql(query.format(out=tmp_path / "out", secret=tmp_path / "secret.csv"))
    assert not (tmp_path / "out").exists()
    assert store.query("SELECT count(*) FROM task") == [(2,)]
    assert store.query("SELECT count(*) FROM withdrawal") == [(0,)]
