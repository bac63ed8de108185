"""The hard checks of a draft: is this question with this SQL a task that execution can score?

A reason is `word: explanation`; the words are stable, verdicts carry them:

    unknown_world   no such world
    unknown_tool    the draft allows a tool that does not exist
    bad_question    without any letter, or longer than 500 characters
    parse_error     no single SELECT, or SQLite can't read it
    execution_error SQLite refuses or fails
    too_slow        over the budget of a query
    too_large       more than 200 rows: nobody asks for that, and no model repeats it
    empty_result    a population where nothing but NULL comes out: any wrong filter would be right
    same_result     all populations give the same result: a constant would be right
    order_dependent the result hangs on an order that the statement leaves open
"""

from __future__ import annotations

from envs.protocols import Draft
from envs.text import unfit_draft
from envs.text2sql.engine import QueryError, Result
from envs.text2sql.results import empty, same
from envs.text2sql.session import TOOLS
from envs.text2sql.sqltext import ordered, parse, settled
from envs.text2sql.world import Populations, SqlWorld

MAX_QUESTION = 500
MAX_GIVEN = 5000
"""Characters of a question of a benchmark made elsewhere, BIRD's evidence included."""
MAX_ROWS = 200
_WORDS = {"syntax": "parse_error", "budget": "too_slow", "deadline": "too_slow", "too_large": "too_large"}


def check_draft(question: str, tools: list[str]) -> list[str]:
    reasons = [f"unknown_tool: {name!r}" for name in tools if name not in TOOLS]
    if not any(char.isalpha() for char in question):
        reasons.append("bad_question: there is no word in it")
    if len(question) > MAX_QUESTION:
        reasons.append(f"bad_question: {len(question)} characters, at most {MAX_QUESTION} are allowed")
    return reasons


def check_given(draft: Draft, *, trained: bool) -> list[str]:
    """Reasons against an item of a benchmark made elsewhere, whose questions may be longer. What is only tested on
    stays as it is, so that scores can be compared."""
    reasons = [f"unfit_text: {why}"] if trained and (why := unfit_draft(draft)) else []
    length = len(draft.user_turns[0])
    if length > MAX_GIVEN:
        reasons.append(f"bad_question: {length} characters, at most {MAX_GIVEN} are allowed")
    return reasons


def run_reference(world: SqlWorld, sql: str) -> tuple[list[str], list[Result]]:
    """Why it does not run ([] if it does), and its result on each population as far as it ran."""
    results: list[Result] = []
    populations = Populations(world)
    try:
        for index in range(len(populations)):
            result = populations.run(index, sql)
            if isinstance(result, QueryError):
                return [_reason(index, result)], results
            results.append(result)
    finally:
        populations.close()
    return [], results


def check_reference(world: SqlWorld, sql: str) -> tuple[list[str], list[Result]]:
    """All reasons against the reference, and its result on each population as far as it ran."""
    if parse(sql) is None:
        return ["parse_error: not one SELECT statement"], []
    reasons, results = run_reference(world, sql)
    return reasons or [*_check_results(results, ordered(sql)), *_check_order(world, sql, results)], results


def _reason(index: int, error: QueryError) -> str:
    return f"{_WORDS.get(error.kind, 'execution_error')}: population {index}: {error.message}"


def _check_results(results: list[Result], lists: bool) -> list[str]:
    reasons = []
    for index, result in enumerate(results):
        if empty(result):
            reasons.append(f"empty_result: population {index} has no answer")
        if len(result.rows) > MAX_ROWS:
            reasons.append(
                f"too_large: population {index} gives {len(result.rows)} rows, at most {MAX_ROWS} are allowed"
            )
    # a world of one population (Spider, BIRD) has nothing to compare with
    if len(results) > 1 and all(same(results[0], other, ordered=lists) for other in results[1:]):
        reasons.append("same_result: all populations give the same result")
    return reasons


def _check_order(world: SqlWorld, sql: str, results: list[Result]) -> list[str]:
    """Run it with rows visited backwards, and with each choice that it leaves open made in two opposite ways: the
    result must not change."""
    lists = ordered(sql)
    probes = [sql, *settled(sql, len(results[0].columns))]
    populations = Populations(world)
    try:
        for index, result in enumerate(results):
            for probe in probes:
                other = populations.run(index, probe, backwards=True)
                # a probe that SQLite refuses where it took the statement says nothing
                if isinstance(other, Result) and not same(result, other, ordered=lists):
                    return [f"order_dependent: on population {index} the rows or their order are left open"]
    finally:
        populations.close()
    return []
