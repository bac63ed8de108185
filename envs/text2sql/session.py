"""An episode of text2sql, in one of two modes.

    DirectSession  the whole schema and the question in the prompt, the reply is SQL; an error comes back once
    ToolsSession   list_tables, describe_table, run_sql, submit_sql; explorers and larger models

Both are scored alike: 1 if the answer's result equals the reference's on every population, else 0. What an actor does
wrong is an observation. Tools answer in JSON; an error is `{"error": "..."}`.

Statements run in the event loop, not in a thread: an answer takes 0.1 ms, the way to a thread and back a third of that,
and threads run long ones no faster, since each look at the budgets needs the interpreter's lock. The budgets bound how
long one statement can hold the loop: an endless one 0.25 s, in benchmark folders (spider.py) 25 times that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from envs.errors import SessionLost
from envs.protocols import Message, Observation, Outcome
from envs.text2sql.engine import QueryError, Result, Table
from envs.text2sql.results import fingerprint, same, show
from envs.text2sql.sqltext import extract_sql, ordered
from envs.text2sql.world import Populations, SqlWorld
from store.rows import Json, Task

DIRECT_TURNS = 2
"""Replies in direct mode: the answer, and one more if the first does not run."""
TOOL_TURNS = 12
"""Assistant messages of a tools session that has a task; explorations have budgets of their own."""
TOOLS = {"list_tables": (), "describe_table": ("table",), "run_sql": ("sql",), "submit_sql": ("sql",)}
"""The names of the tools and of their arguments, all text."""
TOOL_CALLS = 16
"""Calls of one message that are carried out; no deadline can fall between them."""
ROWS_SHOWN = 20
CHARS_SHOWN = 2000
_INSTRUCTION = "Write one SQLite SELECT statement that answers the question. Reply with SQL only."


class _Session:
    """What both modes share: the populations, the answer, the score. Population 0 is the one that actors see."""

    tools: list[Json]

    def __init__(self, world: SqlWorld, task: Task | None) -> None:
        self.tools = []
        self._world = world
        self._task = task
        self._populations = Populations(world)
        self._answer: str | None = None
        self._turns = 0

    async def evaluate(self) -> Outcome:
        if self._task is None:
            return Outcome(kind="scored", detail="no task, no score")
        return grade(self._task, self._answer, self._populations)

    async def close(self) -> None:
        self._populations.close()

    def _run(self, sql: str) -> Result | QueryError:
        return self._populations.run(0, sql)


class DirectSession(_Session):
    def __init__(self, world: SqlWorld, task: Task) -> None:
        super().__init__(world, task)
        self._question = _question(task)

    async def start(self) -> list[Message]:
        return direct_prompt(self._world, self._question)

    async def act(self, message: Message) -> Observation:
        self._turns += 1
        self._answer = extract_sql(_text(message))
        result = self._run(self._answer)
        if isinstance(result, Result):
            return Observation(messages=[], done=True)
        if self._turns >= DIRECT_TURNS:
            return Observation(messages=[], done=True, failed=True)
        again = {"role": "user", "content": f"Error: {result.message}. Correct the SQL."}
        return Observation(messages=[again], done=False, failed=True)


def tools_prompt(task: Task | None) -> list[Message]:
    """The first messages of a session with tools: the schema is for the tools to find out."""
    system = {"role": "system", "content": "Answer questions about a SQLite database. Use the tools."}
    return [system, {"role": "user", "content": _question(task) if task else "Explore the database."}]


class ToolsSession(_Session):
    def __init__(self, world: SqlWorld, task: Task | None) -> None:
        super().__init__(world, task)
        allowed = (task.tools if task else []) or list(TOOLS)
        self.tools = [schema for schema in tool_schemas() if schema["function"]["name"] in allowed]
        self._submitted = False
        handlers: dict[str, Callable[[dict[str, str]], Json]] = {
            "list_tables": lambda _: [table.name for table in self._world.tables],
            "describe_table": lambda args: self._describe(args["table"]),
            "run_sql": lambda args: self._query(args["sql"]),
            "submit_sql": lambda args: self._submit(args["sql"]),
        }
        self._handlers = {name: handler for name, handler in handlers.items() if name in allowed}

    async def start(self) -> list[Message]:
        return tools_prompt(self._task)

    async def act(self, message: Message) -> Observation:
        self._turns += 1
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or not calls:
            reminder = {"role": "user", "content": "Call one of the tools: " + ", ".join(self._handlers) + "."}
            return Observation(messages=[] if self._over else [reminder], done=self._over, failed=True)
        answers = [self._call(i, call if isinstance(call, dict) else {}) for i, call in enumerate(calls)]
        failed = any(isinstance(answer, _Refused) for _, answer in answers)
        messages = [_tool_message(call, answer) for call, answer in answers]
        return Observation(messages=[] if self._over else messages, done=self._over, failed=failed)

    @property
    def _over(self) -> bool:
        return self._submitted or (self._task is not None and self._turns >= TOOL_TURNS)

    def _call(self, position: int, call: dict[str, Any]) -> tuple[dict[str, Any], Json]:
        try:
            if position >= TOOL_CALLS:
                raise _Refused(f"at most {TOOL_CALLS} calls a message are carried out; call again")
            if self._submitted:
                raise _Refused("the answer is submitted, nothing more can be done")
            name = str(call.get("name"))
            if name not in self._handlers:
                raise _Refused(f"there is no tool {name[:80]}; the tools are {', '.join(self._handlers)}")
            return call, self._handlers[name](_arguments(name, call.get("args")))
        except _Refused as refusal:
            return call, refusal

    def _describe(self, name: str) -> Json:
        table = self._world.table(name)
        if table is None:
            raise _Refused(
                f"there is no table {name[:80]}; the tables are {', '.join(t.name for t in self._world.tables)}"
            )
        return describe_table(table)

    def _query(self, sql: str) -> Json:
        result = self._run(extract_sql(sql))
        if isinstance(result, QueryError):
            raise _Refused(result.message)
        return msgspec.Raw(show(result, rows=ROWS_SHOWN, chars=CHARS_SHOWN).encode())

    def _submit(self, sql: str) -> Json:
        if self._task is None:
            raise _Refused("there is no task here, so there is nothing to submit")
        self._answer = extract_sql(sql)
        result = self._run(self._answer)
        if isinstance(result, QueryError):
            raise _Refused(f"{result.message}; submit a statement that runs")
        self._submitted = True
        return {"submitted": True}


class _Refused(Exception):
    """A call that the actor got wrong; its words are the observation."""


def direct_prompt(world: SqlWorld, question: str) -> list[Message]:
    """System: the instruction and the compact schema; user: the question."""
    return [
        {"role": "system", "content": f"{_INSTRUCTION}\n{world.compact()}"},
        {"role": "user", "content": question},
    ]


def grade(task: Task, answer: str | None, populations: Populations) -> Outcome:
    """1 if the answer's result is the reference's on all populations, else 0; `invalid` if the reference's result is
    no longer the recorded one. An order must not come of the order in which the rows lie there.

    Raises SessionLost if the reference, which ran when the task was made, now runs over its deadline.
    """
    references = _references(task, populations)
    if isinstance(references, str):
        return Outcome(kind="invalid", detail=references)
    if not answer:
        return Outcome(kind="scored", score=0.0, detail="no answer")
    for index, reference in enumerate(references):
        result = populations.run(index, answer)
        if isinstance(result, QueryError):
            return Outcome(kind="scored", score=0.0, detail=f"population {index}: {result.message}")
        if not same(result, reference, ordered=ordered(task.reference)):
            return Outcome(kind="scored", score=0.0, detail=f"population {index}: another result")
        if ordered(task.reference) and not _same_backwards(task.reference, answer, populations, index):
            return Outcome(kind="scored", score=0.0, detail=f"population {index}: the right order is an accident")
    return Outcome(kind="scored", score=1.0)


def _same_backwards(reference: str, answer: str, populations: Populations, index: int) -> bool:
    wanted = populations.run(index, reference, backwards=True)
    found = populations.run(index, answer, backwards=True)
    # a reference of a benchmark made elsewhere may itself leave an order open: then its answers are to do so alike
    return isinstance(wanted, QueryError) or (isinstance(found, Result) and same(found, wanted, ordered=True))


def _references(task: Task, populations: Populations) -> list[Result] | str:
    """The reference's result on each population, or what is wrong with the task."""
    sql, recorded = task.reference, task.expected
    if not isinstance(sql, str) or not isinstance(recorded, list) or len(task.user_turns) != 1:
        return "one user turn, SQL text and a list of hashes are needed"
    if len(recorded) != len(populations):
        return f"{len(recorded)} results are recorded for {len(populations)} populations"
    results = []
    for index, wanted in enumerate(recorded):
        result = populations.run(index, sql)
        if isinstance(result, QueryError):
            if result.kind == "deadline":
                raise SessionLost(f"the reference of task {task.id} ran over its deadline twice")
            return f"population {index}: the reference fails: {result.message}"
        if fingerprint(result, ordered=ordered(sql)) != wanted:
            return f"population {index}: the reference's result is not the recorded one"
        results.append(result)
    return results


def describe_table(table: Table) -> Json:
    """What `describe_table` answers: {"table", "columns": [{"name", "type"}], "primary_key", "foreign_keys"}."""
    return {
        "table": table.name,
        "columns": [{"name": column.name, "type": column.type} for column in table.columns],
        "primary_key": [column.name for column in table.columns if column.primary_key],
        "foreign_keys": [
            {"column": column.name, "references": ".".join(column.references)}
            for column in table.columns
            if column.references
        ],
    }


def tool_schemas() -> list[Json]:
    """The four tools as JSON-schema functions."""
    return [
        _tool("list_tables", "Names of all tables."),
        _tool("describe_table", "Columns, types and keys of one table.", table="Name of the table."),
        _tool("run_sql", "Run one SELECT statement and see its first rows.", sql="The statement."),
        _tool("submit_sql", "Submit the statement that answers the question. Ends the task.", sql="The statement."),
    ]


def _tool(name: str, description: str, **arguments: str) -> Json:
    properties = {key: {"type": "string", "description": words} for key, words in arguments.items()}
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(arguments),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _arguments(tool: str, args: Json) -> dict[str, str]:
    """The call's arguments, checked: exactly the tool's own, all text."""
    wanted = TOOLS[tool]
    if isinstance(args, str):
        try:
            args = msgspec.json.decode(args or "{}")
        except (ValueError, RecursionError) as error:
            raise _Refused(f"the arguments are no JSON: {error}") from error
    args = {} if args is None else args
    if not isinstance(args, dict) or set(args) != set(wanted):
        raise _Refused(f"{tool} takes {'the argument ' + ', '.join(wanted) if wanted else 'no arguments'}")
    wrong = [key for key, value in args.items() if not isinstance(value, str)]
    if wrong:
        raise _Refused(f"the argument {wrong[0]} must be text")
    return args


def _tool_message(call: dict[str, Any], answer: Json) -> Message:
    # a model's text may hold lone surrogates, which no JSON can carry
    words = str(answer).encode("utf-8", "replace").decode()
    body = {"error": words} if isinstance(answer, _Refused) else answer
    content = msgspec.json.encode(body).decode()
    return {"role": "tool", "tool_call_id": call.get("id"), "name": call.get("name"), "content": content}


def _question(task: Task) -> str:
    return task.user_turns[0] if task.user_turns else ""


def _text(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""
