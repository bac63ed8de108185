"""The query algebra: parse and render are inverse, total over any text, and names are resolved or refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.text2sql import sqltext
from envs.text2sql.procedural_grammar import bases, skeleton
from envs.text2sql.procedural_parse import parse
from envs.text2sql.procedural_query import Col, columns, levels, render
from envs.text2sql.procedural_scene import tables_of, understood

SHOP = {table.name: table for table in tables_of("CREATE TABLE a (id INT PRIMARY KEY, x INT, s TEXT); b(a_id, y)")}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT s FROM a",
        "SELECT DISTINCT s, x FROM a WHERE x > -3 AND s LIKE 'It''s%'",
        "SELECT a.s FROM b JOIN a ON a.id = b.a_id WHERE b.y IN ('p', 'q') OR a.x != 2.5",
        "SELECT s, COUNT(*) FROM a GROUP BY s HAVING COUNT(*) >= 3 ORDER BY COUNT(*) DESC, s LIMIT 3",
        "SELECT COUNT(DISTINCT s), AVG(x) FROM a WHERE x BETWEEN 1 AND 5 AND s IS NOT NULL",
        "SELECT s FROM a WHERE x > (SELECT AVG(x) FROM a) AND id NOT IN (SELECT a_id FROM b WHERE y = 'p')",
        "SELECT s FROM a WHERE x > 3 INTERSECT SELECT s FROM a WHERE x < 9 ORDER BY s LIMIT 2",
    ],
)
def test_rendering_what_was_parsed_gives_the_same_text(sql: str) -> None:
    query = parse(sql)
    assert query is not None
    assert render(query) == sql
    assert parse(render(query)) == query


@pytest.mark.parametrize(
    ("sql", "same"),
    [
        ("select T.s from a as T where T.x=1", "SELECT s FROM a WHERE x = 1"),
        (
            "SELECT s, COUNT(*) AS n FROM a GROUP BY s ORDER BY n",
            "SELECT s, COUNT(*) FROM a GROUP BY s ORDER BY COUNT(*)",
        ),
        ("SELECT s FROM a WHERE (x > 1) AND (s = 'p')", "SELECT s FROM a WHERE x > 1 AND s = 'p'"),
    ],
)
def test_aliases_and_parentheses_are_gone(sql: str, same: str) -> None:
    assert parse(sql) == parse(same)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "SELEC",
        "SELECT 1",
        "SELECT 1; SELECT 2",
        "DROP TABLE a",
        "SELECT * FROM a",
        "WITH q AS (SELECT 1) SELECT * FROM q",
        "SELECT x + 1 FROM a",
        "SELECT s FROM a WHERE x > 1 AND (x < 2 OR s = 'p')",
        "SELECT s FROM a LIMIT 1 OFFSET 2",
        "SELECT s FROM a LEFT JOIN b ON id = a_id",
        "SELECT s FROM (SELECT s FROM a)",
        "SELECT s FROM a UNION ALL SELECT s FROM a",
    ],
)
def test_what_the_algebra_cannot_say_is_none(sql: str) -> None:
    assert parse(sql) is None


@given(
    st.text()
    | st.lists(
        st.sampled_from(["SELECT", "FROM", "WHERE", "(", ")", ",", "*", "a.x", "'p", "1", "=", "IN", "GROUP", "BY"])
    ).map(" ".join)
)
def test_any_text_is_read_without_an_error(text: str) -> None:
    query = parse(text)
    if query:
        assert sqltext.structure(render(query)) != sqltext.INVALID
    assert understood(text, SHOP) is None or query is not None
    tables_of(text)


def test_structure_keys_are_skeletons_of_the_same_structure() -> None:
    rng = random.Random(0)
    for query in (*bases()[0], *(skeleton(rng, easy=0.2) for _ in range(200))):
        key = sqltext.structure(render(query))
        again = parse(key)
        assert again is not None, key
        assert sqltext.structure(render(again)) == key


def test_columns_find_their_tables() -> None:
    query = understood("SELECT s FROM b JOIN a ON id = a_id WHERE y = 'p' AND x > (SELECT AVG(x) FROM a)", SHOP)
    assert query is not None
    assert {col for level in levels(query) for col in columns(level)} == {Col("a", "s"), Col("b", "y"), Col("a", "x")}


@pytest.mark.parametrize("sql", ["SELECT z FROM a", "SELECT s FROM c", "SELECT a.y FROM a JOIN b ON a.id = b.a_id"])
def test_unknown_names_are_refused(sql: str) -> None:
    assert understood(sql, SHOP) is None


def test_descriptions_tell_types_keys_and_links() -> None:
    (table,) = tables_of(
        "CREATE TABLE t (\n  u_id INTEGER REFERENCES u(id),\n  v_id INTEGER,\n  n NUMERIC(8, 2),\n  s TEXT,\n"
        "  PRIMARY KEY (u_id, v_id),\n  FOREIGN KEY (v_id) REFERENCES v (key)\n);"
    )
    assert list(table.types) == ["u_id", "v_id", "n", "s"]
    assert table.keys == {"u_id", "v_id"}
    assert set(table.links) == {("u_id", "u", "id"), ("v_id", "v", "key")}
    assert table.plain == ["n", "s"]
