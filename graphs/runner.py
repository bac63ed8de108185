"""Runs the graphs for many jobs: bounded concurrency, rows in job order, resumable, drained on a stop.

    explore_all   jobs       -> Exploration, its Trajectory and Steps, its Candidates   (one batch per exploration)
    validate_all  candidates -> the adopted Task, Verdict, the try's Trajectory          (one batch per candidate; the
                  judges' Votes before that, as they come)

All row ids come from content: what is written twice is one row. One failed exploration is an `infra` row; one
candidate whose validation failed for our own faults is rejected with reason `infra`; neither stops the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from envs.protocols import Env, Report
from graphs import explore, rows, validate
from graphs.bench import Ended, Floor, Stop, bench, in_order
from graphs.committee import Committee, Judges, Standing
from graphs.known import Known
from graphs.model import Budget, ModelFactory, in_short
from graphs.recording import Recorder
from graphs.remote import Remote, remote_bench
from graphs.resources import Resources, model_factory
from graphs.settings import ExploreSettings, ModelSettings, ValidateSettings
from graphs.sitting import Voice
from graphs.state import DraftJson, ExploreJob, ExploreState, Guide, SignalView, ValidateState, derive_seed, shown
from graphs.tracing import GraphName
from store.dedupe import Index
from store.errors import RowRefused, UsageError
from store.rows import Candidate, Exploration, Origin, Row, Span, Task, Verdict

Append = Callable[[Sequence[Row]], object]
"""Makes one batch of rows durable."""
Made = TypeVar("Made")
Written: TypeAlias = tuple[Made, list[Row], Ended]

log = logging.getLogger(__name__)


async def explore_all(
    jobs: Sequence[ExploreJob],
    *,
    env: Env,
    model: str,
    seed: int,
    append: Append,
    checkpoints: Path,
    settings: ExploreSettings | None = None,
    calls: ModelSettings | None = None,
    factory: ModelFactory | None = None,
    done: Collection[str] = (),
    stop: Stop | None = None,
    report: Report | None = None,
    remote: Remote | None = None,
) -> list[Exploration]:
    """Run the jobs whose exploration id is not in `done`; the new Exploration rows, in job order.

    `model` is a spec; `factory` builds the models in its place; `remote` is where the graphs run, if not here. Stops
    early, without an error, on `stop` and when the budget is spent: what is unfinished goes on at the next call.
    UsageError for a world that is not trained on; InfraError when most explorations fail for our own faults.
    """
    _only_train_worlds(env, jobs)
    todo = [job for job in jobs if job.id not in done]
    source = rows.Source(env=env, model=model, seed=seed)
    calls = calls or ModelSettings()
    given = exploring(env, model, settings=settings, calls=calls, factory=factory)
    found: list[Exploration] = []
    floor = Floor()
    played = remote_bench("explore", remote, stop) if remote else bench(explore.builder, given, checkpoints, stop)
    async with played as at:
        plays = in_order(todo, lambda job: at.play(job.id, _explore_input(job, seed)), calls.concurrency)
        async with aclosing(plays) as results:
            async for job, ended in results:
                if ended is None:
                    break
                made = partial(rows.explored, source, job)
                spans = _spans(ended, job.id, job.run, job.t, "explore")
                exploration, _, ended = _write(append, made, ended, spans)
                await at.forget(job.id)
                floor.note(ended)
                found.append(exploration)
                if report:
                    report("explore", len(found), len(todo))
    return found


def _spans(ended: Ended, thread: str, run: str, t: int, graph: GraphName) -> list[Span]:
    return ended.trace.spans(thread=thread, run=run, t=t, graph=graph) if ended.trace else []


def _write(
    append: Append, make: Callable[[Any, str | None], tuple[Made, list[Row]]], ended: Ended, spans: Sequence[Span]
) -> Written[Made]:
    """Append the rows that `make` makes of the ended graph, and its spans. What no row can hold would be refused for
    ever: then the graph ended as a failure of ours, with that reason, and nothing of its state is kept."""
    try:
        made, batch = make(ended.state, ended.error)
        append([*batch, *spans])
        return made, batch, ended
    except (RowRefused, ValueError, TypeError, OverflowError, RecursionError) as refusal:
        log.warning("what a graph ended with cannot be stored: %s", refusal)
        failed = Ended(state={}, error=in_short(refusal))
    made, batch = make(failed.state, failed.error)
    append(batch)
    return made, batch, failed


def _only_train_worlds(env: Env, jobs: Iterable[ExploreJob]) -> None:
    train = {world.id for world in env.worlds("train")}
    for job in jobs:
        if job.world not in train:
            raise UsageError(f"world: {job.world!r} is no train world of {env.name}; use one of {sorted(train)}")


def _explore_input(job: ExploreJob, seed: int) -> ExploreState:
    signal = None
    if job.signal:
        about, evidence = job.signal, [shown(one) for one in job.evidence]
        signal = SignalView(kind=about.kind, pattern=about.pattern, stats=about.stats, evidence=evidence)
    elif job.evidence:  # a structure stands for a signal
        guide = job.guide or Guide()
        stats, evidence = {"structure": guide.get("about")}, [shown(one) for one in job.evidence]
        signal = SignalView(kind=guide.get("mode", ""), pattern=None, stats=stats, evidence=evidence)
    state = ExploreState(id=job.id, world=job.world, seed=job.seed(seed), signal=signal)
    if job.guide:
        state["guide"] = job.guide
    if job.tasks:
        state["tasks"] = [DraftJson(user_turns=task.user_turns, reference=task.reference) for task in job.tasks]
    return state


async def validate_all(
    candidates: Sequence[Candidate],
    *,
    env: Env,
    model: str,
    seed: int,
    t: int,
    known: Iterable[Task],
    held_out: Iterable[Task],
    append: Append,
    checkpoints: Path,
    settings: ValidateSettings | None = None,
    calls: ModelSettings | None = None,
    factory: ModelFactory | None = None,
    judges: Judges | None = None,
    alike: Index | None = None,
    origins: Mapping[str, Origin] | None = None,
    stop: Stop | None = None,
    report: Report | None = None,
    remote: Remote | None = None,
) -> list[Verdict]:
    """Decide the candidates; the verdicts, in candidate order.

    A candidate that repeats a task of `known`, or an earlier candidate that was adopted, is a duplicate; one that
    repeats an item of `held_out` is rejected; one that execution accepts may be vetoed by `judges`. `alike`, empty,
    finds more of both. With `settings.polish` the judges, or the model itself where there are none, compare the words
    that it would give a task with those of before. `origins`: {candidate: where its task comes from}, if not from an
    exploration. Stops early as `explore_all` does.
    """
    source = rows.Source(env=env, model=model, seed=seed)
    calls = calls or ModelSettings()
    known, held_out = list(known), list(held_out)
    queue = Known(env, known, held_out, [candidate.id for candidate in candidates], alike)
    given = validating(env, model, queue=queue, settings=settings, calls=calls, factory=factory)
    if candidates:
        given = judged(
            given,
            judges,
            Known(env, known, held_out),
            known,
            at=(candidates[0].run, t),
            record=Recorder(append),
            own=partial(own_voice, env, model, calls, factory, seed),
        )
    verdicts: list[Verdict] = []
    floor = Floor()
    played = remote_bench("validate", remote, stop) if remote else bench(validate.builder, given, checkpoints, stop)
    async with played as at:
        plays = in_order(
            candidates,
            lambda one: at.play(one.id, _validate_input(one, seed, (origins or {}).get(one.id))),
            calls.concurrency,
        )
        async with aclosing(plays) as results:
            async for candidate, ended in results:
                if ended is None:
                    break
                made = partial(rows.validated, source, candidate, t, _seed(candidate, seed))
                spans = _spans(ended, candidate.id, candidate.run, t, "validate")
                verdict, batch, ended = _write(append, made, ended, spans)
                await at.forget(candidate.id)
                floor.note(ended)
                queue.decided(candidate.id, [row for row in batch if isinstance(row, Task)])
                verdicts.append(verdict)
                if report:
                    report("validate", len(verdicts), len(candidates))
    return verdicts


def _validate_input(candidate: Candidate, seed: int, origin: Origin | None = None) -> ValidateState:
    return ValidateState(
        origin=origin or "explored",
        id=candidate.id,
        world=candidate.world,
        seed=_seed(candidate, seed),
        tools=candidate.tools,
        rewords=candidate.rewords,
        draft=DraftJson(user_turns=candidate.user_turns, reference=candidate.reference),
    )


def _seed(candidate: Candidate, base: int) -> int:
    """Depends on the candidate's content but not on the run's name."""
    return derive_seed("validate", base, candidate.world, candidate.user_turns, candidate.reference)


def exploring(
    env: Env, model: str, *, settings: ExploreSettings | None, calls: ModelSettings, factory: ModelFactory | None
) -> Resources:
    """What the nodes of explorations work with. UsageError if there is no such model."""
    return Resources(
        env=env,
        model=factory or model_factory(model, calls, env=env.name),
        known=Known(env),
        calls=calls,
        budget=Budget.of(calls),
        explore=settings or ExploreSettings(),
    )


def validating(
    env: Env,
    model: str,
    *,
    queue: Known,
    settings: ValidateSettings | None,
    calls: ModelSettings,
    factory: ModelFactory | None,
) -> Resources:
    """What the nodes of validations work with, but for judges. UsageError if there is no such model."""
    given = exploring(env, model, settings=None, calls=calls, factory=factory)
    return replace(given, known=queue, validate=settings or ValidateSettings())


def own_voice(env: Env, model: str, calls: ModelSettings, factory: ModelFactory | None, seed: int) -> Voice:
    """The validator's own model as the judge of words, where there is no other; without temperature."""
    cold = calls.model_copy(update={"temperature": 0.0})
    return Voice(spec=model, model=(factory or model_factory(model, cold, env=env.name))(seed))


def judged(
    given: Resources,
    judges: Judges | None,
    before: Known,
    known: Sequence[Task],
    *,
    at: tuple[str, int],
    record: Recorder,
    own: Callable[[], Voice],
) -> Resources:
    """The same with a committee where there are judges, and one that compares words where they are polished: the judges
    too, or `own`. `known`, and `before` made of it, are as of the phase's beginning; `at`: run and t."""
    judges = judges or Judges(strong=[])
    polish = given.validate.polish
    if not (judges.strong or polish):
        return given
    court = Committee(
        judges=judges if judges.strong else replace(judges, strong=[own()]),
        env=given.env,
        known=before,
        standing=Standing.of(known),
        run=at[0],
        t=at[1],
        calls=given.calls,
        budget=given.budget,
        record=record,
    )
    return replace(given, committee=court if judges.strong else None, preference=court if polish else None)
