"""The hard checks of a draft: is this instruction with this code a task that execution can grade?

A reason is `word: explanation`; the words are stable, verdicts carry them:

    unknown_world   no such world, or one that is held out
    bad_question    not one instruction with words, or longer than 1,000 characters
    bad_reference   no text of Python, or one that is refused before it runs
    execution_error the reference kills its world or takes too long
    failed_code     it ends in an error
    incomplete      it does not mark the task as done, or marks it as failed
    cheats          it was caught, or the world is not what its API calls make of one
    replay_differs  two runs of it differ
    no_effect       nothing changes and nothing is answered
    unseen_answer   the answer is in nothing that the reference printed
    literal_answer  the answer is written in the reference
"""

from __future__ import annotations

import ast
from typing import Any

from envs.appworld.code import refusal
from envs.protocols import Draft
from store.rows import Json

MAX_QUESTION = 1000


def check_form(draft: Draft) -> list[str]:
    """Reasons that need no execution."""
    turns = draft.user_turns
    if len(turns) != 1 or not any(char.isalpha() for char in turns[0]):
        return ["bad_question: one user turn with words is needed"]
    if len(turns[0]) > MAX_QUESTION:
        return [f"bad_question: {len(turns[0])} characters, at most {MAX_QUESTION} are allowed"]
    if not isinstance(draft.reference, str) or not draft.reference.strip():
        return ["bad_reference: the text of Python code is needed"]
    why = refusal(draft.reference)
    return [f"bad_reference: {why}"] if why else []


def check_runs(runs: list[Json], grades: list[Json], code: str) -> list[str]:
    """Reasons of two runs of the code (`play`), each with the grade of its calls."""
    ran, found = runs[0]["steps"][0], grades[0]["difference"]
    if ran["failed"]:
        return [f"failed_code: {ran['output'][-300:]}"]
    if found["status"] != "success":
        return ["incomplete: it must end with apis.supervisor.complete_task()"]
    if ran["violations"] or any(run["digest"] != grade["digest"] for run, grade in zip(runs, grades, strict=True)):
        return [f"cheats: {next(iter(ran['violations']), 'the world is not what its API calls make of one')}"]
    if any(grade["differing"] for grade in grades):
        return ["replay_differs: a call of the reference is answered otherwise when its calls alone are replayed"]
    if runs[0]["digest"] != runs[1]["digest"]:
        return ["replay_differs: two runs of the reference differ"]
    if not found["changes"] and found["answer"] is None:
        return ["no_effect: nothing changes and nothing is answered"]
    return [] if found["answer"] is None else _check_answer(found["answer"], ran["output"], code)


def _check_answer(answer: str, output: str, code: str) -> list[str]:
    """An answer must be found out, and a reader must be able to see where."""
    if answer not in output.casefold():
        return [f"unseen_answer: {answer!r} is not among what the reference prints; print it before it is submitted"]
    if any(_same(answer, node.value) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)):
        return [f"literal_answer: {answer!r} is written in the reference"]
    return []


def _same(answer: str, value: Any) -> bool:
    return str(value).strip().casefold() == answer and not isinstance(value, bool)
