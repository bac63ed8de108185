"""One exploration: reflect -> context -> act <-> tools -> collect (arXiv 2604.15840).

    reflect   read the flagged attempts and say why they failed          (only with a signal)
    context   make it a structured exploration context                   (only with a signal)
    act       choose the next tool call, or stop
    tools     carry it out in the real environment
    collect   abstract the (action, observation) triplets into task-solution pairs, the candidates
    harden    in place of all that: make harder tasks of some that the policy has mastered

`graph` has no checkpointer, so LangGraph Studio can load it; the runner compiles `builder` with one.
"""

from __future__ import annotations

from typing import Literal

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from graphs.acting import Actor, identity, place, spent_so_far
from graphs.prompting import render
from graphs.replies import read_context, read_tasks
from graphs.resources import resources
from graphs.sessions import SESSIONS
from graphs.state import RECURSION_LIMIT, ActState, ExploreState, Facts, Guide
from store.rows import Json


async def _actor(state: ExploreState, config: RunnableConfig) -> Actor:
    work = await resources(config)
    return Actor(
        resources=work,
        key=identity(state, config),
        world=place(state, work),
        seed=state.get("seed", 0),
        steps=work.explore.steps or work.env.explore_steps,
        log=state.get("log", []),
        spent=spent_so_far(state),
        facts=_facts(state),
    )


def _facts(state: ExploreState) -> Facts:
    guide = state.get("guide")
    facts = Facts(signal=state.get("signal"), context=state.get("context"))
    if guide:
        facts["guide"] = guide
    return facts


def enter(state: ExploreState) -> Literal["reflect", "act", "harden"]:
    if state.get("tasks"):
        return "harden"
    return "reflect" if state.get("signal") else "act"


async def reflect(state: ExploreState, config: RunnableConfig) -> ExploreState:
    actor = await _actor(state, config)
    messages = render("reflect", await actor.view(steps_left=actor.steps))
    _, text, spent = await actor.ask(messages, read_context)
    return ExploreState(reflection=text, spent=spent)


async def context(state: ExploreState) -> ExploreState:
    """The reflection as data; one that can't be read leaves the explorer the signal alone."""
    try:
        return ExploreState(context=read_context(state.get("reflection", "")))
    except ValueError:
        return ExploreState(context=_plain_context(state))


def _plain_context(state: ExploreState) -> Json:
    signal = state.get("signal")
    return {"where": "", "failure": signal["kind"] if signal else "", "vary": []}


async def act(state: ExploreState, config: RunnableConfig) -> ActState:
    return await (await _actor(state, config)).act("act")


async def tools(state: ExploreState, config: RunnableConfig) -> ActState:
    return await (await _actor(state, config)).answer(state.get("pending", []))


def on(state: ExploreState) -> Literal["tools", "collect"]:
    return "tools" if state.get("pending") else "collect"


def again(state: ExploreState) -> Literal["act", "collect"]:
    return "collect" if state.get("stop") else "act"


async def collect(state: ExploreState, config: RunnableConfig) -> ExploreState:
    actor = await _actor(state, config)
    limit = actor.resources.explore.candidates
    if all(entry["failed"] for entry in actor.log):
        await SESSIONS.drop(actor.key)
        return ExploreState(drafts=[])
    messages = render("abstract", await actor.view(log=actor.log), limit=limit)
    drafts, _, spent = await actor.ask(messages, read_tasks)
    await SESSIONS.drop(actor.key)
    return ExploreState(drafts=(drafts or [])[:limit], spent=spent)


async def harden(state: ExploreState, config: RunnableConfig) -> ExploreState:
    actor = await _actor(state, config)
    limit = actor.resources.explore.candidates
    operator = (state.get("guide") or Guide()).get("operator", "constrain")
    messages = render("harden", await actor.view(), operator=operator, tasks=state.get("tasks", []), limit=limit)
    drafts, _, spent = await actor.ask(messages, read_tasks)
    await SESSIONS.drop(actor.key)
    return ExploreState(drafts=(drafts or [])[:limit], spent=spent)


builder = StateGraph(ExploreState)
builder.add_node("harden", harden)
builder.add_node("reflect", reflect)
builder.add_node("context", context)
builder.add_node("act", act)
builder.add_node("tools", tools)
builder.add_node("collect", collect)
builder.add_conditional_edges(START, enter)
builder.add_edge("reflect", "context")
builder.add_edge("context", "act")
builder.add_conditional_edges("act", on)
builder.add_conditional_edges("tools", again)
builder.add_edge("collect", END)
builder.add_edge("harden", END)

graph = builder.compile().with_config(recursion_limit=RECURSION_LIMIT)
