"""Many tasks and one policy -> trajectories.

    lockstep  a policy that samples batches in this process: each round asks it for the next message of every live
              episode, in job order. It is always given full batches, and the same jobs make the same batches.
    free      a policy that is `concurrent`, a server that batches by itself: each episode goes at its own pace and
              asks alone, so that a slow one holds nobody up.

A bad rollout is data: whatever fails, except bad settings, becomes a row (docs/concepts.md, whose
fault).

    infra    the policy gave an exception, the session was lost, or the episode's deadline passed; tried again.
             Or it was late: enough others of its task had ended, and it is not tried again
    invalid  the session found the task defective
    scored   everything else, however badly the policy did
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from envs.episode import Episode, Job, Played, Terms, action_text, is_late, said, sample
from envs.protocols import Env, Policy
from envs.waiting import Closing, Group, side_by_side
from store.rows import Purpose, content_id

__all__ = ["Job", "Played", "action_text", "is_late", "play", "said", "sampling_seed"]

Groups = Mapping[str, Group]
"""By task id."""


def sampling_seed(config_seed: int, t: int, task_id: str, k: int) -> int:
    """In [0, 2^32). A retry samples with the same seed: the attempt is not in it."""
    return int(content_id("sampling", config_seed, t, task_id, k)[:8], 16)


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
    quorum: float = 1.0,
    grace_s: float = 0.0,
) -> list[Played]:
    """Play every job once, and again after an infrastructure failure, until attempt `max_attempts - 1`.

    Rows come in job order, a job's attempts one after the other. `deadline_s` is seconds of one episode, its share of
    batched sampling included. Jobs of one task are a group: once the share `quorum` of a group has ended for good, its
    others have `grace_s` seconds more and are then cut off as late, begun or not. Raises UsageError only (the policy's
    settings are wrong).
    """
    terms = Terms(
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
        max_attempts=max_attempts,
        closing=Closing(),
    )
    sizes = Counter(job.task.id for job in jobs)
    groups = {task: Group(size, quorum, grace_s) for task, size in sizes.items()}
    try:
        played = await (_free if policy.concurrent else _lockstep)(terms, jobs, groups)
        return [row for attempts in played for row in attempts]
    finally:
        for group in groups.values():
            group.dissolve()
        await terms.closing.wait()


async def _lockstep(terms: Terms, jobs: Sequence[Job], groups: Groups) -> list[list[Played]]:
    """The attempts of each job: all first attempts together, then all second ones."""
    played: list[list[Played]] = [[] for _ in jobs]
    wave = dict(enumerate(jobs))
    while wave:
        episodes = {at: Episode(terms=terms, job=job, group=groups[job.task.id]) for at, job in wave.items()}
        await _wave(terms, list(episodes.values()))
        for at, episode in episodes.items():
            played[at].append(episode.rows())
        wave = {at: _next(episode.job) for at, episode in episodes.items() if not episode.final}
    return played


async def _wave(terms: Terms, episodes: list[Episode]) -> None:
    try:
        await side_by_side([episode.start for episode in episodes], terms.policy.batch)
        while live := [episode for episode in episodes if episode.outcome is None]:
            for batch in _batches(live, terms.policy.batch):
                await _turn(terms, batch)
    finally:
        for episode in episodes:
            episode.close()


def _batches(episodes: list[Episode], size: int) -> Iterator[list[Episode]]:
    for start in range(0, len(episodes), max(1, size)):
        yield episodes[start : start + max(1, size)]


async def _turn(terms: Terms, batch: list[Episode]) -> None:
    """One message of each episode: sampled together, acted on side by side."""
    batch = [episode for episode in batch if episode.goes_on()]
    if not batch:
        return
    started = time.monotonic()
    completions = await sample(terms.policy, [episode.request() for episode in batch], terms.deadline_s)
    share = (time.monotonic() - started) / len(batch)
    answers = [
        partial(episode.answer, completion, share) for episode, completion in zip(batch, completions, strict=True)
    ]
    await side_by_side(answers, len(batch))


async def _free(terms: Terms, jobs: Sequence[Job], groups: Groups) -> list[list[Played]]:
    """The attempts of each job, as many jobs at a time as the policy likes to be asked by."""
    works = [partial(_attempts, terms, job, groups[job.task.id]) for job in jobs]
    return await side_by_side(works, terms.policy.batch)


async def _attempts(terms: Terms, job: Job, group: Group) -> list[Played]:
    played: list[Played] = []
    while True:
        episode = Episode(terms=terms, job=job, group=group)
        await _alone(terms, episode)
        played.append(episode.rows())
        if episode.final:
            return played
        job = _next(job)


async def _alone(terms: Terms, episode: Episode) -> None:
    try:
        await episode.start()
        while episode.outcome is None:
            started = time.monotonic()
            (completion,) = await sample(terms.policy, [episode.request()], episode.left, episode.group.cut)
            await episode.answer(completion, time.monotonic() - started)
    finally:
        episode.close()


def _next(job: Job) -> Job:
    return replace(job, attempt=job.attempt + 1)
