"""`coevolve review`: what judges and people think of candidates, and how far they agree.

A sheet is CSV, one candidate a line, without the judges' votes: whoever rates must not see them. Filled in, it is read
back as rows, and agreement is told as a share and as Cohen's kappa (J. Cohen, 1960), 0 = no better than chance.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from coevolve.judging import distilled
from coevolve.show import inert
from coevolve.workspace import RunFolder, Workspace
from graphs.replies import GRADES
from store.db import Store, Table
from store.errors import UsageError
from store.rows import VETOES, Candidate, Json, Rating, Vote, content_id

SHOWN = ("candidate", "world", "question", "reference")
FILLED = (*GRADES, "adopt", "comment")
YES, NO = ("yes", "y", "true", "1"), ("no", "n", "false", "0")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell must not begin with, lest a spreadsheet runs it."""

Opinions = Mapping[str, bool]
"""{candidate: is for it}."""


def review_command(
    *,
    workspace: str | None,
    run_id: str | None,
    sample: int | None,
    out: str | None,
    sheet: str | None,
    rater: str | None,
    **_: Any,
) -> tuple[Any, Any]:
    place = Workspace.find(workspace)
    run = place.run(run_id)
    if sample and sheet:
        raise UsageError("--sample, --read: a sheet is written or read; give one of them")
    if sample:
        return _write(place.store, run, sample, out)
    if out:
        raise UsageError("--out: it goes with --sample N")
    read = _read(place.store, run, sheet, rater) if sheet else None
    data = summary(place.store, run.id)
    told = [f"{read} ratings of {rater} are kept", ""] if read is not None else []
    return data | ({"read": read} if read is not None else {}), [*told, *_told(data)]


# ---------------------------------------------------------------- the sheet


def _write(store: Store, run: RunFolder, count: int, out: str | None) -> tuple[Any, Any]:
    """The sample depends on the candidates' content alone: two runs of one seed are asked of alike."""
    target = Path(out or f"review-{run.id}.csv")
    if target.exists():
        raise UsageError(f"--out: {target} exists; name another file")
    found = _reviewable(store, run.id)
    if not found:
        raise UsageError(f"--sample: run {run.id} has no candidate that execution accepted; explore and validate first")
    chosen = sorted(found, key=lambda one: content_id("review", one["world"], one["question"], one["reference"]))[
        :count
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*SHOWN, *FILLED])
    writer.writerows([*(_cell(one[key]) for key in SHOWN), *("" for _ in FILLED)] for one in chosen)
    target.write_text(text.getvalue(), "utf-8")
    said = (
        f"{target}: {len(chosen)} of {len(found)} candidates; fill in {', '.join(GRADES)} (1 to 5), adopt (yes or no)\n"
        f"next: coevolve review --read {target} --rater NAME"
    )
    return {"sheet": str(target), "candidates": len(chosen)}, said


def _reviewable(store: Store, run: str) -> list[dict[str, str]]:
    """Candidates of the run that execution accepted: those that were adopted or that judges turned down."""
    rows = store.query(
        f"""
        select c.id, c.world, coalesce(k.user_turns, c.user_turns), coalesce(k.reference, c.reference)::varchar,
               any_value(j.shown)::varchar
        from verdict v join candidate c on c.id = v.candidate_id left join task k on k.id = v.task_id
        left join vote j on j.candidate_id = c.id and j.stage <> 'polish'
        where v.run = ? and (v.adopt or v.reason in {VETOES}) group by all order by c.id
        """,
        [run],
    )
    found = []
    for candidate, world, turns, reference, shown in _one_each(rows):
        seen: Json = json.loads(shown) if shown else {"user_turns": turns, "reference": json.loads(reference)}
        solution = seen["reference"] if isinstance(seen["reference"], str) else json.dumps(seen["reference"])
        found.append(
            {"candidate": candidate, "world": world, "question": "\n".join(seen["user_turns"]), "reference": solution}
        )
    return found


def _one_each(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list({row[0]: row for row in rows}.values())


def _cell(text: str) -> str:
    """Control characters written out, line breaks kept; no cell is a formula."""
    shown = "\n".join(inert(line) for line in text.split("\n"))
    return f"'{shown}" if shown.startswith(FORMULA) else shown


def _read(store: Store, run: RunFolder, sheet: str, rater: str | None) -> int:
    """Keep the ratings of the sheet's lines that say adopt; how many. UsageError names line and column, and then
    nothing is kept."""
    if not (rater or "").strip():
        raise UsageError("--rater: say who filled the sheet in; write for example --rater anna")
    name = str(rater).strip()
    try:
        with Path(sheet).open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file, delimiter=_delimiter(file.readline()), strict=True)
            file.seek(0)
            if missing := [column for column in ("candidate", "adopt") if column not in (table.fieldnames or [])]:
                raise UsageError(f"--read: {sheet} has no column {missing[0]!r}; write a sheet with --sample")
            lines = [(table.line_num, line) for line in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--read: cannot read {sheet}: {error}; it must be a CSV file in UTF-8") from None
    known = {row.id for row in store.rows(Candidate, "run = ?", [run.id])}
    before: dict[str, int] = {}
    for row in store.rows(Rating, "rater = ?", [name]):
        before[row.candidate_id] = max(before.get(row.candidate_id, 0), row.revision + 1)
    ratings: dict[str, Rating] = {}
    for number, line in lines:
        if not (line["adopt"] or "").strip():
            continue
        candidate = (line["candidate"] or "").strip()
        if candidate not in known or candidate in ratings:
            why = "stands in the sheet twice" if candidate in ratings else f"is no candidate of run {run.id}"
            raise UsageError(
                f"--read: {sheet} line {number}: candidate {candidate!r} {why}; correct or remove the line"
            )
        where = f"--read: {sheet} line {number}"
        ratings[candidate] = Rating(
            candidate_id=candidate,
            run=run.id,
            rater=name,
            revision=before.get(candidate, 0),
            adopt=_adopt(line["adopt"], where),
            scores=_grades(line, where) or None,
            comment=(line.get("comment") or "").strip(),
            created_at=time.time(),
        )
    if not ratings:
        raise UsageError(f"--read: in {sheet} no line is filled in; write yes or no in the column adopt")
    store.append(list(ratings.values()))
    store.ingest()
    return len(ratings)


def _delimiter(header: str) -> str:
    """Spreadsheets write semicolons where a comma is the decimal mark, or tabs."""
    return max(",;\t", key=header.count)


def _adopt(text: str, where: str) -> bool:
    word = text.strip().lower()
    if word not in (*YES, *NO):
        raise UsageError(f"{where}: adopt = {text!r}; write yes or no")
    return word in YES


def _grades(line: Mapping[str, str | None], where: str) -> dict[str, int]:
    found = {name: text for name in GRADES if (text := (line.get(name) or "").strip())}
    for name, text in found.items():
        if text not in ("1", "2", "3", "4", "5"):
            raise UsageError(f"{where}: {name} = {text!r}; write a whole number from 1 to 5, or nothing")
    return {name: int(text) for name, text in found.items()}


# ---------------------------------------------------------------- agreement


def kappa(first: Opinions, second: Opinions) -> dict[str, float | int | None]:
    """On the candidates that both have an opinion of: n, agreement, and kappa, None where chance alone agrees fully."""
    both = sorted(first.keys() & second.keys())
    if not both:
        return {"n": 0, "agreement": None, "kappa": None}
    agreed = sum(first[one] == second[one] for one in both) / len(both)
    share_a, share_b = (sum(each[one] for one in both) / len(both) for each in (first, second))
    chance = share_a * share_b + (1 - share_a) * (1 - share_b)
    value = None if chance == 1 else (agreed - chance) / (1 - chance)
    return {"n": len(both), "agreement": agreed, "kappa": value}


def summary(store: Store, run: str) -> dict[str, Any]:
    """Votes by judge, agreement between all who have an opinion, cost per verdict, and the reward model's report."""
    with store.reading():
        votes = store.rows(Vote, "run = ? and stage <> 'polish'", [run])
        people = _people(store, run)
        cost = store.table(_COST, [run])
        split = store.table(_SPLIT, [run])
    opinions: dict[str, Opinions] = {**_judges(votes), **people}
    pairs = [
        {"first": a, "second": b} | kappa(opinions[a], opinions[b])
        for a, b in combinations(opinions, 2)
        if opinions[a].keys() & opinions[b].keys()
    ]
    (row,) = cost.rows
    return {
        "run": run,
        "judges": _by_judge(votes),
        "agreement": pairs,
        "split": [dict(zip(split.columns, each, strict=True)) for each in split.rows],
        **dict(zip(cost.columns, row, strict=True)),
        "reward_model": distilled(store),
    }


_COST = """
    select count(*) as judged, coalesce(sum(tokens), 0)::bigint as tokens, coalesce(sum(cost), 0)::double as cost,
           sum(cost) / nullif(count(*), 0) as cost_per_verdict
    from v_committee where run = ?
"""
_SPLIT = """
    select c.candidate_id, c."for", c.votes, v.reason from v_committee c left join verdict v using (candidate_id)
    where c.run = ? and c.split order by 1
"""


def _judges(votes: Sequence[Vote]) -> Mapping[str, Opinions]:
    """The committee as a whole, and each judge by its place and model."""
    found: dict[str, dict[str, bool]] = {}
    groups: dict[str, list[bool]] = {}
    for vote in votes:
        found.setdefault(_name(vote), {})[vote.candidate_id] = vote.passes
        if vote.stage == "strong":
            groups.setdefault(vote.candidate_id, []).append(vote.passes)
    committee = {one: sum(group) * 2 > len(group) for one, group in groups.items()}
    return {**({"committee": committee} if committee else {}), **dict(sorted(found.items()))}


def _name(vote: Vote) -> str:
    return "cheap judge" if vote.stage == "cheap" else f"judge {vote.judge + 1} ({vote.model})"


def _people(store: Store, run: str) -> Mapping[str, Opinions]:
    found: dict[str, dict[str, bool]] = {}
    for row in store.rows(Rating, "run = ?", [run], order="rater, candidate_id, revision"):
        found.setdefault(f"{row.rater} (person)", {})[row.candidate_id] = row.adopt
    return found


def _by_judge(votes: Sequence[Vote]) -> list[dict[str, Any]]:
    groups: dict[str, list[Vote]] = {}
    for vote in votes:
        groups.setdefault(_name(vote), []).append(vote)
    return [
        {
            "judge": name,
            "votes": len(group),
            "for": sum(vote.passes for vote in group),
            "unreadable": sum(vote.adopt is None for vote in group),
            "cost": sum(vote.cost for vote in group),
            **{
                grade: _mean([vote.scores[grade] for vote in group if grade in (vote.scores or {})]) for grade in GRADES
            },
        }
        for name, group in sorted(groups.items())
    ]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _told(data: dict[str, Any]) -> list[Any]:
    if not data["judges"] and not data["agreement"]:
        return [f"run {data['run']}: no candidate was judged; name models in [judge], or write a sheet with --sample N"]
    lines: list[Any] = []
    if data["judges"]:
        lines.append(Table(columns=list(data["judges"][0]), rows=[tuple(row.values()) for row in data["judges"]]))
    if data["agreement"]:
        rows = [tuple(row.values()) for row in data["agreement"]]
        lines += ["", Table(columns=["first", "second", "n", "agreement", "kappa"], rows=rows)]
    each = f", ${data['cost_per_verdict']:.5f} each" if data["cost_per_verdict"] is not None else ""
    lines += ["", f"{data['judged']} candidates judged, {data['tokens']:,} tokens, ${data['cost']:.4f}{each}; "]
    lines[-1] += f"the committee disagreed on {len(data['split'])}"
    if model := data["reward_model"]:
        lines.append(
            f"reward model: agrees with the committee on {100 * model['agreement']:.0f} % of {model['examples']} "
            f"candidates that it was not fitted to (the commoner answer: {100 * model['base_rate']:.0f} %), Brier "
            f"{model['brier']:.3f}, calibration error {model['ece']:.3f}"
        )
    return lines
