"""An episode of the multi-turn benchmark: tool calls in a worker, turn after turn; a message without calls ends a turn.

What the actor does wrong is an observation in the words of the package (`Error during execution: ...`). A call that
kills a worker twice, or takes too long twice, is observed as such an error and changes nothing (envs/worker.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from envs.bfcl.catalog import Entry
from envs.protocols import Message, Observation, Outcome
from envs.worker import Blamed, Pool, Remote
from store.rows import Json, Task

CALLS = 128
"""Calls of one message that are carried out."""
CHARS = 100_000
"""Characters of a call's JSON."""
_EXPLORE = "Explore the functions: call them, one at a time, and look at what they give."
_REMIND = "Call one of the functions, or stop."
ERROR = "Error during execution: "

Shown = list[tuple[str, bool]]
"""(observation, whether it is an error) of each call."""


class BfclSession:
    """Implements envs.protocols.Session. Without a task it explores: no turns, no score."""

    tools: list[Json]
    """Those open in the present turn."""

    def __init__(self, pool: Pool, entry: Entry, tools: Mapping[str, Json], task: Task | None) -> None:
        self._entry = entry
        self._task = task
        allowed = task.tools if task else []
        self._all = {name: tool for name, tool in tools.items() if name in allowed} if allowed else tools
        self._hidden = entry.hidden if task and task.expected["grading"] != "task" else {}
        self._turn = 0
        self._over = ""
        """Why the episode ended, if not by the actor's last word."""
        self._found: Json = None
        """The verdicts, once the last turn is over."""
        opening: dict[str, Any] = {"world": entry.id, "grading": "task"}
        if task is not None:
            opening |= {"grading": task.expected["grading"], "reference": task.reference, "tools": task.tools}
        self._remote = Remote(pool, opening)
        self._show_tools()

    async def start(self) -> list[Message]:
        await self._remote.start()
        return [{"role": "user", "content": self._task.user_turns[0] if self._task else _EXPLORE}]

    async def act(self, message: Message) -> Observation:
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or not calls:
            return await self._next_turn()
        done, shown = await self._step([_wire(call) for call in calls[:CALLS]])
        shown += [(f"{ERROR}at most {CALLS} calls a message are carried out", True)] * (len(calls) - CALLS)
        if done:
            self._over = "a turn took too many steps"
            return Observation(messages=[], done=True, failed=True)
        answers = [_answer(call, text) for call, (text, _) in zip(calls, shown, strict=True)]
        return Observation(messages=answers, done=False, failed=any(failed for _, failed in shown))

    async def evaluate(self) -> Outcome:
        """1 or 0 by the task's grading; `detail` has the verdicts of both official and strict grading.

        An episode that ended before its turns did fails, since those are not graded. One that ended by force in its
        last turn is graded as it stands, as the package does."""
        if self._task is None:
            return Outcome(kind="scored", detail="no task, no score")
        try:
            found = self._found or await self._remote.ask("evaluate")
        except Blamed as blamed:
            return Outcome(kind="scored", score=0.0, detail=f"the final state: {blamed}")
        if found["digests"] != self._task.expected["turns"]:
            return Outcome(kind="invalid", detail="the reference no longer reaches what was recorded")
        strict = self._task.expected["grading"] == "strict"
        score = float(found["strict" if strict else "official"])
        marks = {name: float(found[name]) for name in ("official", "strict")}
        return Outcome(kind="scored", score=score, detail=self._detail(found), marks=marks)

    async def close(self) -> None:
        await self._remote.close()

    async def fork(self) -> BfclSession:
        """A second session in the same state. One that is kept and never acted on is a snapshot: fork it to restore."""
        other = BfclSession(self._remote.pool, self._entry, self._all, self._task)
        other._turn, other._over, other._found = self._turn, self._over, self._found
        other._remote = await self._remote.fork()
        other._show_tools()
        return other

    def _show_tools(self) -> None:
        seen = [name for name in self._all if self._hidden.get(name, 0) <= self._turn]
        # new ones come last, as in the package
        self.tools = [self._all[name] for name in sorted(seen, key=lambda name: self._hidden.get(name, 0))]

    async def _next_turn(self) -> Observation:
        if self._task is None:
            return Observation(messages=[{"role": "user", "content": _REMIND}], done=False, failed=True)
        try:
            self._found = (await self._remote.ask("turn"))["evaluated"]
        except Blamed as blamed:
            self._over = f"comparing the states: {blamed}"
            return Observation(messages=[], done=True, failed=True)
        self._turn += 1
        if self._hidden:
            self._show_tools()
        if self._turn >= len(self._task.user_turns):
            return Observation(messages=[], done=True)
        return Observation(messages=[{"role": "user", "content": self._task.user_turns[self._turn]}], done=False)

    async def _step(self, calls: list[Json]) -> tuple[bool, Shown]:
        """(whether the episode was ended by force, what each call gave)."""
        try:
            answer = await self._remote.ask("act", calls=calls)
        except Blamed as blamed:
            if len(calls) == 1:
                answer = await self._remote.ask("act", calls=[{"refused": str(blamed)}])
            else:
                return await self._one_by_one(calls)
        return answer["done"], [(text, failed) for text, failed in answer["observations"]]

    async def _one_by_one(self, calls: list[Json]) -> tuple[bool, Shown]:
        """The calls of one step of which one kills the worker: the others are carried out."""
        shown: Shown = []
        done = False
        for at, call in enumerate(calls):
            request = {"calls": [call], "same_step": at > 0}
            try:
                answer = await self._remote.ask("act", **request)
            except Blamed as blamed:
                answer = await self._remote.ask("act", **{**request, "calls": [{"refused": str(blamed)}]})
            done = answer["done"]
            shown += [(text, failed) for text, failed in answer["observations"]]
        return done, shown

    def _detail(self, found: Json) -> str:
        failed = [f"turn {verdict['turn']}: {verdict['why']}" for verdict in found["turns"] if not verdict["valid"]]
        marks = f"official {found['official']:d}, strict {found['strict']:d}"
        return "; ".join([marks, *filter(None, [self._over]), *failed])


def _wire(call: Any) -> Json:
    """A call as the worker takes it: {"name", "args"}, or {"refused": why}."""
    if not isinstance(call, dict):
        return {"refused": "a call is an object with name and args"}
    args = call.get("args")
    try:
        if isinstance(args, str) and len(args) <= CHARS:
            args = json.loads(args or "{}")
        wire = {"name": call.get("name"), "args": {} if args is None else args}
        size = len(json.dumps(wire))
    except (ValueError, TypeError, RecursionError) as error:
        return {"refused": f"the arguments are no JSON: {error}"}
    return wire if size <= CHARS else {"refused": f"the call has {size} characters, at most {CHARS} are taken"}


def _answer(call: Any, text: str) -> Message:
    call = call if isinstance(call, dict) else {}
    return {"role": "tool", "tool_call_id": call.get("id"), "name": call.get("name"), "content": text}
