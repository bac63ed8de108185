"""Nothing that a policy writes crashes or hangs: it gets an observation, and a score of 0."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.protocols import Message, Observation, Outcome
from envs.text2sql.engine import Database, Limits, QueryError, Result
from tests.tiny_sql import task, tiny_env, tiny_world

BIG = "replace(replace('" + "a" * 100 + "', 'a', '" + "a" * 100 + "'), 'aa', 'aaa')"
"""A text of 15,000 characters."""
CHAIN = ", ".join(f"a{i} AS (SELECT p.x FROM a{i - 1} p, a{i - 1} q)" for i in range(1, 30))
RECURSIVE = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)"
CORPUS = {
    "nothing": "",
    "prose": "I would look at the shops and then count them.",
    "two statements": "SELECT name FROM shop; SELECT name FROM city",
    "a second one after a comment": "SELECT name FROM shop; -- x\nDROP TABLE shop",
    "drop": "DROP TABLE shop",
    "create": "CREATE TABLE x AS SELECT * FROM shop",
    "insert": "INSERT INTO shop SELECT * FROM shop",
    "update": "UPDATE shop SET name = 'Ann'",
    "delete": "DELETE FROM shop",
    "write behind a with": "WITH q AS (SELECT 1) DELETE FROM shop",
    "returning": "WITH q AS (SELECT 1) UPDATE shop SET stars = 1 RETURNING name",
    "pragma": "PRAGMA writable_schema = ON",
    "pragma function": "SELECT * FROM pragma_table_info('shop')",
    "table-valued function": "SELECT * FROM json_each('[1, 2]')",
    "dbstat": "SELECT * FROM dbstat",
    "attach": "ATTACH '/tmp/x.db' AS x",
    "detach": "DETACH main",
    "vacuum into": "VACUUM INTO '/tmp/x.db'",
    "begin": "BEGIN EXCLUSIVE",
    "explain": "EXPLAIN SELECT * FROM shop",
    "extension": "SELECT load_extension('/tmp/x.so')",
    "write a file": "SELECT writefile('/tmp/x', 'x')",
    "recursive bomb": f"{RECURSIVE} SELECT count(*) FROM r",
    "recursive bomb in rows": f"{RECURSIVE} SELECT x FROM r",
    "recursive bomb in text": "WITH RECURSIVE r(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM r) SELECT x FROM r",
    "sorting bomb": f"WITH RECURSIVE r AS (SELECT {BIG} x UNION ALL SELECT * FROM r) SELECT * FROM r ORDER BY x",
    "cross-join bomb": "SELECT count(*) FROM " + ", ".join(f"shop s{i}" for i in range(60)),
    "sorted cross-join bomb": "SELECT s0.name FROM " + ", ".join(f"shop s{i}" for i in range(14)) + " ORDER BY 1",
    "too many tables": "SELECT 1 FROM " + ", ".join(f"shop s{i}" for i in range(200)),
    "with bomb": f"WITH a0 AS (SELECT 1 x), {CHAIN} SELECT count(*) FROM a29",
    "nested with bomb": f"SELECT * FROM (WITH a0 AS (SELECT 1 x), {CHAIN} SELECT count(*) FROM a29)",
    "with bomb that no parser reads": f"WITH a0 AS (SELECT 1 x), {CHAIN} SELECT count(*) FROM a29 WHERE ((((",
    "with bomb under harmless names": f"WITH a0 AS (SELECT 1 x), {CHAIN} SELECT x FROM a29 "
    "WHERE 1 IN (WITH a1 AS (SELECT 1) SELECT 1)",
    "long chain": "WITH a0 AS (SELECT 1)" + "".join(f", a{i} AS (TABLE a{i - 1})" for i in range(1, 400)) + " SELECT 1",
    "long readable chain": "WITH a0 AS (SELECT 1)"
    + "".join(f",a{i} AS (SELECT*FROM a{i - 1})" for i in range(1, 330))
    + " SELECT*FROM a329",
    "with bomb behind nested comments": f"SELECT * FROM (/* /* */ WITH a0 AS (SELECT 1 x), {CHAIN} SELECT x FROM a29 "
    "UNION ALL -- */ */\nSELECT 1)",
    "zeroblob": "SELECT zeroblob(1000000000)",
    "printf": "SELECT printf('%.*c', 1000000000, 'x')",
    "format": "SELECT format('%1000000000d', 1)",
    "hex": f"SELECT hex(hex(hex({BIG})))",
    "group_concat": f"SELECT group_concat({BIG}) FROM shop a, shop b, shop c, shop d",
    "like": f"SELECT count(*) FROM shop a, shop b WHERE {BIG} || a.id LIKE '{'%a_' * 60}b' || b.id",
    "long like": f"SELECT 'a' LIKE '{'%' * 5000}'",
    "glob": f"SELECT {BIG} GLOB '{'*a?' * 60}b'",
    "instr": "SELECT " + ", ".join(f"instr({BIG}, {BIG} || 'b{i}')" for i in range(18)),
    "trim": f"SELECT trim({BIG}, {BIG})",
    "a megabyte": "SELECT '" + "x" * 2**20 + "'",
    "a megabyte of words": "SELECT " + "name, " * 200_000,
    "a megabyte of parentheses": "SELECT " + "(" * 2**20,
    "nul": "SELECT name\0 FROM shop",
    "nul in a text": "SELECT 'a\0b'",
    "surrogate": "SELECT '\ud800'",
    "bom": "\ufeffSELECT name FROM shop",
    "deep parentheses": "SELECT " + "(" * 3000 + "1" + ")" * 3000,
    "deep not": "SELECT " + "NOT " * 2000 + "1",
    "deep minus": "SELECT " + "- " * 4000 + "1",
    "deep case": "SELECT " + "CASE WHEN 1 THEN " * 400 + "1" + " END" * 400,
    "deep and": "SELECT 1 WHERE " + " AND ".join(["1"] * 1500),
    "deep subqueries": "SELECT * FROM " + "(SELECT * FROM " * 300 + "shop" + ")" * 300,
    "deep in": "SELECT 1 WHERE " + "1 IN (SELECT " * 300 + "1" + ")" * 300,
    "many unions": " UNION ALL ".join(["SELECT 1"] * 800),
    "many columns": "SELECT " + ", ".join(["1"] * 4000),
    "many arguments": "SELECT max(" + ", ".join(["1"] * 4000) + ")",
    "parameters": "SELECT ?, :a, @b, $c",
    "unfinished comment": "SELECT name FROM shop /* " + "*" * 5000,
    "many comments": "/**/" * 2000 + "DROP TABLE shop",
    "unfinished text": "SELECT 'name FROM shop",
    "only semicolons": ";" * 5000,
    "overflow": "SELECT abs(-9223372036854775807 - 1)",
    "sum overflow": "SELECT sum(9223372036854775807) FROM shop",
    "misused aggregate": "SELECT name FROM shop WHERE max(stars)",
    "misused window": "SELECT name FROM shop WHERE row_number() OVER ()",
    "escape": "SELECT 'a' LIKE 'a' ESCAPE 'xx'",
    "collation": "SELECT name FROM shop ORDER BY name COLLATE nope",
    "backtick soup": "```sql\n```sql\n```",
    "wrong fence": "```python\nprint('SELECT 1')\n```",
}
RIGHT = "SELECT name FROM shop WHERE stars = 5"


def direct(*replies: Any) -> tuple[list[Observation], Outcome]:
    async def episode() -> tuple[list[Observation], Outcome]:
        session = tiny_env().open("tiny", task(RIGHT))
        await session.start()
        seen = [await session.act({"role": "assistant", "content": reply}) for reply in replies]
        outcome = await session.evaluate()
        await session.close()
        return seen, outcome

    return asyncio.run(episode())


def tools(message: Message) -> tuple[Observation, Outcome]:
    async def episode() -> tuple[Observation, Outcome]:
        session = tiny_env().open("tiny", task(RIGHT), tools=True)
        await session.start()
        observation = await session.act(message)
        outcome = await session.evaluate()
        await session.close()
        return observation, outcome

    return asyncio.run(episode())


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_in_direct_mode(name: str) -> None:
    started = time.monotonic()
    (first, second), outcome = direct(CORPUS[name], CORPUS[name])
    assert (outcome.kind, outcome.score) == ("scored", 0.0)
    if first.failed:
        assert first.messages[0]["content"].startswith("Error: ")
        assert len(first.messages[0]["content"]) < 1000
    assert second.done
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_through_tools(name: str) -> None:
    calls = [
        {"id": str(i), "name": tool, "args": {"sql": CORPUS[name]}} for i, tool in enumerate(["run_sql", "submit_sql"])
    ]
    observation, outcome = tools({"role": "assistant", "content": None, "tool_calls": calls})
    assert (outcome.kind, outcome.score) == ("scored", 0.0)
    for message in observation.messages:
        assert len(json.dumps(json.loads(message["content"]))) < 5000


def test_no_statement_of_the_corpus_changes_a_database() -> None:
    world = tiny_world(Limits(vm_steps=100_000))
    database = Database(world.populations[0], world.limits)
    everything = "SELECT c.name, s.* FROM city c LEFT JOIN shop s ON s.city_id = c.id ORDER BY c.id, s.id"
    before = database.run(everything)
    for sql in CORPUS.values():
        database.run(sql)
    after = database.run(everything)
    database.close()
    assert isinstance(before, Result)
    assert before == after


TOKENS = """
    SELECT FROM WHERE GROUP BY HAVING ORDER BY LIMIT UNION ALL EXCEPT JOIN LEFT ON AS WITH RECURSIVE ( ) , . * ; = < ||
    IN NOT NULL CASE WHEN THEN ELSE END shop city name stars sales id 's' "q" 1 -1 2.5 x'ff' COUNT( MAX( date( replace(
    group_concat( DISTINCT EXISTS OVER PARTITION COLLATE NOCASE CAST VALUES DELETE PRAGMA -- /* */ ' SELECT FROM shop
"""
SQLISH = st.lists(st.sampled_from([*TOKENS.split(), "\0", "\ud800", "é"]), max_size=30).map(" ".join)
QUICK = tiny_world(Limits(vm_steps=200_000, deadline_s=1.0))


@given(st.one_of(st.text(max_size=100), SQLISH, SQLISH.map(lambda text: f"SELECT {text}")))
@settings(max_examples=400)
def test_the_engine_is_total(sql: str) -> None:
    database = Database(QUICK.populations[0], QUICK.limits)
    result = database.run(sql)
    database.close()
    assert isinstance(result, Result | QueryError)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["list_tables", "describe_table", "run_sql", "submit_sql", "nope", "\ud800", "", None, 7])
ARGS = JSON | st.fixed_dictionaries({"sql": SQLISH | JSON}) | st.fixed_dictionaries({"table": st.just("shop") | JSON})
CALLS = st.fixed_dictionaries({}, optional={"id": JSON, "name": NAMES, "args": ARGS}) | JSON
MESSAGES = st.fixed_dictionaries(
    {}, optional={"content": JSON | SQLISH, "tool_calls": JSON | st.lists(CALLS, max_size=3)}
)


@given(MESSAGES)
def test_any_message_gets_an_observation_in_both_modes(message: Message) -> None:
    for mode in (False, True):

        async def episode(tools: bool = mode) -> Outcome:
            session = tiny_env().open("tiny", task(RIGHT), tools=tools)
            observation = await session.act(message)
            assert observation.done == (not observation.messages)
            outcome = await session.evaluate()
            await session.close()
            return outcome

        assert asyncio.run(episode()).kind == "scored"
