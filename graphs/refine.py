"""One response refined by debate: positions -> cross -> advise -> edit -> judge, at most 3 times (arXiv 2406.07054).

    positions  two debaters, each with a side that it must take
    cross      each has read the other's argument, and says what it now thinks
    advise     the advisor makes advice of what is credible
    edit       the editor writes the response anew
    judge      both orders; the new response replaces the old one if its mean score is strictly higher, and then all
               begins again; else the old one stays and it ends

`RefineSettings.mode` leaves roles out from the left, and the judge. `graph` has no checkpointer: what a killed process
had heard is on record (graphs/sitting.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from statistics import fmean
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from envs.text import unfit
from graphs.recording import all_of
from graphs.replies import read_comparison, read_rating, verdict_schema
from graphs.sitting import Sitting, sitting
from graphs.state import RECURSION_LIMIT, RefineState
from store.rows import Json, RefineRole, Remark

OTHER: dict[RefineRole, RefineRole] = {"positive": "critical", "critical": "positive"}
FIRST = {"edit": "edit", "advise": "advise", "debate": "positions", "full": "positions"}


async def positions(state: RefineState, config: RunnableConfig) -> RefineState:
    table = await sitting(config)
    said = await all_of(table.say(state, "positive", 1, "positive"), table.say(state, "critical", 1, "critical"))
    return RefineState(positions=_by_role(said), stop=_silent(said))


async def cross(state: RefineState, config: RunnableConfig) -> RefineState:
    table, before = await sitting(config), state.get("positions", {})
    said = await all_of(
        *(
            table.say(state, role, 2, "cross", {"own": before[role], "other": before[other]})
            for role, other in OTHER.items()
        )
    )
    return RefineState(crossed=_by_role(said), stop=_silent(said))


async def advise(state: RefineState, config: RunnableConfig) -> RefineState:
    debate = [said for said in (state.get("positions"), state.get("crossed")) if said]
    said = await (await sitting(config)).say(state, "advisor", 1, "advisor", {"debate": debate})
    return RefineState(advice=said.text, stop=_silent([said]))


async def edit(state: RefineState, config: RunnableConfig) -> RefineState:
    table = await sitting(config)
    said = await table.say(state, "editor", 1, "editor", {"advice": state.get("advice")})
    new = said.text.strip("\n").rstrip()
    if why := _silent([said]) or _refused(said, state.get("response", ""), new):
        return RefineState(stop=why)
    if table.panel.settings.mode == "full":
        return RefineState(edited=new)
    return RefineState(response=new, accepted=1, stop="unjudged")


def _refused(said: Remark, old: str, new: str) -> str | None:
    """Why a rewrite is none."""
    if said.cut:
        return "cut"
    if new == old.strip("\n").rstrip():
        return "unchanged"
    return "unfit_text" if unfit(new) and not unfit(old) else None


async def judge(state: RefineState, config: RunnableConfig) -> RefineState:
    table = await sitting(config)
    verdict = decide([remark.scores for remark in await _judged(table, state)])
    if verdict != "better":
        return RefineState(stop=verdict)
    iteration, accepted = state.get("iteration", 1), state.get("accepted", 0) + 1
    if iteration >= table.panel.settings.iterations:
        return RefineState(response=state.get("edited", ""), accepted=accepted, stop="limit")
    return RefineState(response=state.get("edited", ""), accepted=accepted, iteration=iteration + 1)


async def _judged(table: Sitting, state: RefineState) -> list[Remark]:
    """Both orders of old and new, or each by itself."""
    old, new = {"old": state.get("response", "")}, {"new": state.get("edited", "")}
    if table.panel.settings.judging == "compare":
        return await all_of(_compare(table, state, 1, old | new), _compare(table, state, 2, new | old))
    return await all_of(_rate(table, state, 1, old), _rate(table, state, 2, new))


def _compare(table: Sitting, state: RefineState, part: int, responses: dict[str, str]) -> Awaitable[Remark]:
    """The judge sees the responses in their order, and not which is which."""
    shown = dict(zip(("first", "second"), responses.values(), strict=True)) | {"response": ""}
    schema = verdict_schema("first", "second")

    def read(text: str) -> Json:
        return dict(zip(responses, read_comparison(text), strict=True))

    return table.say(state, "judge", part, "compare", shown, read=read, schema=schema)


def _rate(table: Sitting, state: RefineState, part: int, response: dict[str, str]) -> Awaitable[Remark]:
    ((which, text),) = response.items()
    schema = verdict_schema("score")
    return table.say(
        state, "judge", part, "score", {"response": text}, read=lambda said: {which: read_rating(said)}, schema=schema
    )


def decide(scores: Sequence[Json]) -> str:
    """`better`, `not_better`, or `unreadable` where one of the two responses has no score that can be read.

    Each score is {"old": .., "new": ..}, or a part of it; None = unreadable. Either response's mean is over the orders
    in which it was shown, so that what a place is worth to the judge falls out.
    """
    old, new = ([score[which] for score in scores if score and which in score] for which in ("old", "new"))
    if not (old and new):
        return "unreadable"
    return "better" if round(fmean(new) - fmean(old), 9) > 0 else "not_better"


def _by_role(said: Sequence[Remark]) -> dict[str, str]:
    return {remark.role: remark.text for remark in said}


def _silent(said: Sequence[Remark]) -> str | None:
    return None if all(remark.text.strip() for remark in said) else "silent"


async def enter(state: RefineState, config: RunnableConfig) -> str:
    return END if state.get("stop") else FIRST[(await sitting(config)).panel.settings.mode]


def then(node: str) -> Callable[[RefineState], str]:
    def go(state: RefineState) -> str:
        return END if state.get("stop") else node

    return go


builder: StateGraph[Any, Any, Any, Any] = StateGraph(RefineState)
for node in (positions, cross, advise, edit, judge):
    builder.add_node(node.__name__, node)
starts = ["positions", "advise", "edit", END]
builder.add_conditional_edges(START, enter, starts)
builder.add_conditional_edges("positions", then("cross"), ["cross", END])
builder.add_conditional_edges("cross", then("advise"), ["advise", END])
builder.add_conditional_edges("advise", then("edit"), ["edit", END])
builder.add_conditional_edges("edit", then("judge"), ["judge", END])
builder.add_conditional_edges("judge", enter, starts)

graph = builder.compile().with_config(recursion_limit=RECURSION_LIMIT)
