"""`coevolve trace`: what happened in a run's graphs, or to one task, node by node and step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coevolve import damage, page, protected
from coevolve.figures import TEXT, stories
from coevolve.show import inert
from coevolve.why import require_in_run
from coevolve.workspace import RunFolder, Workspace
from store.db import Store, Table
from store.errors import UsageError
from store.rows import Exploration, Span, Task, Verdict

THREADS = 200
"""Graph runs of a whole run that are told, the newest ones."""

Data = dict[str, Any]


def trace_command(
    *,
    workspace: str | None,
    ref: str,
    run_id: str | None,
    html: str | None,
    otlp: str | None,
    include_protected: bool,
    **_: Any,
) -> tuple[Any, Any]:
    place = Workspace.find(workspace)
    run = place.run(ref if ref in place.run_ids() else run_id)
    with place.store.browsing():
        data = _of_run(place.store, run) if ref == run.id else _of_task(place.store, run, ref)
        data["damaged"] = damage.damaged(place.store)
    lost = damage.remark(data["damaged"])
    licence = protected.licence(place.store, run.id) if html or otlp else None
    if licence and not include_protected:
        data["threads"] = [protected.thread(each) for each in data["threads"]]
        data["story"] = data["story"] and protected.story(data["story"])
    note = protected.remark(licence, whole=include_protected) if licence else ""
    if otlp:
        from coevolve.otel import send

        count = send(data, otlp)
        sent = {"spans": count, "endpoint": otlp, "damaged": data["damaged"]}
        return sent, _lines(f"{count} spans sent to {otlp}", note, lost)
    if html:
        text = page.render("trace.html", {**data, "damaged": lost, "stamp": "", "licence": note})
        written, words = page.write(Path(html), text, option="--html")
        return {**written, "damaged": data["damaged"]}, _lines(words, note, lost)
    return data, [*_told(data), *filter(None, [lost])]


def _lines(*words: str) -> str:
    return "\n".join(filter(None, words))


def _of_run(store: Store, run: RunFolder) -> Data:
    rows = store.rows(
        Span,
        "thread in (select thread from span where run = $run group by thread "
        "order by max(started_at) desc limit $most)",
        {"run": run.id, "most": THREADS},
    )
    ((count,),) = store.query("select count(distinct thread) from span where run = ?", [run.id])
    return {
        "run": run.id,
        "title": f"run {run.id}",
        "threads": _threads(store, rows),
        "left_out": max(0, count - THREADS),
        "story": None,
    }


def _of_task(store: Store, run: RunFolder, ref: str) -> Data:
    found = store.rows(Task, "starts_with(id, ?)", [ref]) if ref else []
    if len(found) != 1:
        what = f"{len(found)} tasks begin so; write more of it" if found else "no run and no task begins so"
        raise UsageError(f"RUN|TASK: {ref!r}: {what}; `coevolve sql 'select id, user_turns from task'` lists tasks")
    require_in_run(store, run.id, found[0].id)
    (story,) = stories(store, run.id, [found[0].id])
    wanted = [row.id for link in story["links"] for row in (link["exploration"], link["candidate"])]
    rows = store.rows(Span, "list_contains(?, thread)", [wanted])
    return {
        "run": run.id,
        "title": f"task {found[0].id}",
        "threads": _threads(store, rows),
        "left_out": 0,
        "story": story,
    }


def _threads(store: Store, rows: list[Span]) -> list[Data]:
    """One dict a graph run, oldest first, with what came of it."""
    by_thread: dict[str, list[Span]] = {}
    for row in sorted(rows, key=lambda row: (row.started_at, row.index)):
        by_thread.setdefault(row.thread, []).append(row)
    ends = _ends(store, list(by_thread))
    return [_thread(thread, spans, ends.get(thread, "")) for thread, spans in by_thread.items()]


def _thread(thread: str, spans: list[Span], end: str) -> Data:
    begin = spans[0].started_at
    last = max(span.started_at + span.seconds for span in spans)
    return {
        "thread": thread,
        "graph": spans[0].graph,
        "t": spans[0].t,
        "begin": begin,
        "seconds": last - begin,
        "tokens": sum(span.prompt_tokens + span.completion_tokens for span in spans),
        "cost": sum(span.cost for span in spans),
        "end": end,
        "spans": spans,
    }


def _ends(store: Store, threads: list[str]) -> dict[str, str]:
    """{thread: how it ended}"""
    explorations = store.rows(Exploration, "list_contains(?, id)", [threads])
    verdicts = store.rows(Verdict, "list_contains(?, candidate_id)", [threads])
    made = dict(
        store.query(
            "select exploration_id, count(*) from candidate where list_contains(?, exploration_id) group by all",
            [threads],
        )
    )
    ended = {row.id: row.error or f"{made.get(row.id, 0)} candidates" for row in explorations}
    return ended | {row.candidate_id: f"{row.reason}: {row.detail}".rstrip(": ") for row in verdicts}


# ---- for a terminal


def _told(data: Data) -> list[Any]:
    parts: list[Any] = []
    if story := data["story"]:
        parts.append(inert(f"{data['title']} in run {data['run']}: {' / '.join(story['task'].user_turns)}"[:TEXT]))
    for thread in data["threads"]:
        parts += [_head(thread), _timeline(thread)]
    if not data["threads"]:
        parts.append("no graph run is on record here: a seed task, or made before spans were kept")
    for rollout in story["rollouts"] if story else []:
        parts += [
            f"\nrollout {rollout['id']} of iteration {rollout['t']}: score {rollout['score']:g}",
            _played(rollout),
        ]
    if data["left_out"]:
        parts.append(f"{data['left_out']} earlier graph runs are left out")
    return parts


def _head(thread: Data) -> str:
    spent = f"{thread['seconds']:.2f} s, {thread['tokens']} tokens, ${thread['cost']:.4f}"
    return inert(f"{thread['graph']} {thread['thread']}, iteration {thread['t']}: {thread['end']} ({spent})")


def _timeline(thread: Data) -> Table:
    rows = [
        (
            span.node,
            f"{span.started_at - thread['begin']:.2f}",
            f"{span.seconds:.2f}",
            span.prompt_tokens + span.completion_tokens,
            span.error or _last(span),
        )
        for span in thread["spans"]
    ]
    return Table(columns=["node", "at s", "took s", "tokens", "said"], rows=rows)


def _last(span: Span) -> str:
    said = [message["text"] for message in span.messages if message["role"] in ("ai", "assistant")]
    return " ".join(said[-1].split())[:100] if said else ""


def _played(rollout: Data) -> Table:
    rows = [(step["action"], step["observation"], "refused" if step["failed"] else "") for step in rollout["steps"]]
    return Table(columns=["action", "observation", ""], rows=rows)
