"""One episode played from outside, call by call: by an MCP client (envs/mcp.py), by TRL's trainer (envs/trl.py).

It goes through the same `Episode` as our own rollouts do, so deadlines, faults and grading are the same; its rows are
kept nowhere, for whoever plays is no policy of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass

from envs.episode import Episode, Job, Terms
from envs.errors import PolicyUnavailable
from envs.protocols import Completion, Env, Message, Outcome, Request
from envs.waiting import Closing, Group
from store.rows import Json, Task

DEADLINE_S = 300.0
"""Seconds of the session's own time; those between two calls are the player's, and do not count."""
DONE: Message = {"role": "assistant", "content": "Done."}
"""What a policy says that has no more to do."""


def function_tool(name: str, description: str, properties: Json | None = None, required: Sequence[str] = ()) -> Json:
    """A JSON-schema function tool of ours, beside those of an environment."""
    parameters = {
        "type": "object",
        "properties": properties or {},
        "required": list(required),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


REPLY = function_tool(
    "reply",
    "Answer the user when all that was asked is done. Gives what the user says next.",
    {"text": {"type": "string", "description": "What is said."}},
    ["text"],
)
"""For environments whose actions are calls, where a message without one ends the user's turn."""


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    """What the environment shows next; "" if the episode is over."""
    failed: bool
    """The action was refused or raised an error, or no longer reached the environment."""


class ToolEpisode:
    """Single-use: start, call ... call, finish, one after the other, all in one event loop; then close."""

    def __init__(self, env: Env, task: Task, *, deadline_s: float = DEADLINE_S) -> None:
        self.task = task
        self._terms = _terms(env, deadline_s)
        self._episode = Episode(
            terms=self._terms, job=Job(task=task, k=0, seed=0), group=Group(1, quorum=1.0, grace_s=0.0)
        )

    @property
    def outcome(self) -> Outcome | None:
        """None while it is played."""
        return self._episode.outcome

    @property
    def tools(self) -> list[Json]:
        """JSON-schema function tools that are open now; [] once it is over."""
        session = self._episode.session
        return session.tools if session is not None else []

    async def start(self) -> str:
        """The first messages as one text: what a system prompt would say, then the user's first turn.

        "" if the environment could not be opened; `outcome` says why. UsageError for a world that is not there.
        """
        await self._whole(self._episode.start())
        return _text(self._episode.messages)

    async def call(self, name: str, args: Json) -> Answer:
        """Call one tool. What the player gets wrong is told by the answer, never raised."""
        made = {"id": f"call_{len(self._episode.steps)}", "name": name, "args": args}
        return await self._act({"role": "assistant", "content": "", "tool_calls": [made]})

    async def reply(self, text: str) -> Answer:
        """Say something without a call: in a task of several turns that ends the turn, and the user speaks next."""
        return await self._act({"role": "assistant", "content": text})

    async def finish(self) -> Outcome:
        """The outcome; an episode that is still played ends here, as when a policy has no more to do."""
        await self._act(DONE)
        await self._whole(self._episode.finish())
        assert self.outcome is not None
        return self.outcome

    async def close(self) -> None:
        """Give up the session, if it is still open, and wait until it is closed (bounded, envs/waiting.py)."""
        self._episode.close()
        await self._terms.closing.wait()

    async def _act(self, message: Message) -> Answer:
        steps, shown = len(self._episode.steps), len(self._episode.messages) + 1
        await self._whole(self._episode.answer(Completion(message=message), 0.0))
        taken = self._episode.steps[steps:]
        failed = taken[0].failed if taken else True
        return Answer(_text(self._episode.messages[shown:]), failed)

    async def _whole(self, work: Awaitable[None]) -> None:
        """All of it or nothing: of what was cancelled nobody knows how far it got, so nobody can go on from there."""
        try:
            await work
        except asyncio.CancelledError:
            self._episode.end(Outcome(kind="infra", detail="a call was cancelled while it was at work"))
            raise


def tools_of(env: Env, tasks: Iterable[Task]) -> dict[str, Json]:
    """{name: JSON-schema function} of every tool that some task offers at its start. No session is started for it."""
    found: dict[str, Json] = {}
    for task in tasks:
        for tool in env.open(task.world, task, tools=True).tools:
            found.setdefault(tool["function"]["name"], tool)
    return found


class _Outside:
    """Implements envs.protocols.Policy, for `Terms`: it plays by itself, and nobody samples it."""

    spec = "outside"
    version = 0
    batch = 1
    concurrent = True
    step: int | None = None

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        return [PolicyUnavailable("it plays from outside") for _ in requests]


def _terms(env: Env, deadline_s: float) -> Terms:
    return Terms(
        env=env,
        policy=_Outside(),
        run="outside",
        t=0,
        purpose="eval",
        suite=None,
        temperature=0.0,
        max_tokens=0,
        deadline_s=deadline_s,
        tools=True,
        max_attempts=1,
        closing=Closing(),
    )


def _text(messages: Sequence[Message]) -> str:
    return "\n\n".join(str(message.get("content", "")) for message in messages)
