"""The boundaries that everything hangs on: Env, Session, Policy, Screen, Explorer.

    Env       a kind of world: lists worlds and tasks, opens sessions, replays references, names action tokens
    Session   one episode: start, act ... act, evaluate, close; used once and discarded
    Policy    turns a batch of conversations into a batch of completions
    Screen    a cheap first opinion of a task, without a language model
    Explorer  an environment's procedural explorer: plays a chat model's part without a model

Messages are OpenAI chat messages as plain dicts: role, content, and for tool use `tool_calls`
([{"id", "name", "args"}]) and `tool_call_id`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from store.rows import SUCCESS, Json, Origin, OutcomeKind, Split, Task

Message = dict[str, Any]
ActionFormat = Literal["sql", "tool_calls", "python"]


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """A place to act in: a database schema, a configuration of APIs, a set of app databases."""

    id: str
    env: str
    split: Split


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A proposed task before anything is known of it: what an explorer abstracts."""

    world: str
    user_turns: list[str]
    reference: Json
    tools: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How an episode ended (docs/concepts.md, "whose fault")."""

    kind: OutcomeKind
    score: float | None = None
    """In [0, 1]; None unless `kind` is `scored`. Success = score >= store.rows.SUCCESS."""
    violation: str | None = None
    detail: str = ""
    marks: dict[str, float] = field(default_factory=dict)
    """Other measures of the same episode, in [0, 1], where the environment has some."""

    @property
    def success(self) -> bool:
        return self.score is not None and self.score >= SUCCESS


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What the environment answers to one assistant message."""

    messages: list[Message]
    """Shown to the policy next; empty if the episode is over."""
    done: bool
    failed: bool = False
    """The action was refused or raised an error."""
    tokens: list[str] | None = None
    """Action tokens, where what was done tells them better than the action's text (`Env.action_tokens`)."""


class Session(Protocol):
    """One episode, single-use: start, act ... act, evaluate, one after the other, and then close.

    No method may block: while one does, the whole event loop waits, and no deadline can cut it off. What takes longer
    than a moment is awaited, and ends soon after it is cancelled. What runs in a thread cannot be cancelled: it must
    end by itself, and `close` must be safe while it still runs.
    """

    tools: list[Json]
    """JSON-schema function tools open to the actor ([] in text modes)."""

    async def start(self) -> list[Message]:
        """The first messages: system prompt and first user turn."""
        ...

    async def act(self, message: Message) -> Observation:
        """Apply one assistant message. Raises InfraError for the machine's faults, nothing for the actor's."""
        ...

    async def evaluate(self) -> Outcome: ...

    async def close(self) -> None: ...


class Env(Protocol):
    name: str
    version: str
    action_format: ActionFormat
    explore_steps: int
    """Default budget of tool steps of one exploration."""

    def worlds(self, split: Split) -> list[World]: ...

    def describe(self, world: str) -> str:
        """What an explorer is told of the world. UsageError if there is no such world."""
        ...

    def seed_tasks(self) -> list[Task]: ...

    def suites(self) -> dict[str, list[Task]]:
        """Held-out suites by name; their worlds' splits are never `train` unless the suite says so."""
        ...

    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        """A fresh session. Without a task, or with `tools`, the actor works through tools (explorer, validator)."""
        ...

    def materialize(self, draft: Draft, origin: Origin) -> Task:
        """Execute the draft's reference and record its outcome. InvalidTask where `check` would give a reason."""
        ...

    async def replay(self, task: Task) -> Outcome:
        """Play the reference in a fresh session, through the same `act` that a policy uses, and evaluate."""
        ...

    async def noop(self, task: Task) -> Outcome:
        """The best outcome that doing nothing of use reaches (empty answer, constants): must not be a success.

        Where none is, one that could not be scored comes before those that were.
        """
        ...

    def check(self, draft: Draft) -> list[str]:
        """Hard checks: [] or reasons, each `word: explanation`; the word is stable."""
        ...

    def twins(self, task: Task) -> list[str]:
        """Keys of exact duplication: two tasks that share one are twins (same question or same reference)."""
        ...

    def parts(self, task: Task) -> list[str]:
        """Parts of a suite that the task is in, each of which has a score of its own; [] if there are none."""
        ...

    def scenario(self, task: Task) -> str | None:
        """What the task is a case of, where the share of scenarios all of whose cases succeed is a score (`sgc`)."""
        ...

    def answers(self, task: Task) -> list[str]:
        """Keys of the outcome that is asked for: a task that shares one with a held-out item gives its answer away,
        however differently question and reference are written (docs/decisions/0005)."""
        ...

    def action_tokens(self, step_action: str) -> list[str]:
        """Action tokens of one step's action (docs/concepts.md, rare)."""
        ...

    def structure(self, reference: Json) -> str: ...

    def difficulty(self, reference: Json) -> float: ...

    def solution(self, task: Task, *, tools: bool = False) -> list[Message]:
        """The reference as a conversation in the policy's action format: SFT's target. `tools`: as tool calls."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One conversation to be continued."""

    messages: list[Message]
    seed: int
    temperature: float
    """0 = greedy."""
    max_tokens: int
    tools: list[Json] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    message: Message
    """The assistant message: role, content, and tool_calls where the policy made some."""
    prompt_ids: list[int] | None = None
    completion_ids: list[int] | None = None
    logprobs: list[float] | None = None
    """[C] under the sampling distribution (temperature applied, full support)."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    """US dollars."""


class Policy(Protocol):
    spec: str
    version: int
    batch: int
    """How many requests it likes to be given at once."""
    concurrent: bool
    """It batches by itself: episodes run freely, each asks for its own next message, `batch` of them at a time."""

    step: int | None
    """Optimiser steps of the run that its weights have seen; None where nothing is trained here."""

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """One entry a request, in order. An entry that is an exception makes its rollout `infra`."""
        ...


class Screen(Protocol):
    """The first judge of a task where that is no language model."""

    def __call__(self, shown: Json) -> float:
        """Probability that the committee would adopt what is shown of the task (`store.rows.Vote.shown`)."""
        ...


class Explorer(Protocol):
    """An environment's procedural explorer: pure functions of what an LLM explorer is shown, and a seeded rng.

    `view` is what the prompts show: {"world": describe(world), "tools": [...], "signal": {...} | None,
    "context": {...} | None, "guide": {...} where there is one, "steps_left": int,
    "log": [{"name", "args", "observation", "failed"}]}.
    """

    def reflect(self, view: Json, rng: random.Random) -> Json:
        """The exploration context: {"where", "failure", "vary", ...}."""
        ...

    def next_call(self, view: Json, rng: random.Random) -> Json | None:
        """The next tool call {"name", "args"}, or None when done."""
        ...

    def abstract(self, view: Json, rng: random.Random) -> list[Json]:
        """Task-solution pairs from the log: [{"user_turns": [...], "reference": ...}]."""
        ...

    def harden(self, view: Json, operator: str, tasks: list[Json], rng: random.Random) -> list[Json]:
        """Harder tasks made of `tasks` ([{"user_turns", "reference"}]), in the same form; [] where it knows none."""
        ...

    def repair(self, view: Json, draft: Json, problem: str, rng: random.Random) -> Json | None:
        """The draft with its wording or reference repaired, or None to give up."""
        ...


Report = Callable[[str, int, int], None]
"""Where long work reports (label, done, total); the command line draws a bar on stderr, a test passes a no-op."""
