"""What the report shows of a run: charts, tables, and the stories of the tasks that are worth a look. Plain data.

Long texts are cut in SQL, so that one rollout of a megabyte costs the page, and this process, no more than another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from coevolve import damage
from coevolve.standing import standing
from coevolve.workspace import RunFolder, Workspace
from store.db import Store
from store.rows import VETOES, Candidate, Exploration, Run, Signal, Task, Verdict
from store.signals import KINDS

TOP = 10
"""Forgotten tasks, boundary tasks, rare patterns and newest tasks that are listed and told in full."""
TEXT = 2000
"""Characters of one text that are shown."""
STEPS = 12
"""Steps of one rollout that are shown, the first ones."""
PASSED = ("valid", "duplicate", "held_out", *VETOES)
"""Reasons of candidates that execution accepted."""
WORK = ("seed", "train", "eval", "signals", "explore", "validate", "snapshot")

Data = dict[str, Any]


def figures(place: Workspace, run: RunFolder) -> Data:
    """Everything of the report, as of one moment."""
    store = place.store
    stands = standing(place, run)  # before: it asks the index itself
    with store.reading():  # short even for a million steps; a copy of the whole store would take seconds
        listed = _listed(store, run.id)
        found = store.rows(Run, "id = ?", [run.id])
        return {
            "run": run.id,
            "about": found[0] if found else None,
            "standing": stands,
            "as_of": store.as_of,
            "damaged": damage.remark(damage.damaged(store)),
            "totals": _totals(store, run.id),
            "charts": _charts(store, run.id),
            "rounds": store.table("select * exclude (run) from v_round where run = ? order by t", [run.id]),
            "listed": listed,
            "stories": stories(store, run.id, _worth_telling(store, run.id, listed)),
        }


def _totals(store: Store, run: str) -> Data:
    table = store.table(
        """
        select count(*) as rollouts, count(*) filter (outcome = 'infra') as infra,
               coalesce(sum(prompt_tokens + completion_tokens), 0)::bigint as tokens,
               (select coalesce(sum(seconds), 0) from phase where run = $run) as seconds,
               (select coalesce(sum(cost), 0) from v_cost where run = $run) as cost,
               (select len(task_ids) from snapshot where run = $run order by t desc limit 1) as tasks
        from trajectory where run = $run
        """,
        {"run": run},
    )
    return dict(zip(table.columns, table.rows[0], strict=True))


# ---- charts: {"kind": "lines" | "bars", "labels": [...], "series": [{"name", "values", "low"?, "high"?}], ...}


def _charts(store: Store, run: str) -> dict[str, Data]:
    return {
        "scores": _scores(store, run),
        "signals": _signals(store, run),
        "funnel": _funnel(store, run),
        "reasons": _reasons(store, run),
        "difficulty": _difficulty(store, run),
        "diversity": _diversity(store, run),
        "time": _by_work(store, run, "seconds", "s"),
        "tokens": _by_work(store, run, "prompt_tokens + completion_tokens", "tokens"),
    }


def _scores(store: Store, run: str) -> Data:
    rows = store.query(
        "select t, suite, value, low, high from score "
        "where run = ? and slice = 'all' and metric = 'accuracy' order by t",
        [run],
    )
    versions = sorted({t for t, *_ in rows})
    found = {(t, suite): (100 * value, 100 * low, 100 * high) for t, suite, value, low, high in rows}
    series = []
    for suite in dict.fromkeys(suite for _, suite, *_ in rows):
        points = [found.get((t, suite), (None, None, None)) for t in versions]
        value, low, high = (list(column) for column in zip(*points, strict=True))
        series.append({"name": suite, "values": value, "low": low, "high": high})
    return {"kind": "lines", "labels": versions, "axis": "policy version", "unit": "%", "series": series}


def _signals(store: Store, run: str) -> Data:
    rows = store.query("select t, kind, count(*) from signal where run = ? group by all order by t", [run])
    return _stacked(rows, KINDS, axis="iteration", unit="signals")


def _stacked(rows: Sequence[tuple[Any, ...]], names: Iterable[str], *, axis: str, unit: str) -> Data:
    """Rows of (t, name, value) as one bar a t."""
    labels = sorted({t for t, *_ in rows})
    found = {(t, name): value for t, name, value in rows}
    series = [{"name": name, "values": [found.get((t, name), 0) for t in labels]} for name in names]
    return {"kind": "bars", "labels": labels, "axis": axis, "unit": unit, "stacked": True, "series": series}


def _funnel(store: Store, run: str) -> Data:
    ((explorations, candidates, checked, judged, vetoed, adopted, admitted),) = store.query(
        f"""
        select (select count(*) from exploration where run = $run and outcome = 'done'),
               (select count(*) from candidate where run = $run),
               count(*) filter (reason in {PASSED}), (select count(*) from v_committee where run = $run),
               count(*) filter (reason in {VETOES}), count(*) filter (adopt),
               (select count(distinct m.task_id) from v_membership m join verdict v using (run, task_id)
                where m.run = $run and v.adopt)
        from verdict where run = $run
        """,
        {"run": run},
    )
    steps = {"explorations": explorations, "candidates": candidates, "passed the hard checks": checked}
    if judged:
        steps["passed the judges"] = checked - vetoed
    return _lying({**steps, "new, and adopted": adopted, "in a snapshot": admitted}, "number")


def _reasons(store: Store, run: str) -> Data:
    rows = store.query(
        "select reason, sum(n)::bigint as n from v_funnel where run = ? and not adopt "
        "group by all order by n desc, reason",
        [run],
    )
    return _lying(dict(rows), "candidates")


def _lying(bars: dict[str, int], unit: str) -> Data:
    series = [{"name": unit, "values": list(bars.values())}]
    return {"kind": "bars", "labels": list(bars), "axis": "", "unit": unit, "lying": True, "series": series}


def _difficulty(store: Store, run: str) -> Data:
    rows = store.query(
        """
        select m.t, median(k.difficulty), quantile_cont(k.difficulty, 0.25), quantile_cont(k.difficulty, 0.75)
        from v_membership m join task k on k.id = m.task_id where m.run = ? group by m.t order by m.t
        """,
        [run],
    )
    middle, low, high = ([row[at] for row in rows] for at in (1, 2, 3))
    series = [{"name": "median, and the middle half", "values": middle, "low": low, "high": high}] if rows else []
    labels = [row[0] for row in rows]
    return {"kind": "lines", "labels": labels, "axis": "snapshot D_t", "unit": "difficulty", "series": series}


def _diversity(store: Store, run: str) -> Data:
    rows = store.query(
        """
        select m.t, 100 * count(distinct k.structure) / count(*),
               100 * count(*) filter (k.origin <> 'seed') / count(*), any_value(g.value), any_value(s.value)
        from v_membership m join task k on k.id = m.task_id
        left join figure g on g.run = m.run and g.t = m.t and g.name = 'diversity/ngrams'
        left join figure s on s.run = m.run and s.t = m.t and s.name = 'diversity/spread'
        where m.run = ? group by m.t order by m.t
        """,
        [run],
    )
    series = [
        {"name": "distinct structures, of all tasks", "values": [row[1] for row in rows]},
        {"name": "tasks that are not seeds", "values": [row[2] for row in rows]},
        {"name": "distinct word pairs, of all", "values": [row[3] and 100 * row[3] for row in rows]},
        {"name": "mean distance of two questions", "values": [row[4] and 100 * row[4] for row in rows]},
    ]
    shown = [each for each in series if any(value is not None for value in each["values"])]
    return {"kind": "lines", "labels": [row[0] for row in rows], "axis": "snapshot D_t", "unit": "%", "series": shown}


def _by_work(store: Store, run: str, value: str, unit: str) -> Data:
    rows = store.query(f"select t, work, {value} from v_cost where run = ? order by t", [run])
    used = [work for work in WORK if any(name == work and amount for _, name, amount in rows)]
    return _stacked(rows, used, axis="iteration (eval: policy version)", unit=unit)


# ---- what is worth a look


def _listed(store: Store, run: str) -> dict[str, list[Data]]:
    return {
        "forgotten": _dicts(store, _FORGOTTEN, run),
        "boundary": _dicts(store, _BOUNDARY, run),
        "rare": _dicts(store, _RARE, run),
        "newest": _dicts(store, _NEWEST, run),
    }


_FORGOTTEN = f"""
    select s.task_id, s.t, (s.stats ->> '$.best')::double as best, (s.stats ->> '$.now')::double as now, s.status,
           left(k.user_turns[1], {TEXT}) as asks
    from v_signal s join task k on k.id = s.task_id where s.run = $run and s.kind = 'forgetting'
    qualify row_number() over (partition by s.task_id order by s.t desc) = 1
    order by best - now desc, s.t desc, s.task_id limit {TOP}"""
_BOUNDARY = f"""
    select s.task_id, max(s.t) as t, count(*) as times, left(any_value(k.user_turns[1]), {TEXT}) as asks
    from signal s join task k on k.id = s.task_id where s.run = $run and s.kind = 'boundary'
    group by s.task_id order by times desc, t desc, s.task_id limit {TOP}"""
_RARE = f"""
    select pattern, max(s.t) as t, count(*) as times, arg_max(s.evidence[1], s.t) as rollout,
           arg_max((s.stats ->> '$.count')::bigint, s.t) as count,
           arg_max((s.stats ->> '$.rollouts')::bigint, s.t) as of
    from signal s where s.run = $run and s.kind = 'rare'
    group by pattern order by t desc, times desc, pattern limit {TOP}"""
_NEWEST = f"""
    select l.task_id, l.first_t as t, l.signal_kind, l.score_first, l.score_last, l.difficulty,
           left(k.user_turns[1], {TEXT}) as asks
    from v_task_lineage l join task k on k.id = l.task_id
    where l.run = $run and l.origin <> 'seed' and l.first_t is not null
    order by l.first_t desc, l.task_id limit {TOP}"""


def _dicts(store: Store, sql: str, run: str) -> list[Data]:
    table = store.table(sql, {"run": run})
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _worth_telling(store: Store, run: str, listed: dict[str, list[Data]]) -> list[str]:
    """Task ids; a rare pattern's row gets the task of the rollout that shows it."""
    rollouts = [row["rollout"] for row in listed["rare"]]
    tasks = dict(store.query("select id, task_id from trajectory where list_contains(?, id)", [rollouts]))
    for row in listed["rare"]:
        row["task_id"] = tasks.get(row["rollout"])
    found = [row["task_id"] for rows in listed.values() for row in rows if row["task_id"]]
    return list(dict.fromkeys(found))


# ---- stories: a task, where it came from, how it fares, one failing and one passing rollout


def stories(store: Store, run: str, ids: Sequence[str]) -> list[Data]:
    """The stories of these tasks, in their order. A handful of questions for all of them together."""
    wanted = list(ids)
    tasks = {task.id: task for task in store.rows(Task, "list_contains(?, id)", [wanted])}
    links = _links(store, run, wanted)
    shown = _shown_rollouts(store, run, wanted)
    scores = _by(store.query(_SCORES, [run, wanted]))
    held = _by(
        store.query("select task_id, t from v_membership where run = ? and list_contains(?, task_id)", [run, wanted])
    )
    explored = [link["exploration"].trajectory_id for found in links.values() for link in found]
    told = steps(store, [*(row["id"] for rows in shown.values() for row in rows), *filter(None, explored)])
    return [
        {
            "task": tasks[id],
            "links": [{**link, "steps": told.get(link["exploration"].trajectory_id, [])} for link in links.get(id, [])],
            "scores": sorted(scores.get(id, [])),
            "snapshots": sorted(t for (t,) in held.get(id, [])),
            "rollouts": [{**row, "steps": told.get(row["id"], [])} for row in shown.get(id, [])],
        }
        for id in wanted
        if id in tasks
    ]


_SCORES = "select task_id, t, score, successes, rollouts from v_task_score where run = ? and list_contains(?, task_id)"


def _by(rows: Iterable[tuple[Any, ...]]) -> dict[Any, list[tuple[Any, ...]]]:
    """Rows by their first column."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for first, *rest in rows:
        found.setdefault(first, []).append(tuple(rest))
    return found


def _links(store: Store, run: str, ids: list[str]) -> dict[str, list[Data]]:
    verdicts = store.rows(Verdict, "run = ? and adopt and list_contains(?, task_id)", [run, ids], order="t, id")
    wanted = [row.candidate_id for row in verdicts]
    candidates = {row.id: row for row in store.rows(Candidate, "list_contains(?, id)", [wanted])}
    wanted = [row.exploration_id for row in candidates.values()]
    explorations = {row.id: row for row in store.rows(Exploration, "list_contains(?, id)", [wanted])}
    wanted = [row.signal_id for row in explorations.values() if row.signal_id]
    signals = {row.id: row for row in store.rows(Signal, "list_contains(?, id)", [wanted])}
    found: dict[str, list[Data]] = {}
    for verdict in verdicts:
        candidate = candidates[verdict.candidate_id]
        exploration = explorations[candidate.exploration_id]
        link = {"verdict": verdict, "candidate": candidate, "exploration": exploration}
        found.setdefault(str(verdict.task_id), []).append({**link, "signal": signals.get(exploration.signal_id or "")})
    return found


def _shown_rollouts(store: Store, run: str, ids: list[str]) -> dict[str, list[Data]]:
    """Of each task the newest training rollout that failed, then the newest that passed."""
    table = store.table(
        """
        select task_id, id, t, k, score, violation, seconds, prompt_tokens, completion_tokens, steps as length
        from v_rollout where run = ? and list_contains(?, task_id)
        qualify row_number() over (partition by task_id, score >= 0.5 order by t desc, k) = 1
        order by task_id, score
        """,
        [run, ids],
    )
    found: dict[str, list[Data]] = {}
    for row in table.rows:
        named = dict(zip(table.columns, row, strict=True))
        found.setdefault(named["task_id"], []).append(named)
    return found


def steps(store: Store, trajectories: Sequence[str], limit: int = STEPS) -> dict[str, list[Data]]:
    """{trajectory: its first `limit` steps}, texts cut."""
    table = store.table(
        f"""
        select trajectory_id, "index", {_cut("action")} as action, {_cut("observation")} as observation, failed, seconds
        from step where list_contains(?, trajectory_id) and "index" < ? order by trajectory_id, "index"
        """,
        [list(trajectories), limit],
    )
    found: dict[str, list[Data]] = {}
    for row in table.rows:
        named = dict(zip(table.columns, row, strict=True))
        found.setdefault(named["trajectory_id"], []).append(named)
    return found


def _cut(column: str) -> str:
    more = f"' ... (' || length({column}) || ' characters in all)'"
    return f"left({column}, {TEXT}) || if(length({column}) > {TEXT}, {more}, '')"
