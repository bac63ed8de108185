"""Episodes of text2sql: direct replies, tool calls, scores on all populations."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from envs.errors import SessionLost
from envs.protocols import Message, Observation, Outcome, Session
from envs.text2sql import session as session_module
from envs.text2sql.engine import Database, QueryError, Result
from envs.text2sql.results import fingerprint
from envs.text2sql.session import TOOL_CALLS, grade
from envs.text2sql.world import Populations
from store.rows import Task
from tests.tiny_sql import task, tiny_env, tiny_world

RIGHT = "SELECT name FROM shop WHERE stars = 5"
TASK = task(RIGHT, "Which shops have five stars?")


def episode(session: Session, *messages: Message) -> tuple[list[Message], list[Observation], Outcome]:
    async def play() -> tuple[list[Message], list[Observation], Outcome]:
        started = await session.start()
        seen = [await session.act(message) for message in messages]
        outcome = await session.evaluate()
        await session.close()
        return started, seen, outcome

    return asyncio.run(play())


def direct(*replies: str, of: Task = TASK) -> tuple[list[Observation], Outcome]:
    session = tiny_env().open("tiny", of)
    _, seen, outcome = episode(session, *({"role": "assistant", "content": reply} for reply in replies))
    return seen, outcome


def score(sql: str, of: Task = TASK) -> float | None:
    return direct(sql, of=of)[1].score


def call(name: str, **args: Any) -> dict[str, Any]:
    return {"id": "c1", "name": name, "args": args}


def with_tools(*calls: Any, of: Task | None = TASK) -> tuple[list[Observation], Outcome]:
    """One assistant message a call, or a list of calls in one."""
    session = tiny_env().open("tiny", of, tools=True)
    messages = [{"role": "assistant", "content": "", "tool_calls": c if isinstance(c, list) else [c]} for c in calls]
    _, seen, outcome = episode(session, *messages)
    return seen, outcome


def answer(observation: Observation) -> Any:
    return json.loads(observation.messages[-1]["content"])


def test_the_direct_prompt_is_the_compact_schema_and_the_question() -> None:
    started, _, outcome = episode(tiny_env().open("tiny", TASK))
    system, user = started
    assert system["content"].splitlines()[1:] == ["city(id,name,country)", "shop(id,name,city_id,sales,stars)"]
    assert user == {"role": "user", "content": "Which shops have five stars?"}
    assert all(secret not in json.dumps(started) for secret in (RIGHT, *TASK.expected))
    assert outcome == Outcome(kind="scored", score=0.0, detail="no answer")


def test_a_query_that_runs_ends_the_episode() -> None:
    seen, outcome = direct(f"```sql\n{RIGHT};\n```")
    assert seen == [Observation(messages=[], done=True)]
    assert outcome == Outcome(kind="scored", score=1.0)


def test_an_error_comes_back_once() -> None:
    seen, outcome = direct("SELECT nope FROM shop", RIGHT)
    again = {"role": "user", "content": "Error: no such column: nope. Correct the SQL."}
    assert seen == [Observation(messages=[again], done=False, failed=True), Observation(messages=[], done=True)]
    assert outcome.score == 1.0
    seen, outcome = direct("SELECT nope FROM shop", "no idea")
    assert seen[-1] == Observation(messages=[], done=True, failed=True)
    assert outcome.score == 0.0


@pytest.mark.parametrize(
    ("sql", "right"),
    [
        ("SELECT s.name AS shop FROM shop AS s WHERE s.stars >= 5 ORDER BY 1", 1.0),
        ("SELECT name FROM shop WHERE sales = 7.25", 0.0),  # right on the population that everyone sees
        ("SELECT 'Bo'", 0.0),
        ("SELECT name FROM shop WHERE stars > 4 OR name = 'Ed'", 1.0),
        ("SELECT name, stars FROM shop WHERE stars = 5", 0.0),
        ("SELECT NULL", 0.0),
        ("SELECT name FROM shop", 0.0),
    ],
)
def test_an_answer_must_be_right_on_all_populations(sql: str, right: float) -> None:
    assert score(sql) == right


def test_order_counts_just_where_the_reference_orders() -> None:
    by_name = task("SELECT name FROM city ORDER BY name")
    assert score("SELECT name FROM city ORDER BY name", by_name) == 1.0
    assert score("SELECT name FROM city ORDER BY name DESC", by_name) == 0.0
    unordered = task("SELECT name FROM city")
    assert score("SELECT name FROM city ORDER BY name DESC", unordered) == 1.0


def test_an_order_that_comes_of_how_the_rows_lie_earns_nothing() -> None:
    by_id = task("SELECT name FROM city ORDER BY id")
    assert score("SELECT name FROM city ORDER BY id", by_id) == 1.0
    assert score("SELECT c.name FROM city AS c ORDER BY 1 > 2, c.id", by_id) == 1.0
    assert score("SELECT name FROM city", by_id) == 0.0


def test_a_reference_that_leaves_its_rows_open_is_right_by_itself() -> None:
    sql = "SELECT name FROM (SELECT name FROM city LIMIT 1) ORDER BY name"  # as in benchmarks made elsewhere
    results = [Database(source).run(sql) for source in tiny_world().populations]
    hashes = [fingerprint(result, ordered=True) for result in results if isinstance(result, Result)]
    loose = replace(task("SELECT name FROM city ORDER BY name"), reference=sql, expected=hashes)
    assert score(sql, loose) == 1.0
    assert score("SELECT name FROM city WHERE id = 1", loose) == 0.0


def test_a_reference_that_no_longer_reaches_its_outcome_makes_the_task_invalid() -> None:
    for defect in (
        replace(TASK, expected=["0" * 16, TASK.expected[1]]),
        replace(TASK, expected=[TASK.expected[0], "0" * 16]),
        replace(TASK, reference="SELECT gone FROM shop"),
        replace(TASK, expected=[*TASK.expected, "0" * 16]),
        replace(TASK, expected=TASK.expected[:1]),
        replace(TASK, expected=[]),
        replace(TASK, expected=None),
        replace(TASK, reference=["SELECT 1"]),
        replace(TASK, user_turns=[]),
    ):
        for reply in (RIGHT, "SELECT 1", ""):
            outcome = direct(reply, of=defect)[1]
            assert (outcome.kind, outcome.score) == ("invalid", None)


def test_a_late_reference_is_nobodys_score(monkeypatch: pytest.MonkeyPatch) -> None:
    late = QueryError(kind="deadline", message="late")
    monkeypatch.setattr(Populations, "run", lambda *_: late)
    with pytest.raises(SessionLost, match="ran over its deadline twice"):
        grade(TASK, RIGHT, Populations(tiny_world()))


def test_tools_lead_from_the_schema_to_the_answer() -> None:
    seen, outcome = with_tools(
        call("list_tables"),
        call("describe_table", table="SHOP"),
        call("run_sql", sql=RIGHT),
        call("submit_sql", sql=RIGHT),
    )
    assert [answer(o) for o in seen[:3]] == [
        ["city", "shop"],
        {
            "table": "shop",
            "columns": [
                {"name": "id", "type": "INTEGER"},
                {"name": "name", "type": "TEXT"},
                {"name": "city_id", "type": "INTEGER"},
                {"name": "sales", "type": "REAL"},
                {"name": "stars", "type": "INTEGER"},
            ],
            "primary_key": ["id"],
            "foreign_keys": [{"column": "city_id", "references": "city.id"}],
        },
        {"columns": ["name"], "rows": [["Bo"]], "row_count": 1},
    ]
    assert seen[0].messages[0] | {"content": ""} == {
        "role": "tool",
        "tool_call_id": "c1",
        "name": "list_tables",
        "content": "",
    }
    assert seen[3] == Observation(messages=[], done=True)
    assert outcome.score == 1.0


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (call("drop_table", table="shop"), "there is no tool drop_table; the tools are list_tables"),
        (call("run_sql"), "run_sql takes the argument sql"),
        (call("run_sql", sql=RIGHT, limit=3), "run_sql takes the argument sql"),
        (call("run_sql", sql=7), "the argument sql must be text"),
        (call("list_tables", all=True), "list_tables takes no arguments"),
        (call("describe_table", table="nope"), "there is no table nope; the tables are city, shop"),
        (call("run_sql", sql="SELECT nope FROM shop"), "no such column: nope"),
        (call("submit_sql", sql="SELECT nope FROM shop"), "submit a statement that runs"),
        ({"id": "c1", "name": "run_sql", "args": '{"sql": '}, "the arguments are no JSON"),
        ({"id": "c1", "name": "run_sql", "args": '{"sql": ' * 9999}, "the arguments are no JSON"),
        ({"id": "c1", "name": "run_sql", "args": [1]}, "run_sql takes the argument sql"),
        ("nonsense", "there is no tool None"),
    ],
)
def test_a_wrong_call_is_an_observation(bad: Any, words: str) -> None:
    (observation,), outcome = with_tools(bad)
    assert words in answer(observation)["error"]
    assert (observation.failed, observation.done, outcome.score) == (True, False, 0.0)


def test_arguments_may_come_as_json_text() -> None:
    (observation,), _ = with_tools({"id": "c1", "name": "describe_table", "args": '{"table": "city"}'})
    assert answer(observation)["table"] == "city"


def test_all_calls_of_one_message_are_answered() -> None:
    (observation,), _ = with_tools([call("list_tables"), call("nope"), call("run_sql", sql="SELECT 1")])
    assert len(observation.messages) == 3
    assert observation.failed
    (observation,), outcome = with_tools([call("submit_sql", sql=RIGHT), call("submit_sql", sql="SELECT 1")])
    assert (observation.done, outcome.score) == (True, 1.0)


def test_the_calls_of_one_message_are_limited() -> None:
    calls = [call("run_sql", sql="SELECT 1")] * TOOL_CALLS
    (observation,), outcome = with_tools([*calls, call("submit_sql", sql=RIGHT)])
    assert len(observation.messages) == TOOL_CALLS + 1
    assert f"at most {TOOL_CALLS} calls" in answer(observation)["error"]
    assert outcome.score == 0.0


def test_a_message_without_a_call_is_reminded_of_the_tools() -> None:
    session = tiny_env().open("tiny", TASK, tools=True)
    _, (observation,), outcome = episode(session, {"role": "assistant", "content": RIGHT})
    assert "list_tables, describe_table, run_sql, submit_sql" in observation.messages[0]["content"]
    assert (observation.failed, observation.done) == (True, False)
    assert outcome.score == 0.0


def test_an_endless_actor_is_stopped_if_there_is_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "TOOL_TURNS", 3)
    seen, _ = with_tools(*[call("list_tables")] * 3)
    assert [o.done for o in seen] == [False, False, True]
    seen, _ = with_tools(*[call("list_tables")] * 5, of=None)
    assert not any(o.done for o in seen)


def test_without_a_task_there_is_nothing_to_submit_and_no_score() -> None:
    (observation,), outcome = with_tools(call("submit_sql", sql=RIGHT), of=None)
    assert "nothing to submit" in answer(observation)["error"]
    assert (outcome.kind, outcome.score) == ("scored", None)


def test_a_task_may_allow_some_of_the_tools() -> None:
    narrow = replace(TASK, tools=["run_sql", "submit_sql"])
    session = tiny_env().open("tiny", narrow, tools=True)
    assert [tool["function"]["name"] for tool in session.tools] == ["run_sql", "submit_sql"]
    (observation, _), outcome = with_tools(call("list_tables"), call("submit_sql", sql=RIGHT), of=narrow)
    assert "there is no tool list_tables; the tools are run_sql, submit_sql" in answer(observation)["error"]
    assert outcome.score == 1.0


def test_the_schemas_of_the_tools_name_their_arguments() -> None:
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tiny_env().open("tiny").tools}
    assert {name: schema["required"] for name, schema in tools.items()} == {
        "list_tables": [],
        "describe_table": ["table"],
        "run_sql": ["sql"],
        "submit_sql": ["sql"],
    }
    assert all(schema["additionalProperties"] is False for schema in tools.values())
    assert tiny_env().open("tiny", TASK).tools == []
