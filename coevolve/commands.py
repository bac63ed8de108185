"""What the sub-commands do: each returns (data for --json, what is shown)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from coevolve import guide, phases, rounds, untrained, wiring
from coevolve.config import Settings, load_settings, parse_settings, preset
from coevolve.evolve import evolve
from coevolve.guide import DEFAULT_ROUNDS
from coevolve.loop import Loop, Stopped, draining, once, watch_parent
from coevolve.progress import progress
from coevolve.questions import round_report
from coevolve.versions import versions
from coevolve.workspace import LOOP, RunFolder, Workspace, read_json
from envs import registry
from envs.protocols import Env
from store import signals as weaknesses
from store.errors import CoevolveError, UsageError
from store.rows import Exploration, Phase, Run

Result = tuple[Any, Any]
FIXED = ("seed", "env", "policy")
"""Settings that a run keeps."""
LATER = {"refine", "judge", "dedupe", "mix", "guard", "stop"}
"""Tables that runs of before do not have; they go on with the defaults."""


# ---- runs


def start_run(workspace: Workspace, overrides: tuple[str, ...], planned: int, *, overlap: bool = False) -> RunFolder:
    """A new run with settings resolved from config.toml, environment and --set; all that can be checked is checked."""
    settings = wiring.resolved(load_settings(workspace.config, overrides))
    wiring.check(settings, trained=planned > 0)
    earlier = guide.unfinished(workspace)
    created = time.time()
    config = settings.model_dump(mode="json", by_alias=True)
    run = workspace.create_run(config)
    workspace.store.append(
        Run(
            id=run.id,
            created_at=created,
            seed=settings.seed,
            env=settings.env,
            policy=settings.policy,
            config=config,
            versions=versions(),
        )
    )
    run.update(created_at=created, rounds=planned, overlap=overlap, versions=versions())
    if earlier:
        sys.stderr.write(f"note: this is a new run, {run.id}; {earlier}\n")
    return run


def _with_env(env: str | None, overrides: tuple[str, ...], *, resume: bool) -> tuple[str, ...]:
    if env and resume:
        raise UsageError(f"--env {env}: a run keeps the environment that it was started with; leave --env out")
    return (*preset(env), *overrides) if env else overrides


def run_settings(run: RunFolder, overrides: tuple[str, ...] = ()) -> Settings:
    """The settings that the run was started with, and for this command alone the overrides.

    UsageError if they change what all rows and checkpoints of the run rest on.
    """
    path = run.path / "config.json"
    raw = read_json(path)
    # A run's settings are written out in full: one that lacks a table would silently fall back to today's defaults.
    found = raw if isinstance(raw, dict) else {}
    if missing := [name for name in Settings().model_dump(by_alias=True, exclude=LATER) if name not in found]:
        raise CoevolveError(
            f"{path} is damaged: it lacks {', '.join(missing)}; write it again from "
            f"`coevolve sql \"select config from run where id = '{run.id}'\"`"
        )
    settings = parse_settings(raw, str(path))
    if not overrides:
        return settings
    changed = settings.overridden(overrides)
    for key in FIXED:
        if (old := getattr(settings, key)) != (new := getattr(changed, key)):
            if key == "policy" and new.startswith("vllm:"):
                continue  # the same policy through a server, which must prove it (wiring.policy)
            raise UsageError(f"--set {key}={new}: run {run.id} has {key} = {old} for good; start a new run")
    return changed


@contextmanager
def opened(
    workspace: Workspace, run: RunFolder, overrides: tuple[str, ...], lock: str, *, studio: str | None = None
) -> Iterator[Loop]:
    """The loop on this run: locked, draining on SIGTERM, with progress on stderr; its graphs on the server `studio`."""
    settings = run_settings(run, overrides)
    with at_work(workspace, run, settings, registry.get(settings.env), lock, overrides) as loop:
        yield replace(loop, studio=studio)


@contextmanager
def at_work(
    workspace: Workspace, run: RunFolder, settings: Settings, env: Env, lock: str, overrides: tuple[str, ...] = ()
) -> Iterator[Loop]:
    with run.locked(lock), progress() as report:
        loop = Loop(
            workspace=workspace,
            run=run,
            settings=settings,
            overrides=overrides,
            env=env,
            report=report,
            announce=lambda version: tell(workspace, run, version),
        )
        watch_parent()
        with draining(loop.stop):
            yield loop


def tell(workspace: Workspace, run: RunFolder, version: int) -> None:
    """What the round that made this policy version did, in one line on stderr."""
    for row in rounds.rounds(workspace.store, run.id):
        if row["round"] == version:
            sys.stderr.write(f"{rounds.line(row)}\n")
            sys.stderr.flush()


# ---- the loop and its phases


def evolve_command(
    *,
    workspace: str | None,
    run_id: str | None,
    overrides: tuple[str, ...],
    rounds: int | None,
    resume: bool,
    overlap: bool,
    env: str | None,
    **_: Any,
) -> Result:
    place = Workspace.find(workspace)
    overrides = _with_env(env, overrides, resume=resume)
    if resume:
        run = place.run(run_id)
        if overlap and not run.manifest.get("overlap"):
            raise UsageError(f"--overlap: run {run.id} goes without it for good; start a new run with it")
    elif run_id:
        raise UsageError(f"--run: a new run gets its own id; to go on with {run_id!r} add --resume")
    else:
        run = start_run(place, overrides, rounds or DEFAULT_ROUNDS, overlap=overlap)
    with opened(place, run, overrides if resume else (), LOOP) as loop:
        wanted = rounds or run.manifest["rounds"] or DEFAULT_ROUNDS
        if wanted < (finished := guide.finished_rounds(place, run)):
            raise UsageError(f"--rounds {wanted}: the rounds of run {run.id} in all, and it has finished {finished}")
        if wanted != run.manifest["rounds"]:
            run.update(rounds=wanted)
        before = len(place.store.rows(Phase, "run = ?", [run.id]))
        told = replace(loop, begin=lambda t, phase: guide.begin(run, t, phase))
        ended = evolve(told, wanted, overlap=run.manifest.get("overlap", False))
        idle = len(place.store.rows(Phase, "run = ?", [run.id])) == before
    data, shown = round_report(place, run)
    said = [f"run {run.id} had finished its rounds before ({wanted}): nothing was left to do\n"] if idle else []
    if ended:
        data["stopped"] = {"round": ended.t + 1, "rule": ended.rule, "reason": ended.reason, "figures": ended.figures}
        said.append(f"run {run.id} stopped after round {ended.t + 1} ({ended.rule}): {ended.reason}\n")
    return data, [*said, *shown, guide.evolved(loop, data["rounds"])]


def seed_command(
    *, workspace: str | None, run_id: str | None, overrides: tuple[str, ...], resume: bool, env: str | None, **_: Any
) -> Result:
    place = Workspace.find(workspace)
    going_on = bool(resume or run_id)
    overrides = _with_env(env, overrides, resume=going_on)
    run = place.run(run_id) if going_on else start_run(place, overrides, 0)
    with opened(place, run, overrides if going_on else (), LOOP) as loop:
        once(loop, 0, "seed", phases.seed)
    counts = {"run": run.id, **phase_counts(place, run, 0, "seed")}
    return counts, guide.seeded(place, run, counts)


def train_command(
    *,
    workspace: str | None,
    run_id: str | None,
    overrides: tuple[str, ...],
    snapshot: str,
    resume: bool,
    follow: bool,
    rounds: int | None,
    start: str | None,
    **_: Any,
) -> Result:
    from coevolve import launch, train

    if start:
        overrides = (*overrides, f"train.start={start}")

    if launch.is_helper():
        launch.help_rank_0()
    place = Workspace.find(workspace)
    run = place.run(run_id)
    if launch.wanted(settings := run_settings(run, overrides)):
        launch.launch(place.root / settings.train.accelerate)
    with opened(place, run, overrides, "train") as loop:
        if follow:
            counts = train.follow(loop, rounds)
        else:
            with train.keeping(loop) as kept:
                counts = train.train_snapshot(loop, snapshot, kept, resume=resume)
    return counts, guide.trained(place, run, counts)


def signals_command(*, workspace: str | None, run_id: str | None, overrides: tuple[str, ...], **_: Any) -> Result:
    place = Workspace.find(workspace)
    run = place.run(run_id)
    with opened(place, run, overrides, LOOP) as loop:
        t = newest_trained(loop)
        once(loop, t, "signals", phases.signals)
    query = """
        select id, kind, status, coalesce(task_id, array_to_string(pattern, ' ')) as about,
               len(evidence) as evidence, stats::varchar as stats
        from v_signal where run = ? and t = ? order by kind, id
    """
    table = place.store.table(query, [run.id, t])
    return table, table if table.rows else f"run {run.id}: iteration {t} gave no signal"


def explore_command(
    *,
    workspace: str | None,
    run_id: str | None,
    overrides: tuple[str, ...],
    which: str,
    focus: str | None = None,
    studio: str | None = None,
    **_: Any,
) -> Result:
    place = Workspace.find(workspace)
    run = place.run(run_id)
    with opened(place, run, overrides, LOOP, studio=studio) as loop:
        t = newest_trained(loop)
        if focus is not None:
            return _explore_focus(loop, t, focus)
        once(loop, t, "signals", phases.signals)
        found = weaknesses.open_signals(loop.store, run.id, loop.settings.signals, ref=which)
        chosen = weaknesses.pick(found, loop.settings.signals.per_round)
        rows: list[Exploration] = []

        def explore() -> dict[str, Any]:
            rows.extend(phases.explore_signals(loop, chosen, t, again=True))
            return phases.explored(rows)

        counts = by_hand(loop, t, "explore", explore)
        if loop.stop.is_set():
            raise Stopped(f"run {run.id}: stopped as asked; `coevolve explore` again explores the rest")
    if not chosen:
        return counts, f"run {run.id}: no open signal ({which}), so there was nothing to explore"
    failed = [row.error for row in rows if row.outcome == "infra"]
    if failed and not counts["signals"]:
        raise CoevolveError(
            f"run {run.id}: none of {len(chosen)} open signals was explored; the last of {len(failed)} explorations "
            f"failed with: {failed[-1]}"
        )
    shown = f"run {run.id}: explored {counts['signals']} signals"
    return counts, f"{shown}{f', {len(failed)} explorations failed' if failed else ''}; next: coevolve validate"


def _explore_focus(loop: Loop, t: int, structure: str) -> Result:
    rows: list[Exploration] = []

    def explore() -> dict[str, Any]:
        rows.extend(phases.explore_structure(loop, structure, t))
        return phases.explored(rows)

    counts = by_hand(loop, t, "explore", explore)
    done, failed = counts.get("done", 0), counts.get("infra", 0)
    if failed and not done:
        raise CoevolveError(f"run {loop.run.id}: all {failed} explorations failed, the last with: {rows[-1].error}")
    shown = f"run {loop.run.id}: {done} explorations of {structure!r}{f', {failed} failed' if failed else ''}"
    return counts, f"{shown}; next: coevolve validate"


def validate_command(
    *, workspace: str | None, run_id: str | None, overrides: tuple[str, ...], studio: str | None = None, **_: Any
) -> Result:
    place = Workspace.find(workspace)
    run = place.run(run_id)
    with opened(place, run, overrides, LOOP, studio=studio) as loop:
        t = newest_trained(loop)
        frozen_before = loop.finished(t, "snapshot")
        decided = by_hand(loop, t, "validate", lambda: phases.validate(loop, t))
        if loop.stop.is_set():
            raise Stopped(f"run {run.id}: stopped as asked; `coevolve validate` again decides the rest")
        once(loop, t, "snapshot", phases.snapshot)
    counts = {"decided": decided, **phase_counts(place, run, t, "snapshot")}
    return counts, guide.validated(loop, t, counts, frozen_before=frozen_before)


def inject_command(
    *, workspace: str | None, run_id: str | None, overrides: tuple[str, ...], file: str, **_: Any
) -> Result:
    from coevolve.outside import inject

    place = Workspace.find(workspace)
    run = place.run(run_id)
    with opened(place, run, overrides, LOOP) as loop:
        t = newest_trained(loop)
        count = inject(loop, file, t)
    said = f"run {run.id}: {count} tasks of {file} wait for a verdict; next: coevolve validate{guide.on(place, run)}"
    return {"run": run.id, "t": t, "candidates": count}, said


def eval_command(
    *,
    workspace: str | None,
    run_id: str | None,
    overrides: tuple[str, ...],
    suites: tuple[str, ...],
    policy_version: int | None,
    env: str | None,
    policy: str | None,
    rescore: bool,
    **_: Any,
) -> Result:
    from coevolve.evaluate import evaluated

    place = Workspace.find(workspace)
    if not (env or policy):
        run = place.run(run_id)
        with opened(place, run, overrides, "eval") as loop:
            _as_measured(run, loop.settings)
            table, notes = evaluated(loop, suites, policy_version, again=rescore)
        _note(notes)
        trained = wiring.trainable(loop.settings.policy)
        return table, [table, *([f"next: {guide.next_step(place, run)}"] if trained else [])]
    if run_id or policy_version is not None:
        raise UsageError(
            "--env, --policy: a model is played as it is, without a run; leave --run, --policy-version out"
        )
    chosen = (*(preset(env) if env else ()), *([f"policy={policy}"] if policy else ()), *overrides)
    settings = load_settings(place.config, chosen)
    env_ = registry.get(settings.env)
    with at_work(place, untrained.folder(place, settings, env_, suites), settings, env_, "eval") as loop:
        table, notes = evaluated(loop, suites, 0, again=rescore)
        _note(notes)
        return table, [table, f"kept as run {loop.run.id}; the same command goes on, or tells the same"]


def _note(notes: Sequence[str]) -> None:
    """Beside the table: what reads that as JSON has it alone."""
    for note in notes:
        sys.stderr.write(f"note: {note}\n")


def _as_measured(run: RunFolder, settings: Settings) -> None:
    """UsageError for settings under which the run's scores would be others: those that are kept would be told."""
    kept = untrained.how(run_settings(run))
    for key, new in untrained.how(settings).items():
        if new != kept[key]:
            raise UsageError(
                f"--set {key}={new}: scores of run {run.id} are kept, and measured with {kept[key]!r}; leave it out"
            )


def by_hand(loop: Loop, t: int, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do a phase that may be done again and again, and commit what it took as the row `explore 1`, `explore 2`, ...

    `evolve` skips a phase for the row of its plain name alone, so it never takes what was done by hand for the whole.
    """
    started = time.monotonic()
    counts = work()
    if set(counts) - {"signals"}:  # it did something
        number = len(loop.store.rows(Phase, "run = ? and t = ? and starts_with(name, ?)", [loop.run.id, t, f"{name} "]))
        seconds, which = time.monotonic() - started, f"{name} {number + 1}"
        loop.store.append(
            Phase(run=loop.run.id, t=t, name=which, finished_at=time.time(), seconds=seconds, counts=counts)
        )
        loop.store.ingest()
    return counts


def newest_trained(loop: Loop) -> int:
    """The newest iteration whose training is finished. UsageError if there is none."""
    rows = loop.store.rows(Phase, "run = ? and name = 'train'", [loop.run.id])
    if not rows:
        raise UsageError(f"run {loop.run.id}: nothing is trained yet; run `coevolve train` first")
    return max(row.t for row in rows)


def phase_counts(place: Workspace, run: RunFolder, t: int, name: str) -> dict[str, Any]:
    """The counts that a finished phase committed."""
    return dict(place.store.rows(Phase, "run = ? and t = ? and name = ?", [run.id, t, name])[0].counts)
