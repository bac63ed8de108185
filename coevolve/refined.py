"""`coevolve refined`: what a refining job did, from the store."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from coevolve import damage, page, refine_job, refined_page
from coevolve.refine_job import Manifest
from coevolve.workspace import Workspace
from store.db import Store, Table
from store.rows import Json

TOP = 20
SHOWN = 10
"""Failed samples that a person is shown; --json has all."""
CHUNK = 10_000
"""Samples whose advice is in memory at once."""

_ITEM = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+(.+)", re.MULTILINE)
_DETERMINERS = "a an the this that these those its their his her any some each every all both more no one two three"
_ENDS = (
    "of in on at to for from by with without about into as after before between that which who whose when where why "
    "how if so because and or but not than rather instead such like"
)
_BEFORE, _AFTER = frozenset(_DETERMINERS.split()), frozenset(_ENDS.split())
"""Words that may stand before an object and are not part of it; words with which it is over."""


def refined_command(*, workspace: str | None, job: str | None, html: str | None, **_: Any) -> tuple[Any, Any]:
    place = Workspace.find(workspace)
    data, shown = summary(place, refine_job.find(place, job).manifest)
    return page.write(Path(html), refined_page.page(data), option="--html") if html else (data, shown)


def summary(place: Workspace, job: Manifest) -> tuple[dict[str, Json], list[Any]]:
    """The job's figures, and the same for a person."""
    store = place.store
    data: dict[str, Json] = {
        "job": job.id,
        "in": job.source,
        "out": job.target if job.finished else None,
        "format": job.form,
        "models": job.models,
        "samples": job.samples,
        "outcomes": _counted(store, "select outcome, count(*) from v_refined where job = ? group by 1", job.id),
        "stops": _counted(store, f"select one, count(*) from ({_EACH.format('stops')}) group by 1", job.id),
        "rounds": _counted(store, f"select one, count(*) from ({_EACH.format('iterations')}) group by 1", job.id),
        "accepted": _counted(store, f"select one, count(*) from ({_EACH.format('accepted')}) group by 1", job.id),
        "tokens": _lengths(store, job.id),
        "first_wins": _positions(store, job.id),
        "advice": advice(store, job),
        "roles": _roles(store, job.id),
        "failed": _dicts(store.table(_FAILED, [job.id])),
        "damaged": damage.damaged(store),
    }
    data |= _spent(data)
    return data, _told(data)


_EACH = "select unnest({}) as one from v_refined where job = ? and outcome <> 'failed'"
_FAILED = "select sample, name, error from v_refined where job = ? and outcome = 'failed' order by sample"


def _counted(store: Store, sql: str, job: str) -> dict[str, int]:
    return {str(key): count for key, count in sorted(store.query(sql, [job]))}


def _lengths(store: Store, job: str) -> dict[str, Json]:
    """Of the improved samples, in words, CJK characters and punctuation marks."""
    asked = ", ".join(
        f"avg(tokens_{when}), quantile_cont(tokens_{when}, 0.1), median(tokens_{when}), "
        f"quantile_cont(tokens_{when}, 0.9)"
        for when in ("before", "after")
    )
    (row,) = store.query(f"select {asked} from v_refined where job = ? and outcome = 'improved'", [job])
    names = ("mean", "p10", "p50", "p90")
    return {"before": dict(zip(names, row[:4], strict=True)), "after": dict(zip(names, row[4:], strict=True))}


def _positions(store: Store, job: str) -> dict[str, int]:
    """How often the response that was shown first got the higher score; without bias as often as the second."""
    (row,) = store.query(
        'select count(*) filter ("first" > "second"), count(*) filter ("first" < "second"), '
        'count(*) filter ("first" = "second") from v_judged where job = ?',
        [job],
    )
    ((unreadable,),) = store.query(
        "select count(*) from remark where job = ? and role = 'judge' and scores is null", [job]
    )
    return dict(zip(("first", "second", "equal"), row, strict=True)) | {"unreadable": unreadable}


def _roles(store: Store, job: str) -> list[dict[str, Json]]:
    return _dicts(
        store.table(
            "select role, model, count(*) as calls, sum(prompt_tokens)::bigint as prompt_tokens, "
            "sum(completion_tokens)::bigint as completion_tokens, sum(cost) as cost, avg(seconds) as seconds "
            "from remark where job = ? group by all order by role, model",
            [job],
        )
    )


def _spent(data: dict[str, Json]) -> dict[str, Json]:
    cost = sum(role["cost"] for role in data["roles"])
    improved = data["outcomes"].get("improved", 0)
    return {
        "calls": sum(role["calls"] for role in data["roles"]),
        "spent_tokens": sum(role["prompt_tokens"] + role["completion_tokens"] for role in data["roles"]),
        "cost": cost,
        "cost_per_improved": cost / improved if improved else None,
    }


def advice(store: Store, job: Manifest) -> list[tuple[str, str, int]]:
    """The most frequent (verb, object) of the advisor's lines, with their counts."""
    counts: Counter[tuple[str, str]] = Counter()
    asked = "select text from remark where job = ? and role = 'advisor' and sample >= ? and sample < ?"
    for start in range(0, job.samples, CHUNK):
        for (text,) in store.query(asked, [job.id, start, start + CHUNK]):
            counts.update(verbs_and_objects(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(verb, thing, count) for (verb, thing), count in ranked[:TOP]]


def verbs_and_objects(text: str) -> list[tuple[str, str]]:
    """(verb, object) of each line of a list: its first word, and the last word before a preposition, a conjunction or a
    punctuation mark ends the words after it. "" where there is none. A rule for English, in which advice begins with
    the imperative."""
    return [_pair(line) for line in _ITEM.findall(text)]


def _pair(line: str) -> tuple[str, str]:
    verb, *words = re.findall(r"[\w'’-]+|[^\w\s]", line.lower().replace("*", "").replace("`", "")) or [""]
    thing = ""
    for word in words:
        if word in _AFTER or not word[0].isalnum():
            break
        if word not in _BEFORE:
            thing = word
    return verb, thing


def _dicts(table: Table) -> list[dict[str, Json]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _table(rows: list[dict[str, Json]]) -> Table:
    return Table(columns=list(rows[0]), rows=[tuple(row.values()) for row in rows])


def _told(data: dict[str, Json]) -> list[Any]:
    out, bias, length = data["outcomes"], data["first_wins"], data["tokens"]
    said = ", ".join(f"{out.get(name, 0)} {name}" for name in ("improved", "kept", "failed"))
    each = f", ${data['cost_per_improved']:.4f} an improved sample" if data["cost_per_improved"] is not None else ""
    lines = [
        f"job {data['job']}: {data['samples']} samples, {said}",
        f"rounds a response: {_histogram(data['rounds'])}; ended by: {_histogram(data['stops'])}",
        f"spent: {data['calls']} calls, {data['spent_tokens']:,} tokens, ${data['cost']:.4f}{each}",
    ]
    if length["before"]["mean"] is not None:
        lines.append(
            f"tokens of improved samples: {length['before']['mean']:.0f} before, {length['after']['mean']:.0f} after "
            f"(median {length['before']['p50']:.0f}, {length['after']['p50']:.0f})"
        )
    if any(bias.values()):
        lines.append(
            f"judge: first {bias['first']}, second {bias['second']}, equal {bias['equal']}, "
            f"unreadable {bias['unreadable']}"
        )
    shown: list[Any] = ["\n".join(lines)]
    if data["advice"]:
        shown.append(Table(columns=["verb", "object", "advice"], rows=data["advice"]))
    if data["failed"]:
        shown += ["failed, and in the output as they were:", _table(data["failed"][:SHOWN])]
    if len(data["failed"]) > SHOWN:
        shown.append(f"... and {len(data['failed']) - SHOWN} more (--json has all)")
    shown.append(f"written: {data['out']}" if data["out"] else f"unfinished; --resume goes on with {data['job']}")
    return [*shown, *filter(None, [damage.remark(data["damaged"])])]


def _histogram(counts: dict[str, int]) -> str:
    return ", ".join(f"{key} {count}x" for key, count in counts.items()) or "none"
