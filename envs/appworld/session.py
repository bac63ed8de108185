"""An episode in AppWorld: blocks of Python against the APIs, what they print, and `complete_task` to end it.

A policy writes one fenced block a message; an explorer calls the one tool `run_python`. What the actor does wrong is an
observation. A block that kills its world twice, or takes too long twice, is observed as an error and nothing of it was
done (envs/worker.py). The score rests on the log of API calls alone, replayed in a clean world (worker/grade.py).
"""

from __future__ import annotations

import asyncio
from typing import Any

from envs.appworld.code import block, refusal
from envs.appworld.tokens import of_calls
from envs.errors import SessionLost
from envs.protocols import Message, Observation, Outcome
from envs.worker import Blamed, Pool, Remote
from store.rows import Json, Task

STEPS = 50
"""Blocks of one episode; then it is scored as it stands."""
LOST = 2
"""Messages without code, one after the other, that end an episode: the actor has no more to do."""
PROMPT = """You act for {first_name} {last_name} ({email}, phone {phone_number}) in their apps, by Python code. \
It is {now}.
{how}
- apis.<app>.<api>(...) calls an API. apis.api_docs.show_app_descriptions(), \
apis.api_docs.show_api_descriptions(app_name=...) and apis.api_docs.show_api_doc(app_name=..., api_name=...) tell \
which there are and what they take.
- apis.supervisor.show_profile() and apis.supervisor.show_account_passwords() tell who you act for; an app's \
login(username=..., password=...) gives an access_token, which most of its APIs want. Lists come in pages.
- When all is done, call apis.supervisor.complete_task(); if something was asked, \
apis.supervisor.complete_task(answer=...), the answer alone; if it cannot be done, \
apis.supervisor.complete_task(status="fail")."""
FENCED = "- Write one ```python block a message. What it prints is shown to you; names that you set stay set."
TOOL = "- run_python runs a block. What it prints is shown to you; names that you set stay set."
EXPLORE = "Explore the apps: run one block at a time, look at what it prints, and change things to see what happens."
NO_CODE = "No code was found: {}."
RUN_PYTHON: Json = {
    "type": "function",
    "function": {
        "name": "run_python",
        "description": "Run a block of Python in the world, and see what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The block."}},
            "required": ["code"],
            "additionalProperties": False,
        },
    },
}


class AppWorldSession:
    """Implements envs.protocols.Session. Without a task it explores: nothing ends it, no score."""

    tools: list[Json]

    def __init__(self, agents: Pool, evaluators: Pool, facts: Json, world: str, task: Task | None, tools: bool) -> None:
        self.tools = [RUN_PYTHON] if tools else []
        self._evaluators = evaluators
        self._facts = facts
        self._task = task
        self._world = world
        self._remote = Remote(agents, {"world": world, "instruction": task.user_turns[0] if task else None})
        self._calls: list[Json] = []
        self._caught: list[str] = []
        self._steps = 0
        self._without_code = 0
        self._completed = False

    async def start(self) -> list[Message]:
        await self._remote.start()
        asked = self._task.user_turns[0] if self._task else EXPLORE
        return prompt(self._facts, asked, tools=bool(self.tools))

    async def act(self, message: Message) -> Observation:
        if not self.tools:
            text = message.get("content")
            code = block(text) if isinstance(text, str) else None
            shown, failed, tokens = await self._block(code)
            return self._observed([{"role": "user", "content": shown}], failed, tokens)
        answers: list[Message] = []
        any_failed, all_tokens = False, list[str]()
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            shown, failed, tokens = await self._block(_code(call))
            answers.append(_answer(call, shown))
            any_failed, all_tokens = any_failed or failed, all_tokens + tokens
            if self._over:
                break
        if not answers:
            shown, failed, tokens = await self._block(None)
            return self._observed([{"role": "user", "content": shown}], failed, tokens)
        return self._observed(answers, any_failed, all_tokens)

    async def evaluate(self) -> Outcome:
        """1 or 0: the official assertions of an official task, the reference's difference of one of ours."""
        if self._task is None:
            return Outcome(kind="scored", detail="no task, no score")
        try:
            own = (await self._remote.ask("finish"))["digest"]
        except Blamed as blamed:
            return Outcome(kind="scored", score=0.0, detail=f"the final state: {blamed}")
        graded = await self._graded(self._task, self._calls)
        if raised := {number for number, told, _ in graded["differing"] if told is None}:
            await self._remote.again()  # SessionLost unless they raise for this agent every time
            done = [{**call, "unsent": True} if at in raised else call for at, call in enumerate(self._calls)]
            graded = await self._graded(self._task, done)
            if own != graded["digest"]:
                raise SessionLost(f"call {min(raised)} raised, and left the world as neither doing it nor not")
        return self._judged(self._task, own, graded)

    async def _graded(self, task: Task, calls: list[Json]) -> Json:
        official = task.expected["grading"] == "official"
        asked = {"verb": "grade", "world": self._world, "calls": calls, "official": official}
        return await asyncio.to_thread(self._evaluators.ask, asked)

    async def close(self) -> None:
        await self._remote.close()

    @property
    def _over(self) -> bool:
        if self._task is None:
            return False
        return self._completed or self._steps >= STEPS or self._without_code >= LOST

    def _observed(self, messages: list[Message], failed: bool, tokens: list[str]) -> Observation:
        return Observation(messages=[] if self._over else messages, done=self._over, failed=failed, tokens=tokens)

    async def _block(self, code: str | None) -> tuple[str, bool, list[str]]:
        """(what is shown, whether it failed, action tokens)."""
        self._steps += 1
        self._without_code = self._without_code + 1 if code is None else 0
        if code is None:
            return NO_CODE.format("call run_python" if self.tools else "write one ```python block"), True, ["invalid"]
        if why := refusal(code):
            return f"Execution failed. {why}", True, ["invalid"]
        try:
            ran = await self._remote.ask("run", code=code)
        except Blamed as blamed:
            return f"Execution failed. Nothing of this block was done: {blamed}", True, ["invalid"]
        self._calls += ran["calls"]
        self._caught += ran["violations"][len(self._caught) :]
        self._completed = ran["completed"]
        cut = f"\n... ({ran['cut']} more characters)" if ran["cut"] else ""
        return ran["output"].rstrip() + cut, ran["failed"], of_calls(ran["calls"])

    def _judged(self, task: Task, own: str, graded: Json) -> Outcome:
        if self._caught:
            return Outcome(kind="scored", score=0.0, violation="cage", detail=self._caught[0])
        if own != graded["digest"]:
            words = "the world is not what its API calls make of one"
            return Outcome(kind="scored", score=0.0, violation="forged", detail=words)
        if graded["differing"]:
            number, told, found = graded["differing"][0]
            words = f"call {number} was answered with {told}, in a clean world with {found}"
            return Outcome(kind="scored", score=0.0, violation="forged", detail=words)
        return verdict(task.expected, graded)


def verdict(expected: Json, graded: Json) -> Outcome:
    """The score of a graded log of calls."""
    if expected["grading"] == "official":
        passed = sum(ok for *_, ok in graded["tests"])
        all_pass = 0 < len(graded["tests"]) == passed
        return Outcome(kind="scored", score=float(all_pass), detail=f"{passed} of {len(graded['tests'])} assertions")
    found = graded["difference"]
    if graded["digest"] == expected["digest"]:
        return Outcome(kind="scored", score=1.0)
    if found["status"] != "success":
        why = "not marked as done"
    elif sorted(found["changes"]) != expected["models"]:
        why = f"changed {', '.join(sorted(found['changes'])) or 'nothing'}"
    else:
        why = "another answer" if found["answer"] != expected["answer"] else "other changes"
    return Outcome(kind="scored", score=0.0, detail=why)


def prompt(facts: Json, asked: str, *, tools: bool) -> list[Message]:
    """System: who one acts for and how; user: what is asked."""
    system = PROMPT.format(**facts["supervisor"], now=facts["now"], how=TOOL if tools else FENCED)
    return [{"role": "system", "content": system}, {"role": "user", "content": asked}]


def _code(call: Any) -> str | None:
    args = call.get("args") if isinstance(call, dict) and call.get("name") == "run_python" else None
    code = args.get("code") if isinstance(args, dict) else None
    return (block(code) or code) if isinstance(code, str) else None


def _answer(call: Any, text: str) -> Message:
    call = call if isinstance(call, dict) else {}
    return {"role": "tool", "tool_call_id": call.get("id"), "name": call.get("name"), "content": text}
