"""What each round did: held-out scores, |D_t|, signals, funnel, seconds. One row a round, read from the store."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from store.db import Store, Table
from store.signals import KINDS

COLUMNS = [
    "tasks",
    "signals",
    "explored",
    "admitted",
    "pending",
    "rejected",
    "train_s",
    "explore_s",
    "validate_s",
    "eval_s",
]
TIMED = ("train", "explore", "validate", "eval")
LEGEND = f"signals: {'/'.join(KINDS)}; seconds: {'/'.join(TIMED)}\nreasons of rejections: coevolve status --long"


def rounds(store: Store, run: str) -> list[dict[str, Any]]:
    """One dict a round; round 0 is the warm start, round t + 1 is iteration t and the policy that it made."""
    scores = _scores(store, run)
    rows = _phases(store, run)
    phases = {(t, name): (seconds, json.loads(counts)) for t, name, seconds, counts, _ in rows}
    spans = {(t, name): (finished_at - seconds, finished_at) for t, name, seconds, _, finished_at in rows}
    snapshots = dict(store.query("select t, len(task_ids) from snapshot where run = ?", [run]))
    signals = _counts(store.query("select t, kind, count(*) from signal where run = ? group by all", [run]))
    explored = dict(
        store.query(
            "select t, count(*) from exploration where run = ? and signal_id is not null and outcome = 'done' "
            "group by t",
            [run],
        )
    )
    rejected = _counts(
        store.query(
            "select t, reason, count(*) from verdict where run = ? and not adopt group by all order by all", [run]
        )
    )

    def saved(t: int) -> float:
        """Seconds in which the signals of t - 1 were worked on while iteration t trained (`evolve --overlap`)."""
        trained = spans.get((t, "train"))
        beside = [spans[at] for at in ((t - 1, "explore"), (t - 1, "validate")) if at in spans]
        return round(sum(max(0.0, min(trained[1], b) - max(trained[0], a)) for a, b in beside), 1) if trained else 0.0

    def seconds(t: int, prefix: str) -> float:
        found = [float(s) for (at, name), (s, _) in phases.items() if at == t and name.split()[0] == prefix]
        return round(sum(found), 1)

    result = []
    for version in sorted({0, *(t + 1 for t, name in phases if name == "train"), *scores}):
        t = version - 1
        cut = phases.get((t, "snapshot") if version else (0, "seed"), (0.0, {}))[1]
        result.append(
            {
                "round": version,
                "scores": scores.get(version, {}),
                "tasks": snapshots.get(max(t, 0)),
                "signals": {kind: signals.get(t, Counter())[kind] for kind in KINDS} if version else {},
                "explored": explored.get(t, 0) if version else 0,
                "admitted": cut.get("admitted", 0),
                "pending": cut.get("pending", 0 if version else None),
                "rejected": dict(rejected.get(t, {})) if version else {},
                "phases": sorted({name.split()[0] for at, name in phases if of_round(at, name) == version}),
                "train_s": seconds(t, "train"),
                "explore_s": seconds(t, "explore"),
                "validate_s": seconds(t, "validate"),
                "eval_s": seconds(version, "eval"),
                "saved_s": saved(t),
            }
        )
    return result


def of_round(t: int, phase: str) -> int:
    """The round that a phase of iteration t belongs to: evaluation has the number of its policy version."""
    name = phase.split()[0]
    return t if name in ("seed", "eval") else t + 1


def line(row: dict[str, Any]) -> str:
    """One round in one line."""
    title = f"round {row['round']}" if row["round"] else "warm start"
    scores = [f"{suite} {percent(score)}" for suite, score in row["scores"].items()]
    if not row["round"]:
        return f"{title}: {', '.join(scores)}"
    work = [
        f"|D| {row['tasks']}",
        f"signals: {words(row['signals'])}",
        f"explored {row['explored']}, admitted {row['admitted']}, pending {row['pending']}",
        f"rejected: {words(row['rejected']) or 'none'}",
        ", ".join(f"{name} {row[f'{name}_s']} s" for name in ("train", "explore", "validate", "eval")),
        *([f"overlap saved {row['saved_s']} s"] if row["saved_s"] else []),
    ]
    return f"{title}: {'; '.join(filter(None, [', '.join(scores), *work]))}"


def admitted_by_kind(store: Store, run: str) -> dict[str, int]:
    """Tasks in any snapshot of the run by the kind of signal that led to them."""
    rows = store.query(
        """
        select s.kind, count(distinct v.task_id)
        from verdict v
        join candidate c on c.id = v.candidate_id
        join exploration e on e.id = c.exploration_id
        join signal s on s.id = e.signal_id
        where v.run = ? and v.adopt
          and v.task_id in (select unnest(task_ids) from snapshot where run = ?)
        group by s.kind
        """,
        [run, run],
    )
    found = {str(kind): int(count) for kind, count in rows}
    return {kind: found.get(kind, 0) for kind in KINDS}


def overview(rows: list[dict[str, Any]]) -> list[Table | str]:
    """The rounds in 80 columns: scores, then counts, each a narrow table, and what their short columns mean."""
    suites = _suites(rows)
    scores = [(_title(row), *(percent(row["scores"].get(suite)) for suite in suites), row["tasks"]) for row in rows]
    counts = [
        (
            row["round"],
            _after(row, "/".join(str(row["signals"].get(kind)) for kind in KINDS), "signals"),
            _after(row, row["explored"], "explore"),
            _after(row, row["admitted"], "snapshot"),
            _after(row, row["pending"], "seed", "snapshot"),
            _after(row, sum(row["rejected"].values()), "validate"),
            "/".join(str(_after(row, round(row[f"{name}_s"]), name, blank="-")) for name in TIMED),
        )
        for row in rows
    ]
    columns = ["round", "signals", "explored", "admitted", "pending", "rejected", "seconds"]
    return [
        Table(columns=["round", *suites, "|D|"], rows=scores),
        "",
        Table(columns=columns, rows=counts),
        LEGEND,
    ]


def as_table(rows: list[dict[str, Any]]) -> Table:
    """The rounds as one wide table: one column a suite, counts by kind and reason written out."""
    suites = _suites(rows)
    cells = [
        (
            _title(row),
            *(percent(row["scores"].get(suite)) for suite in suites),
            row["tasks"],
            _after(row, words(row["signals"]), "signals"),
            _after(row, row["explored"], "explore"),
            _after(row, row["admitted"], "snapshot"),
            _after(row, row["pending"], "seed", "snapshot"),
            _after(row, words(row["rejected"]), "validate"),
            *(_after(row, row[f"{name}_s"], name) for name in TIMED),
        )
        for row in rows
    ]
    return Table(columns=["round", *suites, *COLUMNS], rows=cells)


def _suites(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(suite for row in rows for suite in row["scores"]))


def _title(row: dict[str, Any]) -> Any:
    return row["round"] or "0 (warm start)"


def _after(row: dict[str, Any], value: Any, *phases: str, blank: str = "") -> Any:
    """The value if one of the phases has run in this round, else a blank: 0 would say that it found nothing."""
    return value if set(phases) & set(row["phases"]) else blank


def percent(score: dict[str, float] | None, unit: str = "") -> str:
    """Value and interval of a score, in per cent; "" for none."""
    if score is None:
        return ""
    return f"{100 * score['value']:.1f}{unit} [{100 * score['low']:.0f}-{100 * score['high']:.0f}]"


def words(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _scores(store: Store, run: str) -> dict[int, dict[str, dict[str, float]]]:
    result: dict[int, dict[str, dict[str, float]]] = {}
    rows = store.query(
        "select t, suite, n, value, low, high from score "
        "where run = ? and slice = 'all' and metric = 'accuracy' order by t, suite",
        [run],
    )
    for t, suite, n, value, low, high in rows:
        result.setdefault(t, {})[suite] = {"n": n, "value": value, "low": low, "high": high}
    return result


def _phases(store: Store, run: str) -> list[tuple[Any, ...]]:
    return store.query("select t, name, seconds, counts::varchar, finished_at from phase where run = ?", [run])


def _counts(rows: list[tuple[Any, ...]]) -> dict[int, Counter[str]]:
    result: dict[int, Counter[str]] = {}
    for t, name, count in rows:
        result.setdefault(t, Counter())[name] = count
    return result
