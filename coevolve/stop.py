"""When a run ends before its rounds are done, and what is tried before. Looked at after each evaluation.

    seconds, tokens, dollars   a budget is spent
    cost          a point of the first suite costs more than `stop.dollars_per_point`
    overfitting   the first suite rose over the last rounds, the suite `shifted` fell
    saturation    neither difficulty nor diversity of D grows any more, nor does the first suite
    plateau       the first suite gained less than `stop.gain` points over the last rounds, and the interval contains 0

Before one of the last two ends a run, it tries the stagnation breakers, one a round: `inject` a file of outside tasks,
`novelty` (unguided exploration, and tasks of new structures first), `revisit` (tasks out of the pass-rate band are
sampled like the others, and so measured again with the new policy). Every stop and every breaker is a row.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from coevolve import guard, outside
from coevolve.loop import Loop
from evals.metrics import Estimate
from store.errors import UsageError
from store.rows import Decision, Figure, Json

log = logging.getLogger(__name__)

BREAKER = "breaker"
BREAKERS = ("inject", "novelty", "revisit")
STAGNANT = ("saturation", "plateau")

Found = tuple[str, str, dict[str, Json]]
"""(rule, reason, figures)."""


def due(loop: Loop, t: int, rounds: int) -> Decision | None:
    """The row that ends the run after iteration t, or None: it goes on, perhaps with a breaker at work.

    A run that is asked for more rounds than it was when it stopped goes on past the stop."""
    rows = loop.store.rows(Decision, "run = ? and t = ? and rule <> ?", [loop.run.id, t, guard.RULE])
    if rows:
        return next((row for row in rows if row.action == "stop" and rounds <= row.figures["rounds"]), None)
    with loop.store.reading():  # one opening of the index for all questions
        found = _found(loop, t)
    if found is None:
        return None
    rule, reason, figures = found
    action = _breaker(loop, t) if rule in STAGNANT else None
    if action:
        reason = f"{reason}; tried against it: {action}{_started(loop, t, action)}"
        rule, figures = BREAKER, {**figures, "rule": rule}
    row = _row(loop, t, rule, action or "stop", reason, {**figures, "rounds": rounds})
    loop.store.append([row])
    loop.store.ingest()
    log.warning("round %d: %s: %s", t + 1, row.rule if row.action == "stop" else row.action, row.reason)
    return row if row.action == "stop" else None


def breaking(loop: Loop, t: int) -> str:
    """The breaker that is at work in iteration t; "" for none."""
    rows = loop.store.rows(Decision, "run = ? and t = ? and rule = ?", [loop.run.id, t, BREAKER])
    return rows[0].action if rows else ""


def _row(loop: Loop, t: int, rule: str, action: str, reason: str, figures: Json) -> Decision:
    return Decision(
        run=loop.run.id,
        t=t,
        rule=rule,
        number=0,
        action=action,
        reason=reason,
        figures=figures,
        decided_at=time.time(),
    )


def _found(loop: Loop, t: int) -> Found | None:
    if found := _budget(loop, t):
        return found
    start = t + 1 - loop.settings.stop.rounds
    if start < 0 or not loop.settings.eval.suites or start in guard.given_up(loop.store, loop.run.id):
        return None
    gain = guard.gain(loop, start, t + 1, loop.settings.eval.suites[0])
    if gain is None:
        return None
    return _cost(loop, t, gain) or _overfitting(loop, t, gain) or _saturation(loop, t, gain) or _plateau(loop, gain)


def _budget(loop: Loop, t: int) -> Found | None:
    settings = loop.settings.stop
    limits = {"seconds": settings.seconds, "tokens": settings.tokens, "dollars": settings.dollars}
    spent = _spent(loop, 0, t)
    for name, limit in limits.items():
        if limit is not None and spent[name] >= limit:
            figures: dict[str, Json] = {"spent": spent[name], "limit": limit}
            return name, f"the run has spent {spent[name]:g} {name}, stop.{name} = {limit:g}", figures
    return None


def _spent(loop: Loop, first: int, last: int) -> dict[str, float]:
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in ("seconds", "tokens", "dollars"))
    # Evaluations have the number of their version, which the last iteration's is one ahead of.
    [row] = loop.store.query(
        f"select {sums} from v_spent where run = ? and t between ? and ?", [loop.run.id, first, last + 1]
    )
    return dict(zip(("seconds", "tokens", "dollars"), map(float, row), strict=True))


def _cost(loop: Loop, t: int, gain: Estimate) -> Found | None:
    settings = loop.settings.stop
    limit = settings.dollars_per_point
    if limit is None:
        return None
    dollars = _spent(loop, t + 1 - settings.rounds, t)["dollars"]
    points = 100 * gain.value
    price = dollars / points if points > 0 else math.inf if dollars else 0.0
    if price <= limit:
        return None
    said = f"a point costs {price:.2f} dollars" if points > 0 else f"{dollars:.2f} dollars gained no point"
    figures: dict[str, Json] = {"dollars": dollars, "points": points, "limit": limit}
    return "cost", f"{said} over {settings.rounds} rounds, stop.dollars_per_point = {limit:g}", figures


def _overfitting(loop: Loop, t: int, gain: Estimate) -> Found | None:
    first = loop.settings.eval.suites[0]
    if guard.OVERFITTED not in loop.settings.eval.suites[1:] or gain.low <= 0:
        return None
    other = guard.gain(loop, t + 1 - loop.settings.stop.rounds, t + 1, guard.OVERFITTED)
    if other is None or other.high >= 0:
        return None
    reason = f"{first} rose by {100 * gain.value:.1f} points and {guard.OVERFITTED} fell by {-100 * other.value:.1f}"
    return "overfitting", reason, {first: _estimate(gain), guard.OVERFITTED: _estimate(other)}


def _saturation(loop: Loop, t: int, gain: Estimate) -> Found | None:
    """D_t beside D_{t - rounds}, where tasks were added in between."""
    settings = loop.settings.stop
    now, before = _figures(loop, t), _figures(loop, t - settings.rounds)
    names: list[str] = ["difficulty", "diversity/spread", "diversity/ngrams"]
    curves = [name for name in names if name in now and name in before]
    if gain.low > 0 or now.get("tasks", 0) <= before.get("tasks", math.inf) or "difficulty" not in curves:
        return None
    growth = {name: 100 * (now[name] / before[name] - 1) if before[name] else 0.0 for name in curves}
    if max(growth.values()) >= settings.saturation:
        return None
    said = ", ".join(f"{name} {percent:+.1f} %" for name, percent in growth.items())
    figures: dict[str, Json] = {**growth, "gain": _estimate(gain)}
    return "saturation", f"D has saturated over {settings.rounds} rounds: {said}", figures


def _plateau(loop: Loop, gain: Estimate) -> Found | None:
    settings, first = loop.settings.stop, loop.settings.eval.suites[0]
    points = 100 * gain.value
    if points >= settings.gain or not gain.low <= 0 <= gain.high:
        return None
    reason = (
        f"{first} gained {points:.1f} points over {settings.rounds} rounds "
        f"[{100 * gain.low:.1f}, {100 * gain.high:.1f}], stop.gain = {settings.gain:g}"
    )
    return "plateau", reason, {"gain": _estimate(gain), "limit": settings.gain}


def _figures(loop: Loop, round_: int) -> dict[str, float]:
    return {row.name: row.value for row in loop.store.rows(Figure, "run = ? and t = ?", [loop.run.id, round_])}


def _estimate(gain: Estimate) -> Any:
    return {"n": gain.n, "mean": gain.value, "low": gain.low, "high": gain.high}


def _breaker(loop: Loop, t: int) -> str | None:
    """The next one; those count as tried that are at work in an unbroken row of iterations until now."""
    rows = loop.store.rows(Decision, "run = ? and rule = ? and t < ?", [loop.run.id, BREAKER, t], order="t desc")
    tried = [row.action for at, row in enumerate(rows, 1) if row.t == t - at]
    usable = [name for name in BREAKERS if name != "inject" or loop.settings.stop.inject]
    usable = [name for name in usable if name != "novelty" or loop.settings.explore.source != "none"]
    return next((name for name in usable if name not in tried), None)


def _started(loop: Loop, t: int, action: str) -> str:
    if action != "inject":
        return ""
    try:
        return f" ({outside.inject(loop, loop.settings.stop.inject, t)} tasks of {loop.settings.stop.inject})"
    except UsageError as error:  # it was whole when the run began
        return f" (none: {error})"
