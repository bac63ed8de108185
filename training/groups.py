"""Groups of rollouts for one optimiser step after another: one pass over the tasks of the iteration.

Each task is sampled K times, once in an iteration, by the newest weights or, ahead of its step (training/ahead.py), by
older ones. A group whose rewards are all equal has no advantage and would waste its place in the step, so the next
task's group takes it (dynamic sampling, DAPO, arXiv 2503.14476 section 3.2); its rollouts are kept, since signals are
read from all of them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from envs.protocols import Completion, Env, Policy, Report, Request
from envs.rollout import Job, Played
from store.rows import Json, Step, Task, Trajectory, content_id
from training.collect import Append, Outcomes, a_job, check_share, newest_attempts, pending, play_jobs
from training.config import CollectSettings
from training.flatten import Row, flatten


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """What training knows of its earlier work, and where it writes down what it does."""

    done: Sequence[Trajectory]
    """The training rows of (run, t) that the store has."""
    recall: Callable[[Sequence[str]], Mapping[str, list[Step]]]
    """The steps of stored trajectories, by trajectory id."""
    append: Append
    record: Callable[[int, Mapping[str, float]], object]
    """Keeps the figures of an optimiser step, by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    row: Row | None
    """None where nothing was sampled."""
    score: float | None
    """None = not scored: left out of the baseline, its tokens out of the loss."""
    step: int | None = None
    """Optimiser steps that the sampling weights had seen, where that is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    task: str
    members: list[Member]
    """[K]"""

    @property
    def scores(self) -> list[float]:
        return [member.score for member in self.members if member.score is not None]

    def kind(self, min_valid: float) -> str:
        """`informative`, or why it teaches nothing: `infra`, `solved`, `failed` or `equal` (all scores the same)."""
        scores = self.scores
        if len(scores) < max(2, min_valid * len(self.members)):
            return "infra"
        if max(scores) > min(scores):
            return "informative"
        return {1.0: "solved", 0.0: "failed"}.get(scores[0], "equal")

    def shown(self, row: Row) -> Group:
        """With a solution in the place of the last failure; where all failed, the others' scores alone count.

        Where one alone failed it stays as it is: the solution would take its only contrast.
        """
        failures = [at for at, member in enumerate(self.members) if member.score == 0.0]
        if len(failures) < 2:
            return self
        rest = self.members if max(self.scores) > 0 else [replace(member, row=None) for member in self.members]
        last = failures[-1]
        return replace(self, members=[*rest[:last], Member(row=row, score=1.0), *rest[last + 1 :]])


@dataclass(kw_only=True, slots=True)
class Clocked:
    """A policy that notes how long it was asked, whatever number of requests were under way."""

    inner: Policy
    spec: str = field(init=False)
    version: int = field(init=False)
    batch: int = field(init=False)
    concurrent: bool = field(init=False)
    step: int | None = field(init=False)
    seconds: float = 0.0
    asked: int = 0
    since: float = 0.0

    def __post_init__(self) -> None:
        self.spec, self.version, self.batch = self.inner.spec, self.inner.version, self.inner.batch
        self.concurrent, self.step = self.inner.concurrent, self.inner.step

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        if not self.asked:
            self.since = time.monotonic()
        self.asked += 1
        try:
            return await self.inner.sample(requests)
        finally:
            self.asked -= 1
            if not self.asked:
                self.seconds += time.monotonic() - self.since


USEFUL = ("informative", "shown")
"""Kinds of groups that take a place in a step."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How far an iteration is, and what it took until there."""

    position: int = 0
    """Tasks taken."""
    kinds: dict[str, int] = {}
    """Groups by `Group.kind`; `shown`: all failed, and one gave way to the reference; `surplus`: of use, but the step
    had enough of them."""
    sample_seconds: float = 0.0
    """Waiting for the policy."""
    env_seconds: float = 0.0
    """The rest of playing: sessions and rewards."""
    served: int = 0
    """Steps that the groups from `position` on have been used for already, where several are sampled at once."""

    @property
    def useful_share(self) -> float:
        """Of the groups so far, those of use to a step, as if two such had been seen before them."""
        found = sum(self.kinds.get(kind, 0) for kind in (*USEFUL, "surplus"))
        return (found + 2) / (self.position + 2)

    def plus(self, kinds: Sequence[str], sample_seconds: float, env_seconds: float) -> Tally:
        """With further groups, of these kinds."""
        return Tally(
            position=self.position + len(kinds),
            kinds=dict(Counter(self.kinds) + Counter(kinds)),
            sample_seconds=self.sample_seconds + sample_seconds,
            env_seconds=self.env_seconds + env_seconds,
        )

    def since(self, before: Tally) -> dict[str, float]:
        """Figures of the time between: groups by kind, the share that taught nothing, seconds."""
        kinds = Counter(self.kinds) - Counter(before.kinds)
        groups = kinds.total()
        equal = groups - kinds["informative"] - kinds["surplus"] - kinds["infra"]
        return {
            **{f"groups/{kind}": float(count) for kind, count in sorted(kinds.items())},
            **({"zero_variance": equal / groups} if groups else {}),
            "seconds/sample": self.sample_seconds - before.sample_seconds,
            "seconds/environment": self.env_seconds - before.env_seconds,
        }


@dataclass(kw_only=True, slots=True)
class Feed:
    """Where the groups come from, and how far it is."""

    env: Env
    tasks: Sequence[Task]
    """In the order in which they are taken."""
    policy: Policy
    settings: CollectSettings
    run: str
    t: int
    seed: int
    ledger: Ledger
    report: Report
    demonstrate: Callable[[Task], Row | None] | None = None
    """Gives the reference that is shown to a group with failures; None = none is."""
    tally: Tally = field(default_factory=lambda: Tally())
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while groups are played: who has it may change the weights."""
    outcomes: Outcomes = field(init=False)
    """Rollouts of the iteration so far."""

    def __post_init__(self) -> None:
        self.outcomes = newest_attempts(self.ledger.done)

    async def fill(self, groups: int, oldest: int = 0) -> list[Group]:
        """The next `groups` groups of use, fewer where the tasks run out.

        What the store has from weights that had seen fewer than `oldest` optimiser steps is sampled again.
        """
        found: list[Group] = []
        total = len(self.tasks) * self.settings.rollouts
        while len(found) < groups and self.tally.position < len(self.tasks):
            async with self.turn:
                at, missing = self.tally.position, groups - len(found)
                found += await self._groups(self.tasks[at : at + self._draws(missing)], missing, oldest)
            self.report("rollouts", self.tally.position * self.settings.rollouts, total)
            check_share(self.outcomes, total, self.settings)
        return found

    def _draws(self, missing: int) -> int:
        """How many tasks most likely give `missing` groups of use; one batch at most, for less costs as much."""
        room = self.policy.batch // self.settings.rollouts
        return max(missing, min(room, int(missing / self.tally.useful_share)))

    async def _groups(self, chunk: Sequence[Task], missing: int, oldest: int) -> list[Group]:
        """Play the tasks, or take their rollouts from the store; the first `missing` groups of use."""
        started, policy = time.monotonic(), Clocked(inner=self.policy)
        jobs = self._jobs(chunk, oldest)
        played = await self._play(jobs, policy) if jobs else []
        made = self._grouped(chunk, played)
        kinds = [group.kind(self.settings.min_valid) for group in made]
        for at, task in enumerate(chunk):
            if kinds[at] in ("failed", "informative") and self.demonstrate and (row := self.demonstrate(task)):
                made[at] = made[at].shown(row)
                kinds[at] = "shown" if kinds[at] == "failed" else kinds[at]
        useful = [at for at, kind in enumerate(kinds) if kind in USEFUL]
        for at in useful[missing:]:
            kinds[at] = "surplus"
        self.tally = self.tally.plus(kinds, policy.seconds, time.monotonic() - started - policy.seconds)
        return [made[at] for at in useful[:missing]]

    def _jobs(self, chunk: Sequence[Task], oldest: int) -> list[Job]:
        """Groups with a rollout that is too old are played again as a whole, as further attempts: the rows stay."""
        old = [task for task in chunk if any(is_older(row, oldest) for row in self._known(task))]
        kept = [task for task in chunk if task not in old]
        # A batch in this process must be the same again; a server's completions do not depend on their neighbours.
        whole = not self.policy.concurrent
        jobs = pending(kept, self.outcomes, self.settings, t=self.t, seed=self.seed, whole=whole)
        return jobs + [
            a_job(task, k, t=self.t, seed=self.seed, attempt=row.attempt + 1 if row else 0)
            for task in old
            for k, row in enumerate(self._known(task))
        ]

    def _known(self, task: Task) -> list[Trajectory | None]:
        return [self.outcomes.get((task.id, k)) for k in range(self.settings.rollouts)]

    async def _play(self, jobs: Sequence[Job], policy: Policy) -> list[Played]:
        append, outcomes = self.ledger.append, self.outcomes
        return await play_jobs(
            self.env, jobs, policy, self.settings, run=self.run, t=self.t, outcomes=outcomes, append=append
        )

    def _grouped(self, chunk: Sequence[Task], played: Sequence[Played]) -> list[Group]:
        rollouts = {task.id: self._rollouts(task) for task in chunk}
        steps = {trajectory.id: steps for trajectory, steps in played}
        asked = [row.id for rows in rollouts.values() for row in rows if row.id not in steps]
        steps |= self.ledger.recall(asked) if asked else {}
        return [
            Group(task=task, members=[member(row, steps.get(row.id, [])) for row in rows])
            for task, rows in rollouts.items()
        ]

    def _rollouts(self, task: Task) -> list[Trajectory]:
        return [self.outcomes[task.id, k] for k in range(self.settings.rollouts)]


def member(trajectory: Trajectory, steps: Sequence[Step]) -> Member:
    sampled = [step for step in steps if step.completion_ids]
    return Member(row=flatten(sampled) if sampled else None, score=trajectory.score, step=trajectory.policy_step)


def is_older(row: Trajectory | None, oldest: int) -> bool:
    """Whether it would be trained on and was sampled by weights that had seen fewer than `oldest` optimiser steps."""
    return row is not None and row.score is not None and row.policy_step is not None and row.policy_step < oldest


def staleness(groups: Sequence[Group], step: int) -> dict[str, float]:
    """How many optimiser steps the weights of scored rollouts were behind those that have seen `step`."""
    members = [member for group in groups for member in group.members if member.score is not None]
    lags = [step - member.step for member in members if member.step is not None]
    return {"staleness/mean": sum(lags) / len(lags), "staleness/max": float(max(lags))} if lags else {}


def task_order(tasks: Sequence[Task], seed: int, t: int, *, limit: int = 0, mix: Json = None) -> list[Task]:
    """The tasks of this iteration, `limit` of them (0 = all), in an order of its own that is drawn from the seed.

    A weighted draw without replacement by exponential keys (Efraimidis and Spirakis, Weighted random sampling with a
    reservoir, 2006), by the probabilities of the snapshot's `mix` (store/mix.py); without one all are equal. The seeds
    have at least their floor's share of it: where they are too few for all tasks, the iteration samples fewer tasks.
    """
    p = mix["p"] if mix else [1.0] * len(tasks)
    seeds = {task.id for task, part in zip(tasks, mix["part"], strict=True) if part == "seed"} if mix else set[str]()
    floor = mix["seed_floor"] if seeds else 0.0

    def key(task: Task, weight: float) -> tuple[float, str]:
        digest = content_id("order", seed, t, task.id)
        u = int(digest, 16) / 16 ** len(digest)
        return (-math.log1p(-u) / weight if weight else math.inf, task.id)

    keys = {task.id: key(task, weight) for task, weight in zip(tasks, p, strict=True)}
    order = sorted(tasks, key=lambda task: keys[task.id])
    size = min(limit or len(order), int(len(seeds) / floor + 1e-9) if floor else len(order), len(order))
    quota = max(math.ceil(floor * size - 1e-9), sum(task.id in seeds for task in order[:size]))
    first = [task.id for task in order if task.id in seeds][:quota]
    others = [task.id for task in order if task.id not in seeds][: size - len(first)]
    kept = {*first, *others}
    return [task for task in order if task.id in kept]
