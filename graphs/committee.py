"""The judges of tasks: each says its opinion of one task, at most once, and that is put on record before it counts.

A vote is for the task if the judge said `adopt` and its mean score reaches `JudgeSettings.min_score`. What can't be
read is a vote against it. The committee passes a task if more than half of its votes are for it: judges veto, they
never admit what execution has not accepted.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TypeAlias, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from envs import registry
from envs.protocols import Env, Screen
from graphs.known import Known
from graphs.lending import borrowed
from graphs.model import Budget, Reply, call, chat_model
from graphs.prompting import framed
from graphs.replies import Opinion, Reader, opinion_schema, read_opinion
from graphs.settings import REWARD_MODEL, JudgeSettings, ModelSettings
from graphs.sitting import Voice
from graphs.state import DEFAULT_ENV, shortened
from store.errors import UsageError
from store.rows import Json, JudgeStage, Task, Vote

READ_TRIES = 2
"""Times that a verdict is asked for before it counts as unreadable."""
PASSING = 0.5
"""Probability from which on the reward model passes a task on to the committee."""
AUDIT = 8
"""One in so many tasks that the reward model turns down goes to the committee all the same: its errors would never show
otherwise, and it would learn from what it likes alone."""
MAX_REASON = 300

_FOLDER = Path(__file__).parent / "prompts" / "judge"
SYSTEM = (_FOLDER / "system.md").read_text("utf-8").strip()
TEXT = (_FOLDER / "verdict.md").read_text("utf-8").strip()
SCHEMA = opinion_schema()

T = TypeVar("T")

Place: TypeAlias = tuple[str, JudgeStage, int]
"""(candidate, stage, judge) of a vote."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judges:
    """Who judges, and the votes that are on record."""

    strong: Sequence[Voice]
    cheap: Voice | Screen | None = None
    settings: JudgeSettings = field(default_factory=JudgeSettings)
    past: Mapping[Place, Vote] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The set that a task would join, as far as judges are told of it."""

    mean: float
    """Of the tasks' difficulties."""
    alike: Mapping[str, int]
    """{structure: tasks that have it}."""

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Standing:
        mean = fmean(task.difficulty for task in tasks) if tasks else 0.0
        return cls(mean=round(mean, 3), alike=Counter(task.structure for task in tasks))


@dataclass(frozen=True, kw_only=True, slots=True)
class Matter:
    """One task before its judges."""

    candidate: str
    task: Task
    observed: str | None
    """What the reference came back with, if it was seen."""


async def _unrecorded(vote: Vote) -> None:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Committee:
    """The judges of one phase."""

    judges: Judges
    env: Env
    known: Known
    """Before the phase; what repeats it is not worth a judge."""
    standing: Standing
    run: str = ""
    t: int = 0
    calls: ModelSettings = field(default_factory=ModelSettings)
    budget: Budget = field(default_factory=Budget)
    record: Callable[[Vote], Awaitable[None]] = _unrecorded
    """Returns once the vote is durable."""
    heard: dict[Place, Vote] = field(init=False)
    gate: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "heard", dict(self.judges.past))
        object.__setattr__(self, "gate", asyncio.Semaphore(self.calls.concurrency))

    async def screened(self, matter: Matter) -> Vote | None:
        """The cheap judge's vote; None where there is no cheap judge. ModelUnavailable, BudgetSpent, UsageError."""
        cheap = self.judges.cheap
        if cheap is None:
            return None
        if isinstance(cheap, Voice):
            return await self.vote(matter, "cheap", 0, cheap)
        return self.heard.get((matter.candidate, "cheap", 0)) or await self._distilled(matter, cheap)

    async def _distilled(self, matter: Matter, screen: Screen) -> Vote:
        shown, started = self._shown(matter.task), time.monotonic()
        likely = screen(shown)
        vote = self.ballot(
            matter,
            "cheap",
            0,
            REWARD_MODEL,
            adopt=likely >= PASSING,
            passes=likely >= PASSING,
            scores={"probability": round(likely, 4)},
            seconds=time.monotonic() - started,
        )
        return await self.noted(vote)

    async def noted(self, vote: Vote) -> Vote:
        """The vote, on record."""
        await self.record(vote)
        self.heard[vote.candidate_id, vote.stage, vote.judge] = vote
        return vote

    def audited(self, matter: Matter) -> bool:
        """The committee hears it even if the reward model is against it."""
        distilled = self.judges.cheap is not None and not isinstance(self.judges.cheap, Voice)
        return distilled and int(matter.task.id, 16) % AUDIT == 0

    async def vote(self, matter: Matter, stage: JudgeStage, judge: int, voice: Voice) -> Vote:
        """What the judge says, asked at most once in the life of the run. Errors as of `screened`."""
        place: Place = (matter.candidate, stage, judge)
        if place in self.heard:
            return self.heard[place]
        async with self.gate:
            started = time.monotonic()
            opinion, replies = await self.ask(voice, self._messages(matter), read_opinion, SCHEMA)
            passes = opinion is not None and opinion.adopt and self._high(opinion)
            vote = self.ballot(
                matter,
                stage,
                judge,
                voice.spec,
                adopt=opinion.adopt if opinion else None,
                passes=passes,
                scores=opinion.scores if opinion else None,
                reason=opinion.reason if opinion else "unreadable",
                replies=replies,
                seconds=time.monotonic() - started,
            )
            return await self.noted(vote)

    def _high(self, opinion: Opinion) -> bool:
        return round(fmean(opinion.scores.values()), 9) >= self.judges.settings.min_score

    async def ask(
        self, voice: Voice, messages: list[BaseMessage], read: Reader[T], schema: Json
    ) -> tuple[T | None, list[Reply]]:
        """What `read` makes of the answer, None if it can't be read, and all that was answered."""
        replies: list[Reply] = []
        for _ in range(READ_TRIES):
            reply = await call(voice.model, messages, settings=self.calls, budget=self.budget, schema=schema)
            replies.append(reply)
            try:
                return read(reply.text), replies
            except ValueError as error:
                again = f"That could not be read: {error}. Answer again, with the one JSON object and nothing else."
                messages = [*messages, AIMessage(reply.text), HumanMessage(again)]
        return None, replies

    def _messages(self, matter: Matter) -> list[BaseMessage]:
        task, shown = matter.task, self._shown(matter.task)
        payload = {
            "world": self.env.describe(task.world),
            "task": {"user_turns": task.user_turns, "reference": task.reference},
            "observed": None if matter.observed is None else shortened(matter.observed),
            **{key: shown[key] for key in ("difficulty", "set_mean", "alike")},
        }
        return framed(SYSTEM, "judge", TEXT, payload)

    def _shown(self, task: Task) -> Json:
        kept = ("world", "user_turns", "reference", "structure", "difficulty")
        about = {"set_mean": self.standing.mean, "alike": self.standing.alike.get(task.structure, 0)}
        return {key: getattr(task, key) for key in kept} | about

    def ballot(
        self,
        matter: Matter,
        stage: JudgeStage,
        judge: int,
        model: str,
        *,
        adopt: bool | None,
        passes: bool,
        scores: Json,
        seconds: float,
        reason: str = "",
        replies: Sequence[Reply] = (),
    ) -> Vote:
        """A vote on the task, not on record yet."""
        return Vote(
            candidate_id=matter.candidate,
            run=self.run,
            t=self.t,
            stage=stage,
            judge=judge,
            model=model,
            adopt=adopt,
            passes=passes,
            scores=scores,
            reason=reason,
            text=replies[-1].text if replies else "",
            shown=self._shown(matter.task),
            prompt_tokens=sum(reply.prompt_tokens for reply in replies),
            completion_tokens=sum(reply.completion_tokens for reply in replies),
            cost=sum(reply.cost for reply in replies),
            seconds=seconds,
        )


def veto(votes: Sequence[Vote]) -> str | None:
    """Why the committee is against the task, in words; None if it passes: more than half of the votes are for it."""
    passed = sum(vote.passes for vote in votes)
    if passed * 2 > len(votes):
        return None
    tie = ", a tie" if passed * 2 == len(votes) else ""
    return f"{passed} of {len(votes)} for it{tie}; {'; '.join(words(vote) for vote in votes if not vote.passes)}"


def words(vote: Vote) -> str:
    """One vote in a line."""
    if vote.adopt is None:
        return f"{vote.model}: unreadable"
    scores = ", ".join(f"{name} {score:g}" for name, score in (vote.scores or {}).items())
    said = " ".join(vote.reason.split())[:MAX_REASON]
    return f"{vote.model} {'adopts' if vote.adopt else 'rejects'} ({scores}){f': {said}' if said else ''}"


def named(specs: Iterable[str], calls: ModelSettings, *, seed: int, field_of: str = "judge.models") -> list[Voice]:
    """The models of judges, without temperature. UsageError for a spec that is none, and for a missing key."""
    specs, cold = list(specs), calls.model_copy(update={"temperature": 0.0})
    for spec in specs:
        if not spec.startswith("litellm:"):
            raise UsageError(f"{field_of}: {spec!r} is no model that can be asked; write `litellm:NAME`")
    return [Voice(spec=spec, model=chat_model(spec, cold, env="", seed=seed, role=field_of)) for spec in specs]


_NAMED: dict[tuple[str, str], Committee] = {}


async def committee(config: RunnableConfig) -> Committee:
    """The runner's committee; in Studio one of the model that `configurable` names, which is not recorded."""
    configurable = config.get("configurable", {})
    if given := borrowed(configurable.get("committee"), Committee):
        return given
    names = (configurable.get("env") or DEFAULT_ENV, str(configurable.get("model") or ""))
    if names not in _NAMED:
        _NAMED[names] = await asyncio.to_thread(_alone, *names)  # imports and data files block
    return _NAMED[names]


def _alone(env_name: str, spec: str) -> Committee:
    env, calls = registry.get(env_name), ModelSettings()
    tasks = env.seed_tasks()
    held_out = [task for suite in env.suites().values() for task in suite]
    return Committee(
        judges=Judges(strong=named([spec], calls, seed=0, field_of="model")),
        env=env,
        known=Known(env, tasks, held_out),
        standing=Standing.of(tasks),
        calls=calls,
    )
