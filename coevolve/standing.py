"""What runs, where it stands, how long it may take: from the locks of a run and the rows of its store."""

from __future__ import annotations

import time
from typing import Any

from coevolve.workspace import LOOP, RunFolder, Workspace
from store.rows import Phase

LOCKS = ("train", "eval", LOOP)
"""Whoever trains or evaluates holds a lock of its own beside the loop's."""
ROUND = ("train", "eval", "signals", "explore", "validate", "snapshot")


def standing(place: Workspace, run: RunFolder) -> dict[str, Any]:
    """{"at_work", "phase", "t", "rollouts", "expected", "rounds", "planned", "eta_s"}; `at_work` is {what: PID}."""
    phases = place.store.rows(Phase, "run = ?", [run.id], order="finished_at")
    at_work = {what: pid for what in LOCKS if (pid := run.holder(what)) is not None}
    finished = sum(row.name == "snapshot" for row in phases)
    planned = run.manifest["rounds"]
    phase = _phase(phases, finished, at_work)
    rollouts = place.store.query(
        "select t, count(*) from trajectory where run = ? and purpose = 'train' and t >= ? group by t",
        [run.id, finished - 1],
    )
    by_t = dict(rollouts)
    return {
        "at_work": at_work,
        "phase": phase if at_work else None,
        "t": finished,
        "rollouts": by_t.get(finished, 0),
        "expected": by_t.get(finished - 1),
        "rounds": finished,
        "planned": planned,
        "eta_s": _eta(phases, finished, planned) if at_work else None,
    }


def _phase(phases: list[Phase], t: int, at_work: dict[str, int]) -> str:
    """The phase at hand: that of a lock, else the first of the round that is not done."""
    if not phases:
        return "seed"
    for what in ("train", "eval"):
        if what in at_work:
            return what
    done = {row.name.split()[0] for row in phases if row.t == (t + 1 if row.name.startswith("eval") else t)}
    return next((name for name in ROUND if name not in done), "snapshot")


def _eta(phases: list[Phase], finished: int, planned: int) -> float | None:
    """Seconds that the rounds left may take, as long as the finished ones took on average; None before the first."""
    if not finished or planned <= finished:
        return None
    closed = max(row.finished_at for row in phases if row.name == "snapshot")
    took = sum(row.seconds for row in phases if row.name != "seed" and row.finished_at <= closed) / finished
    return max(0.0, took * (planned - finished) - (time.time() - closed))


def told(data: dict[str, Any]) -> str:
    """The same in a line."""
    rounds = f"{data['rounds']} of {data['planned']} rounds are finished" if data["planned"] else "step by step"
    if not data["at_work"]:
        return f"nothing is at work on it; {rounds}"
    who = ", ".join(f"{what} (PID {pid})" for what, pid in data["at_work"].items())
    parts = [f"at work: {who}", f"{data['phase']} of iteration {data['t']}"]
    if data["phase"] == "train":
        of = f" of about {data['expected']}" if data["expected"] else ""
        parts[-1] += f", {data['rollouts']}{of} rollouts"
    left = "" if data["eta_s"] is None else f", {lasting(data['eta_s'])} left"
    return "; ".join([*parts, f"{rounds}{left}"])


def lasting(seconds: float) -> str:
    """A duration, roughly."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {seconds:.0f} s"
