"""The AppWorld environment: a person's apps, worked by code, graded by the state that is reached (docs/appworld.md)."""

from __future__ import annotations

import asyncio
import re
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from envs.appworld import tokens as spelling
from envs.appworld.checks import check_form, check_runs
from envs.appworld.code import block
from envs.appworld.place import Place, default
from envs.appworld.session import AppWorldSession, prompt, verdict
from envs.episode import said
from envs.errors import InvalidTask
from envs.protocols import ActionFormat, Draft, Message, Outcome, Session, World
from envs.worker import Blamed, WorkerError
from store.errors import UsageError
from store.rows import Json, Origin, Split, Task, content_id, task_id

SPLITS: dict[Split, str] = {"train": "train", "gold": "dev", "test": "test_normal", "shifted": "test_challenge"}
"""{split of ours: AppWorld's}"""
DONE: Json = {
    "api": "supervisor.complete_task",
    "method": "post",
    "url": "/supervisor/message",
    "data": {},
    "status": 200,
}
OTHER_WORLDS = 2
"""Other people's worlds in which an answer is looked for."""
CONSTANTS = ("0", "1", "yes", "no", "true", "false", "none", "")
"""Answers that need no look at the world."""


class AppWorld:
    """Implements envs.protocols.Env. A world is the start state of an official task. `reference` is one block of code,
    `expected` what it reaches; official tasks have neither here: their assertions and solutions stay in the data. No
    task is redistributable (docs/appworld.md, licence)."""

    name = "appworld"
    version = "1"
    action_format: ActionFormat = "python"
    explore_steps = 12

    def __init__(self, place: Place) -> None:
        self.place = place.need()
        self.agents = place.agents()
        self.evaluators = place.evaluators()
        self._reports: dict[str, tuple[list[Json], list[Json]]] = {}

    @cached_property
    def catalog(self) -> Json:
        return self.evaluators.ask({"verb": "catalog"})

    def worlds(self, split: Split) -> list[World]:
        return [World(id=world, env=self.name, split=split) for world in self.catalog["splits"].get(SPLITS[split], [])]

    def describe(self, world: str) -> str:
        facts = self._facts(world)
        who = "{first_name} {last_name} ({email}, phone {phone_number})".format(**facts["supervisor"])
        return "\n".join(
            [
                f"The apps of {who}, at {facts['now']}:",
                *(f"{app}: {words}" for app, words in self.catalog["apps"].items()),
                "Python code calls apis.<app>.<api>(...), and looks documents up with "
                "apis.api_docs.show_api_descriptions(app_name=...) and "
                "apis.api_docs.show_api_doc(app_name=..., api_name=...).",
                "A reference is one block of Python that starts from nothing: it logs in with what "
                "apis.supervisor.show_profile() and apis.supervisor.show_account_passwords() give, does what is asked, "
                "and ends with apis.supervisor.complete_task(). Where the task is a question, it works the answer out, "
                "prints it, and ends with apis.supervisor.complete_task(answer=...).",
            ]
        )

    def seed_tasks(self) -> list[Task]:
        """None: official tasks and solutions are not trained on."""
        return []

    def suites(self) -> dict[str, list[Task]]:
        """The official splits. `train` is held out like the others: only its worlds are explored."""
        return {name: [self._official(world) for world in ids] for name, ids in self.catalog["splits"].items()}

    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        facts = self._facts(world)
        return AppWorldSession(self.agents, self.evaluators, facts, world, task, tools or task is None)

    def materialize(self, draft: Draft, origin: Origin) -> Task:
        if reasons := self.check(draft):
            word, _, detail = reasons[0].partition(": ")
            raise InvalidTask(word, detail)
        _, grades = self._report(draft.world, draft.reference)
        found = grades[0]["difference"]
        expected = {
            "grading": "task",
            "digest": grades[0]["digest"],
            "models": sorted(found["changes"]),
            "answer": found["answer"],
            "qa": found["answer"] is not None and self._fixed(draft, found["answer"]),
        }
        return self._task(draft, expected, origin)

    def reached(self, task: Task) -> tuple[Json, list[Json]]:
        """The grade of the reference's calls, and these. InvalidTask where it is not what was recorded."""
        runs, grades = self._report(task.world, task.reference)
        if any(grade["digest"] != task.expected["digest"] for grade in grades):
            raise InvalidTask("replay_differs", "the reference does not reach what was recorded")
        return grades[0], runs[0]["steps"][0]["calls"]

    async def replay(self, task: Task) -> Outcome:
        """InvalidTask for an official task of which the data holds no solution."""
        if task.expected["grading"] == "official":
            return await asyncio.to_thread(self._solve, task)
        session = self.open(task.world, task)
        try:
            await session.start()
            await session.act(self.solution(task)[-1])
            return await session.evaluate()
        finally:
            await session.close()

    async def noop(self, task: Task) -> Outcome:
        asked = {"verb": "grade", "world": task.world, "official": task.expected["grading"] == "official"}
        for calls in ([], [DONE]):
            graded = await asyncio.to_thread(self.evaluators.ask, {**asked, "calls": calls})
            outcome = verdict(task.expected, graded)
            if outcome.success:
                return outcome
        if task.expected.get("answer") in CONSTANTS and not task.expected["models"]:
            return Outcome(kind="scored", score=1.0, detail=f"the answer is {task.expected['answer']!r}")
        return outcome

    def check(self, draft: Draft) -> list[str]:
        if draft.world not in self.catalog["splits"].get("train", []):
            return [f"unknown_world: {draft.world!r}"]
        if reasons := check_form(draft):
            return reasons
        try:
            runs, grades = self._report(draft.world, draft.reference)
        except (Blamed, WorkerError) as error:
            return [f"execution_error: {error}"]
        return check_runs(runs, grades, draft.reference)

    def twins(self, task: Task) -> list[str]:
        keys = [f"question:{content_id(task.world, _words(task))}"]
        if task.reference:
            keys.append(f"code:{content_id(task.world, spelling.canonical(task.reference))}")
        if task.expected.get("models"):
            keys.append(f"reached:{content_id(task.world, task.expected['digest'])}")
        return keys

    def parts(self, task: Task) -> list[str]:
        """Its difficulty, as AppWorld has it."""
        official = task.expected["grading"] == "official"
        return [f"difficulty {task.difficulty:g}"] if official else []

    def scenario(self, task: Task) -> str | None:
        return task.world.partition("_")[0]

    def answers(self, task: Task) -> list[str]:
        """The words, whoever's world they are asked in: a held-out scenario asks the same of several people."""
        return [f"words:{content_id(_words(task))}"]

    def action_tokens(self, step_action: str) -> list[str]:
        return spelling.of_code(_code(step_action))

    def structure(self, reference: Json) -> str:
        return spelling.structure(str(reference))

    def difficulty(self, reference: Json) -> float:
        return spelling.difficulty(str(reference))

    def solution(self, task: Task, *, tools: bool = False) -> list[Message]:
        told = prompt(self._facts(task.world), task.user_turns[0], tools=tools)
        if tools:
            call = {"id": "call_0", "name": "run_python", "args": {"code": task.reference}}
            return [*told, {"role": "assistant", "content": "", "tool_calls": [call]}]
        return [*told, {"role": "assistant", "content": f"```python\n{task.reference}\n```"}]

    def close(self) -> None:
        """End the processes."""
        self.agents.close()
        self.evaluators.close()

    def _facts(self, world: str) -> Json:
        if world not in self.catalog["tasks"]:
            raise UsageError(f"world {world!r}: there is none of that name; one is {next(iter(self.catalog['tasks']))}")
        return self.catalog["tasks"][world]

    def _official(self, world: str) -> Task:
        draft = Draft(world=world, user_turns=[self._facts(world)["instruction"]], reference="")
        return self._task(draft, {"grading": "official"}, "outside")

    def _task(self, draft: Draft, expected: Json, origin: Origin) -> Task:
        content: dict[str, Any] = {
            "env": self.name,
            "env_version": self.version,
            "world": draft.world,
            "user_turns": draft.user_turns,
            "tools": draft.tools,
            "reference": draft.reference.strip(),
            "expected": expected,
        }
        official = expected["grading"] == "official"
        return Task(
            id=task_id(**content),
            **content,
            split="gold" if official and self._side(draft.world) == "train" else self._side(draft.world),
            structure=self.structure(draft.reference),
            difficulty=float(self._facts(draft.world)["difficulty"] or 0)
            if official
            else self.difficulty(draft.reference),
            origin=origin,
            redistributable=False,
        )

    def _side(self, world: str) -> Split:
        return next(split for split, name in SPLITS.items() if world in self.catalog["splits"].get(name, []))

    def _report(self, world: str, code: str) -> tuple[list[Json], list[Json]]:
        """Two runs of the code, and the grades of their calls; of the last code alone."""
        key = content_id(world, code)
        if key not in self._reports:
            runs = [self._play(world, code) for _ in range(2)]
            asked = {"verb": "grade", "world": world, "official": False}
            grades = [self.evaluators.ask({**asked, "calls": run["steps"][0]["calls"]}) for run in runs]
            self._reports = {key: (runs, grades)}
        return self._reports[key]

    def _play(self, world: str, code: str) -> Json:
        return self.agents.ask({"verb": "play", "world": world, "blocks": [code]})

    def _fixed(self, draft: Draft, answer: str) -> bool:
        """Whether the same code answers the same in other people's worlds: it may then be known by heart."""
        me = self._facts(draft.world)["supervisor"]["email"]
        others = {self._facts(world)["supervisor"]["email"]: world for world in self.catalog["splits"]["train"]}
        elsewhere = [world for who, world in others.items() if who != me][:OTHER_WORLDS]
        return all(self._answer(world, draft.reference) == answer for world in elsewhere)

    def _answer(self, world: str, code: str) -> str | None:
        """What the code answers there; None where it does not get so far."""
        try:
            calls = self._play(world, code)["steps"][0]["calls"]
        except (Blamed, WorkerError):
            return None
        graded = self.evaluators.ask({"verb": "grade", "world": world, "official": False, "calls": calls})
        found: str | None = graded["difference"]["answer"]
        return found

    def _solve(self, task: Task) -> Outcome:
        solved = self.evaluators.ask({"verb": "solve", "world": task.world})
        if solved is None:
            raise InvalidTask("no_solution", f"the data holds no solution of {task.world}, as of official test tasks")
        return verdict(task.expected, solved)


def _words(task: Task) -> str:
    return " ".join(re.findall(r"\w+", " ".join(task.user_turns).casefold()))


def _code(action: str) -> str:
    """The code of a recorded action: of its fenced block, or of its tool calls."""
    message = said(action)
    calls = message.get("tool_calls")
    if not calls:
        return block(message["content"]) or message["content"]
    codes = [call["args"].get("code") for call in calls if isinstance(call.get("args"), dict)]
    return "\n".join(code for code in codes if isinstance(code, str))


@cache
def at(folder: str | None = None) -> AppWorld:
    """The environment over an installed root. UsageError if it is not installed."""
    place = Place(Path(folder).expanduser().absolute()) if folder else default()
    return AppWorld(place)
