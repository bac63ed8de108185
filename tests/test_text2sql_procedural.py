"""The procedural explorer of text2sql in its real environment: yield, spread, what it may know, signal conditioning."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from envs import registry
from envs.protocols import Draft, Env
from envs.text2sql import sqltext
from envs.text2sql.procedural import EXPLORER
from envs.text2sql.procedural_grammar import holds
from store.rows import Json, Task

KEYWORDS = set(
    "SELECT DISTINCT FROM JOIN ON WHERE AND OR NOT IN BETWEEN LIKE IS NULL GROUP BY HAVING ORDER DESC LIMIT "  # noqa: SIM905
    "COUNT SUM AVG MIN MAX UNION INTERSECT EXCEPT".split()
)


@cache
def env() -> Env:
    return registry.get("text2sql")


def worlds() -> list[str]:
    return [world.id for world in env().worlds("train")]


def explore(world: str, seed: int, signal: Json = None, steps: int = 6) -> Json:
    """One exploration; returns the view at its end."""
    return asyncio.run(_explore(world, seed, signal, steps))


async def _explore(world: str, seed: int, signal: Json, steps: int) -> Json:
    session = env().open(world)
    await session.start()
    view: dict[str, Any] = {"world": env().describe(world), "tools": session.tools, "signal": signal, "log": []}
    view["steps_left"] = steps
    while call := EXPLORER.next_call(view, random.Random(f"{seed}/{len(view['log'])}")):
        answer = await session.act({"role": "assistant", "content": "", "tool_calls": [{**call, "id": "1"}]})
        view["log"].append({**call, "observation": answer.messages[0]["content"], "failed": answer.failed})
        view["steps_left"] -= 1
    await session.close()
    return view


def drafts(world: str, seed: int, signal: Json = None) -> list[Draft]:
    pairs = EXPLORER.abstract(explore(world, seed, signal), random.Random(seed))[:3]
    return [Draft(world=world, user_turns=pair["user_turns"], reference=pair["reference"]) for pair in pairs]


@cache
def unguided() -> list[Draft]:
    return [draft for seed in range(60) for draft in drafts(worlds()[seed % len(worlds())], seed)]


def boundary(task: Task) -> Json:
    step = {"action": task.reference, "observation": "", "failed": False}
    evidence = {"questions": task.user_turns, "structure": task.structure, "score": 0.0, "steps": [step]}
    return {"kind": "boundary", "pattern": None, "stats": {}, "evidence": [evidence]}


def rare(*pattern: str) -> Json:
    return {"kind": "rare", "pattern": list(pattern), "stats": {}, "evidence": []}


def valid(draft: Draft) -> bool:
    return not env().check(draft)


# ---------------------------------------------------------------- unguided


def test_most_unguided_candidates_are_valid_and_none_is_malformed() -> None:
    reasons = Counter((env().check(draft) or ["valid"])[0].partition(":")[0] for draft in unguided())
    assert reasons["valid"] >= 0.8 * len(unguided())
    assert set(reasons) <= {"valid", "empty_result", "same_result", "order_dependent", "too_large"}


def test_unguided_candidates_are_three_an_exploration_and_spread_over_worlds_and_skeletons() -> None:
    assert len(unguided()) >= 2.8 * 60
    assert {draft.world for draft in unguided()} == set(worlds())
    assert len({env().structure(draft.reference) for draft in unguided()}) >= 60
    assert len({(draft.world, draft.reference) for draft in unguided()}) >= 0.9 * len(unguided())


def test_candidates_are_short_and_run_no_longer_than_the_prompt_allows() -> None:
    lengths = sorted(len(draft.reference.split()) for draft in unguided())
    assert lengths[len(lengths) // 2] <= 20
    assert max(len(draft.user_turns[0]) for draft in unguided()) <= 300


def test_the_same_view_and_seed_give_the_same_exploration() -> None:
    assert explore("shop", 5) == explore("shop", 5)
    assert explore("shop", 5) != explore("shop", 6)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_step_budget_is_kept(steps: int) -> None:
    assert len(explore("clinic", 1, steps=steps)["log"]) == steps


# ---------------------------------------------------------------- what it may know


def test_every_name_and_value_was_shown_before_it_is_used() -> None:
    for seed in range(30):
        view = explore(worlds()[seed % len(worlds())], seed)
        shown = view["world"]
        for entry in view["log"]:
            _assert_shown(entry["args"]["sql"], shown)
            shown += "\n" + entry["observation"]


def _assert_shown(sql: str, shown: str) -> None:
    bare = re.sub(r"LIMIT \d+", "LIMIT", sql)  # how many rows to show is no fact of the world
    texts = [text.strip("%") for text in re.findall(r"'((?:[^']|'')*)'", bare)]
    words = set(re.findall(r"[A-Za-z_]+", re.sub(r"'(?:[^']|'')*'", "", bare))) - KEYWORDS
    numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?", re.sub(r"'(?:[^']|'')*'", "", bare))
    for piece in (*texts, *words, *numbers):
        assert piece in shown, (piece, sql)


def test_no_held_out_phrasing_is_in_reach() -> None:
    folder = Path(__file__).parent.parent / "envs" / "text2sql"
    for file in folder.glob("procedural*.py"):
        imports = re.findall(r"^(?:from|import) (\S+)", file.read_text("utf-8"), re.MULTILINE)
        assert not [name for name in imports if name.startswith(("scripts", "envs.text2sql.data"))]


def test_no_held_out_question_is_proposed() -> None:
    held_out = {task.user_turns[0].lower() for suite in env().suites().values() for task in suite}
    assert not held_out & {draft.user_turns[0].lower() for draft in unguided()}


# ---------------------------------------------------------------- with a signal


def test_a_failed_task_leads_to_tasks_of_its_structure_and_to_harder_ones() -> None:
    same = harder = total = 0
    for seed, task in enumerate(env().seed_tasks()[::4]):
        for draft in filter(valid, drafts(task.world, seed, boundary(task))):
            total += 1
            same += env().structure(draft.reference) == task.structure
            harder += env().difficulty(draft.reference) > env().difficulty(task.reference)
    assert same > 0.5 * total
    assert harder > 0.15 * total


@pytest.mark.parametrize(
    "pattern",
    [("HAVING",), ("SUBQUERY",), ("SET", "SELECT"), ("JOIN", "JOIN"), ("WHERE", "GROUP", "HAVING"), ("ORDER", "LIMIT")],
)
def test_a_rare_pattern_is_in_valid_candidates_of_most_worlds(pattern: tuple[str, ...]) -> None:
    having = 0
    for seed, world in enumerate(worlds()):
        found = [draft for draft in drafts(world, seed, rare(*pattern)) if valid(draft)]
        having += any(holds(tuple(sqltext.action_tokens(draft.reference)), pattern) for draft in found)
    assert having >= len(worlds()) / 2


@pytest.mark.parametrize("pattern", [("invalid",), ("LIMIT", "SELECT"), ("invalid", "SELECT", "WHERE")])
def test_a_pattern_that_no_statement_can_have_still_leads_somewhere(pattern: tuple[str, ...]) -> None:
    signal = {**rare(*pattern), "evidence": boundary(env().seed_tasks()[0])["evidence"]}
    assert drafts("library", 3, signal)


@pytest.mark.parametrize(
    "signal",
    [
        {},
        {"kind": "boundary"},
        {"kind": "rare", "pattern": ["NO SUCH TOKEN"]},
        {"kind": "boundary", "evidence": [{"structure": "invalid", "steps": [{"action": "drop table x"}]}]},
        {"kind": "forgetting", "evidence": [{"structure": "SELECT SUM(_ * _) FROM _", "steps": []}]},
    ],
)
def test_poor_signals_do_not_stop_an_exploration(signal: Json) -> None:
    assert drafts("league", 2, signal)
    assert EXPLORER.reflect({"world": env().describe("league"), "signal": signal, "log": []}, random.Random(0))["where"]


def test_reflection_names_the_tables_of_the_attempts() -> None:
    task = next(task for task in env().seed_tasks() if " JOIN " in task.reference)
    view = {"world": env().describe(task.world), "signal": boundary(task), "log": []}
    context = EXPLORER.reflect(view, random.Random(0))
    assert set(context) >= {"where", "failure", "vary"}
    assert set(context["where"].split(", ")) == set(re.findall(r"(?:FROM|JOIN) (\w+)", task.reference))


# ---------------------------------------------------------------- trying and repairing


def test_a_draft_is_tried_once() -> None:
    view = {"world": env().describe("shop"), "draft": {"user_turns": ["?"], "reference": "SELECT 1"}, "log": []}
    call = EXPLORER.next_call(view, random.Random(0))
    assert call == {"name": "run_sql", "args": {"sql": "SELECT 1"}}
    assert EXPLORER.next_call({**view, "log": [{**call, "observation": "", "failed": True}]}, random.Random(0)) is None


@pytest.mark.parametrize(
    ("reference", "problem", "repaired"),
    [
        (
            "SELECT name FROM customer WHERE city = 'Oslo' AND age > 300",
            "empty_result: population 0 has no answer",
            "SELECT name FROM customer WHERE city = 'Oslo'",
        ),
        ("SELECT name FROM product WHERE price > 9000", "empty_result:", "SELECT name FROM product WHERE price < 9000"),
        (
            "SELECT name FROM customer ORDER BY age LIMIT 3",
            "order_dependent:",
            "SELECT name FROM customer ORDER BY age, name LIMIT 3",
        ),
    ],
)
def test_repair_changes_little_and_rewords(reference: str, problem: str, repaired: str) -> None:
    view = {"world": env().describe("shop"), "log": []}
    draft = {"user_turns": ["?"], "reference": reference}
    better = EXPLORER.repair(view, draft, problem, random.Random(0))
    assert better is not None
    assert better["reference"] == repaired
    assert not env().check(Draft(world="shop", user_turns=better["user_turns"], reference=repaired))


@pytest.mark.parametrize("reference", ["SELECT", "DROP TABLE customer", "SELECT nothing FROM customer", ""])
def test_repair_gives_up_on_what_it_cannot_read(reference: str) -> None:
    view = {"world": env().describe("shop"), "log": []}
    draft = {"user_turns": ["?"], "reference": reference}
    assert EXPLORER.repair(view, draft, "empty_result:", random.Random(0)) is None
