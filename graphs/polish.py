"""A task in better words, its solution fixed: what an editor may change, and who prefers the result.

Editor and judge are those of graphs/refine.py (arXiv 2406.07054), on the words of a task: each judge compares old and
new in both orders, and the new ones replace the old if more than half of the judges score them higher on average.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import msgspec
from langchain_core.messages import BaseMessage

from envs.errors import InvalidTask
from envs.protocols import Draft, Env
from envs.text import texts, unfit_draft
from graphs.committee import Committee, Matter, Place, veto
from graphs.model import Reply
from graphs.prompting import framed
from graphs.recording import all_of
from graphs.refine import decide
from graphs.replies import read_comparison, verdict_schema
from graphs.sitting import Voice
from store.rows import Json, Origin, Task, Vote

RUN = 5
"""Words in a row that a question has in common with its reference only if they were copied."""
SCHEMA = verdict_schema("first", "second")

_FOLDER = Path(__file__).parent / "prompts" / "polish"
SYSTEM, EDITOR, COMPARE = (
    (_FOLDER / f"{name}.md").read_text("utf-8").strip() for name in ("system", "editor", "compare")
)


def editing(env: Env, task: Task) -> list[BaseMessage]:
    """What the editor is asked. It is not shown what the reference came back with, so it can't tell it."""
    payload = {"world": env.describe(task.world), "user_turns": task.user_turns, "reference": task.reference}
    return framed(SYSTEM, "editor", EDITOR, payload)


def edited(env: Env, draft: Draft, task: Task, turns: list[str]) -> Task:
    """The task in these words. InvalidTask: they are no words for it, or execution makes another task of them.

    `draft` is what `task` was made of.
    """
    if why := _unfaithful(task.user_turns, turns, task.reference):
        raise InvalidTask(*why.split(": ", 1))
    draft = replace(draft, user_turns=turns)
    if why := unfit_draft(draft):
        raise InvalidTask("unfit_text", why)
    origin: Origin = "refined" if task.origin == "explored" else task.origin
    new = env.materialize(draft, origin)
    if (new.reference, new.expected) != (task.reference, task.expected):
        raise InvalidTask("replay_differs", "the reference reaches another outcome than before")
    return new


def _unfaithful(before: Sequence[str], after: Sequence[str], reference: Json) -> str | None:
    """What is wrong with the new words by themselves, as `word: explanation`."""
    if [turn.split() for turn in before] == [turn.split() for turn in after]:
        return "unchanged: the editor gave the words back"
    if len(before) != len(after):
        return f"turns: {len(after)}, where there were {len(before)}"
    old, new = " ".join(before), " ".join(after)
    if lost := _numbers(old) & _numbers(msgspec.json.encode(reference).decode()) - _numbers(new):
        return f"drops: {', '.join(sorted(lost))}, which the reference has"
    copied = {run for text in texts(reference) for run in _runs(text)}
    if told := copied & _runs(new) - _runs(old):
        return f"gives_away: {' '.join(min(told))!r} is from the reference"
    return None


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text))


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1)}


async def preference(court: Committee, candidate: str, old: Task, new: Task) -> str | None:
    """Why the words of `old` stay; None if more than half of the judges prefer those of `new`.

    Every vote is a row with stage `polish`, asked for at most once in the life of the run. Errors as of
    `Committee.vote`.
    """
    voices = enumerate(court.judges.strong)
    votes = await all_of(*(_vote(court, candidate, old, new, at, voice) for at, voice in voices))
    if any(vote.shown["user_turns"] != new.user_turns for vote in votes):
        return "the votes on record are about other words"  # the checkpoint that had those was lost
    return veto(votes)


async def _vote(court: Committee, candidate: str, old: Task, new: Task, judge: int, voice: Voice) -> Vote:
    place: Place = (candidate, "polish", judge)
    if place in court.heard:
        return court.heard[place]
    async with court.gate:
        started = time.monotonic()
        forth, back = await all_of(_compare(court, voice, old, new), _compare(court, voice, new, old))
        scores = _scores(forth[0], back[0])
        verdict = decide([scores])
        replies = [*forth[1], *back[1]]
        vote = court.ballot(
            Matter(candidate=candidate, task=new, observed=None),
            "polish",
            judge,
            voice.spec,
            adopt=None if scores is None else verdict == "better",
            passes=verdict == "better",
            scores=scores,
            reason=verdict,
            replies=replies,
            seconds=time.monotonic() - started,
        )
        said = "\n\n".join(answers[-1].text for _, answers in (forth, back))
        return await court.noted(replace(vote, text=said, shown={**vote.shown, "before": old.user_turns}))


async def _compare(
    court: Committee, voice: Voice, first: Task, second: Task
) -> tuple[tuple[float, float] | None, list[Reply]]:
    """The scores in the order shown, None if they can't be read, and all that was answered."""
    payload = {
        "world": court.env.describe(first.world),
        "reference": first.reference,
        "first": first.user_turns,
        "second": second.user_turns,
    }
    return await court.ask(voice, framed(SYSTEM, "compare", COMPARE, payload), read_comparison, SCHEMA)


def _scores(forth: tuple[float, float] | None, back: tuple[float, float] | None) -> Json:
    """{"old", "new"}: means over both orders, so that what a place is worth falls out; None unless both are there."""
    if forth is None or back is None:
        return None
    return {"old": fmean((forth[0], back[1])), "new": fmean((forth[1], back[0]))}
