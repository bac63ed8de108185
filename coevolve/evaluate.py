"""`coevolve eval`: one policy version on held-out suites, in a process of its own; or their stored rollouts anew."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coevolve import wiring
from coevolve.loop import Loop, stoppable
from envs.protocols import Policy
from evals.rescore import by_metric, rescore
from evals.run import evaluate, scenario_scores, scores, selected
from evals.suites import label, scenarios, slices, suite
from store.db import Table
from store.errors import UsageError
from store.rows import Phase, Score, Task, Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What is played of one suite."""

    name: str
    kept_as: str
    """The name of its scores."""
    tasks: Sequence[Task]


def evaluated(loop: Loop, names: Sequence[str], version: int | None, *, again: bool) -> tuple[Table, list[str]]:
    """The scores as a table, and what is to be said of them. `again`: of the stored rollouts, graded anew."""
    parts = chosen(loop, names)
    version = newest_version(loop) if version is None else version
    columns = ["suite", "slice", "policy_version", "n", "value", "low", "high"]
    if not again:
        rows = asyncio.run(evaluate_version(loop, parts, version))
        if any(row.metric != "accuracy" for row in rows):
            columns.insert(2, "metric")
        return _table(columns, rows), list(_missing(loop, parts, version))
    rows, changed = asyncio.run(rescore_version(loop, parts, version))
    columns.insert(2, "metric")
    return _table(columns, rows), [f"{changed} rollouts score otherwise than is stored"]


def _missing(loop: Loop, parts: Sequence[Part], version: int) -> Iterator[str]:
    """Of each suite: how many rollouts are in no mean."""
    for part in parts:
        wanted = len(part.tasks) * loop.settings.eval.k
        there = len(selected(part.tasks, loop.settings.eval.k, _played(loop, part.name, version)))
        if there < wanted:
            yield f"{part.kept_as}: {wanted - there} of {wanted} rollouts failed by the machine and are in no mean"


def _table(columns: list[str], rows: Sequence[Score]) -> Table:
    def order(row: Score) -> tuple[Any, ...]:
        return row.suite, row.metric != "accuracy", row.metric, row.slice != "all", row.slice

    fields = ["t" if name == "policy_version" else name for name in columns]
    return Table(
        columns=columns, rows=[tuple(getattr(row, name) for name in fields) for row in sorted(rows, key=order)]
    )


def chosen(loop: Loop, names: Sequence[str]) -> list[Part]:
    """UsageError for an unknown suite."""
    settings = loop.settings.eval
    return [
        Part(
            name=name,
            kept_as=label(name, settings.limit, settings.k),
            tasks=suite(loop.env, name, settings.limit),
        )
        for name in names or settings.suites
    ]


async def evaluate_version(loop: Loop, parts: Sequence[Part], version: int) -> list[Score]:
    """The scores of the suites, played where they are not in the store yet.

    A suite that was played is not played again: the score of a version does not change.
    """
    policy: Policy | None = None
    for part in parts:
        if not loop.finished(version, f"eval {part.kept_as}"):
            policy = policy or wiring.policy(loop.settings, loop.run, version)
            await _play(loop, part, policy)
    where = "run = ? and t = ? and list_contains(?, suite)"
    return loop.store.rows(Score, where, [loop.run.id, version, [part.kept_as for part in parts]])


async def _play(loop: Loop, part: Part, policy: Policy) -> None:
    started, t, name = time.monotonic(), policy.version, part.name
    rows = await evaluate(
        loop.env,
        name,
        part.tasks,
        policy,
        run=loop.run.id,
        seed=loop.settings.seed,
        k=loop.settings.eval.k,
        max_tokens=loop.settings.train.collect.max_tokens,
        tools=loop.settings.train.collect.tools,
        deadline_s=loop.settings.train.collect.deadline_s,
        done=_played(loop, name, t),
        append=loop.store.append,
        report=stoppable(loop),
    )
    found = scores(loop.run.id, t, part.kept_as, slices(loop.env, part.tasks), rows)
    found += scenario_scores(loop.run.id, t, part.kept_as, scenarios(loop.env, part.tasks), rows)
    seconds = time.monotonic() - started
    phase = Phase(
        run=loop.run.id,
        t=t,
        name=f"eval {part.kept_as}",
        finished_at=time.time(),
        seconds=seconds,
        counts={"tasks": len(rows)},
    )
    loop.store.append(found, phase)
    loop.store.ingest()


def _played(loop: Loop, name: str, version: int) -> list[Trajectory]:
    ours = "run = ? and t = ? and purpose = 'eval' and suite = ?"
    return loop.store.rows(Trajectory, ours, [loop.run.id, version, name])


async def rescore_version(loop: Loop, parts: Sequence[Part], version: int) -> tuple[list[Score], int]:
    """The scores that the stored rollouts get now, and how many rollouts got another one than is stored. Nothing is
    written. UsageError for a suite of which nothing is stored."""
    found: list[Score] = []
    changed = 0
    for part in parts:
        rows = list(selected(part.tasks, loop.settings.eval.k, _played(loop, part.name, version)).values())
        if not rows:
            raise UsageError(
                f"--rescore: run {loop.run.id} has no rollout of {part.kept_as} with version {version}; leave it out "
                "to play some"
            )
        again = await rescore(
            loop.env,
            part.tasks,
            rows,
            loop.steps,
            tools=loop.settings.train.collect.tools,
            report=stoppable(loop),
        )
        changed += sum(each.changed for each in again)
        ids = slices(loop.env, part.tasks)
        for metric, scored in by_metric(again).items():
            found += scores(loop.run.id, version, part.kept_as, ids, scored, metric)
            if metric == "accuracy":
                cases = scenarios(loop.env, part.tasks)
                found += scenario_scores(loop.run.id, version, part.kept_as, cases, scored)
    return found, changed


def newest_version(loop: Loop) -> int:
    """The newest trained policy version of the run; 0 (the base model) where the policy is not trained here."""
    if loop.settings.policy.startswith("litellm:"):
        return 0
    from training.checkpoint import newest

    version = newest(loop.run.checkpoints)
    if version is None and loop.settings.policy.startswith("vllm:"):
        return 0
    if version is None:
        raise UsageError(f"run {loop.run.id}: no policy version yet; run `coevolve train` first")
    return version
