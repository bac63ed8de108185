"""One task before its judges: hard checks -> cheap judge -> committee. Each may veto; none can admit.

    check   the draft as a task that execution accepts, unless `validate` gave it; no twin of a known or held-out one
    screen  the cheap judge, or the reward model distilled from the committee's votes
    panel   the committee, side by side: more votes for than against, else it is vetoed
    decide  adopt or not, and why: `valid`, a hard check's word, `screened`, `outvoted`

`validate` asks it after replay and no-op. Votes are on record one by one (graphs/committee.py), so what a killed
process had heard is not asked for again, and `graph` needs no checkpointer.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from envs.errors import InvalidTask
from envs.protocols import Draft
from envs.text import unfit_draft
from graphs.acting import identity
from graphs.committee import Committee, Matter, committee, veto, words
from graphs.recording import all_of
from graphs.state import RECURSION_LIMIT, JudgeState, VoteView
from store.rows import Json, Task, Vote


async def check(state: JudgeState, config: RunnableConfig) -> JudgeState:
    court = await committee(config)
    if state.get("task"):
        return JudgeState(problem=court.known.problem(_task(state), rewords=state.get("rewords")))
    task, problem = _made(court, state)
    return JudgeState(task=task, problem=problem)


def _made(court: Committee, state: JudgeState) -> tuple[Json, str | None]:
    """(task, problem): one of the two is None."""
    pair = state.get("draft")
    if not pair:
        return None, "nothing_given: no draft and no task"
    world = state.get("world") or court.env.worlds("train")[0].id
    draft = Draft(world=world, user_turns=pair["user_turns"], reference=pair["reference"])
    if why := unfit_draft(draft):
        return None, f"unfit_text: {why}"
    try:
        task = court.env.materialize(draft, "explored")
    except InvalidTask as error:
        return None, f"{error.reason}: {error.detail}"
    return msgspec.to_builtins(task), court.known.problem(task)


async def screen(state: JudgeState, config: RunnableConfig) -> JudgeState:
    court, matter = await committee(config), _matter(state, config)
    vote = await court.screened(matter)
    if vote is None or vote.passes or court.audited(matter):
        return JudgeState(votes=[_view(vote)] if vote else [])
    return JudgeState(votes=[_view(vote)], problem=f"screened: {words(vote)}")


async def panel(state: JudgeState, config: RunnableConfig) -> JudgeState:
    court, matter = await committee(config), _matter(state, config)
    strong = court.judges.strong
    votes = await all_of(*(court.vote(matter, "strong", at, voice) for at, voice in enumerate(strong)))
    against = veto(votes)
    return JudgeState(
        votes=[*state.get("votes", []), *map(_view, votes)], problem=f"outvoted: {against}" if against else None
    )


async def decide(state: JudgeState) -> JudgeState:
    word, _, detail = (state.get("problem") or "valid").partition(": ")
    return JudgeState(verdict={"adopt": word == "valid", "reason": word, "detail": detail})


def _matter(state: JudgeState, config: RunnableConfig) -> Matter:
    return Matter(candidate=identity(state, config), task=_task(state), observed=state.get("observed"))


def _task(state: JudgeState) -> Task:
    return msgspec.convert(state.get("task"), Task)


def _view(vote: Vote) -> VoteView:
    return VoteView(
        stage=vote.stage,
        model=vote.model,
        adopt=vote.adopt,
        passes=vote.passes,
        scores=vote.scores,
        reason=vote.reason,
    )


def from_check(state: JudgeState) -> Literal["screen", "decide"]:
    return "decide" if state.get("problem") else "screen"


def from_screen(state: JudgeState) -> Literal["panel", "decide"]:
    return "decide" if state.get("problem") else "panel"


builder: StateGraph[Any, Any, Any, Any] = StateGraph(JudgeState)
for node in (check, screen, panel, decide):
    builder.add_node(node.__name__, node)
builder.add_edge(START, "check")
builder.add_conditional_edges("check", from_check)
builder.add_conditional_edges("screen", from_screen)
builder.add_edge("panel", "decide")
builder.add_edge("decide", END)

graph = builder.compile().with_config(recursion_limit=RECURSION_LIMIT)
