"""Reading SQL text: tokens, skeletons, spelling, difficulty; total on any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.text2sql import sqltext

NOT_SQL = [
    "",
    " ",
    "hello world",
    "I think the answer is 42.",
    "SELECT",
    "SELEC name FROM t",
    "SELECT 1; SELECT 2",
    "DROP TABLE t",
    "VALUES (1)",
    "(SELECT 1)",
    "EXPLAIN SELECT 1",
    "PRAGMA user_version",
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "SELECT " + "NOT " * 2000 + "1",
    "SELECT '" + "x" * 1_000_000 + "'",
    "\ud800",
]


@pytest.mark.parametrize("text", NOT_SQL)
def test_what_is_no_select_is_one_invalid_token(text: str) -> None:
    assert sqltext.action_tokens(text) == ["invalid"]
    assert sqltext.structure(text) == "invalid"
    assert sqltext.difficulty(text) == 0.0
    assert sqltext.cte_expansion(text) is None
    assert sqltext.parse(text) is None
    assert not sqltext.ordered(text)


@pytest.mark.parametrize(
    ("sql", "tokens"),
    [
        ("SELECT a FROM t", "SELECT"),
        ("select count(*) from t, u where t.i = u.i", "SELECT JOIN WHERE"),
        (
            "SELECT a FROM t JOIN u ON t.i = u.i LEFT JOIN v ON 1 WHERE b GROUP BY a HAVING c ORDER BY a LIMIT 1",
            "SELECT JOIN JOIN WHERE GROUP HAVING ORDER LIMIT",
        ),
        ("SELECT a FROM t UNION SELECT b FROM u WHERE c ORDER BY 1", "SELECT SET SELECT WHERE ORDER"),
        ("SELECT a FROM t EXCEPT SELECT b FROM u INTERSECT SELECT c FROM v", "SELECT SET SELECT SET SELECT"),
        ("SELECT a FROM t WHERE b > (SELECT avg(b) FROM t)", "SELECT WHERE SUBQUERY SELECT"),
        ("SELECT a FROM t WHERE b IN (SELECT b FROM u WHERE c) LIMIT 1", "SELECT WHERE SUBQUERY SELECT WHERE LIMIT"),
        ("SELECT a FROM (SELECT a FROM t WHERE b) WHERE c", "SELECT SUBQUERY SELECT WHERE WHERE"),
        ("WITH q AS (SELECT a FROM t) SELECT a FROM q", "SUBQUERY SELECT SELECT"),
        ("SELECT (SELECT max(b) FROM u) FROM t", "SELECT SUBQUERY SELECT"),
        ("SELECT a FROM t JOIN u ON t.i = (SELECT min(i) FROM v) WHERE b", "SELECT JOIN SUBQUERY SELECT WHERE"),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u UNION SELECT 2)", "SELECT WHERE SUBQUERY SELECT SET SELECT"),
    ],
)
def test_one_token_a_clause_in_order_of_appearance(sql: str, tokens: str) -> None:
    assert sqltext.action_tokens(sql) == tokens.split()


@pytest.mark.parametrize(
    ("sql", "skeleton"),
    [
        ("SELECT name FROM city WHERE country = 'France'", "SELECT _ FROM _ WHERE _ = ?"),
        ('SELECT name FROM city WHERE country = "France"', "SELECT _ FROM _ WHERE _ = ?"),
        ("SELECT a.x AS y FROM t a INNER JOIN u AS b ON a.i = b.i", "SELECT _ FROM _ JOIN _ ON _ = _"),
        ("SELECT count(*) FROM t WHERE a IN (1, 2, 3)", "SELECT COUNT(*) FROM _ WHERE _ IN (?)"),
        ("SELECT a FROM t WHERE b > -1.5", "SELECT _ FROM _ WHERE _ > ?"),
        ("SELECT a, count(*) AS n FROM t GROUP BY a ORDER BY n DESC", None),
        ("SELECT a FROM t ORDER BY a ASC LIMIT 3", "SELECT _ FROM _ ORDER BY _ LIMIT ?"),
        ("SELECT t.* FROM t", "SELECT * FROM _"),
    ],
)
def test_a_skeleton_has_no_names_no_literals_no_aliases(sql: str, skeleton: str | None) -> None:
    wanted = skeleton or "SELECT _, COUNT(*) FROM _ GROUP BY _ ORDER BY COUNT(*) DESC"
    assert sqltext.structure(sql) == wanted
    assert sqltext.structure(wanted) == wanted


def test_skeletons_tell_shapes_apart() -> None:
    shapes = ["SELECT a FROM t", "SELECT a, b FROM t", "SELECT DISTINCT a FROM t", "SELECT max(a) FROM t", "SELECT 1"]
    assert len({sqltext.structure(sql) for sql in shapes}) == len(shapes)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("SELECT name FROM city", "select  T1.NAME as n\nfrom City as T1", True),
        ("SELECT a FROM t JOIN u ON t.i = u.i", "SELECT a FROM t AS x INNER JOIN u y ON x.i = y.i", True),
        ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY a ASC", True),
        (
            "SELECT a, count(*) FROM t GROUP BY a ORDER BY count(*)",
            "SELECT a, count(*) n FROM t GROUP BY a ORDER BY n",
            True,
        ),
        ("SELECT a FROM t WHERE b = 'X'", "SELECT a FROM t WHERE b = 'x'", False),
        ("SELECT a FROM t WHERE b = 1", "SELECT a FROM t WHERE b = 2", False),
        ("SELECT x.a FROM t x JOIN t y ON x.i = y.j", "SELECT y.a FROM t x JOIN t y ON x.i = y.j", False),
        ("SELECT a FROM t", "SELECT a FROM u", False),
        ("not sql", "not  sql", False),
    ],
)
def test_canonical_forms_agree_just_for_the_same_statement(one: str, other: str, equal: bool) -> None:
    assert (sqltext.canonical(one) == sqltext.canonical(other)) is equal


def test_difficulty_grows_with_every_clause() -> None:
    ladder = [
        "SELECT a FROM t",
        "SELECT a FROM t WHERE b = 1",
        "SELECT a FROM t WHERE b = 1 ORDER BY a",
        "SELECT a FROM t WHERE b = 1 ORDER BY a LIMIT 3",
        "SELECT a, count(*) FROM t WHERE b = 1 GROUP BY a ORDER BY a LIMIT 3",
        "SELECT a, count(*) FROM t WHERE b = 1 GROUP BY a HAVING count(*) > 2 ORDER BY a LIMIT 3",
        "SELECT a, count(*) FROM t JOIN u ON t.i = u.i WHERE b = 1 GROUP BY a HAVING count(*) > 2 ORDER BY a LIMIT 3",
    ]
    measures = [sqltext.difficulty(sql) for sql in ladder]
    assert measures == sorted(set(measures))
    assert measures[:3] == [1.0, 1.5, 2.0]
    assert sqltext.difficulty("SELECT a FROM t WHERE b > (SELECT avg(b) FROM t)") == 1.0 + 0.5 + 0.5 + 1.5
    assert sqltext.difficulty("SELECT a FROM t UNION SELECT b FROM u") == pytest.approx(3.0, abs=0.5)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("SELECT 1", "SELECT 1"),
        (" SELECT 1 ; ;\n", "SELECT 1"),
        ("```sql\nSELECT 1;\n```", "SELECT 1"),
        ("```\nSELECT 1\n```", "SELECT 1"),
        ("Here it is:\n```SQL\nSELECT 1;\n```\nIt counts.", "SELECT 1"),
        ("```sql SELECT 1```", "SELECT 1"),
        ("```sql\nSELECT 1", "SELECT 1"),
        ("```sqlite\nSELECT 1\n```\n```sql\nSELECT 2\n```", "SELECT 1"),
        ("SELECT 1; SELECT 2;", "SELECT 1; SELECT 2"),
        ("", ""),
    ],
)
def test_the_statement_is_found_in_a_reply(text: str, sql: str) -> None:
    assert sqltext.extract_sql(text) == sql


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("SELECT 1 -- one\n, 2", "SELECT 1  \n, 2"),
        ("SELECT /* a */ 1 /* b", "SELECT   1  "),
        ("SELECT '--' \"/*\" `--` [--], 'it''s -- it'", "SELECT '--' \"/*\" `--` [--], 'it''s -- it'"),
        ("SELECT 1 /* /* */ + 1 -- */ */", "SELECT 1   + 1  "),
    ],
)
def test_comments_end_where_sqlite_ends_them(text: str, bare: str) -> None:
    assert sqltext.strip_comments(text) == bare


def test_with_clauses_are_measured_unfolded() -> None:
    assert sqltext.cte_expansion("SELECT 1") == 1
    assert sqltext.cte_expansion("WITH q AS (SELECT 1) SELECT * FROM q a, q b") == 3
    assert sqltext.cte_expansion("WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x FROM r) SELECT x FROM r") == 4
    chain = ", ".join(f"a{i} AS (SELECT p.x FROM a{i - 1} p, a{i - 1} q)" for i in range(1, 30))
    bomb = f"WITH a0 AS (SELECT 1 x), {chain} SELECT x FROM a29"
    harmless = ", ".join(f"a{i} AS (SELECT 1)" for i in range(30))
    for disguise in (bomb, f"{bomb} WHERE 1 IN (WITH {harmless} SELECT 1)", f"SELECT 1 UNION SELECT * FROM ({bomb})"):
        assert (sqltext.cte_expansion(disguise) or 0) > 10**9


CLAUSES = set(
    sqltext.action_tokens("SELECT a FROM t JOIN u ON 1 WHERE (SELECT 1) GROUP BY a HAVING a ORDER BY a LIMIT 1")
)
WORDS = """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT UNION JOIN ON AS WITH ( ) ) , . * ' " ` ; -- /* */ = < IN NOT NULL
    CASE WHEN THEN END city name a 1 -1 1e999 COUNT( MAX( x'ff' ? :a @b [ ] || é ``` OVER PARTITION SELECT FROM
"""
HOSTILE = st.sampled_from([*WORDS.split(), "\x00", "\ud800"])


@given(st.one_of(st.text(max_size=200), st.lists(HOSTILE, max_size=40).map(" ".join)))
def test_every_function_is_total(text: str) -> None:
    sql = sqltext.extract_sql(text)
    tokens = sqltext.action_tokens(sql)
    assert tokens == ["invalid"] or set(tokens) <= CLAUSES | {"SET"}
    assert (tokens == ["invalid"]) == (sqltext.structure(sql) == "invalid") == (sqltext.difficulty(sql) == 0.0)
    assert isinstance(sqltext.canonical(sql), str)
    assert len(sqltext.settled(sql, 2)) in (0, 2)
    sqltext.cte_expansion(sql)
