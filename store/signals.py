"""The three weakness signals of CoEvolve (arXiv 2604.15840), as SQL over training rollouts.

    forgetting  a task the policy could do within the last W iterations, and fails now
    boundary    a task that some of the K rollouts of this iteration solve and some don't
    rare        an n-gram of action tokens that fewer than theta percent of this iteration's rollouts contain

Only rows with purpose `train` and outcome `scored` are read (view `v_rollout`), so held-out results and failures of
the machine can't raise a signal. Each call reads one iteration and, for forgetting, the scores of the ones before.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from pydantic import BaseModel, ConfigDict, Field

from store.db import Store
from store.errors import UsageError
from store.rows import SUCCESS, Json, Signal, SignalKind, content_id
from store.schema import EXPIRE

KINDS: tuple[SignalKind, ...] = ("forgetting", "boundary", "rare")


class SignalSettings(BaseModel):
    """The defaults are those of docs/concepts.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window: int = Field(default=5, ge=2)
    """W, iterations in which the task had a scored rollout, the current one included."""
    theta: float = Field(default=5.0, gt=0, le=100)
    """Percent of the iteration's rollouts; a pattern in fewer than that is rare."""
    ngram: int = Field(default=3, ge=1, le=3)
    """Longest pattern, action tokens."""
    expire: int = Field(default=EXPIRE, ge=0)
    """Iterations after which an unexplored signal is no longer open."""
    per_round: int = Field(default=24, ge=1)
    """Most signals explored in a round."""


def detect(store: Store, run: str, t: int, settings: SignalSettings | None = None) -> list[Signal]:
    """The signals of iteration t, by kind, then by task or pattern. Nothing is written."""
    settings = settings or SignalSettings()
    return [
        *_forgetting(store, run, t, settings.window),
        *_boundary(store, run, t),
        *_rare(store, run, t, settings.theta, settings.ngram),
    ]


def open_signals(
    store: Store, run: str, settings: SignalSettings | None = None, *, ref: str = "latest"
) -> list[Signal]:
    """The run's open signals: of its newest finished iteration (`latest`), of one kind, or the one with that id.

    Open = no finished exploration yet, and at most `settings.expire` iterations old. UsageError if there is no such
    signal, or if the one named is explored or expired.
    """
    expire = (settings or SignalSettings()).expire
    is_open = f"""
        run = ? AND id IN (SELECT id FROM v_signal WHERE run = ? AND explorations = 0 AND age <= {expire})"""
    if ref == "latest":
        return store.rows(Signal, f"{is_open} AND t = ({_NEWEST})", [run, run, run, run], order="kind, id")
    if ref in KINDS:
        return store.rows(Signal, f"{is_open} AND kind = ?", [run, run, ref], order="t DESC, id")
    signals = store.rows(Signal, f"{is_open} AND id = ?", [run, run, ref])
    if not signals:
        raise UsageError(f"signal {ref}: {_why_not(store, run, ref)}; give latest, {', '.join(KINDS)}, or an open id")
    return signals


def due(store: Store, run: str, t: int, settings: SignalSettings | None = None) -> list[Signal]:
    """What round t explores: its own signals, and older ones, not yet expired, whose explorations all failed for our
    own faults. Only explorations before t count, so that a round which goes on after a kill is due the same."""
    return store.rows(
        Signal,
        """
        run = ? AND (t = ? OR t BETWEEN ? AND ? AND id IN (
            SELECT signal_id FROM exploration WHERE run = ? AND t < ?
            GROUP BY signal_id HAVING bool_and(outcome = 'infra')))""",
        [run, t, t - (settings or SignalSettings()).expire, t - 1, run, t],
    )


_NEWEST = """
    SELECT coalesce((SELECT max(t) FROM phase WHERE run = ? AND name = 'train'),
                    (SELECT max(t) FROM signal WHERE run = ?))
"""


def _why_not(store: Store, run: str, ref: str) -> str:
    found = store.query("SELECT run, explorations, age FROM v_signal WHERE id = ?", [ref])
    if not found:
        return "no such signal"
    ((owner, explorations, age),) = found
    if owner != run:
        return f"it belongs to run {owner}, not to {run}"
    return "it is explored already" if explorations else f"it expired, it is {age} iterations old"


def pick(signals: Iterable[Signal], limit: int) -> list[Signal]:
    """At most `limit` signals, evenly over kinds; what one kind leaves over goes to the others. Newest first, then by
    the id of its subject alone, since a signal's own id has the run's name in it (docs/decisions/0002). The kinds
    alternate, so that a round that is cut short was fair too."""
    queues: dict[str, list[Signal]] = {kind: [] for kind in KINDS}
    for signal in sorted(signals, key=lambda signal: (-signal.t, content_id(signal.task_id, signal.pattern))):
        queues[signal.kind].append(signal)
    turns = zip_longest(*queues.values())
    return [signal for turn in turns for signal in turn if signal is not None][:limit]


def _signal(run: str, t: int, kind: SignalKind, subject: str | list[str], evidence: list[str], stats: Json) -> Signal:
    return Signal(
        id=content_id("signal", run, t, kind, subject),
        run=run,
        t=t,
        kind=kind,
        task_id=subject if isinstance(subject, str) else None,
        pattern=None if isinstance(subject, str) else subject,
        evidence=evidence,
        stats=stats,
    )


def _forgetting(store: Store, run: str, t: int, window: int) -> list[Signal]:
    """Evidence: the failed rollouts of iteration t. The window counts the task's own iterations, not the calendar's,
    and ends at iteration t itself: a task that failed when last seen, but was not seen in t, is no signal."""
    found = store.query(
        f"""
        WITH scores AS (
            SELECT task_id, t, score,
                   max(score) OVER earlier AS best,
                   arg_max(t, (score, t)) OVER earlier AS best_t
            FROM v_task_score WHERE run = $run AND t <= $t
            WINDOW earlier AS (PARTITION BY task_id ORDER BY t ROWS BETWEEN {window - 1} PRECEDING AND 1 PRECEDING))
        SELECT s.task_id, s.best, s.best_t, s.score, list(r.id ORDER BY r.id)
        FROM scores s JOIN v_rollout r USING (task_id)
        WHERE s.t = $t AND s.best >= {SUCCESS} AND s.score < {SUCCESS}
          AND r.run = $run AND r.t = $t AND r.score < {SUCCESS}
        GROUP BY ALL ORDER BY s.task_id""",
        {"run": run, "t": t},
    )
    return [
        _signal(run, t, "forgetting", task, evidence, {"best": best, "best_t": best_t, "now": now})
        for task, best, best_t, now, evidence in found
    ]


def _boundary(store: Store, run: str, t: int) -> list[Signal]:
    """Evidence: all rollouts of the task, those that succeed and those that fail."""
    found = store.query(
        f"""
        SELECT task_id, count(*) FILTER (score >= {SUCCESS}) AS successes,
               count(*) FILTER (score < {SUCCESS}) AS failures,
               list(id ORDER BY id)
        FROM v_rollout WHERE run = $run AND t = $t
        GROUP BY task_id HAVING successes > 0 AND failures > 0 ORDER BY task_id""",
        {"run": run, "t": t},
    )
    return [
        _signal(run, t, "boundary", task, evidence, {"successes": successes, "failures": failures})
        for task, successes, failures, evidence in found
    ]


_BITS = 21
"""Three tokens are one integer, this many bits a token, the first highest: several times faster than lists of words."""
_MASK = 2**_BITS - 1


def _rare(store: Store, run: str, t: int, theta: float, ngram: int) -> list[Signal]:
    """Evidence: the rollouts that contain the pattern.

    A gram is a place's token and the two that follow, 0 where the rollout ends before. A rollout's grams are sorted:
    those that begin with one pattern are neighbours, and the last of them stands for the rollout, without a DISTINCT.
    """
    shifts = [_BITS * (3 - n) for n in range(1, ngram + 1)]
    counts = ", ".join(f"count(*) FILTER (gram >> {shift} IS DISTINCT FROM next >> {shift})" for shift in shifts)
    codes = ", ".join(f"(pattern >> {_BITS * n}) & {_MASK}" for n in (2, 1, 0))
    found = store.query(
        f"""
        WITH rollout AS MATERIALIZED (
            SELECT id, row_number() OVER (ORDER BY id)::INT AS rollout FROM v_rollout WHERE run = $run AND t = $t),
        call AS MATERIALIZED (
            SELECT rollout, step, "position", token FROM tool_calls c JOIN rollout r ON r.id = c.trajectory_id),
        word AS MATERIALIZED (
            SELECT token, row_number() OVER (ORDER BY token) AS code FROM (SELECT DISTINCT token FROM call)),
        sequence AS (
            SELECT rollout, list(code ORDER BY step, "position") AS codes
            FROM call JOIN word USING (token) GROUP BY rollout),
        sorted AS (
            SELECT rollout, list_sort(list_transform(list_zip(codes, codes[2:], codes[3:]), lambda code:
                (code[1] << {2 * _BITS}) | (coalesce(code[2], 0) << {_BITS}) | coalesce(code[3], 0))) AS grams
            FROM sequence),
        place AS MATERIALIZED (SELECT rollout, unnest(grams) AS gram, unnest(grams[2:]) AS next FROM sorted),
        counted AS (SELECT gram, [{counts}] AS counts FROM place GROUP BY gram),
        part AS (SELECT gram, unnest({shifts}) AS shift, gram >> shift AS pattern, unnest(counts) AS n FROM counted),
        rare AS (
            SELECT pattern, shift, unnest(list(gram)) AS gram
            FROM part WHERE pattern & {_MASK} > 0 GROUP BY pattern, shift
            HAVING 100.0 * sum(n) < $theta * (SELECT count(*) FROM rollout)),
        evidence AS (
            SELECT pattern, list(id ORDER BY rollout) AS ids
            FROM place JOIN rare USING (gram) JOIN rollout USING (rollout)
            WHERE gram >> shift IS DISTINCT FROM next >> shift GROUP BY pattern),
        dictionary AS (SELECT list(token ORDER BY code) AS words FROM word)
        SELECT list_transform(list_filter([{codes}], lambda code: code > 0), lambda code: words[code]) AS tokens,
               len(ids), (SELECT count(*) FROM rollout), ids
        FROM evidence CROSS JOIN dictionary ORDER BY tokens""",
        {"run": run, "t": t, "theta": theta},
    )
    return [
        _signal(run, t, "rare", tokens, evidence, {"count": count, "rollouts": rollouts})
        for tokens, count, rollouts, evidence in found
    ]
