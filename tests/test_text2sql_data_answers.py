"""What the three populations are for: wrong answers fail, other spellings of a right one pass."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator

import pytest
import sqlglot
from sqlglot import exp

from envs.protocols import Outcome
from envs.text2sql.env import Text2Sql, builtin
from scripts.build_text2sql import __main__ as build
from scripts.build_text2sql.check import signature
from store.rows import Task

OTHER_AGGREGATE: dict[type, type[exp.Func]] = {exp.Sum: exp.Max, exp.Avg: exp.Sum, exp.Max: exp.Min, exp.Min: exp.Max}


def mutants(sql: str) -> Iterator[str]:
    """The statement with one clause, condition or aggregate dropped or exchanged."""
    tree = sqlglot.parse_one(sql, dialect="sqlite")
    for index, node in enumerate(list(tree.walk())):
        copy = tree.copy()
        here = list(copy.walk())[index]
        distinct_rows = isinstance(node, exp.Distinct) and isinstance(node.parent, exp.Select)
        if isinstance(node, exp.Where | exp.Having | exp.Limit) or distinct_rows:
            here.pop()
        elif isinstance(node, exp.Distinct):
            here.replace(here.expressions[0].copy())
        elif isinstance(node, exp.And):
            here.replace(here.this.copy())
        elif isinstance(node, exp.EQ) and isinstance(node.expression, exp.Literal):
            here.replace(exp.NEQ(this=here.this.copy(), expression=here.expression.copy()))
        elif type(node) in OTHER_AGGREGATE:
            here.replace(OTHER_AGGREGATE[type(node)](this=here.this.copy()))
        else:
            continue
        yield copy.sql(dialect="sqlite")


@pytest.mark.parametrize("name", ["seed", "gold", "test", "shifted"])
def test_no_answer_with_a_clause_dropped_or_exchanged_is_right(name: str) -> None:
    tried, right = 0, []
    for item in build.files()[name]:
        reference = signature(item.world, item.sql)
        for wrong in mutants(item.sql):
            try:
                result = signature(item.world, wrong)
            except sqlite3.Error:
                continue
            tried += 1
            if result == reference:
                right.append((item.question, wrong))
    assert right == []
    assert tried > 150


@pytest.fixture(scope="module")
def env() -> Text2Sql:
    return builtin()


async def score(env: Text2Sql, task: Task, answer: str) -> Outcome:
    session = env.open(task.world, task)
    await session.start()
    await session.act({"role": "assistant", "content": answer})
    outcome = await session.evaluate()
    await session.close()
    return outcome


OTHER_WAYS = {
    "Which Poetry book is the longest": """
        SELECT title FROM book
        WHERE pages = (SELECT MAX(pages) FROM book WHERE genre = 'Poetry') AND genre = 'Poetry'""",
    "Who has written a Fantasy book": """
        SELECT name FROM author WHERE id IN (SELECT author_id FROM book WHERE genre = 'Fantasy')""",
    "Name the members from Turin who": """
        SELECT m.name FROM member m LEFT JOIN loan l ON l.member_id = m.id WHERE m.city = 'Turin' AND l.id IS NULL""",
    "Which books have more pages than the average book of": """
        SELECT b.title FROM book b JOIN (SELECT genre, AVG(pages) AS mean FROM book GROUP BY genre) g
        ON g.genre = b.genre WHERE b.pages > g.mean""",
    "Which names occur both among the authors": """
        SELECT DISTINCT a.name FROM author a JOIN member m ON m.name = a.name""",
    "What percentage of the patients": """
        SELECT AVG(age < 18) * 100 FROM patient""",
    "Which authors have written 5 or more books": """
        SELECT name FROM author WHERE (SELECT COUNT(*) FROM book WHERE author_id = author.id) > 4""",
    "Which patient has spent the most": """
        WITH spent AS (SELECT patient_id, SUM(cost) AS total FROM visit GROUP BY 1)
        SELECT name FROM spent JOIN patient ON id = patient_id ORDER BY total DESC LIMIT 1""",
    "Show the name and age of patients from Ghent or Turin": """
        SELECT name, age FROM patient WHERE city = 'Turin'
        UNION ALL SELECT name, age FROM patient WHERE city = 'Ghent'""",
    "In how many games did both teams come": """
        SELECT COUNT(*) FROM game
        WHERE (SELECT city FROM team WHERE id = home_id) = (SELECT city FROM team WHERE id = away_id)""",
    "How many games ended without any goal": """
        SELECT COUNT(*) FROM game LEFT JOIN goal ON game_id = id WHERE game_id IS NULL""",
    "Show every city together with the number of members": """
        SELECT city, COUNT(id) AS members FROM member GROUP BY city ORDER BY 2 DESC""",
}


@pytest.mark.parametrize(("question", "answer"), OTHER_WAYS.items())
def test_another_way_to_write_the_reference_is_right(env: Text2Sql, question: str, answer: str) -> None:
    (task,) = [task for task in env.suites()["gold"] if task.user_turns[0].startswith(question)]
    assert task.reference != answer
    assert asyncio.run(score(env, task, answer)).score == 1.0


def test_the_environment_and_plain_sqlite_agree_on_what_is_right(env: Text2Sql) -> None:
    gold = [task for task in env.suites()["gold"] if task.world == "library"]
    for task, other in zip(gold, [*gold[1:], gold[0]], strict=True):
        equal = signature(task.world, task.reference) == signature(task.world, other.reference)
        assert asyncio.run(score(env, task, other.reference)).success == equal
