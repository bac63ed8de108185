"""What a guide asks of the procedural explorer: skeletons for what is lacking, and the order in which plans are tried.

lacking   skeletons of structures, or with action tokens, that the set has least of
aimed     plans grown step by step until they are as hard as asked for, the nearest first
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.text2sql import sqltext
from envs.text2sql.procedural_grammar import harder, holding
from envs.text2sql.procedural_parse import parse
from envs.text2sql.procedural_query import Query, render
from store.rows import Json

GROWTHS = 6
"""Steps by which a plan is grown towards a difficulty."""
NEAR = 0.5
"""So much below the difficulty asked for still counts as reached."""


def lacking(guide: Json, rng: random.Random) -> list[Query]:
    """In random order; [] where nothing is lacking that the algebra can say."""
    wanted = guide.get("lacking") or {}
    shapes = [query for text in wanted.get("structures") or [] if (query := parse(str(text)))]
    tokens = [str(token) for token in wanted.get("tokens") or []]
    for token in tokens:
        if token != sqltext.INVALID:
            shapes += holding((token,), rng, pool=20)[:3]
    return rng.sample(shapes, len(shapes))


def aimed(plans: Sequence[Query], guide: Json, rng: random.Random) -> list[Query]:
    """The plans as they are where no difficulty is asked for."""
    goal = guide.get("difficulty")
    if not isinstance(goal, int | float):
        return list(plans)
    grown = [_grown(plan, float(goal), rng) for plan in plans]
    return sorted(grown, key=lambda plan: abs(_difficulty(plan) - goal))


def _grown(plan: Query, goal: float, rng: random.Random) -> Query:
    for _ in range(GROWTHS):
        if _difficulty(plan) >= goal - NEAR:
            break
        plan = harder(plan, rng)
    return plan


def _difficulty(plan: Query) -> float:
    return sqltext.difficulty(render(plan))


def near(sql: str, guide: Json) -> float:
    """How far the statement is from the difficulty asked for; 0 where none is, or where it lies above."""
    goal = guide.get("difficulty")
    return max(0.0, goal - NEAR - sqltext.difficulty(sql)) if isinstance(goal, int | float) else 0.0
