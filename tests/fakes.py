"""The smallest real environment and the smallest policy: tests use these where a mock would stand.

EchoEnv         a world where the one who repeats the user's word wins; sessions can be told to fail
ScriptedPolicy  a policy that answers by a function and remembers what it was asked
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from envs.errors import InvalidTask, SessionLost
from envs.protocols import (
    ActionFormat,
    Completion,
    Draft,
    Message,
    Observation,
    Outcome,
    Request,
    Session,
    World,
)
from store.errors import UsageError
from store.rows import Json, Origin, Task, content_id, task_id

Fault = Literal[
    "lose", "crash", "sleep", "invalid", "never_done",
    "lose_start", "sleep_start", "lose_grade", "sleep_grade", "no_grade", "stubborn", "thread", "cancelled",
]  # fmt: skip
"""lose: SessionLost at the first act; crash: an error nobody expected; sleep: act never answers; invalid: the task
turns out defective; never_done: the episode does not end by itself. At the start and at the grading alike.
stubborn: act answers, but only 50 ms after it is told to stop; thread: act waits for a thread that nobody can stop;
cancelled: act stops itself."""

_WORLDS = {"room": "train", "hall": "train", "cellar": "shifted"}


class EchoSession:
    """The user says a word; whoever says it back wins. With tools: `look` tells the word, `say` answers."""

    def __init__(self, task: Task | None, *, tools: bool, turns: int, fault: Fault | None) -> None:
        self.tools: list[Json] = [_tool("look"), _tool("say", "word")] if tools else []
        self.closed = False
        self._word = str(task.reference) if task else "hello"
        self._task = task
        self._turns = turns
        self._fault = fault
        self._said: list[str] = []
        self.acted = False
        """An act went to its end."""
        self.closed_early = False
        """While an act was still at work."""
        self.release = threading.Event()
        """Lets the thread of fault `thread` end."""
        self._acting = False

    async def start(self) -> list[Message]:
        await self._fail("_start")
        return [{"role": "system", "content": "Say it back."}, {"role": "user", "content": self._word}]

    async def act(self, message: Message) -> Observation:
        self._acting = True
        await self._fail()
        self.acted, self._acting = True, False
        if self.tools:
            return self._act_by_tools(message.get("tool_calls") or [])
        self._said.append(str(message.get("content", "")))
        done = self._fault != "never_done" and (self._said[-1] == self._word or len(self._said) >= self._turns)
        again: Message = {"role": "user", "content": "Again."}
        return Observation(messages=[] if done else [again], done=done, failed=self._said[-1] != self._word)

    async def _fail(self, where: str = "") -> None:
        if self._fault == "lose" + where:
            raise SessionLost("the echo is gone")
        if self._fault == "sleep" + where:
            await asyncio.sleep(3600)
        if where:
            return
        if self._fault == "crash":
            raise RuntimeError("a bug in the environment")
        if self._fault == "cancelled":
            raise asyncio.CancelledError
        if self._fault == "stubborn":
            await _stubborn()
        if self._fault == "thread":
            await asyncio.to_thread(self.release.wait)

    def _act_by_tools(self, calls: list[dict[str, Any]]) -> Observation:
        answers = [self._call(call) for call in calls]
        done = any(call.get("name") == "say" for call in calls) and self._task is not None
        messages: list[Message] = [
            {"role": "tool", "tool_call_id": call.get("id"), "name": call.get("name"), "content": json.dumps(answer)}
            for call, answer in zip(calls, answers, strict=True)
        ]
        return Observation(messages=[] if done else messages, done=done, failed=not calls or {} in answers)

    def _call(self, call: dict[str, Any]) -> Json:
        if call.get("name") == "look":
            return {"word": self._word}
        if call.get("name") == "say":
            self._said.append(str((call.get("args") or {}).get("word", "")))
            return {"said": self._said[-1]}
        return {}

    async def evaluate(self) -> Outcome:
        await self._fail("_grade")
        if self._fault == "no_grade":
            return None  # type: ignore[return-value]
        if self._fault == "invalid":
            return Outcome(kind="invalid", detail="the word has no echo")
        said = self._said[-1] if self._said else ""
        return Outcome(kind="scored", score=float(said == self._word))

    async def close(self) -> None:
        self.release.set()
        self.closed, self.closed_early = True, self._fault == "stubborn" and self._acting


async def _stubborn() -> None:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await asyncio.sleep(0.05)


class EchoEnv:
    """Implements envs.protocols.Env. `faults`: {task id: one fault (or None) for each session opened on it}."""

    name = "echo"
    version = "1"
    action_format: ActionFormat = "sql"
    explore_steps = 4

    def __init__(self, *, words: Sequence[str] = ("ping", "pong"), turns: int = 1) -> None:
        self.turns = turns
        self.faults: dict[str, list[Fault | None]] = {}
        self.sessions: list[EchoSession] = []
        self._words = words

    def worlds(self, split: str) -> list[World]:
        return [World(id=name, env=self.name, split=s) for name, s in _WORLDS.items() if s == split]  # type: ignore[arg-type]

    def describe(self, world: str) -> str:
        if world not in _WORLDS:
            raise UsageError(f"world {world!r}: there is none of that name; choose from {', '.join(_WORLDS)}")
        return f"a {world} with an echo"

    def seed_tasks(self) -> list[Task]:
        return [self.task(word) for word in self._words]

    def suites(self) -> dict[str, list[Task]]:
        return {"shifted": [self.task(word.upper(), world="cellar") for word in self._words]}

    def task(self, word: str, *, world: str = "room", origin: Origin = "seed") -> Task:
        return self.materialize(Draft(world=world, user_turns=[word], reference=word), origin)

    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        self.describe(world)
        faults = self.faults.get(task.id, []) if task else []
        fault = faults.pop(0) if faults else None
        session = EchoSession(task, tools=tools or task is None, turns=self.turns, fault=fault)
        self.sessions.append(session)
        return session

    def materialize(self, draft: Draft, origin: Origin) -> Task:
        reasons = self.check(draft)
        if reasons:
            raise InvalidTask(*reasons[0].split(": ", 1))
        content: dict[str, Any] = {
            "env": self.name,
            "env_version": self.version,
            "world": draft.world,
            "user_turns": draft.user_turns,
            "tools": draft.tools,
            "reference": draft.reference,
            "expected": draft.reference,
        }
        split: Any = _WORLDS[draft.world]
        shape = self.structure(draft.reference)
        return Task(
            id=task_id(**content), **content, split=split, structure=shape, difficulty=float(len(shape)), origin=origin
        )

    async def replay(self, task: Task) -> Outcome:
        return await self._play(task, task.reference)

    async def noop(self, task: Task) -> Outcome:
        return await self._play(task, "")

    async def _play(self, task: Task, word: str) -> Outcome:
        session = self.open(task.world, task)
        await session.start()
        await session.act({"role": "assistant", "content": word})
        outcome = await session.evaluate()
        await session.close()
        return outcome

    def check(self, draft: Draft) -> list[str]:
        if draft.world not in _WORLDS:
            return [f"unknown_world: {draft.world!r}"]
        word = draft.reference
        return [] if isinstance(word, str) and word.strip() else ["empty_word: there is nothing to say back"]

    def twins(self, task: Task) -> list[str]:
        return [content_id("echo", task.world, task.reference)]

    def parts(self, task: Task) -> list[str]:
        return []

    def scenario(self, task: Task) -> str | None:
        return None

    def answers(self, task: Task) -> list[str]:
        return [content_id("answer", task.world, str(task.expected).casefold())]

    def action_tokens(self, step_action: str) -> list[str]:
        return step_action.split()

    def structure(self, reference: Json) -> str:
        return "_" * len(str(reference))

    def difficulty(self, reference: Json) -> float:
        return float(len(str(reference)))

    def solution(self, task: Task, *, tools: bool = False) -> list[Message]:
        call = {"id": "call_0", "name": "say", "args": {"word": task.reference}}
        said: Message = {"content": "", "tool_calls": [call]} if tools else {"content": task.reference}
        return [
            {"role": "system", "content": "Say it back."},
            {"role": "user", "content": task.user_turns[0]},
            {"role": "assistant", **said},
        ]


def _tool(name: str, *arguments: str) -> Json:
    properties = {argument: {"type": "string"} for argument in arguments}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


Answer = str | Message | Exception


@dataclass
class ScriptedPolicy:
    """Answers each request by a function of it: a text, a whole message, or an exception in its place."""

    answer: Callable[[Request], Answer]
    spec: str = "scripted"
    version: int = 0
    batch: int = 8
    concurrent: bool = False
    step: int | None = None
    batches: list[list[Request]] = field(default_factory=list)
    """The requests of each `sample` call, in order."""

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        self.batches.append(list(requests))
        return [_completion(request, self.answer(request)) for request in requests]


def _completion(request: Request, answer: Answer) -> Completion | Exception:
    if isinstance(answer, Exception):
        return answer
    message = {"role": "assistant", "content": answer} if isinstance(answer, str) else answer
    words = len(str(message.get("content", "")).split())
    return Completion(message=message, prompt_tokens=len(request.messages), completion_tokens=words)


def last_user(request: Request) -> str:
    """The newest user message: what an echo repeats."""
    return next(str(m["content"]) for m in reversed(request.messages) if m["role"] == "user")


def echo(request: Request) -> str:
    """The right answer in EchoEnv: the word of the first user message."""
    return next(str(m["content"]) for m in request.messages if m["role"] == "user")
