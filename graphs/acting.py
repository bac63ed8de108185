"""A model at work in a session, shared by both graphs: the loop act <-> tools, and questions answered in JSON."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from graphs.model import Reply, call
from graphs.prompting import Role, render
from graphs.replies import Reader
from graphs.resources import Resources
from graphs.sessions import SESSIONS
from graphs.state import ActState, Call, Entry, Facts, JudgeState, Spent, View
from store.rows import Json

READ_TRIES = 2
"""Times that a JSON answer is asked for before it counts as unreadable."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """One model in one session, rebuilt from the state in every node; it holds nothing that the state does not."""

    resources: Resources
    key: str
    """Of the session."""
    world: str
    seed: int
    steps: int
    """Tool calls that it may make in all."""
    log: list[Entry] = field(default_factory=list)
    """The calls that it made."""
    spent: Spent
    facts: Facts
    """What its prompts show besides world, tools, log and steps left."""

    async def view(self, *, log: Sequence[Entry] = (), steps_left: int = 0) -> View:
        live = await SESSIONS.get(self.key, self.resources.env, self.world, self.log)
        world = self.resources.env.describe(self.world)
        view = View(world=world, tools=live.tools, signal=None, context=None, log=_lines(log), steps_left=steps_left)
        view.update(self.facts)  # type: ignore[typeddict-item]
        return view

    async def act(self, role: Role) -> ActState:
        """Ask the model for its next calls. Sets `pending`, or `stop` to the reason why there are none."""
        if stop := self._out_of_budget():
            return ActState(pending=[], said="", stop=stop)
        view = await self.view(steps_left=self.steps)
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._seconds_left()):
                reply = await self._call(render(role, view, self.log), view["tools"])
        except TimeoutError:
            return ActState(pending=[], said="", stop="deadline", spent=add(self.spent, None, started))
        calls = reply.calls[: self.steps - len(self.log)]
        stop = None if calls else "done"
        return ActState(pending=calls, said=reply.text, stop=stop, spent=add(self.spent, reply, started))

    async def answer(self, pending: Sequence[Call]) -> ActState:
        """Carry out the pending calls, one by one, within the deadline. InfraError where the session is lost."""
        started = time.monotonic()
        live = await SESSIONS.get(self.key, self.resources.env, self.world, self.log)
        entries: list[Entry] = []
        stop = None
        try:
            async with asyncio.timeout(self._seconds_left()):
                while len(entries) < len(pending) and not live.done:
                    position = len(entries)
                    entries.append(await live.play(pending[position], len(self.log) + position))
        except TimeoutError:
            stop = "deadline"  # the call that was cut off is not in the log, so the next use reopens the session
        stop = "environment" if live.done else stop
        return ActState(log=entries, pending=[], stop=stop, spent=add(self.spent, None, started))

    async def ask(self, messages: list[BaseMessage], read: Reader[T]) -> tuple[T | None, str, Spent]:
        """(what `read` makes of the answer, its text, spent). Asked once more if unreadable, then None."""
        spent, text = self.spent, ""
        for _ in range(READ_TRIES):
            started = time.monotonic()
            reply = await self._call(messages)
            spent, text = add(spent, reply, started), reply.text
            try:
                return read(text), text, spent
            except ValueError as error:
                again = f"That could not be read: {error}. Answer again, with the one JSON object and nothing else."
                messages = [*messages, AIMessage(text), HumanMessage(again)]
        return None, text, spent

    async def _call(self, messages: list[BaseMessage], tools: Sequence[Json] = ()) -> Reply:
        resources = self.resources
        model = resources.model(self.seed)
        return await call(model, messages, settings=resources.calls, budget=resources.budget, tools=tools)

    def _seconds_left(self) -> float:
        return self.resources.explore.deadline_s - self.spent["seconds"]

    def _out_of_budget(self) -> str | None:
        if len(self.log) >= self.steps:
            return "steps"
        if self.spent["prompt_tokens"] + self.spent["completion_tokens"] >= self.resources.explore.token_budget:
            return "tokens"
        return "deadline" if self._seconds_left() <= 0 else None


def identity(state: ActState | JudgeState, config: RunnableConfig) -> str:
    """The state's id; in Studio, where the input may lack one, the thread's."""
    return state.get("id") or str(config.get("configurable", {}).get("thread_id", "alone"))


def place(state: ActState, resources: Resources) -> str:
    """The state's world; in Studio, where the input may lack one, the first train world."""
    return state.get("world") or resources.env.worlds("train")[0].id


def spent_so_far(state: ActState) -> Spent:
    return state.get("spent") or Spent(prompt_tokens=0, completion_tokens=0, cost=0.0, seconds=0.0)


def add(spent: Spent, reply: Reply | None, started: float) -> Spent:
    """`spent` and what one more reply, or tool use, has taken since `started` (monotonic seconds)."""
    return Spent(
        prompt_tokens=spent["prompt_tokens"] + (reply.prompt_tokens if reply else 0),
        completion_tokens=spent["completion_tokens"] + (reply.completion_tokens if reply else 0),
        cost=spent["cost"] + (reply.cost if reply else 0.0),
        seconds=spent["seconds"] + time.monotonic() - started,
    )


def _lines(log: Sequence[Entry]) -> list[Json]:
    return [
        {
            "name": entry["name"],
            "args": entry["args"],
            "observation": entry["observation"],
            "failed": entry["failed"],
        }
        for entry in log
    ]
