"""The BFCL multi-turn environment: several user turns, worked through functions of simulated services, graded by state
and by what the functions gave (docs/bfcl.md)."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

from envs.bfcl.catalog import ABSTAINING, CATEGORIES, Calls, Catalog, Entry, pool, sides
from envs.bfcl.checks import MAX_CALLS, check_form, check_report, check_values
from envs.bfcl.session import BfclSession
from envs.errors import InvalidTask
from envs.protocols import ActionFormat, Draft, Message, Outcome, Session, World
from envs.worker import Blamed, Pool
from store.rows import Json, Origin, Split, Task, content_id, task_id

STRICT_FAILS = {"multi_turn_miss_func_49"}
"""Official entries whose own reference calls a function that is still hidden."""
UNSEEN = ("random_seed",)
"""Parts of a configuration that no explorer is told."""
VALIDATE_S = 2.0
"""Seconds that a draft's plays may take, twice: the event loop waits for them. They take some hundredths."""
DONE = "Done."
"""What a reference says to end a turn."""


class Bfcl:
    """Implements envs.protocols.Env. `reference` is calls per turn, `expected` a digest of what each turn reaches."""

    name = "bfcl"
    version = "1"
    action_format: ActionFormat = "tool_calls"
    explore_steps = 12

    def __init__(self, workers: Pool, split: str = "index") -> None:
        self.pool = workers
        self.catalog = Catalog(workers)
        self._sides = sides(split)
        self._tasks: dict[str, list[Task]] = {}
        self._reports: dict[str, Json] = {}

    def worlds(self, split: Split) -> list[World]:
        """Initial configurations of `base` entries; other worlds are opened by official tasks alone."""
        entries = self.catalog.entries.values()
        return [
            World(id=entry.id, env=self.name, split=split)
            for entry in entries
            if entry.category == "base" and self._side(entry) == split
        ]

    def describe(self, world: str) -> str:
        entry = self.catalog.entry(world)
        told = [f"{name}: {self.catalog.classes[name]['description']}" for name in entry.classes]
        state = {owner: _told(config) for owner, config in entry.state.items()}
        return "\n".join(
            [
                "Simulated services and their state at the start:",
                *told,
                json.dumps(state, ensure_ascii=False),
                "A user speaks in one or more turns; each turn is answered by calls of the functions, and the calls of "
                "all turns work on one state. A reference is a list with one list of calls for each turn: "
                '[[{"name": "function", "args": {"parameter": "value"}}]]. It has no call but those that a turn asks '
                "for and those whose answer a later argument needs. Users write numbers in digits, names as they are.",
            ]
        )

    def seed_tasks(self) -> list[Task]:
        """None: official questions and answers are not trained on."""
        return []

    def suites(self) -> dict[str, list[Task]]:
        """Per category all entries and those of either side; for those with turns to abstain from, the same graded
        strictly. Official entries of the training side are held out too: only their configurations are explored."""
        found: dict[str, list[Task]] = {}
        for category in CATEGORIES:
            for grading in ("official", "strict") if category in ABSTAINING else ("official",):
                mark = "" if grading == "official" else "_strict"
                tasks = self._official(category, grading)
                found[f"multi_turn_{category}{mark}"] = tasks
                found[f"multi_turn_{category}_train{mark}"] = [task for task in tasks if task.split == "gold"]
                found[f"multi_turn_{category}_test{mark}"] = [task for task in tasks if task.split == "test"]
        return found

    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        entry = self.catalog.entry(world)
        return BfclSession(self.pool, entry, self.catalog.tools(entry), task)

    def materialize(self, draft: Draft, origin: Origin) -> Task:
        if reasons := self.check(draft):
            word, _, detail = reasons[0].partition(": ")
            raise InvalidTask(word, detail)
        entry = self.catalog.entry(draft.world)
        expected = {"grading": "task", "turns": self._report(draft)["runs"][0]["digests"]}
        return self._task(entry, replace(draft, tools=self._offered(draft, entry)), expected, origin)

    def _offered(self, draft: Draft, entry: Entry) -> list[str]:
        """The functions that the task offers; [] = all. The draft decides, if it says any."""
        if draft.tools or self._sides.others is None:
            return draft.tools
        needed = {call["name"] for turn in draft.reference for call in turn}
        rest = sorted(set(self.catalog.tools(entry)) - needed)
        drawn = random.Random(content_id(draft.world, draft.user_turns, draft.reference))
        return sorted(needed | set(drawn.sample(rest, min(self._sides.others, len(rest)))))

    async def replay(self, task: Task) -> Outcome:
        session = self.open(task.world, task)
        try:
            await session.start()
            for message in self.solution(task):
                if message["role"] == "assistant" and (await session.act(message)).done:
                    break
            return await session.evaluate()
        finally:
            await session.close()

    async def noop(self, task: Task) -> Outcome:
        outcomes = [await self._play(task, step) for step in ([], [{"name": "nothing", "args": {}}])]
        return max(outcomes, key=lambda it: it.score or 0.0)

    def check(self, draft: Draft) -> list[str]:
        if draft.world not in self.catalog.entries:
            return [f"unknown_world: {draft.world!r}"]
        tools = self.catalog.tools(self.catalog.entry(draft.world))
        if reasons := check_form(draft, tools):
            return reasons
        try:
            report = self._report(draft)
        except Blamed as blamed:
            return [f"execution_error: {blamed}"]
        return check_report(report) or check_values(draft, tools, report["observations"])

    def twins(self, task: Task) -> list[str]:
        place = self.catalog.entry(task.world).place
        words = [" ".join(re.findall(r"\w+", turn.casefold())) for turn in task.user_turns]
        return [
            "turns:" + content_id(place, words),
            "calls:" + content_id(place, [call for turn in task.reference for call in turn]),
        ]

    def parts(self, task: Task) -> list[str]:
        """The services that are involved."""
        return self.catalog.entry(task.world).classes

    def scenario(self, task: Task) -> str | None:
        return None

    def answers(self, task: Task) -> list[str]:
        """One key of what the turns reach together: a task and its turns split otherwise have the same last state."""
        return ["answer:" + content_id(self.catalog.entry(task.world).place, task.expected["turns"][-1])]

    def action_tokens(self, step_action: str) -> list[str]:
        """Names of the functions called, `unknown` for others, `invalid` for what is no call; a text is `reply`."""
        try:
            calls = json.loads(step_action) if step_action.startswith("[") else None
        except (ValueError, RecursionError):
            calls = None
        return [self._token(call) for call in calls] if isinstance(calls, list) else ["reply"]

    def structure(self, reference: Json) -> str:
        return " | ".join(" ".join(call["name"] for call in turn) for turn in reference)

    def difficulty(self, reference: Json) -> float:
        """Calls, and one for each further turn."""
        return float(sum(map(len, reference)) + len(reference) - 1)

    def solution(self, task: Task, *, tools: bool = False) -> list[Message]:
        """One call a message (more where a turn has too many), what it gives, and a last word to end each turn."""
        shown = self._ask_play(task, task.reference)["observations"]
        return list(_conversation(task.user_turns, task.reference, shown))

    def close(self) -> None:
        """End the workers."""
        self.pool.close()

    def _side(self, entry: Entry) -> Split:
        return "train" if entry.number in self._sides.train else "test"

    def _official(self, category: str, grading: str) -> list[Task]:
        key = f"{category} {grading}"
        if key not in self._tasks:
            entries = [entry for entry in self.catalog.entries.values() if entry.category == category]
            if grading == "strict":
                entries = [entry for entry in entries if entry.id not in STRICT_FAILS]
            reached = self.pool.ask({"verb": "reached", "worlds": [entry.id for entry in entries]}, seconds=60)
            self._tasks[key] = [
                self._task(entry, _draft(entry), {"grading": grading, "turns": reached[entry.id]}, "outside")
                for entry in entries
            ]
        return list(self._tasks[key])

    def _task(self, entry: Entry, draft: Draft, expected: Json, origin: Origin) -> Task:
        content: dict[str, Any] = {
            "env": self.name,
            "env_version": self.version,
            "world": draft.world,
            "user_turns": draft.user_turns,
            "tools": draft.tools,
            "reference": draft.reference,
            "expected": expected,
        }
        side = self._side(entry)
        return Task(
            id=task_id(**content),
            **content,
            split="gold" if expected["grading"] != "task" and side == "train" else side,
            structure=self.structure(draft.reference),
            difficulty=self.difficulty(draft.reference),
            origin=origin,
        )

    def _report(self, draft: Draft) -> Json:
        key = content_id(draft.world, draft.reference, draft.tools)
        report = self._reports.get(key)
        if report is None:
            asked = {"world": draft.world, "reference": draft.reference, "tools": draft.tools}
            report = self.pool.ask({"verb": "validate", **asked}, seconds=VALIDATE_S)
            self._reports = {key: report}  # of the last draft alone
        return report

    async def _play(self, task: Task, step: list[Json]) -> Outcome:
        """Each turn is answered by the one step."""
        found = await asyncio.to_thread(self._ask_play, task, [step for _ in task.user_turns])
        if found["digests"] != task.expected["turns"]:
            return Outcome(kind="invalid", detail="the reference no longer reaches what was recorded")
        key = "strict" if task.expected["grading"] == "strict" else "official"
        return Outcome(kind="scored", score=float(found[key]))

    def _ask_play(self, task: Task, calls: Json) -> Json:
        steps = [[turn] if turn else [] for turn in calls]
        asked = {"world": task.world, "reference": task.reference, "steps": steps, "tools": task.tools}
        return self.pool.ask({"verb": "play", "grading": task.expected["grading"], **asked})

    def _token(self, call: Any) -> str:
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(name, str):
            return "invalid"
        return name if name in self.catalog.names else "unknown"


def _draft(entry: Entry) -> Draft:
    return Draft(world=entry.id, user_turns=entry.turns, reference=entry.reference)


def _conversation(turns: list[str], reference: Calls, shown: Json) -> Iterable[Message]:
    number = count()
    for at, calls in enumerate(reference):
        yield {"role": "user", "content": turns[at]}
        width = -(-len(calls) // MAX_CALLS) or 1
        for start in range(0, len(calls), width):
            made = [
                {"id": f"call_{next(number)}", "name": call["name"], "args": call["args"]}
                for call in calls[start : start + width]
            ]
            yield {"role": "assistant", "content": "", "tool_calls": made}
            for i, call in enumerate(made):
                text = shown[at][start + i][0]
                yield {"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": text}
        yield {"role": "assistant", "content": DONE}


def _told(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _told(inner) for key, inner in value.items() if key not in UNSEEN}
    return value


@cache
def builtin(split: str) -> Bfcl:
    """The environment over the installed package. UsageError if it is not installed."""
    return Bfcl(pool(), split)
