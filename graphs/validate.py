"""One candidate: is it a task? Decided by execution; the validating agent may only repair, or object.

    abstract  take the candidate's draft; without one, abstract the first pair from an exploration's triplets
    check     no hidden characters, no template marks, the environment's hard checks; execute the reference and record
              its outcome; not harder than asked for
    attempt   the agent tries the draft through the tools of a fresh session ...
    tools     ... and may find a problem
    repair    the agent rewrites wording or reference, within a budget; back to check
    replay    the reference is replayed twice in fresh sessions: right, and identical
    noop      doing nothing must not be right
    polish    where there is an editor: other words for the same reference, held to all that was asked of the first ...
    prefer    ... and taken if the judges prefer them; else the candidate goes on as it was
    judge     where there are judges: none of them vetoes it (graphs/judge.py)
    twins     nothing held out, no duplicate of a known task or of an earlier candidate
    decide    the verdict: adopted if no node found a problem

A problem is one line, `word: explanation`; the word is the verdict's reason. What is broken on our side (InfraError)
ends the graph by exception and is no verdict on the candidate.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from envs.errors import InfraError, InvalidTask
from envs.protocols import Draft, Outcome
from envs.text import unfit_draft
from graphs import judge as judging
from graphs import polish as polishing
from graphs.acting import Actor, identity, place, spent_so_far
from graphs.prompting import render
from graphs.replies import read_finding, read_repair, read_tasks, read_words
from graphs.resources import Resources, resources
from graphs.sessions import SESSIONS
from graphs.state import RECURSION_LIMIT, ActState, DraftJson, Facts, JudgeState, ValidateState
from store.rows import Json, Task

REPLAYS = 2


async def _actor(state: ValidateState, config: RunnableConfig) -> Actor:
    """The validating agent in the fresh session of the present try."""
    work = await resources(config)
    draft = state.get("draft")
    return Actor(
        resources=work,
        key=f"{identity(state, config)}/{state.get('repairs', 0)}",
        world=place(state, work),
        seed=state.get("seed", 0),
        steps=work.validate.steps,
        log=state.get("log", [])[state.get("base", 0) :],
        spent=spent_so_far(state),
        facts=Facts(draft=draft) if draft else Facts(),
    )


async def abstract(state: ValidateState, config: RunnableConfig) -> ValidateState:
    actor = await _actor(state, config)
    room = actor.resources.validate.repairs
    if state.get("draft"):
        return ValidateState(problem=None, repairs_left=room)
    view = await actor.view(log=state.get("triplets", []))
    drafts, _, spent = await actor.ask(render("abstract", view, limit=1), read_tasks)
    if not drafts:
        problem = "nothing_abstracted: no task-solution pair came of the triplets"
        return ValidateState(problem=problem, repairs_left=0, spent=spent)
    return ValidateState(draft=drafts[0], problem=None, repairs_left=room, spent=spent)


async def check(state: ValidateState, config: RunnableConfig) -> ValidateState:
    """The draft as a task, or the environment's reason why it can't be one."""
    work = await resources(config)
    draft = _draft(state, place(state, work))
    if why := unfit_draft(draft):
        return ValidateState(problem=f"unfit_text: {why}", task=None)
    try:
        task = work.env.materialize(draft, "outside" if state.get("origin") == "outside" else "explored")
    except InvalidTask as error:
        return ValidateState(problem=f"{error.reason}: {error.detail}", task=None)
    limit = work.validate.max_difficulty
    if 0 < limit < task.difficulty:
        problem = f"too_hard: difficulty {task.difficulty:g}, validate.max_difficulty = {limit:g}"
        return ValidateState(problem=problem, task=None, repairs_left=0)
    return ValidateState(problem=None, task=msgspec.to_builtins(task))


def _draft(state: ValidateState, world: str) -> Draft:
    pair = _pair(state)
    turns, reference = pair["user_turns"], pair["reference"]
    return Draft(world=world, user_turns=turns, reference=reference, tools=state.get("tools", []))


def _pair(state: ValidateState) -> DraftJson:
    draft = state.get("draft")
    assert draft is not None, "abstract gives a draft or a problem"
    return draft


async def attempt(state: ValidateState, config: RunnableConfig) -> ActState:
    return await (await _actor(state, config)).act("try")


async def tools(state: ValidateState, config: RunnableConfig) -> ActState:
    return await (await _actor(state, config)).answer(state.get("pending", []))


async def finding(state: ValidateState, config: RunnableConfig) -> ValidateState:
    """What the try came to. An answer that can't be read counts against the candidate."""
    actor = await _actor(state, config)
    found: str | None
    try:
        found, spent = read_finding(state.get("said", "")), actor.spent
    except ValueError:
        found, _, spent = await actor.ask(render("try", await actor.view(), actor.log), read_finding)
    await SESSIONS.drop(actor.key)
    if found is None:
        problem = "unclear: the validator's answer could not be read"
        return ValidateState(problem=problem, repairs_left=0, spent=spent)
    return ValidateState(problem=f"objection: {found}" if found else None, spent=spent)


async def repair(state: ValidateState, config: RunnableConfig) -> ValidateState:
    """The draft rewritten, and a fresh session for its try; or given up, and the problem stands."""
    actor = await _actor(state, config)
    draft = _pair(state)
    view = await actor.view(log=actor.log)
    messages = render("repair", view, draft=draft, problem=state.get("problem"))
    better, _, spent = await actor.ask(messages, read_repair)
    await SESSIONS.drop(actor.key)
    if better is None or better == draft:
        return ValidateState(repairs_left=0, spent=spent)
    return ValidateState(
        draft=better,
        problem=None,
        repairs=state.get("repairs", 0) + 1,
        repairs_left=state.get("repairs_left", 0) - 1,
        base=len(state.get("log", [])),
        stop=None,
        spent=spent,
    )


async def replay(state: ValidateState, config: RunnableConfig) -> ValidateState:
    return ValidateState(problem=await _replayed(await resources(config), _task(state)))


async def _replayed(work: Resources, task: Task) -> str | None:
    """What is wrong with how the reference replays; None if nothing is."""
    outcomes = [await _sound(work.env.replay(task)) for _ in range(REPLAYS)]
    if not outcomes[0].success:
        return f"replay_fails: {outcomes[0].kind}, {outcomes[0].detail}"
    if any(outcome != outcomes[0] for outcome in outcomes):
        details = " | ".join(outcome.detail or str(outcome.score) for outcome in outcomes)
        return f"replay_differs: {details}"
    return None


async def noop(state: ValidateState, config: RunnableConfig) -> ValidateState:
    work = await resources(config)
    outcome = await _sound(work.env.noop(_task(state)))
    if outcome.kind == "invalid":
        return ValidateState(problem=f"replay_fails: {outcome.detail}")
    return ValidateState(problem=f"noop_passes: {outcome.detail}" if outcome.success else None)


async def _sound(playing: Awaitable[Outcome]) -> Outcome:
    outcome = await playing
    if outcome.kind == "infra":
        raise InfraError(outcome.detail or "the environment failed")
    return outcome


async def polish(state: ValidateState, config: RunnableConfig) -> ValidateState:
    """The task in the editor's words, or why they are refused. Words that were stripped on purpose are left alone."""
    actor = await _actor(state, config)
    work, task = actor.resources, _task(state)
    if state.get("rewords") or work.known.problem(task):
        return ValidateState(edited=None)
    turns, said, spent = await actor.ask(polishing.editing(work.env, task), read_words)
    if turns is None:
        return ValidateState(edit=_edit(task, [], f"unreadable: {said[:200]}"), edited=None, spent=spent)
    try:
        edited = polishing.edited(work.env, _draft(state, task.world), task, turns)
    except InvalidTask as error:
        return ValidateState(edit=_edit(task, turns, f"{error.reason}: {error.detail}"), edited=None, spent=spent)
    if problem := work.known.problem(edited) or await _replayed(work, edited):
        return ValidateState(edit=_edit(task, turns, problem), edited=None, spent=spent)
    return ValidateState(edited=msgspec.to_builtins(edited), spent=spent)


async def prefer(state: ValidateState, config: RunnableConfig) -> ValidateState:
    """The edited task takes the place of the task if the judges prefer its words."""
    court = (await resources(config)).preference
    if court is None:  # resumed without an editor
        return ValidateState(edited=None)
    task, edited = _task(state), msgspec.convert(state.get("edited"), Task)
    against = await polishing.preference(court, identity(state, config), task, edited)
    edit = _edit(task, edited.user_turns, f"not_preferred: {against}" if against else "accepted")
    return ValidateState(task=state.get("task") if against else state.get("edited"), edit=edit, edited=None)


def _edit(task: Task, turns: list[str], outcome: str) -> Json:
    word, _, detail = outcome.partition(": ")
    return {"outcome": word, "detail": detail, "before": task.user_turns, "after": turns}


async def judge(state: ValidateState, config: RunnableConfig) -> ValidateState:
    lent = config.get("configurable", {}).get("resources")
    court = lent if isinstance(lent, str) else (await resources(config)).committee
    given = JudgeState(
        id=identity(state, config),
        task=state.get("task"),
        rewords=state.get("rewords"),
        observed=_observed(state),
        votes=[],
        problem=None,
    )
    ended = await judging.graph.ainvoke(given, RunnableConfig(configurable={"committee": court}))
    return ValidateState(problem=ended.get("problem"))


def _observed(state: ValidateState) -> str | None:
    """What the validator saw last that worked: by its prompt, the reference's answer."""
    log = state.get("log", [])[state.get("base", 0) :]
    return next((entry["observation"] for entry in reversed(log) if not entry["failed"]), None)


async def twins(state: ValidateState, config: RunnableConfig) -> ValidateState:
    known = (await resources(config)).known
    await known.turn(identity(state, config))
    task, parent = _task(state), state.get("rewords")
    return ValidateState(problem=known.problem(task, rewords=parent))


def _task(state: ValidateState) -> Task:
    return msgspec.convert(state.get("task"), Task)


async def decide(state: ValidateState) -> ValidateState:
    word, _, detail = (state.get("problem") or "valid").partition(": ")
    return ValidateState(verdict={"adopt": word == "valid", "reason": word, "detail": detail})


def from_abstract(state: ValidateState) -> Literal["check", "decide"]:
    return "decide" if state.get("problem") else "check"


def from_check(state: ValidateState) -> Literal["attempt", "repair", "decide"]:
    return _mend(state) if state.get("problem") else "attempt"


def from_attempt(state: ValidateState) -> Literal["tools", "finding"]:
    return "tools" if state.get("pending") else "finding"


def from_tools(state: ValidateState) -> Literal["attempt", "finding"]:
    return "finding" if state.get("stop") else "attempt"


def from_finding(state: ValidateState) -> Literal["replay", "repair", "decide"]:
    return _mend(state) if state.get("problem") else "replay"


def from_replay(state: ValidateState) -> Literal["noop", "decide"]:
    return "decide" if state.get("problem") else "noop"


async def from_noop(state: ValidateState, config: RunnableConfig) -> Literal["polish", "judge", "twins", "decide"]:
    if state.get("problem"):
        return "decide"
    return "polish" if (await resources(config)).preference else await judged(state, config)


async def from_polish(state: ValidateState, config: RunnableConfig) -> Literal["prefer", "judge", "twins"]:
    return "prefer" if state.get("edited") else await judged(state, config)


async def judged(state: ValidateState, config: RunnableConfig) -> Literal["judge", "twins"]:
    return "judge" if (await resources(config)).committee else "twins"


def from_judge(state: ValidateState) -> Literal["twins", "decide"]:
    return "decide" if state.get("problem") else "twins"


def _mend(state: ValidateState) -> Literal["repair", "decide"]:
    return "repair" if state.get("repairs_left") else "decide"


builder = StateGraph(ValidateState)
for node in (abstract, check, attempt, tools, finding, repair, replay, noop, polish, prefer, judge, twins, decide):
    builder.add_node(node.__name__, node)
builder.add_edge(START, "abstract")
builder.add_conditional_edges("abstract", from_abstract)
builder.add_conditional_edges("check", from_check)
builder.add_conditional_edges("attempt", from_attempt)
builder.add_conditional_edges("tools", from_tools)
builder.add_conditional_edges("finding", from_finding)
builder.add_conditional_edges("repair", from_abstract)
builder.add_conditional_edges("replay", from_replay)
builder.add_conditional_edges("noop", from_noop)
builder.add_conditional_edges("polish", from_polish)
builder.add_conditional_edges("prefer", judged)
builder.add_conditional_edges("judge", from_judge)
builder.add_edge("twins", "decide")
builder.add_edge("decide", END)

graph = builder.compile().with_config(recursion_limit=RECURSION_LIMIT)
