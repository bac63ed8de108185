"""Many tasks and one policy -> trajectories.

All episodes of a call go in lockstep: each round asks the policy for the next message of every live episode, in job
order, and acts on the answers in that order. So the policy is always given full batches, and the same jobs always make
the same batches. A bad rollout is data: whatever fails, except bad settings, becomes a row (docs/definitions.md,
whose fault).

    infra    the policy gave an exception, the session was lost, or the episode's deadline passed; tried again
    invalid  the session found the task defective
    scored   everything else, however badly the policy did
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from envs.errors import InfraError, InvalidTask
from envs.protocols import Completion, Env, Message, Observation, Outcome, Policy, Request, Session
from store.errors import UsageError
from store.rows import Purpose, Step, Task, Trajectory, content_id, trajectory_id

MAX_TURNS = 50
"""Assistant messages of one episode; then it is scored as it stands."""
OBSERVATION_CHARS = 4000
"""Longer observations are cut before the policy sees them."""

Played = tuple[Trajectory, list[Step]]
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    task: Task
    k: int
    """Index in the task's group of rollouts."""
    seed: int
    attempt: int = 0
    """The first attempt's number: earlier ones have rows already."""


def sampling_seed(config_seed: int, t: int, task_id: str, k: int) -> int:
    """In [0, 2^32). A retry samples with the same seed: the attempt is not in it."""
    return int(content_id("sampling", config_seed, t, task_id, k)[:8], 16)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Play:
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


@dataclass(kw_only=True, slots=True)
class _Episode:
    job: Job
    session: Session | None = None
    messages: list[Message] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    seconds: float = 0.0
    """The session's own time, and its share of each batch that the policy sampled."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    outcome: Outcome | None = None
    """None while it is live."""


async def play(
    env: Env,
    jobs: Sequence[Job],
    policy: Policy,
    *,
    run: str,
    t: int,
    purpose: Purpose,
    suite: str | None = None,
    temperature: float,
    max_tokens: int,
    deadline_s: float,
    tools: bool = False,
    max_attempts: int = 2,
) -> list[Played]:
    """Play every job once, and again after an infrastructure failure, until attempt `max_attempts - 1`.

    Rows come in job order, a job's attempts one after the other. `deadline_s` is seconds of one episode, its share of
    batched sampling included. Raises UsageError only (the policy's settings are wrong).
    """
    settings = _Play(
        env=env,
        policy=policy,
        run=run,
        t=t,
        purpose=purpose,
        suite=suite,
        temperature=temperature,
        max_tokens=max_tokens,
        deadline_s=deadline_s,
        tools=tools,
    )
    played: list[list[Played]] = [[] for _ in jobs]
    wave = dict(enumerate(jobs))
    while wave:
        retry: dict[int, Job] = {}
        rows = await _play_once(settings, list(wave.values()))
        for (index, job), row in zip(wave.items(), rows, strict=True):
            played[index].append(row)
            if row[0].outcome == "infra" and job.attempt + 1 < max_attempts:
                retry[index] = replace(job, attempt=job.attempt + 1)
        wave = retry
    return [row for attempts in played for row in attempts]


async def _play_once(play: _Play, jobs: Sequence[Job]) -> list[Played]:
    episodes = [_Episode(job=job) for job in jobs]
    try:
        for episode in episodes:
            await _guard(play, episode, _start(play, episode))
        while live := [episode for episode in episodes if episode.outcome is None]:
            for batch in _batches(live, play.policy.batch):
                await _turn(play, batch)
        return [_rows(play, episode) for episode in episodes]
    finally:
        for episode in episodes:
            await _close(episode)


def _batches(episodes: list[_Episode], size: int) -> Iterator[list[_Episode]]:
    for start in range(0, len(episodes), max(1, size)):
        yield episodes[start : start + max(1, size)]


async def _start(play: _Play, episode: _Episode) -> None:
    task = episode.job.task
    episode.session = play.env.open(task.world, task, tools=play.tools)
    episode.messages = await episode.session.start()


async def _turn(play: _Play, batch: list[_Episode]) -> None:
    """One message of each episode: sampled together, acted on one after the other."""
    started = time.monotonic()
    completions = await _sample(play, [_request(play, episode) for episode in batch])
    share = (time.monotonic() - started) / len(batch)
    for episode, completion in zip(batch, completions, strict=True):
        episode.seconds += share
        if isinstance(completion, Exception):
            episode.outcome = _infra(completion)
        elif episode.seconds > play.deadline_s:
            episode.outcome = _overdue(play)
        else:
            await _guard(play, episode, _act(play, episode, completion, share))
        if episode.outcome is not None:
            await _close(episode)


def _request(play: _Play, episode: _Episode) -> Request:
    assert episode.session is not None
    return Request(
        messages=list(episode.messages),
        seed=int(content_id("turn", episode.job.seed, len(episode.steps))[:8], 16),
        temperature=play.temperature,
        max_tokens=play.max_tokens,
        tools=episode.session.tools,
    )


async def _sample(play: _Play, requests: list[Request]) -> Sequence[Completion | Exception]:
    try:
        async with asyncio.timeout(play.deadline_s):
            completions = await play.policy.sample(requests)
    except UsageError:
        raise
    except Exception as error:
        return [error] * len(requests)
    if len(completions) != len(requests):
        return [InfraError(f"the policy answered {len(requests)} requests with {len(completions)}")] * len(requests)
    return completions


async def _act(play: _Play, episode: _Episode, completion: Completion, share: float) -> None:
    assert episode.session is not None
    episode.prompt_tokens += completion.prompt_tokens
    episode.completion_tokens += completion.completion_tokens
    started = time.monotonic()
    observation = await episode.session.act(completion.message)
    shown = [_capped(message) for message in observation.messages]
    seconds = share + time.monotonic() - started
    episode.steps.append(_step(play, episode, completion, observation, shown, seconds))
    episode.messages += [completion.message, *shown]
    if observation.done or len(episode.steps) >= MAX_TURNS:
        episode.outcome = await episode.session.evaluate()


async def _guard(play: _Play, episode: _Episode, work: Awaitable[None]) -> None:
    """Await the episode's own work within what is left of its deadline; a failure becomes its outcome."""
    started = time.monotonic()
    try:
        async with asyncio.timeout(max(0.0, play.deadline_s - episode.seconds)):
            await work
    except InvalidTask as error:
        episode.outcome = Outcome(kind="invalid", detail=str(error))
    except UsageError:
        raise
    except TimeoutError:
        episode.outcome = _overdue(play)
    except Exception as error:
        episode.outcome = _infra(error)
    finally:
        episode.seconds += time.monotonic() - started


def _overdue(play: _Play) -> Outcome:
    return _infra(InfraError(f"the episode took over {play.deadline_s:g} s"))


def _infra(error: Exception) -> Outcome:
    if not isinstance(error, InfraError):
        log.warning("a rollout failed on an unexpected error", exc_info=error)
    return Outcome(kind="infra", detail=f"{type(error).__name__}: {error}")


async def _close(episode: _Episode) -> None:
    session, episode.session = episode.session, None
    if session is not None:
        try:
            await session.close()
        except Exception:
            log.warning("a session did not close", exc_info=True)


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
    return text.encode("utf-8", "replace").decode()  # lone surrogates can't be stored


def _plain_calls(calls: Any) -> Any:
    if not isinstance(calls, list):
        return calls
    return [{"name": c.get("name"), "args": c.get("args")} if isinstance(c, dict) else c for c in calls]


def _step(
    play: _Play,
    episode: _Episode,
    completion: Completion,
    observation: Observation,
    shown: list[Message],
    seconds: float,
) -> Step:
    action = action_text(completion.message)
    return Step(
        trajectory_id=_id(play, episode.job),
        index=len(episode.steps),
        action=action,
        observation="\n".join(str(message.get("content", "")) for message in shown),
        tokens=play.env.action_tokens(action),
        failed=observation.failed,
        prompt_ids=completion.prompt_ids,
        completion_ids=completion.completion_ids,
        logprobs=completion.logprobs,
        seconds=seconds,
    )


def _id(play: _Play, job: Job) -> str:
    return trajectory_id(run=play.run, purpose=play.purpose, t=play.t, task=job.task.id, k=job.k, attempt=job.attempt)


def _rows(play: _Play, episode: _Episode) -> Played:
    job, outcome = episode.job, episode.outcome
    assert outcome is not None
    scored = outcome.kind == "scored"
    trajectory = Trajectory(
        id=_id(play, job),
        run=play.run,
        t=play.t,
        purpose=play.purpose,
        env=play.env.name,
        world=job.task.world,
        task_id=job.task.id,
        suite=play.suite,
        k=job.k,
        attempt=job.attempt,
        policy=play.policy.spec,
        policy_version=play.policy.version,
        seed=job.seed,
        outcome=outcome.kind,
        score=outcome.score if scored else None,
        violation=outcome.violation,
        error=None if scored else outcome.detail,
        steps=len(episode.steps),
        prompt_tokens=episode.prompt_tokens,
        completion_tokens=episode.completion_tokens,
        seconds=episode.seconds,
        created_at=time.time(),
    )
    return trajectory, episode.steps
