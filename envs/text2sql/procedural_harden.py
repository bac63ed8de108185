"""Harder tasks of tasks that work, without a language model: put two together, add a condition, say less.

    compose    the conditions of both where they ask of the same tables, else a set operation between two lists
    constrain  one more comparison, with an average, or only the first few by some order: no literal but a count
    strip      the question without what only helps: notes, remarks in parentheses, all lines but the last

What comes out is a draft like any other: execution decides whether it is a task.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

from envs.text2sql.procedural_fill import LIMITS
from envs.text2sql.procedural_phrase import phrase
from envs.text2sql.procedural_query import Agg, Col, Cond, Order, Query, levels, render
from envs.text2sql.procedural_scene import Scene, understood
from store.rows import Json

_HINTS = re.compile(r"\s*\([^()]*\)|(?:^|(?<=[.?!]\s))\s*(?:hint|note|evidence|remember|tip)\b[^.?!]*[.?!]?", re.I)


def hardened(operator: str, tasks: list[Json], scene: Scene, rng: random.Random) -> list[Json]:
    """Drafts of the operator; [] where there is none."""
    if operator == "strip":
        return [draft for task in tasks if (draft := _stripped(task))]
    parents = [query for task in tasks if (query := understood(str(task["reference"]), scene.tables))]
    made = _composed(parents) if operator == "compose" else _constrained(parents, scene, rng)
    old = {render(parent) for parent in parents}
    found = {render(query): query for query in made if render(query) not in old}
    return [{"user_turns": [phrase(query, scene.tables, rng)], "reference": sql} for sql, query in found.items()]


def _stripped(task: Json) -> Json | None:
    """Help is put before the question, on lines of its own (as BIRD's evidence is), or set apart by its words."""
    turn = str(task["user_turns"][-1])
    bare = " ".join(_HINTS.sub(" ", turn.strip().splitlines()[-1]).split())
    words = re.sub(r"\s+([?.,!])", r"\1", bare)
    if words == turn or not any(char.isalpha() for char in words):
        return None
    return {"user_turns": [*task["user_turns"][:-1], words], "reference": task["reference"]}


# ---------------------------------------------------------------- compose


def _composed(parents: list[Query]) -> Iterator[Query]:
    for at, first in enumerate(parents):
        for second in parents[at + 1 :]:
            yield from _both(first, second)
            yield from _both(second, first)


def _both(first: Query, second: Query) -> Iterator[Query]:
    """What `first` shows, of the rows that satisfy both; or the values that both list, or only the first."""
    if any(query.combined or query.group or query.limit is not None for query in (first, second)):
        return
    if first.tables == second.tables and first.joins == second.joins and not (first.either or second.either):
        added = tuple(cond for cond in second.where if cond.left not in {old.left for old in first.where})
        shown = {item.col if isinstance(item, Agg) else item for item in first.select}
        if added and not shown & {cond.left for cond in added if cond.op == "="}:
            yield replace(first, where=(*first.where, *added))
    lists = [replace(query, order=(), distinct=False) for query in (first, second)]
    if first.select == second.select and not any(isinstance(item, Agg) for item in first.select):
        for operation in ("INTERSECT", "EXCEPT", "UNION"):
            yield replace(lists[0], combined=(operation, lists[1]))


# ---------------------------------------------------------------- constrain


def _constrained(parents: list[Query], scene: Scene, rng: random.Random) -> Iterator[Query]:
    for parent in parents:
        if parent.combined or parent.either:
            continue
        yield from _above_average(parent, scene, rng)
        yield from _first_few(parent, scene, rng)


def _above_average(query: Query, scene: Scene, rng: random.Random) -> Iterator[Query]:
    """One more condition: a number of the root table lies above, or below, its average."""
    used = {cond.left for level in levels(query) for cond in level.where}
    shown = {item.col if isinstance(item, Agg) else item for item in query.select}
    numbers = [col for col in scene.measures(query.table) if col not in used | shown]
    for col in rng.sample(numbers, len(numbers))[:2]:
        inner = Query(table=query.table, select=(Agg("AVG", col),))
        yield replace(query, where=(*query.where, Cond(col, rng.choice((">", "<")), (inner,))))


def _first_few(query: Query, scene: Scene, rng: random.Random) -> Iterator[Query]:
    """Only the first few, by a number of the root table."""
    if query.order or query.group or query.limit is not None or query.distinct:
        return
    if any(isinstance(item, Agg) for item in query.select):
        return
    fixed = {cond.left for cond in query.where if cond.op == "="}
    keys: list[Col] = [col for col in scene.measures(query.table) if col not in fixed]
    for col in rng.sample(keys, len(keys))[:2]:
        yield replace(query, order=(Order(col, desc=rng.random() < 0.7),), limit=rng.choice(LIMITS))
