"""Texts that a licence forbids to pass on in plain stay in the workspace: what leaves it has ids, tokens and scores.

An environment is protected if its licence says so, or one of its tasks (`redistributable = false`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from envs.registry import LICENCES
from store.db import Store
from store.rows import Span

WITHHELD = "(left out: it may not be passed on in plain)"

Data = dict[str, Any]


def environments(store: Store) -> list[str]:
    """Names of the protected environments that the workspace has rows of."""
    marked = "select env from task where not redistributable"
    rows = store.query(
        f"select distinct env, env in ({marked}) from (select env from task union from (select env from trajectory))"
    )
    return sorted(env for env, kept_back in rows if kept_back or env in LICENCES)


def why(env: str) -> str:
    return LICENCES.get(env, f"tasks of {env} are marked redistributable = false")


def licence(store: Store, run: str) -> str | None:
    """What forbids to pass on the texts of the run, in words; None if nothing does."""
    envs = store.query("select split_part(env, ':', 1) from run where id = ?", [run])
    found = environments(store)
    return next((why(env) for (env,) in envs if env in found or env in LICENCES), None)


def remark(licence: str, *, whole: bool) -> str:
    """What a page or command says of texts that it leaves out, or, with --include-protected, has."""
    if whole:
        return f"warning: it has texts that may not be passed on in plain: {licence}"
    return f"texts are left out, ids, tokens and scores are there: {licence} (--include-protected puts them in)"


def story(full: Data) -> Data:
    """A story (coevolve/figures.py) without its texts."""
    task = full["task"]
    return {
        **full,
        "task": replace(task, user_turns=[WITHHELD], reference=WITHHELD, expected=WITHHELD),
        "links": [_link(link) for link in full["links"]],
        "rollouts": [
            {**row, "violation": row["violation"] and WITHHELD, "steps": _steps(row["steps"])}
            for row in full["rollouts"]
        ],
    }


def _link(link: Data) -> Data:
    candidate, exploration, verdict = link["candidate"], link["exploration"], link["verdict"]
    return {
        **link,
        "candidate": replace(candidate, user_turns=[WITHHELD], reference=WITHHELD),
        "exploration": replace(exploration, context=WITHHELD, guide=None, error=exploration.error and WITHHELD),
        "verdict": replace(verdict, detail=verdict.detail and WITHHELD, edit=verdict.edit and _edit(verdict.edit)),
        "steps": _steps(link["steps"]),
    }


def _edit(edit: Data) -> Data:
    return {**edit, "detail": edit["detail"] and WITHHELD, "before": [WITHHELD], "after": [WITHHELD]}


def _steps(steps: list[Data]) -> list[Data]:
    return [{**step, "action": WITHHELD, "observation": WITHHELD} for step in steps]


def listed(rows: dict[str, list[Data]]) -> dict[str, list[Data]]:
    """The lists of what is worth a look, without what tasks ask for."""
    return {name: [{**row, "asks": WITHHELD} if "asks" in row else row for row in each] for name, each in rows.items()}


def thread(ran: Data) -> Data:
    """A graph run (coevolve/trace.py) without what was said in it."""
    word, _, _ = ran["end"].partition(": ")
    return {**ran, "end": word, "spans": [_span(span) for span in ran["spans"]]}


def _span(span: Span) -> Span:
    said = [{**message, "text": WITHHELD} for message in span.messages]
    return replace(span, messages=said, error=span.error and WITHHELD)
