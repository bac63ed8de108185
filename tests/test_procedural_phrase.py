"""Questions say what their query does: the golden wordings, and that different queries get different questions."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest

from envs import registry
from envs.text2sql.procedural_fill import fill
from envs.text2sql.procedural_grammar import skeleton
from envs.text2sql.procedural_phrase import phrase
from envs.text2sql.procedural_query import Agg, Hole, Query, levels, render
from envs.text2sql.procedural_scene import Scene, Table, read, tables_of, understood
from envs.text2sql.procedural_words import plural, predicate, role, shown


@cache
def tables(world: str) -> dict[str, Table]:
    return {table.name: table for table in tables_of(registry.get("text2sql").describe(world))}


def wordings(world: str, sql: str) -> set[str]:
    query = understood(sql, tables(world))
    assert query is not None
    return {phrase(query, tables(world), random.Random(seed)) for seed in range(1000)}


@pytest.mark.parametrize(
    ("world", "sql", "question"),
    [
        ("shop", "SELECT name FROM customer WHERE city = 'Oslo'", "Which customers live in Oslo? Show their names."),
        ("shop", "SELECT COUNT(*) FROM customer WHERE age > 60", "How many customers are older than 60?"),
        (
            "library",
            "SELECT title FROM book WHERE pages < 200",
            "What are the titles of books with fewer than 200 pages?",
        ),
        ("library", "SELECT title FROM book ORDER BY pages DESC LIMIT 1", "What is the title of the longest book?"),
        (
            "library",
            "SELECT name FROM member WHERE id NOT IN (SELECT member_id FROM loan)",
            "List the names of members with no loan.",
        ),
        (
            "library",
            "SELECT COUNT(*) FROM loan JOIN member ON member.id = loan.member_id WHERE member.city = 'Lyon'",
            "How many loans of members from Lyon are there?",
        ),
        (
            "school",
            "SELECT AVG(salary) FROM teacher WHERE subject = 'Art'",
            "What is the average salary of teachers with subject Art?",
        ),
        ("clinic", "SELECT city, COUNT(*) FROM patient GROUP BY city", "How many patients are there for each city?"),
        (
            "clinic",
            "SELECT city FROM patient GROUP BY city HAVING COUNT(*) > 10",
            "Which cities have more than 10 patients?",
        ),
        (
            "clinic",
            "SELECT city FROM patient GROUP BY city ORDER BY COUNT(*) DESC, city LIMIT 3",
            "Which 3 cities have the most patients, in that order, ties by city?",
        ),
        (
            "league",
            "SELECT year FROM game JOIN team ON team.id = game.home_id WHERE team.city = 'Lyon'",
            "Find the years of games of home teams from Lyon.",
        ),
        (
            "school",
            "SELECT name FROM teacher WHERE salary > (SELECT AVG(salary) FROM teacher)",
            "List the names of all teachers who earn more than the average teacher.",
        ),
    ],
)
def test_a_natural_wording_is_among_the_ways_to_ask(world: str, sql: str, question: str) -> None:
    assert question in wordings(world, sql)


def proposals(world: str, count: int) -> list[Query]:
    """Filled queries over made-up samples of the world's tables."""
    rng, found = random.Random(world), []
    scene = sampled_scene(world)
    while len(found) < count:
        query = fill(skeleton(rng, easy=0.4), scene, rng)
        if query and not query.having:
            found.append(query)
    return found


def sampled_scene(world: str) -> Scene:
    rng = random.Random(0)
    log = []
    for table in tables(world).values():
        numeric = [kind.startswith("INT") for kind in table.types.values()]
        rows = ",".join(
            "[" + ",".join(str(rng.randrange(1, 500)) if n else f'"Value{rng.randrange(9)}"' for n in numeric) + "]"
            for _ in range(20)
        )
        names = ",".join(f'"{name}"' for name in table.types)
        call = {"name": "run_sql", "args": {"sql": f"SELECT * FROM {table.name} LIMIT 20"}, "failed": False}
        log.append({**call, "observation": f'{{"columns":[{names}],"rows":[{rows}],"row_count":20}}'})
    return read({"world": registry.get("text2sql").describe(world), "log": log})


@pytest.mark.parametrize("world", ["library", "shop", "league"])
def test_a_question_names_every_value_column_limit_and_order(world: str) -> None:
    for seed, query in enumerate(proposals(world, 150)):
        question = phrase(query, tables(world), random.Random(seed))
        for level in levels(query):
            for cond in level.where:
                values = [v for v in cond.right if not isinstance(v, Query | Hole)]
                assert all(str(shown(value)).strip("%") in question for value in values), (question, render(query))
            if level.limit and level.limit > 1:
                assert re.search(rf"\b({level.limit}|two|three|five)\b", question), (question, render(query))
            sums = [item for item in level.select if isinstance(item, Agg) and item.fn in ("AVG", "SUM")]
            assert not sums or re.search("average|mean|total", question), (question, render(query))
        assert question[0].isupper()
        assert question[-1] in "?."
        assert "  " not in question
        assert " _" not in question


@pytest.mark.parametrize("world", ["library", "shop", "league"])
def test_different_queries_get_different_questions(world: str) -> None:
    """For one choice among the wordings, a question belongs to one query."""
    asked: dict[str, str] = {}
    for query in proposals(world, 300):
        question = phrase(query, tables(world), random.Random(1))
        assert asked.setdefault(question, render(query)) == render(query)


@pytest.mark.parametrize(
    ("noun", "several"),
    [
        ("city", "cities"),
        ("box", "boxes"),
        ("person", "people"),
        ("day", "days"),
        ("number of pages", "numbers of pages"),
    ],
)
def test_plurals(noun: str, several: str) -> None:
    assert plural(noun) == several


def test_roles_come_from_foreign_keys() -> None:
    assert role("home_id", "team") == "home team"
    assert role("author_id", "author") == "author"
    assert role("id", "work") == "work"


@pytest.mark.parametrize(
    ("modifier", "one", "several"),
    [
        ("from Oslo", "is from Oslo", "are from Oslo"),
        ("with more than 5 pages", "has more than 5 pages", "have more than 5 pages"),
        ("who live in Oslo", "lives in Oslo", "live in Oslo"),
        ("whose age is 5", None, None),
    ],
)
def test_modifiers_become_predicates(modifier: str, one: str | None, several: str | None) -> None:
    assert predicate(modifier, one=True) == one
    assert predicate(modifier) == several
