"""The hard checks of a draft: are these user turns with these calls a task that execution can grade?

A reason is `word: explanation`; the words are stable, verdicts carry them:

    unknown_world   no such world
    unknown_tool    the draft allows a function that the world does not have
    bad_question    a turn without any letter, or longer than 1,000 characters
    bad_reference   no list of calls a turn, a turn without calls or with more than 20, or a function that is not there
    unstable        it asks for today's date
    execution_error the reference kills a worker or takes too long
    failed_call     a call of the reference is answered by an error
    reference_fails the reference does not pass its own grading
    replay_differs  two runs of it differ
    no_effect       it changes nothing, and no function says anything
    idle_call       the task passes without one of its calls
    hidden_value    an argument that is not in the user's words, an observation before it or the function's document
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from envs.bfcl.catalog import Calls
from envs.protocols import Draft
from store.rows import Json

MAX_QUESTION = 1000
MAX_CALLS = 20
SILENT = ("None", "{}", "[]", "")
"""What a function says that has nothing to say."""
UNSTABLE = {"verify_traveler_information"}
"""Functions whose answer depends on the day."""


def check_form(draft: Draft, tools: Mapping[str, Json]) -> list[str]:
    """Reasons that need no execution."""
    reasons = [f"unknown_tool: {name!r}" for name in draft.tools if name not in tools]
    for turn in draft.user_turns:
        if not any(char.isalpha() for char in turn):
            reasons.append("bad_question: a turn without any word")
        if len(turn) > MAX_QUESTION:
            reasons.append(f"bad_question: {len(turn)} characters, at most {MAX_QUESTION} are allowed")
    return reasons + _check_calls(draft, draft.tools or list(tools))


def _check_calls(draft: Draft, allowed: list[str]) -> list[str]:
    turns = draft.reference
    if not isinstance(turns, list) or not turns or len(turns) != len(draft.user_turns):
        return ["bad_reference: one list of calls for each user turn is needed"]
    for calls in turns:
        if not isinstance(calls, list) or not 1 <= len(calls) <= MAX_CALLS:
            return [f"bad_reference: a turn needs 1 to {MAX_CALLS} calls"]
        for call in calls:
            if not _is_call(call):
                return ['bad_reference: a call is {"name": text, "args": {...}} and nothing else']
            if call["name"] not in allowed:
                return [f"bad_reference: there is no function {call['name'][:64]!r} here"]
            if call["name"] in UNSTABLE:
                return [f"unstable: {call['name']} depends on the day"]
    return []


def _is_call(call: Any) -> bool:
    return (
        isinstance(call, dict)
        and set(call) == {"name", "args"}
        and isinstance(call["name"], str)
        and isinstance(call["args"], dict)
    )


def check_report(report: Json) -> list[str]:
    """Reasons of what the worker's `validate` found. That doing nothing passes is asked of `Env.noop`."""
    failed = [text for turn in report["observations"] for text, error in turn if error]
    if failed:
        return [f"failed_call: {failed[0][:200]}"]
    if not all(run["passes"] for run in report["runs"]):
        return ["reference_fails: its own grading does not pass it"]
    if not report["same"]:
        return ["replay_differs: two runs of the reference differ"]
    if not report["changed"] and all(text in SILENT for turn in report["observations"] for text, _ in turn):
        return ["no_effect: the state stays as it was, and nothing is learned"]
    return [f"idle_call: turn {turn} passes without its call {at}" for turn, at in report["idle"][:1]]


def check_values(draft: Draft, tools: Mapping[str, Json], observations: list[list[tuple[str, bool]]]) -> list[str]:
    """Every value of an argument must have been said before, by the user or by an observation, or be documented."""
    reference: Calls = draft.reference
    said = ""
    for turn, calls in enumerate(reference):
        said += "\n" + draft.user_turns[turn]
        for call, (text, _) in zip(calls, observations[turn], strict=True):
            document = str(tools[call["name"]])
            for name, value in call["args"].items():
                for leaf in _leaves(value):
                    if not _found(leaf, said) and not _found(leaf, document):
                        return [f"hidden_value: {name} = {leaf!r} of {call['name']} is nowhere said before"]
            said += "\n" + text
    return []


def _leaves(value: Json) -> Iterator[str | float]:
    """Words and numbers of a value; truth values, null and `..` say nothing that could be read."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, str):
        if any(map(str.isalnum, value)):
            yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?")


def _found(leaf: str | float, text: str) -> bool:
    if isinstance(leaf, str):
        return " ".join(leaf.casefold().split()) in " ".join(text.casefold().split())
    return any(float(number.replace(",", "")) == leaf for number in _NUMBER.findall(text))
