"""The procedural explorer of BFCL: plays a chat model's part with typed values instead of a language model.

    reflect     says which functions the flagged attempts called, in which turn, and which errors came back
    next_call   unguided it spreads over the functions; with a signal it calls those of the failed task, or the rare
                pattern, in their order and with other values, then one more
    abstract    calls that worked, with the earlier ones that they rest on, become tasks of one or several turns
    repair      leaves a call out without which the task passes

It sees only the view that the prompts show (envs/protocols.py, Explorer): every argument is a value that occurs in the
world's description, in a tool's document or in an observation. A reference has no call that its user does not ask for:
of what was only looked at, nothing is kept.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from envs.bfcl.checks import UNSTABLE
from envs.bfcl.procedural_files import files
from envs.bfcl.procedural_fill import fill
from envs.bfcl.procedural_phrase import key, phrase, source_of
from envs.bfcl.procedural_scene import Call, Function, Scene, parsed, read
from store.rows import Json

TRIES = 20
MAX_TURNS = 4
ROOM = 6
"""Calls that a task has at most, by choice."""
DENIED = re.compile(r"authenticat|log ?in|logged|login", re.IGNORECASE)
"""Errors that ask for a login."""
FAILURES = 2
"""Failed calls of one function after which it is left alone."""


class ProceduralExplorer:
    """See the module's docstring; stateless."""

    def reflect(self, view: Json, rng: random.Random) -> Json:
        signal = view.get("signal") or {}
        names = list(dict.fromkeys(name for turn in _plan(signal, read(view)) for name in turn))
        vary = ["values", "other entities of the same kind", "the split into turns", "one call more"]
        return {"where": ", ".join(names), "failure": _failure(signal), "vary": vary}

    def next_call(self, view: Json, rng: random.Random) -> Json | None:
        if view.get("steps_left", 1) < 1:
            return None
        if draft := view.get("draft"):
            calls = [call for turn in draft["reference"] for call in turn]
            return calls[len(view["log"])] if len(view["log"]) < len(calls) else None
        scene = read(view)
        tried = {key(entry) for entry in scene.log}
        place = files(scene)
        for function in _wanted(scene, _plan(view.get("signal") or {}, scene), rng):
            args = fill(function, scene, place, rng)
            call = {"name": function.name, "args": args}
            if args is not None and (key(call) not in tried or function.logs_in):
                return call
        return None

    def abstract(self, view: Json, rng: random.Random) -> list[Json]:
        """Candidates, the most telling first; the caller takes as many as it wants."""
        scene = read(view)
        chosen = _guided(scene, view["signal"]) if view.get("signal") else []
        chosen += _free(scene, rng)
        drafts = [_draft(calls, cuts, scene, rng) for calls, cuts in chosen]
        return list({str(draft["reference"]): draft for draft in drafts}.values())

    def repair(self, view: Json, draft: Json, problem: str, rng: random.Random) -> Json | None:
        idle = re.match(r"idle_call: turn (\d+) passes without its call (\d+)", problem)
        if idle is None:
            return None
        scene, (turn, at) = read(view), map(int, idle.groups())
        left = [[c for i, c in enumerate(calls) if (t, i) != (turn, at)] for t, calls in enumerate(draft["reference"])]
        turns = [calls for calls in left if calls]
        return {"user_turns": [phrase(calls, {}, scene, rng) for calls in turns], "reference": turns} if turns else None


EXPLORER = ProceduralExplorer()


# ---------------------------------------------------------------- reading the signal


def _plan(signal: Json, scene: Scene) -> list[list[str]]:
    """Functions by turn that a guided exploration goes through: the rare pattern, or those of the failed task (also
    where the pattern has no function in it)."""
    shapes = [str(one["structure"]) for one in signal.get("evidence") or [] if one.get("structure")]
    for shape in (" ".join(signal.get("pattern") or []), *shapes[:1]):
        turns = [[name for name in turn.split() if name in scene.functions] for turn in shape.split(" | ")]
        if any(turns):
            return [turn for turn in turns if turn]
    return []


def _failure(signal: Json) -> str:
    """Which function, in which turn, with which error."""
    if signal.get("kind") == "rare":
        return "The policy hardly ever calls " + " ".join(signal.get("pattern") or [])
    when = "solved before, not any more" if signal.get("kind") == "forgetting" else "solved in some attempts only"
    found = next(_errors(signal), None)
    return f"{when}: {found}" if found else f"{when}: the calls worked, but reached something else"


def _errors(signal: Json) -> Iterator[str]:
    for one in signal.get("evidence") or []:
        turn = 1
        for step in one.get("steps") or []:
            calls = parsed(str(step.get("action")))
            if not isinstance(calls, list):
                turn += 1
            elif step.get("failed"):
                names = ", ".join(str(call.get("name")) for call in calls if isinstance(call, dict))
                yield f"turn {turn}, {names}: {str(step.get('observation'))[:200]}"


# ---------------------------------------------------------------- acting


def _wanted(scene: Scene, plan: list[list[str]], rng: random.Random) -> Iterator[Function]:
    """Functions to be called next, the likeliest first."""
    if login := _login(scene):
        yield login
    if step := _next_step(scene, [name for turn in plan for name in turn]):
        yield from [scene.functions[step]] * TRIES
    failed = [entry["name"] for entry in scene.log if entry["failed"]]
    called = {call.name for call in scene.calls}
    usable = [
        function
        for name, function in scene.functions.items()
        if failed.count(name) < FAILURES and not function.logs_in and name not in UNSTABLE
    ]
    near = {scene.functions[name].service for turn in plan for name in turn}
    for _ in range(TRIES):
        function = rng.choice(usable)
        if (function.name in called and rng.random() < 0.7) or (near and function.service not in near):
            continue
        if function.reads and not function.required and rng.random() < 0.5:
            continue  # there are many that only look
        yield function


def _login(scene: Scene) -> Function | None:
    """That of the service which has just refused a call for want of one."""
    if not scene.log or not scene.log[-1]["failed"] or scene.log[-1]["name"] not in scene.functions:
        return None
    last = scene.log[-1]
    refused = scene.functions[last["name"]]
    if refused.logs_in or not DENIED.search(str(last["observation"])):
        return None
    return next((f for f in scene.functions.values() if f.logs_in and f.service == refused.service), None)


def _next_step(scene: Scene, plan: Sequence[str]) -> str | None:
    """The first of the plan's functions that is neither done nor given up; None if all are."""
    at, failures = 0, 0
    for entry in scene.log:
        if at < len(plan) and entry["name"] == plan[at]:
            failures += entry["failed"]
            if not entry["failed"] or failures >= FAILURES:
                at, failures = at + 1, 0
    return plan[at] if at < len(plan) else None


# ---------------------------------------------------------------- abstracting

Chosen = tuple[list[Call], list[int]]
"""Calls in order, and before which of them a new turn begins."""


def _guided(scene: Scene, signal: Json) -> list[Chosen]:
    """The plan as it was carried out, in its turns; and one step harder."""
    plan = _plan(signal, scene)
    found: list[Call] = []
    cuts: list[int] = []
    left = list(scene.calls)
    for turn in plan:
        cuts.append(len(found))
        for name in turn:
            at = next((i for i, call in enumerate(left) if call.name == name), None)
            if at is not None:
                found.append(left[at])
                left = left[at + 1 :]
    if not found:
        return []
    whole = _closed(found, scene)
    turns = [whole.index(found[cut]) for cut in cuts if 0 < cut < len(found)]
    more = [call for call in left if not scene.functions[call.name].logs_in][:1]
    harder = _closed([*found, *more], scene)
    return [(whole, turns), *([(harder, [*turns, len(whole)])] if more and harder[: len(whole)] == whole else [])]


def _free(scene: Scene, rng: random.Random) -> list[Chosen]:
    """A task of several things, a shorter one and one of a single thing, as far as their calls rest on few others."""
    alone = [_closed([call], scene) for call in scene.calls if not scene.functions[call.name].logs_in]
    found = [_joined(rng.sample(alone, len(alone)), room, scene) for room in (rng.randint(4, ROOM), 3, 1)]
    return [(calls, _cuts(len(calls), rng)) for calls in found if calls]


def _joined(parts: list[list[Call]], room: int, scene: Scene) -> list[Call]:
    """As many of the parts as there is room for; where none fits, the shortest."""
    found: list[Call] = []
    for calls in parts:
        joined = _closed([*found, *calls], scene)
        found = joined if len(joined) <= room else found
    return found or min(parts, key=len, default=[])


def _cuts(count: int, rng: random.Random) -> list[int]:
    turns = min(MAX_TURNS, count, rng.choice((1, 2, 2, 3, 4)))
    return sorted(rng.sample(range(1, count), turns - 1))


def _closed(calls: Sequence[Call], scene: Scene) -> list[Call]:
    """The calls with those before them that they rest on: what changed the same service, and what gave a value that
    nothing else had told."""
    found = {call.at: call for call in calls}
    for call in sorted(calls, key=lambda call: -call.at):
        for before in scene.calls:
            if before.at < call.at and before.at not in found and _rests(call, before, scene):
                found[before.at] = before
    return [found[at] for at in sorted(found)]


def _rests(call: Call, before: Call, scene: Scene) -> bool:
    one, other = scene.functions[call.name], scene.functions[before.name]
    if other.logs_in and "false" in before.observation.lower():
        return False
    if not other.reads:
        return one.service == other.service
    values = [value for name, value in call.args.items() if source_of(name, value, before.observation)]
    return any(str(value) not in scene.given for value in values)


def _draft(calls: list[Call], cuts: list[int], scene: Scene, rng: random.Random) -> Json:
    made = [{"name": call.name, "args": dict(call.args)} for call in calls]
    known = _told_before(calls, made)
    bounds = [0, *cuts, len(made)]
    turns = [made[start:end] for start, end in pairwise(bounds) if start < end]
    return {"user_turns": [phrase(turn, known, scene, rng) for turn in turns], "reference": turns}


def _told_before(calls: list[Call], made: list[Json]) -> dict[tuple[str, str], str]:
    """{(call, parameter): what the newest answer with such a name says}, where that is the value."""
    known: dict[tuple[str, str], str] = {}
    for at, call in enumerate(calls):
        for name, value in call.args.items():
            for before in reversed(calls[:at]):
                if source := source_of(name, value, before.observation):
                    known[key(made[at]), name] = source
                    break
                if before.name == call.name:
                    break
    return known
