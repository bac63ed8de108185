"""What happened and what to do next, in a line or two for a person: the ends of sub-commands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from coevolve.rounds import of_round, percent
from coevolve.workspace import RunFolder, Workspace
from store.errors import CoevolveError
from store.rows import Phase, Run
from store.signals import KINDS

if TYPE_CHECKING:
    from coevolve.loop import Loop

DEFAULT_ROUNDS = 3


def next_step(place: Workspace, run: RunFolder) -> str:
    """The sub-command that takes the run on, step by step."""
    from coevolve import wiring  # here: `status` does without the graphs

    if not wiring.trainable(place.store.rows(Run, "id = ?", [run.id])[0].policy):
        return f"coevolve eval{on(place, run)}"
    done = {(row.t, row.name.split()[0]) for row in place.store.rows(Phase, "run = ?", [run.id])}
    t = max((t + 1 for t, name in done if name == "snapshot"), default=0)
    steps = [step for step in ("train", "signals", "explore") if (t, step) not in done]
    return f"coevolve {steps[0] if steps else 'validate'}{on(place, run)}"


def on(place: Workspace, run: RunFolder) -> str:
    """` --run ID` where a command would take another run by itself."""
    return "" if run.id == place.run().id else f" --run {run.id}"


def finished_rounds(place: Workspace, run: RunFolder) -> int:
    """How many rounds have frozen their snapshot."""
    return len(place.store.rows(Phase, "run = ? and name = 'snapshot'", [run.id]))


def unfinished(place: Workspace) -> str:
    """The newest run that has rounds left, and how to go on with it; "" if there is none."""
    for name in reversed(place.run_ids()):
        try:
            run = place.run(name)
            finished, planned = finished_rounds(place, run), run.manifest["rounds"] or DEFAULT_ROUNDS
        except CoevolveError:
            continue  # a damaged run is no reason to refuse a new one
        if finished < planned:
            return (
                f"run {run.id} is unfinished ({finished} of {planned} rounds); to go on with it instead: "
                f"coevolve evolve --resume --run {run.id}"
            )
    return ""


def waiting(place: Workspace, run: RunFolder) -> int:
    """Valid tasks that no snapshot has yet."""
    ((count,),) = place.store.query("select count(distinct task_id) from v_pending where run = ?", [run.id])
    return int(count)


def seeded(place: Workspace, run: RunFolder, counts: dict[str, Any]) -> str:
    left = f"; {n} more valid tasks wait for a round" if (n := counts.get("pending")) else ""
    made = f"run {run.id}: D_0 has {counts['seeds']} seed tasks and {counts['unguided']} explored ones"
    gone = f"; {n} seed tasks that give a held-out item away are left out" if (n := counts.get("held_out")) else ""
    return f"{made}{gone}{left}\nnext: {next_step(place, run)}"


def trained(place: Workspace, run: RunFolder, counts: dict[str, Any]) -> str:
    ((mean,),) = place.store.query("select avg(score) from v_rollout where run = ? and t = ?", [run.id, counts["t"]])
    score = "" if mean is None else f", whose rollouts scored {mean:.2f} on average"
    version = counts["version"]
    return (
        f"run {run.id}: policy version {version} trained on snapshot {counts['snapshot']}{score}\n"
        f"checkpoint: {run.checkpoints / str(version)}; next: {next_step(place, run)}, "
        f"or coevolve eval{on(place, run)} for a held-out score"
    )


def validated(loop: Loop, t: int, counts: dict[str, Any], *, frozen_before: bool) -> str:
    """`frozen_before`: D_{t+1} was there already, so what is valid now waits for the round after."""
    decided = counts["decided"]
    verdicts = ", ".join(f"{reason} {n}" for reason, n in decided.items())
    lines = [f"run {loop.run.id}: {sum(decided.values())} candidates decided ({verdicts or 'none pending'}); "]
    if frozen_before:
        lines[0] += f"D_{t + 1} was frozen before and keeps its {counts['tasks']} tasks: nothing new"
    else:
        lines[0] += f"D_{t + 1} has {counts['tasks']} tasks, {counts['admitted'] or 'none'} of them new"
    if left := waiting(loop.workspace, loop.run):
        lines.append(
            f"{left} valid tasks wait: validate.growth = {loop.settings.validate_.growth:g} limits what a round adds"
        )
    lines.append(f"next: {next_step(loop.workspace, loop.run)}")
    return "\n".join(lines)


def evolved(loop: Loop, rounds: list[dict[str, Any]]) -> str:
    """The best version, what the final suite gave it, where it lies, and how to add rounds."""
    from coevolve import phases

    lines = []
    settings = loop.settings.eval
    best = phases.best_version(loop) if settings.suites else None
    if best is not None:
        lines.append(f"best on {settings.suites[0]}: version {best}, {_score(rounds, best, phases.kept(loop))}")
        if settings.final and (played := phases.final_version(loop)) is not None:
            which = "" if played == best else f" version {played}"
            lines[0] += f"; {settings.final} gave{which} {_score(rounds, played, phases.kept(loop, settings.final))}"
        lines.append(f"checkpoint: {loop.run.checkpoints / str(best)}")
    more = f"--rounds {loop.run.manifest['rounds'] + DEFAULT_ROUNDS}"
    return "\n".join([*lines, f"more rounds: coevolve evolve --resume{on(loop.workspace, loop.run)} {more}"])


def _score(rounds: list[dict[str, Any]], version: int, suite: str) -> str:
    return next(percent(row["scores"].get(suite), " %") for row in rounds if row["round"] == version)


def stands(data: dict[str, Any]) -> str:
    """The head of `status`: two lines of at most 80 columns."""
    frozen = f"snapshot {data['snapshot']}, {data['tasks']} tasks" if data["snapshot"] else "no snapshot yet"
    kinds = "/".join(str(data["open_signals"].get(kind, 0)) for kind in KINDS)
    return (
        f"run {data['run']}: last done: {data['last_phase'] or 'nothing'}\n"
        f"{frozen}; {data['pending']} pending; open signals {kinds}\n"
    )


def begin(run: RunFolder, t: int, phase: str) -> None:
    """Tell on stderr which phase `evolve` begins."""
    number = of_round(t, phase)
    where = f" round {number}" if number else "" if phase == "seed" else " warm start"
    sys.stderr.write(f"{run.id}{where}: {phase} ...\n")
    sys.stderr.flush()
