"""The databases of text2sql: six that are trained on, three (`shifted`) that never are.

A schema is DDL plus a function that fills it for a population number. One question is scored on every
population of its schema, so an answer that is right by luck on one set of rows, or copied from it, is wrong on
another. Names are short because the whole schema is in every prompt (docs/text2sql.md).

Facts that the questions rely on:
- names and titles of a table are unique; measures such as pages, cost, salary, price have no ties;
- money, pages, ages are whole numbers; years are whole numbers, 2019 to 2024 for events;
- only `loan.days`, `grade.score` and `employee.boss_id` may be NULL;
- every author has a book, doctor a visit, purchase an item, student a grade, team a player, dept an employee,
  hotel a room, album a song; other parents may have no children.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from envs.text2sql import shifted, trained
from envs.text2sql.draw import Rows
from store.rows import Split

POPULATIONS = (0, 1, 2)
"""The numbers that `Schema.populate` is called with to score a task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    name: str
    """Also the id of the world."""
    split: Split
    """`train` or `shifted`."""
    ddl: str
    """CREATE TABLE statements, parents first, each ended by a semicolon."""
    populate: Callable[[int], Rows]
    """The rows of one population; the same for the same number, always."""


SCHEMAS: dict[str, Schema] = {
    schema.name: schema
    for schema in (
        Schema(name="library", split="train", ddl=trained.LIBRARY, populate=trained.library),
        Schema(name="clinic", split="train", ddl=trained.CLINIC, populate=trained.clinic),
        Schema(name="shop", split="train", ddl=trained.SHOP, populate=trained.shop),
        Schema(name="school", split="train", ddl=trained.SCHOOL, populate=trained.school),
        Schema(name="league", split="train", ddl=trained.LEAGUE, populate=trained.league),
        Schema(name="company", split="train", ddl=trained.COMPANY, populate=trained.company),
        Schema(name="hotel", split="shifted", ddl=shifted.HOTEL, populate=shifted.hotel),
        Schema(name="farm", split="shifted", ddl=shifted.FARM, populate=shifted.farm),
        Schema(name="music", split="shifted", ddl=shifted.MUSIC, populate=shifted.music),
    )
}
