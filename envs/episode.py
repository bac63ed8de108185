"""One episode: a job, its session, its rows.

Only the episode itself writes to its rows, and only until it has ended: a session's answer that comes later than that,
by a hang or by a cut, is dropped. Whatever fails, except bad settings, is an outcome.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, TypeVarTuple

from envs.errors import InfraError, InvalidTask, PolicyUnavailable
from envs.protocols import Completion, Env, Message, Observation, Outcome, Policy, Request, Session
from envs.waiting import Closing, CutOff, Group, Overdue, within
from store.errors import UsageError
from store.rows import Purpose, Step, Task, Trajectory, content_id, trajectory_id

MAX_TURNS = 200
"""Assistant messages of one episode; then it is scored as it stands."""
OBSERVATION_CHARS = 40_000
"""Longer observations are cut before the policy sees them."""
LATE = "late: "
"""How the error of a rollout begins that was cut off because enough others of its group had ended."""

Played = tuple[Trajectory, list[Step]]
T = TypeVar("T")
Args = TypeVarTuple("Args")
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    task: Task
    k: int
    """Index in the task's group of rollouts."""
    seed: int
    attempt: int = 0
    """The first attempt's number: earlier ones have rows already."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What all episodes of one call share."""

    env: Env
    policy: Policy
    run: str
    t: int
    purpose: Purpose
    suite: str | None
    temperature: float
    max_tokens: int
    deadline_s: float
    tools: bool
    max_attempts: int
    closing: Closing


@dataclass(kw_only=True, slots=True)
class Episode:
    terms: Terms
    job: Job
    group: Group
    session: Session | None = None
    messages: list[Message] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    seconds: float = 0.0
    """The session's own time, and the policy's: its share, where it sampled a batch."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    outcome: Outcome | None = None
    """None while it is live."""
    _work: asyncio.Task[Any] | None = None
    """What the session was last asked for."""

    @property
    def left(self) -> float:
        """Seconds of the deadline."""
        return max(0.0, self.terms.deadline_s - self.seconds)

    @property
    def final(self) -> bool:
        """It has ended and is not tried again."""
        if self.outcome is None or self.outcome.kind != "infra":
            return self.outcome is not None
        return self.job.attempt + 1 >= self.terms.max_attempts or self.outcome.detail.startswith(LATE)

    def goes_on(self) -> bool:
        """Whether it is live; it ends here if it is late."""
        if self.group.late:
            self.end(self._late())
        return self.outcome is None

    async def start(self) -> None:
        self.messages = await self._ask(self._open) or []

    def request(self) -> Request:
        assert self.session is not None
        return Request(
            messages=list(self.messages),
            seed=int(content_id("turn", self.job.seed, len(self.steps))[:8], 16),
            temperature=self.terms.temperature,
            max_tokens=self.terms.max_tokens,
            tools=self.session.tools,
        )

    async def answer(self, completion: Completion | Exception, seconds: float) -> None:
        """Act on what the policy gave after `seconds` of sampling."""
        if not self.goes_on():
            return
        self.seconds += seconds
        if isinstance(completion, Exception):
            self.end(_infra(completion))
        elif self.seconds > self.terms.deadline_s:
            self.end(self._overdue())
        else:
            await self._turn(completion, seconds)

    async def finish(self) -> None:
        """Score it as it stands."""
        outcome = await self._ask(self._grade)
        if outcome is not None:
            self.end(outcome)

    def end(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.close()
            if self.final:
                self.group.one_ended()

    def close(self) -> None:
        """In the background: nothing waits for it but the end of the call."""
        session, self.session = self.session, None
        if session is not None:
            self.terms.closing.add(session, self._work)

    async def _turn(self, completion: Completion, seconds: float) -> None:
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens
        acted = await self._ask(self._act, completion, seconds)
        if acted is None:
            return
        step, shown, done = acted
        self.steps.append(step)
        self.messages += [completion.message, *shown]
        if done or len(self.steps) >= MAX_TURNS:
            await self.finish()

    async def _ask(self, work: Callable[[*Args], Awaitable[T]], *args: *Args) -> T | None:
        """What the session gives in what is left of the deadline. None: it gave nothing, and the episode has ended."""
        if not self.goes_on():
            return None
        began = time.monotonic()
        self._work = task = asyncio.create_task(_timed(work, *args))
        try:
            result, seconds = await within(task, self.left, self.group.cut)
        except UsageError:
            raise
        except Exception as error:
            self.seconds += time.monotonic() - began
            self.end(self._failed(error))
            return None
        self.seconds += seconds
        return result

    async def _open(self) -> list[Message]:
        task = self.job.task
        self.session = self.terms.env.open(task.world, task, tools=self.terms.tools)
        return list(await self.session.start())

    async def _act(self, completion: Completion, seconds: float) -> tuple[Step, list[Message], bool]:
        assert self.session is not None
        started = time.monotonic()
        observation = await self.session.act(completion.message)
        shown = [_capped(message) for message in observation.messages]
        seconds += time.monotonic() - started
        return self._step(completion, observation, shown, seconds), shown, observation.done

    async def _grade(self) -> Outcome:
        assert self.session is not None
        outcome = await self.session.evaluate()
        if not isinstance(outcome, Outcome):
            raise TypeError(f"evaluate gave {outcome!r}, not an Outcome")
        return outcome

    def _failed(self, error: Exception) -> Outcome:
        if isinstance(error, InvalidTask):
            return Outcome(kind="invalid", detail=str(error))
        if isinstance(error, CutOff):
            return self._late()
        return self._overdue() if isinstance(error, Overdue) else _infra(error)

    def _overdue(self) -> Outcome:
        return _infra(InfraError(f"the episode took over {self.terms.deadline_s:g} s"))

    def _late(self) -> Outcome:
        group = self.group
        words = f"{group.enough} of the task's {group.size} rollouts had ended {group.grace_s:g} s before"
        return Outcome(kind="infra", detail=LATE + words)

    def _step(self, completion: Completion, observation: Observation, shown: list[Message], seconds: float) -> Step:
        action = action_text(completion.message)
        return Step(
            trajectory_id=self._id(),
            index=len(self.steps),
            action=action,
            observation="\n".join(str(message.get("content", "")) for message in shown),
            tokens=self.terms.env.action_tokens(action) if observation.tokens is None else observation.tokens,
            failed=observation.failed,
            prompt_ids=completion.prompt_ids,
            completion_ids=completion.completion_ids,
            logprobs=completion.logprobs,
            seconds=seconds,
        )

    def _id(self) -> str:
        terms, job = self.terms, self.job
        return trajectory_id(
            run=terms.run, purpose=terms.purpose, t=terms.t, task=job.task.id, k=job.k, attempt=job.attempt
        )

    def rows(self) -> Played:
        terms, job, outcome = self.terms, self.job, self.outcome
        assert outcome is not None
        scored = outcome.kind == "scored"
        trajectory = Trajectory(
            id=self._id(),
            run=terms.run,
            t=terms.t,
            purpose=terms.purpose,
            env=terms.env.name,
            world=job.task.world,
            task_id=job.task.id,
            suite=terms.suite,
            k=job.k,
            attempt=job.attempt,
            policy=terms.policy.spec,
            policy_version=terms.policy.version,
            policy_step=terms.policy.step,
            seed=job.seed,
            outcome=outcome.kind,
            score=outcome.score if scored else None,
            violation=outcome.violation,
            error=None if scored else outcome.detail,
            steps=len(self.steps),
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            seconds=self.seconds,
            created_at=time.time(),
        )
        return trajectory, self.steps


async def sample(
    policy: Policy, requests: Sequence[Request], seconds: float, cut: asyncio.Future[None] | None = None
) -> Sequence[Completion | Exception]:
    """One entry a request, whatever the policy does. UsageError only."""
    try:
        completions = await within(asyncio.create_task(policy.sample(requests)), seconds, cut)
    except UsageError:
        raise
    except Overdue:
        return [PolicyUnavailable(f"no answer within {seconds:.3g} s")] * len(requests)
    except Exception as error:
        return [error] * len(requests)
    if len(completions) != len(requests):
        return [InfraError(f"the policy answered {len(requests)} requests with {len(completions)}")] * len(requests)
    return completions


def is_late(row: Trajectory) -> bool:
    """It was cut off, and what it would have given is of no use any more."""
    return row.outcome == "infra" and (row.error or "").startswith(LATE)


async def _timed(work: Callable[[*Args], Awaitable[T]], *args: *Args) -> tuple[T, float]:
    """Also its own seconds: those who wait for it may wait for others of the event loop too."""
    started = time.monotonic()
    result = await work(*args)
    return result, time.monotonic() - started


def _infra(error: Exception) -> Outcome:
    if not isinstance(error, InfraError):
        log.warning("a rollout failed on an unexpected error", exc_info=error)
    return Outcome(kind="infra", detail=f"{type(error).__name__}: {error}")


def _capped(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, str) or len(content) <= OBSERVATION_CHARS:
        return message
    cut = len(content) - OBSERVATION_CHARS
    return message | {"content": f"{content[:OBSERVATION_CHARS]}... [{cut} characters cut]"}


def action_text(message: Message) -> str:
    """What `Step.action` records of an assistant message: the JSON of its tool calls if it makes any, else its text."""
    calls = message.get("tool_calls")
    content = message.get("content")
    if calls:
        text = json.dumps(_plain_calls(calls), ensure_ascii=False, default=str)
    else:
        text = content if isinstance(content, str) else "" if content is None else json.dumps(content, default=str)
        text = f" {text}" if _calls(text) is not None else text  # lest it be taken for calls
    return text.encode("utf-8", "replace").decode()  # lone surrogates can't be stored


def said(action: str) -> Message:
    """The message that `action_text` recorded, as far as an environment looks at it."""
    calls = _calls(action)
    if calls is None:
        return {"role": "assistant", "content": action}
    made = [{"id": f"call_{at}", **call} if isinstance(call, dict) else call for at, call in enumerate(calls)]
    return {"role": "assistant", "content": "", "tool_calls": made}


def _calls(text: str) -> list[Any] | None:
    """The calls that a text is the JSON of, else None."""
    try:
        found = json.loads(text) if text.startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and found else None


def _plain_calls(calls: Any) -> Any:
    if not isinstance(calls, list):
        return calls
    return [{"name": c.get("name"), "args": c.get("args")} if isinstance(c, dict) else c for c in calls]
