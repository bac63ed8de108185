"""The gold guard: after each round the new version is compared, item by item, with the best one so far.

A suite has fallen where the one-sided 95 % bound of the paired difference (bootstrap over the same items) is below 0.
Then the run goes back: iteration t+1 samples and trains from the best version, on the snapshot that this one was
trained on, and the tasks that came since are quarantined (withdrawn, with this as their reason). Every look is a row.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from dataclasses import replace
from statistics import fmean
from typing import Any

from coevolve.loop import Loop
from evals.metrics import Estimate, paired_gain
from evals.suites import label, suite
from store.db import Store
from store.errors import CoevolveError
from store.rows import Decision, Score, Snapshot, Trajectory, content_id

log = logging.getLogger(__name__)

RULE = "guard"
LEVEL = 0.9
"""Two-sided; each of its bounds is a one-sided 95 % bound."""
OVERFITTED = "shifted"
"""The suite that falls where a policy learns its training worlds by heart."""


class Paused(CoevolveError):
    """The run waits for a person's word."""


def fell(loop: Loop, t: int) -> bool:
    """Whether iteration t is undone. Decides once, as a row; Paused where that is what is asked for."""
    suites = loop.settings.eval.suites
    if not suites:
        return False
    earlier = decided(loop.store, loop.run.id, t)
    decision = earlier
    if earlier is None or (earlier.action == "pause" and loop.settings.guard.on_drop != "pause"):
        decision = _decide(loop, t, earlier)
        loop.store.append([decision])
        loop.store.ingest()
        if decision.action != "go_on":
            log.warning("round %d: %s", t + 1, decision.reason)
    assert decision is not None
    if decision.action == "pause":
        raise Paused(
            f"run {loop.run.id} is paused after round {t + 1}: {decision.reason}; go on with "
            f"coevolve evolve --resume --run {loop.run.id} --on-drop rollback (or continue)"
        )
    return decision.action == "rollback"


def decided(store: Store, run: str, t: int) -> Decision | None:
    """The guard's last word on iteration t."""
    rows = store.rows(Decision, "run = ? and t = ? and rule = ?", [run, t, RULE], order="number desc")
    return rows[0] if rows else None


def standing(store: Store, run: str, t: int) -> int:
    """The version that iteration t samples with: t, or the one that the run was taken back to."""
    before = decided(store, run, t - 1)
    return before.version if before and before.version is not None else t


def item_scores(loop: Loop, version: int, name: str) -> dict[str, float]:
    """{item: mean score of its scored rollouts} of a version on a suite, as `eval` plays it."""
    settings = loop.settings.eval
    items = {task.id for task in suite(loop.env, name, settings.limit)}
    where = "run = ? and t = ? and purpose = 'eval' and suite = ? and outcome = 'scored'"
    rows = loop.store.rows(Trajectory, f"{where} and (k = 0) = ?", [loop.run.id, version, name, settings.k == 1])
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if row.task_id in items and row.score is not None and row.k <= settings.k:
            found[row.task_id].setdefault(row.k, row.score)
    return {item: fmean(scores.values()) for item, scores in found.items()}


def gain(loop: Loop, before: int, after: int, name: str) -> Estimate | None:
    """The paired gain of one version over another on a suite, with one-sided 95 % bounds; None without items."""
    old, new = item_scores(loop, before, name), item_scores(loop, after, name)
    items = sorted(old.keys() & new.keys())
    return paired_gain([old[i] for i in items], [new[i] for i in items], level=LEVEL) if items else None


def best(loop: Loop, t: int) -> int | None:
    """The version before t + 1 that did best on the first suite and was not given up, the oldest of equals."""
    settings = loop.settings.eval
    kept = label(settings.suites[0], settings.limit, settings.k)
    where = "run = ? and t <= ? and suite = ? and slice = 'all' and metric = 'accuracy'"
    rows = loop.store.rows(Score, where, [loop.run.id, t, kept], order="value desc, t")
    lost = given_up(loop.store, loop.run.id)
    return next((row.t for row in rows if row.t not in lost), None)


def given_up(store: Store, run: str) -> set[int]:
    """The versions that were rolled back."""
    rows = store.rows(Decision, "run = ? and rule = ? and action = 'rollback'", [run, RULE])
    return {row.t + 1 for row in rows}


def _decide(loop: Loop, t: int, earlier: Decision | None) -> Decision:
    number = earlier.number + 1 if earlier else 0
    target = best(loop, t)
    found = {} if target is None else _gains(loop, target, t + 1)
    fallen, left = _fallen(found, loop.settings.eval.suites[0])
    said = ", ".join(_words(name, found[name]) for name in [*fallen, *left])
    held = f"{said}, {loop.settings.eval.suites[0]} rose: overfitting, which is a stop rule's matter" if left else ""
    row = Decision(
        run=loop.run.id,
        t=t,
        rule=RULE,
        number=number,
        action="go_on",
        reason=held or (f"no suite fell below version {target}" if found else "nothing to compare with"),
        figures={"best": target, "gains": found},
        decided_at=time.time(),
    )
    if target is None or not fallen:
        return row
    action = loop.settings.guard.on_drop
    again = decided(loop.store, loop.run.id, t - 1)
    if earlier is None and action == "rollback" and again and again.version == target:
        return replace(row, action="pause", reason=f"{said}, the second time in a row from version {target} on")
    row = replace(row, action=action, reason=f"{said}; {_does(action, target)}")
    return _taken_back(loop, row, target) if action == "rollback" else row


def _gains(loop: Loop, before: int, after: int) -> dict[str, Any]:
    with loop.store.reading():  # one opening of the index for all questions
        found = {name: gain(loop, before, after, name) for name in loop.settings.eval.suites}
    return {
        name: {"n": one.n, "mean": one.value, "low": one.low, "high": one.high}
        for name, one in found.items()
        if one is not None
    }


def _fallen(found: dict[str, Any], first: str) -> tuple[list[str], list[str]]:
    """Suites below the best version: (the guard's matter, left to the stop rule `overfitting`). `shifted` is left to
    that rule where it alone fell and the first suite rose."""
    down = [name for name, one in found.items() if one["high"] < 0]
    overfitted = down == [OVERFITTED] and first in found and found[first]["low"] > 0
    return ([], down) if overfitted else (down, [])


def _words(name: str, one: dict[str, Any]) -> str:
    return f"{name} fell by {-100 * one['mean']:.1f} points (at least {-100 * one['high']:.1f}, {one['n']} items)"


def _does(action: str, target: int) -> str:
    if action == "rollback":
        return f"back to version {target} and the snapshot that it was trained on"
    return f"version {target} was the best" if action == "pause" else "the run goes on all the same (guard.on_drop)"


def _taken_back(loop: Loop, row: Decision, target: int) -> Decision:
    from training.checkpoint import required

    (snapshot,) = loop.store.rows(Snapshot, "run = ? and t = ?", [loop.run.id, source(target)])
    made = required(loop.run.checkpoints, target)
    digest = content_id("checkpoint", made.base, dict(made.files))
    return replace(row, version=target, checkpoint=digest, snapshot=snapshot.id)


def source(version: int) -> int:
    """The snapshot that made a version: D_{version - 1}, and D_0 for the warm start."""
    return max(version - 1, 0)
