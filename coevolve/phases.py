"""The phases of one iteration, each `(loop, t) -> counts`. The sub-commands and `evolve` share them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Any

from coevolve import curves, evidence, growth, guard, guidance, indices, judging, outside, stop, wiring
from coevolve.embedding import embedder
from coevolve.loop import Loop, spawn
from evals.suites import label
from graphs.known import Known
from graphs.remote import Remote
from graphs.runner import explore_all, validate_all
from graphs.state import ExploreJob
from graphs.tracing import GraphName
from store import signals as weaknesses
from store.dedupe import Index
from store.errors import CoevolveError, UsageError
from store.mix import mix
from store.rows import Exploration, Phase, Score, Signal, Snapshot, Task, Trajectory, Verdict, Withdrawal
from store.snapshot import freeze, load

log = logging.getLogger(__name__)

UNGUIDED_BATCH = 16
"""Unguided explorations between two looks at how many valid tasks there are."""
UNGUIDED_TRIES = 20
"""Unguided explorations per asked-for task before seeding gives up."""

EXPLORE_ATTEMPTS = 4
"""Attempts at one exploration of a signal in one iteration; only `coevolve explore` makes more than the first."""

Counts = dict[str, Any]


def seed(loop: Loop, t: int) -> Counts:
    """D_0: the environment's seed tasks and validated tasks of unguided exploration. Freezes snapshot 0."""
    seeds, left_out = _seeds(loop)
    for task, why in left_out:
        log.warning("seed task %s (%r) is left out: %s", task.id, task.user_turns[0][:200], why)
    loop.store.append(seeds)
    wanted = loop.settings.seed_set.unguided
    found = _unguided(loop, wanted)
    tasks = seeds + found
    if not tasks:
        raise UsageError(
            "seed_set: D_0 is empty; ask for seed tasks (seed_set.seeds) or unguided ones (seed_set.unguided)"
        )
    _freeze(loop, 0, tasks)
    waiting = growth.pending(loop.store, loop.run.id, (task.id for task in tasks))
    return {"seeds": len(seeds), "unguided": len(found), "pending": len(waiting), "held_out": len(left_out)}


def seed_tasks(loop: Loop) -> list[Task]:
    """The environment's seed tasks, a limited number of them evenly over worlds, none that repeats a held-out item."""
    return _seeds(loop)[0]


def _seeds(loop: Loop) -> tuple[list[Task], list[tuple[Task, str]]]:
    """The seed tasks, and those that are left out with the held-out item that each repeats."""
    items = {task.id: task for task in held_out(loop)}
    apart = Known(loop.env, held_out=items.values())
    by_world: dict[str, list[Task]] = {}
    left_out: list[tuple[Task, str]] = []
    hardest = loop.settings.validate_.max_difficulty or math.inf
    for task in loop.env.seed_tasks():
        if task.difficulty > hardest:
            continue
        if twin := apart.held_out(task):
            item = items[twin]
            left_out.append(
                (task, f"it gives away item {item.id} of suite {item.split} ({item.user_turns[0][:200]!r})")
            )
        else:
            by_world.setdefault(task.world, []).append(task)
    turns = [task for task in chain.from_iterable(zip_longest(*by_world.values())) if task is not None]
    limit = loop.settings.seed_set.seeds
    return turns if limit < 0 else turns[:limit], left_out


def held_out(loop: Loop) -> list[Task]:
    return [task for suite in loop.env.suites().values() for task in suite]


def adopted(loop: Loop) -> list[Task]:
    """The tasks of the run's candidates that were adopted so far."""
    return loop.store.rows(Task, "id in (select task_id from verdict where run = ? and adopt)", [loop.run.id])


def known(loop: Loop) -> list[Task]:
    """What a candidate must not repeat."""
    return [*seed_tasks(loop), *adopted(loop)]


def _unguided(loop: Loop, wanted: int) -> list[Task]:
    """`wanted` valid tasks of unguided exploration of the train worlds, in turn."""
    start = 0
    while True:
        loop.store.ingest()
        waiting = growth.pending(loop.store, loop.run.id, ())
        loop.report("seed", min(len(waiting), wanted), wanted)
        if len(waiting) >= wanted or loop.stop.is_set():
            return [task for _, task in waiting[:wanted]]
        if start >= UNGUIDED_TRIES * wanted:
            raise UsageError(
                f"seed_set.unguided: {wanted} asked for, but {start} explorations gave only {len(waiting)} valid "
                "tasks; ask for fewer, or use a stronger explorer"
            )
        tasks = [*seed_tasks(loop), *(task for _, task in waiting)] if loop.settings.explore.guidance else []
        _explore(loop, _unguided_jobs(loop, 0, start, UNGUIDED_BATCH, tasks))
        start += UNGUIDED_BATCH
        _validate(loop, 0)


def signals(loop: Loop, t: int) -> Counts:
    """Forgetting, boundary and rare signals of iteration t; tasks found defective are withdrawn."""
    found = weaknesses.detect(loop.store, loop.run.id, t, loop.settings.signals)
    defective = loop.store.rows(Trajectory, "run = ? and t = ? and outcome = 'invalid'", [loop.run.id, t])
    withdrawn = {row.task_id: row.error or "" for row in defective if row.task_id}
    loop.store.append(
        [*found, *(Withdrawal(run=loop.run.id, task_id=i, t=t, reason=why) for i, why in sorted(withdrawn.items()))]
    )
    return {**Counter(signal.kind for signal in found), "withdrawn": len(withdrawn)}


def explore(loop: Loop, t: int) -> Counts:
    """Explore the signals that are due in iteration t: at most `signals.per_round`, evenly over kinds, newest first.

    Each exploration is tried once in a round, whether it was killed or not; failed ones are due again in the next.
    """
    source = loop.settings.explore.source
    if source == "none":
        return {"signals": 0}
    if stop.breaking(loop, t) == "novelty":
        source = "random"
    found = weaknesses.due(loop.store, loop.run.id, t, loop.settings.signals)
    chosen = weaknesses.pick(found, loop.settings.signals.per_round)
    tasks, count = _guiding(loop, t), len(chosen) * loop.settings.explore.per_signal
    jobs = guidance.hardenings(loop, t, tasks)
    if source == "random":
        jobs += _unguided_jobs(loop, t, indices.RANDOM, count, tasks)
    elif source == "adversarial":
        jobs += guidance.adversarial(loop, t, count, guidance.guidance(loop, tasks))
    else:
        explore_signals(loop, chosen, t)
    _explore(loop, jobs)
    where = "run = ? and t = ? and (signal_id is not null or list_contains(?, id))"
    return explored(loop.store.rows(Exploration, where, [loop.run.id, t, [job.id for job in jobs]]))


def _guiding(loop: Loop, t: int) -> list[Task]:
    """The tasks of D_t, as far as the explorers are told of them."""
    wanted = loop.settings.explore
    read = wanted.guidance or wanted.harden or wanted.source == "adversarial"
    return list(load(loop.run.snapshots, str(t))[1]) if read else []


def explore_structure(loop: Loop, structure: str, t: int) -> list[Exploration]:
    """Explore one structure in iteration t, `signals.per_round` times; called again it goes on with other indices."""
    done = loop.store.rows(Exploration, "run = ? and t = ? and guide ->> '$.mode' = 'focus'", [loop.run.id, t])
    guide = guidance.guidance(loop, list(load(loop.run.snapshots, str(t))[1]))
    count = loop.settings.signals.per_round
    return _explore(loop, guidance.focused(loop, t, structure, count, guide, len(done)))


def _unguided_jobs(loop: Loop, t: int, start: int, count: int, tasks: Sequence[Task]) -> list[ExploreJob]:
    """Explorations of the train worlds in turn; those first that `tasks` have least of, if diversity is asked for."""
    worlds = [world.id for world in loop.env.worlds("train")]
    guide = guidance.guidance(loop, tasks)
    if "diversity" in loop.settings.explore.guidance:
        worlds = guidance.by_rarity(loop.env, tasks)
    return [
        ExploreJob(
            run=loop.run.id,
            t=t,
            index=index,
            world=worlds[(index - start) % len(worlds)] if guide.lacking else worlds[index % len(worlds)],
            guide=guide.told("unguided", index),
        )
        for index in range(start, start + count)
    ]


def explore_signals(loop: Loop, chosen: list[Signal], t: int, *, again: bool = False) -> list[Exploration]:
    """Explore these signals in iteration t, `explore.per_signal` times each; the new rows. `again`: what failed in t
    is tried once more, up to `EXPLORE_ATTEMPTS` times in all."""
    rows = loop.store.rows(Exploration, "run = ? and t = ? and outcome = 'infra'", [loop.run.id, t]) if again else []
    failed = Counter((row.signal_id, row.index) for row in rows)
    times = range(loop.settings.explore.per_signal)
    guide = guidance.guidance(loop, _guiding(loop, t))
    with loop.store.reading():  # one opening of the index for all questions
        jobs = [
            replace(
                evidence.job(loop.store, signal, t, index, failed[signal.id, index]),
                guide=guide.told("signal", place + index),
            )
            for place, signal in enumerate(chosen)
            for index in times
            if failed[signal.id, index] < EXPLORE_ATTEMPTS
        ]
    if chosen and not jobs:
        raise CoevolveError(
            f"none of {len(chosen)} open signals is left to explore: {EXPLORE_ATTEMPTS} attempts failed"
        )
    return _explore(loop, jobs)


def explored(rows: list[Exploration]) -> Counts:
    """How many signals these explorations have explored, and how the explorations ended."""
    signals = {row.signal_id for row in rows if row.outcome == "done" and row.signal_id}
    return {"signals": len(signals), **Counter(row.outcome for row in rows)}


def _explore(loop: Loop, jobs: list[ExploreJob]) -> list[Exploration]:
    if not jobs:
        return []
    loop.store.ingest()
    asked = "select id from exploration where list_contains(?, id)"
    done = {found for (found,) in loop.store.query(asked, [[job.id for job in jobs]])}
    rows = asyncio.run(
        explore_all(
            jobs,
            env=loop.env,
            model=loop.settings.explorer,
            calls=loop.settings.model,
            settings=loop.settings.explore,
            factory=wiring.explorer(loop.settings, loop.run, jobs[0].t),
            seed=loop.settings.seed,
            append=loop.store.append,
            done=done,
            checkpoints=loop.run.graphs,
            stop=loop.stop,
            report=loop.report,
            remote=_remote(loop, "explore", jobs[0].t),
        )
    )
    loop.store.ingest()
    return rows


def _remote(loop: Loop, graph: GraphName, t: int) -> Remote | None:
    if loop.studio is None:
        return None
    from coevolve.studio.client import remote

    created_at = loop.run.manifest["created_at"]
    return remote(
        loop.workspace, loop.studio, graph, run=loop.run.id, t=t, created_at=created_at, settings=loop.settings
    )


def validate(loop: Loop, t: int) -> Counts:
    """Decide every pending candidate of the run."""
    verdicts = _validate(loop, t)
    return dict(Counter(verdict.reason for verdict in verdicts))


def _validate(loop: Loop, t: int) -> list[Verdict]:
    loop.store.ingest()
    run = loop.run.id
    candidates = growth.undecided(loop.store, run)
    rows = loop.store.rows(Exploration, "run = ? and model = ?", [run, outside.MODEL])
    injected = {row.id for row in rows}
    verdicts = asyncio.run(
        validate_all(
            candidates,
            env=loop.env,
            model=loop.settings.explorer,
            calls=loop.settings.model,
            settings=loop.settings.validate_,
            factory=wiring.explorer(loop.settings, loop.run, t),
            seed=loop.settings.seed,
            t=t,
            known=known(loop),
            held_out=held_out(loop),
            judges=judging.judges(loop.settings, loop.store, run),
            alike=Index(loop.settings.dedupe, embedder(loop.settings)),
            origins={row.id: "outside" for row in candidates if row.exploration_id in injected},
            append=loop.store.append,
            checkpoints=loop.run.graphs,
            stop=loop.stop,
            report=loop.report,
            remote=_remote(loop, "validate", t) if candidates else None,
        )
    )
    loop.store.ingest()
    return verdicts


def snapshot(loop: Loop, t: int) -> Counts:
    """D_{t+1}: the rows of D_t less withdrawn ones, and the valid pending tasks that growth allows."""
    _, members = load(loop.run.snapshots, str(t))
    withdrawn = {row.task_id for row in loop.store.rows(Withdrawal, "run = ?", [loop.run.id])}
    kept = [task for task in members if task.id not in withdrawn]
    waiting = growth.pending(loop.store, loop.run.id, (task.id for task in members))
    at_home = loop.settings.explore.source == "none"
    room = 0 if at_home else growth.room(len(members), loop.settings.validate_.growth)
    breaker = stop.breaking(loop, t)
    if breaker == "novelty":
        waiting = growth.novel_first(waiting, members)
    admitted = growth.admit(waiting, room)
    _freeze(loop, t + 1, kept + admitted, revisit=breaker == "revisit")
    return {
        "tasks": len(kept) + len(admitted),
        "admitted": len(admitted),
        "pending": len(waiting) - len(admitted),
        "withdrawn": len(members) - len(kept),
    }


def restore(loop: Loop, t: int) -> Counts:
    """D_{t+1} after a rollback: the snapshot that the best version was trained on. What came since is quarantined."""
    decision = guard.decided(loop.store, loop.run.id, t)
    assert decision is not None
    assert decision.version is not None
    _, members = load(loop.run.snapshots, str(t))
    _, good = load(loop.run.snapshots, str(guard.source(decision.version)))
    ids = {task.id for task in good}
    came = [task for task in members if task.id not in ids]
    why = f"quarantined after round {t + 1}: {decision.reason}"
    loop.store.append(Withdrawal(run=loop.run.id, task_id=task.id, t=t, reason=why) for task in came)
    loop.store.ingest()
    withdrawn = {row.task_id for row in loop.store.rows(Withdrawal, "run = ?", [loop.run.id])}
    kept = [task for task in good if task.id not in withdrawn]
    _freeze(loop, t + 1, kept)
    waiting = growth.pending(loop.store, loop.run.id, (task.id for task in kept))
    return {
        "tasks": len(kept),
        "admitted": 0,
        "pending": len(waiting),
        "withdrawn": len(came),
        "restored": decision.version,
    }


def _freeze(loop: Loop, t: int, tasks: list[Task], *, revisit: bool = False) -> Snapshot:
    """D_t, how it is sampled, and the figures of the round that made it."""
    settings = loop.settings
    stated = mix(loop.store, loop.run.id, t, tasks, settings.mix, growth=settings.validate_.growth, revisit=revisit)
    frozen = freeze(loop.run.snapshots, loop.run.id, t, tasks, stated)
    figures = curves.of_round(loop.store, loop.run.id, t, tasks, embedder(settings))
    loop.store.append([frozen, *figures])
    return frozen


def final_report(loop: Loop) -> None:
    """Play the final suite with the version that did best on the first suite of `eval.suites`.

    Once in the life of a run: a suite that is looked at again after more rounds would be one more validation set.
    """
    final, suites = loop.settings.eval.final, loop.settings.eval.suites
    if not final or not suites:
        return
    best = best_version(loop)
    if best is None:
        return
    if (played := final_version(loop)) is not None:
        if played != best:
            log.warning(
                "%s was played with version %d, in an earlier final report of run %s, and is not played again; to do "
                "so: coevolve eval --run %s --suite %s --policy-version %d",
                *(final, played, loop.run.id, loop.run.id, final, best),
            )
        return
    spawn(loop, "eval", ["--policy-version", str(best), "--suite", final])
    loop.store.ingest()


def final_version(loop: Loop) -> int | None:
    """The version that the final suite was played with; None before the final report."""
    name = f"eval {kept(loop, loop.settings.eval.final)}"
    rows = loop.store.rows(Phase, "run = ? and name = ?", [loop.run.id, name], order="finished_at")
    return rows[0].t if rows else None


def best_version(loop: Loop) -> int | None:
    """The version with the highest accuracy on the first suite, the oldest of equals; None before any evaluation."""
    where = "run = ? and suite = ? and slice = 'all' and metric = 'accuracy'"
    rows = loop.store.rows(Score, where, [loop.run.id, kept(loop)], order="value desc, t")
    lost = guard.given_up(loop.store, loop.run.id)
    return next((row.t for row in rows if row.t not in lost), None)


def kept(loop: Loop, name: str | None = None) -> str:
    """The name under which the scores of a suite are kept; without `name` the first of `eval.suites`."""
    settings = loop.settings.eval
    return label(name or settings.suites[0], settings.limit, settings.k)
