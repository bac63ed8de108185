"""A world of two tables and two populations, small enough to check results by eye."""

from __future__ import annotations

from typing import Any

from envs.protocols import Draft
from envs.text2sql.engine import Limits, build, tables
from envs.text2sql.env import Text2Sql
from envs.text2sql.world import SqlWorld
from store.rows import Task

DDL = """
CREATE TABLE city (id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE shop (id INTEGER PRIMARY KEY, name TEXT, city_id INTEGER REFERENCES city(id), sales REAL, stars INTEGER);
"""
ROWS: tuple[dict[str, list[tuple[Any, ...]]], ...] = (
    {
        "city": [(1, "Oslo", "Norway"), (2, "Lyon", "France"), (3, "Nice", "France")],
        "shop": [(1, "Ann", 1, 10.5, 3), (2, "Bo", 2, 7.25, 5), (3, "Cy", 2, 3.5, 3), (4, None, 3, 1.25, 4)],
    },
    {
        "city": [(1, "Bergen", "Norway"), (2, "Nice", "France")],
        "shop": [(1, "Ann", 2, 4.5, 2), (2, "Di", 2, 9.75, 5), (3, "Ed", 1, 8.0, 5)],
    },
)


def tiny_world(limits: Limits | None = None) -> SqlWorld:
    populations = tuple(build(DDL, rows) for rows in ROWS)
    shape = tuple(tables(populations[0]))
    return SqlWorld(id="tiny", split="train", tables=shape, populations=populations, limits=limits or Limits())


def tiny_env(limits: Limits | None = None) -> Text2Sql:
    return Text2Sql([tiny_world(limits)])


def draft(sql: str, question: str = "Which ones?", world: str = "tiny") -> Draft:
    return Draft(world=world, user_turns=[question], reference=sql)


def task(sql: str, question: str = "Which ones?") -> Task:
    return tiny_env().materialize(draft(sql, question), "explored")
