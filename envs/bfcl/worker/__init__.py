"""The multi-turn backends of the Berkeley Function-Calling Leaderboard, without `eval`; graded as its checker grades.

Runs under envs/worker_host.py in the venv of bfcl-eval: this folder imports the standard library and that package
alone. The package's own
executor builds Python text from a call and evaluates it, in module globals that all rollouts of a task share. Here a
call is a name and JSON arguments; the name is looked up in a table of documented functions, and each session has its
own instances. Everything else is the package's: data, backends, how a result is rendered, what a turn must reach.

    grading    official  the package's checker: hidden functions run, turns that ask for nothing are not graded
               strict    hidden functions are refused, and in turns that ask for nothing no call may be made
               task      our own tasks, graded like official ones; `1` is `1.0` where a function takes a float
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
from importlib.metadata import version
from typing import Any

from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC

from envs.bfcl.worker.data import (
    CATEGORIES,
    CLASSES,
    Call,
    Json,
    backend,
    documents,
    entries,
    entry,
    hidden,
    parse,
    tool,
)
from envs.bfcl.worker.session import Session

VERSION = version("bfcl-eval")
SESSIONS: dict[int, Session] = {}
_next = iter(range(sys.maxsize))


def open_(world: str, grading: str = "task", reference: Any = None, tools: tuple[str, ...] = ()) -> Json:
    sid = next(_next)
    SESSIONS[sid] = Session(world, reference, grading, list(tools))
    return {"sid": sid}


def fork(sid: int) -> Json:
    copied = next(_next)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)  # deepcopy is Python all through, so that depth costs no C stack
    try:
        SESSIONS[copied] = copy.deepcopy(SESSIONS[sid])
    finally:
        sys.setrecursionlimit(before)
    return {"sid": copied}


def catalog() -> Json:
    """All that is to be known of the package's data, references parsed and positional arguments named."""
    found = []
    for category in CATEGORIES:
        for world, each in entries(category).items():
            owners = each["involved_classes"]
            turns = [turn[0]["content"] if turn else None for turn in each["question"]]
            found.append(
                {
                    "id": world,
                    "category": category,
                    "classes": owners,
                    "state": {owner: each["initial_config"].get(owner, {}) for owner in owners},
                    "turns": [turn or DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC for turn in turns],
                    "hidden": hidden(world),
                    "reference": reference(world),
                }
            )
    classes = {
        owner: {
            "description": backend(owner)()._api_description,
            "tools": [tool(document) for document in documents(owner).values()],
        }
        for owner in CLASSES
    }
    return {"version": VERSION, "entries": found, "classes": classes}


def reached(worlds: list[str]) -> Json:
    """What the official references reach: {world: [digest of each turn]}."""
    return {world: Session(world, reference(world), "official", []).reach() for world in worlds}


def reference(world: str) -> list[list[Call]]:
    found = entry(world)
    return [[parse(text, found["involved_classes"]) for text in turn] for turn in found["reference"]]


def play(world: str, reference: Any, steps: Any, grading: str = "task", tools: tuple[str, ...] = ()) -> Json:
    """An episode of `steps`, per turn a list of lists of calls: evaluated, with the observations of each turn."""
    session = Session(world, reference, grading, list(tools))
    shown = []
    for turn in steps:
        shown.append([each for step in turn for each in session.act(step)["observations"]])
        session.next_turn()
    return {**session.evaluate(), "observations": shown}


def validate(world: str, reference: Any, tools: tuple[str, ...] = ()) -> Json:
    """What can be known of a reference by playing it: twice as it is, and without each of its calls."""

    def run(calls: Any) -> Json:
        return play(world, reference, [[turn] if turn else [] for turn in calls], tools=tools)

    runs = [run(reference) for _ in range(2)]
    alone = Session(world, reference, "task", [])
    alone.reach()
    places = [(turn, at) for turn, made in enumerate(reference) for at in range(len(made))]
    return {
        "runs": [{"passes": run["official"], "digests": run["digests"]} for run in runs],
        "same": runs[0] == runs[1],
        "observations": runs[0]["observations"],
        "changed": alone.changes(),
        "idle": [place for place in places if run(_without(reference, *place))["official"]],
    }


def _without(reference: Any, turn: int, at: int) -> Any:
    return [[c for i, c in enumerate(calls) if (t, i) != (turn, at)] for t, calls in enumerate(reference)]


HANDLERS = {
    "open": open_,
    "act": lambda sid, calls, same_step=False: SESSIONS[sid].act(calls, same_step),
    "turn": lambda sid: SESSIONS[sid].next_turn(),
    "evaluate": lambda sid: SESSIONS[sid].evaluate(),
    "fork": fork,
    "close": lambda sid: SESSIONS.pop(sid) and None,
    "catalog": catalog,
    "reached": reached,
    "play": play,
    "validate": validate,
}

CHANGES = [
    "chmod",
    "chown",
    "exec",
    "fork",
    "kill",
    "link",
    "mkdir",
    "posix_spawn",
    "remove",
    "rename",
    "symlink",
    "system",
]
DENIED = ("exec", "subprocess.Popen", "socket.__new__", "ctypes.dlopen", "shutil.", *(f"os.{word}" for word in CHANGES))
"""Audit events, or how they begin: nothing here has any use for them, whatever a call may have found."""


def _watch(event: str, args: tuple[Any, ...]) -> None:
    writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event.startswith(DENIED):
        raise PermissionError(f"{event} is not for a backend")


importlib.import_module("_strptime")  # by the first date otherwise, when nothing may be imported any more
for _owner in CLASSES:
    backend(_owner)
sys.addaudithook(_watch)
