"""The text2sql environment: questions about small databases, answered in SQL, scored by execution."""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from envs.errors import InvalidTask
from envs.protocols import ActionFormat, Draft, Message, Outcome, Session, World
from envs.text2sql import sqltext
from envs.text2sql.checks import check_draft, check_given, check_reference, run_reference
from envs.text2sql.engine import Result, build, tables
from envs.text2sql.results import constant_query, empty, fingerprint
from envs.text2sql.session import DirectSession, ToolsSession, direct_prompt, tools_prompt
from envs.text2sql.world import SqlWorld
from store.errors import UsageError
from store.rows import Json, Origin, Split, Task, content_id, task_id

log = logging.getLogger(__name__)
DATA = Path(__file__).parent / "data"
FILES: dict[Split, str] = {
    "train": "seed.jsonl",
    "gold": "gold.jsonl",
    "test": "test.jsonl",
    "shifted": "shifted.jsonl",
    "robust": "robust.jsonl",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question and its SQL as a data file has them: not run yet."""

    world: str
    question: str
    sql: str
    where: str
    """File and item, for messages."""


Questions = Mapping[Split, Callable[[], Iterable[Question]]]
"""Who reads the questions of a split."""


class Text2Sql:
    """Implements envs.protocols.Env. `reference` is SQL text, `expected` one result hash per population."""

    name = "text2sql"
    version = "1"
    action_format: ActionFormat = "sql"
    explore_steps = 6

    def __init__(self, worlds: Iterable[SqlWorld], questions: Questions | None = None, *, skip: bool = False) -> None:
        """`questions` of split `train` are the seeds, those of the others the suites; each is read when first asked
        for. They must run, no more: what else our own must hold is tested where they are made. `skip`: leave those
        out that do not, with a warning, as every benchmark made elsewhere has some (spider.py)."""
        self._worlds = {world.id: world for world in worlds}
        self._questions = dict(questions or {})
        self._skip = skip
        self._tasks: dict[Split, list[Task]] = {}
        self._answers: dict[str, list[str]] = {}

    def worlds(self, split: Split) -> list[World]:
        return [World(id=w.id, env=self.name, split=w.split) for w in self._worlds.values() if w.split == split]

    def describe(self, world: str) -> str:
        return self._world(world).describe()

    def seed_tasks(self) -> list[Task]:
        return self._of_split("train")

    def suites(self) -> dict[str, list[Task]]:
        return {split: self._of_split(split) for split in self._questions if split != "train"}

    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        place = self._world(world)
        return ToolsSession(place, task) if task is None or tools else DirectSession(place, task)

    def materialize(self, draft: Draft, origin: Origin) -> Task:
        reasons, results = self._check(draft)
        if reasons:
            raise _invalid(reasons)
        return self._task(draft, origin, results)

    async def replay(self, task: Task) -> Outcome:
        return await self._play(task, task.reference)

    async def noop(self, task: Task) -> Outcome:
        _, results = run_reference(self._world(task.world), str(task.reference))
        outcomes = [await self._play(task, answer) for answer in ["", "SELECT NULL", *map(constant_query, results)]]
        # A success is an answer whatever befell the others; without one, a probe that gave no score leaves it open.
        return max(outcomes, key=lambda it: (it.success, it.kind == "invalid", it.kind == "infra", it.score or 0.0))

    def check(self, draft: Draft) -> list[str]:
        return self._check(draft)[0]

    def twins(self, task: Task) -> list[str]:
        return [
            "question:" + content_id(task.world, _words(" ".join(task.user_turns))),
            "sql:" + content_id(task.world, sqltext.canonical(str(task.reference))),
        ]

    def parts(self, task: Task) -> list[str]:
        return []

    def scenario(self, task: Task) -> str | None:
        return None

    def answers(self, task: Task) -> list[str]:
        if task.id not in self._answers:
            _, results = run_reference(self._world(task.world), str(task.reference))
            self._answers[task.id] = _answer(task, results)
        return self._answers[task.id]

    def action_tokens(self, step_action: str) -> list[str]:
        calls = _tool_calls(step_action)
        if calls is None:
            return sqltext.action_tokens(sqltext.extract_sql(step_action))
        return [token for call in calls for token in _call_tokens(call)]

    def structure(self, reference: Json) -> str:
        return sqltext.structure(str(reference))

    def difficulty(self, reference: Json) -> float:
        return sqltext.difficulty(str(reference))

    def solution(self, task: Task, *, tools: bool = False) -> list[Message]:
        if tools:
            call = {"id": "call_0", "name": "submit_sql", "args": {"sql": task.reference}}
            return [*tools_prompt(task), {"role": "assistant", "content": "", "tool_calls": [call]}]
        prompt = direct_prompt(self._world(task.world), task.user_turns[0])
        return [*prompt, {"role": "assistant", "content": task.reference}]

    def _world(self, world: str) -> SqlWorld:
        if world not in self._worlds:
            raise UsageError(f"world {world!r}: there is none of that name; choose from {', '.join(self._worlds)}")
        return self._worlds[world]

    async def _play(self, task: Task, answer: str) -> Outcome:
        session = self.open(task.world, task)
        try:
            await session.start()
            done = False
            while not done:
                done = (await session.act({"role": "assistant", "content": answer})).done
            return await session.evaluate()
        finally:
            await session.close()

    def _check(self, draft: Draft) -> tuple[list[str], list[Result]]:
        """Reasons against the draft, and its results."""
        if draft.world not in self._worlds:
            return [f"unknown_world: {draft.world!r}"], []
        if len(draft.user_turns) != 1 or not isinstance(draft.reference, str):
            return ["bad_question: one user turn and SQL text are needed"], []
        reasons, results = check_reference(self._worlds[draft.world], draft.reference)
        return [*check_draft(draft.user_turns[0], draft.tools), *reasons], results

    def _task(self, draft: Draft, origin: Origin, results: list[Result]) -> Task:
        reference = sqltext.strip_comments(draft.reference).strip()  # SFT learns from it, and comments say anything
        lists = sqltext.ordered(reference)
        content: dict[str, Any] = {
            "env": self.name,
            "env_version": self.version,
            "world": draft.world,
            "user_turns": draft.user_turns,
            "tools": draft.tools,
            "reference": reference,
            "expected": [fingerprint(result, ordered=lists) for result in results],
        }
        task = Task(
            id=task_id(**content),
            **content,
            split=self._worlds[draft.world].split,
            structure=self.structure(reference),
            difficulty=self.difficulty(reference),
            origin=origin,
        )
        self._answers[task.id] = _answer(task, results)
        return task

    def _of_split(self, split: Split) -> list[Task]:
        if split not in self._tasks:
            items = list(self._questions[split]()) if split in self._questions else []
            made = (self._given(item, split) for item in items)
            tasks = [replace(task, split=split) for task in made if task is not None]
            if items and not tasks:
                raise UsageError(f"{self.name}: none of the {len(items)} items of split {split} can be used, see above")
            self._tasks[split] = tasks
        return list(self._tasks[split])

    def _given(self, item: Question, split: Split) -> Task | None:
        draft = Draft(world=item.world, user_turns=[item.question], reference=item.sql)
        world = self._worlds.get(item.world)
        reasons, results = run_reference(world, item.sql) if world else ([f"unknown_world: {item.world!r}"], [])
        reasons += check_given(draft, trained=split == "train")
        if not reasons:
            return self._task(draft, "seed", results)
        if not self._skip:
            raise UsageError(f"{item.where}: {reasons[0]}; correct or remove the item")
        log.warning("%s is left out: %s", item.where, reasons[0])
        return None


def _words(question: str) -> str:
    """The question as its words alone: one spelling for what looks or reads the same."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", question).casefold())
    seen = (c for c in plain if c.isspace() or unicodedata.category(c) not in ("Cc", "Cf", "Mn", "Mc", "Me"))
    return " ".join(re.findall(r"\w+|[<>=%]", "".join(seen)))


def _answer(task: Task, results: list[Result]) -> list[str]:
    """One key of the rows on all populations, in whatever order. On a single one many questions have the same count
    by chance: there the statement's structure must be the same too."""
    if all(map(empty, results)):
        return []
    rows = [fingerprint(result, ordered=False) for result in results]
    return ["answer:" + content_id(task.world, rows, task.structure if len(results) == 1 else None)]


def _invalid(reasons: list[str]) -> InvalidTask:
    word, _, detail = reasons[0].partition(": ")
    return InvalidTask(word, detail)


@cache
def builtin() -> Text2Sql:
    """The environment over the package's own databases and questions."""
    from envs.text2sql.schemas import POPULATIONS, SCHEMAS

    worlds = []
    for schema in SCHEMAS.values():
        populations = tuple(build(schema.ddl, schema.populate(number)) for number in POPULATIONS)
        shape = tuple(tables(populations[0]))
        worlds.append(SqlWorld(id=schema.name, split=schema.split, tables=shape, populations=populations))
    return Text2Sql(worlds, {split: partial(read_questions, DATA / name) for split, name in FILES.items()})


def read_questions(path: Path) -> list[Question]:
    """Questions of a JSON-lines file: {"world", "question", "sql"}. UsageError names the line and what it lacks."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path.name} line {number}"
        try:
            item = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{where}: no JSON ({error}); write one object a line") from error
        wrong = [
            key
            for key in ("world", "question", "sql")
            if not isinstance(item, dict) or not isinstance(item.get(key), str)
        ]
        if wrong:
            raise UsageError(f"{where}: field {wrong[0]!r} is missing or no text")
        found.append(Question(world=item["world"], question=item["question"], sql=item["sql"], where=where))
    return found


def _tool_calls(action: str) -> list[Any] | None:
    """The calls of an action that is the JSON of tool calls, else None."""
    if not action.startswith("["):
        return None
    try:
        calls = json.loads(action)
    except (ValueError, RecursionError):
        return None
    return calls if isinstance(calls, list) else None


def _call_tokens(call: Any) -> list[str]:
    """The tool's name; for a tool that takes SQL, the clauses of the statement."""
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return [sqltext.INVALID]
    args = call.get("args")
    sql = args.get("sql") if isinstance(args, dict) else None
    return sqltext.action_tokens(sqltext.extract_sql(sql)) if isinstance(sql, str) else [call["name"]]
