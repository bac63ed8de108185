"""The explorer as a chat model: reads the prompts that a language model gets, answers in their forms."""

from __future__ import annotations

import json

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from envs import registry
from graphs.procedural import ProceduralChatModel
from graphs.prompting import render
from graphs.state import Entry, View

WORLD = registry.get("text2sql").describe("shop")
DRAFT = {"user_turns": ["?"], "reference": "SELECT name FROM product WHERE price > 9000"}


def model(seed: int = 1) -> ProceduralChatModel:
    return ProceduralChatModel(explorer=registry.explorer("text2sql"), seed=seed)


def view(**more: object) -> View:
    return View(**{"world": WORLD, "tools": [], "signal": None, "context": None, "log": [], "steps_left": 6, **more})  # type: ignore[typeddict-item]


def entry(sql: str, observation: str, *, failed: bool = False) -> Entry:
    return Entry(name="run_sql", args={"sql": sql}, text="", error=None, observation=observation, failed=failed)


def test_act_answers_with_one_tool_call_that_depends_on_what_came_before() -> None:
    first = model().invoke(render("act", view()))
    (call,) = first.tool_calls
    assert call["name"] == "run_sql"
    assert call["args"]["sql"].startswith("SELECT * FROM ")
    answered = entry(call["args"]["sql"], '{"columns":[],"rows":[],"row_count":0}')
    (second,) = model().invoke(render("act", view(), [answered])).tool_calls
    assert second["args"] != call["args"]
    assert second["id"] != call["id"]


def test_act_without_steps_left_is_done() -> None:
    reply = model().invoke(render("act", view(steps_left=0)))
    assert not reply.tool_calls


def test_reflect_and_abstract_and_repair_answer_in_the_asked_json() -> None:
    context = json.loads(model().invoke(render("reflect", view(signal={"kind": "rare", "pattern": ["HAVING"]}))).text)
    assert set(context) == {"where", "failure", "vary"}
    log = [
        entry(f"SELECT name FROM product WHERE price > {p}", '{"columns":["name"],"rows":[["Lamp"]]}')
        for p in (5, 6, 7)
    ]
    tasks = json.loads(model().invoke(render("abstract", view(log=log), limit=2)).text)["tasks"]
    assert len(tasks) == 2
    assert all(set(task) == {"user_turns", "reference"} for task in tasks)
    repair = model().invoke(render("repair", view(), draft=DRAFT, problem="empty_result: population 0"))
    assert json.loads(repair.text)["task"]["reference"] == "SELECT name FROM product WHERE price < 9000"
    hopeless = model().invoke(render("repair", view(), draft=DRAFT, problem="replay_fails: ..."))
    assert json.loads(hopeless.text) == {"task": None}


def test_a_try_runs_the_reference_and_reports_its_error() -> None:
    messages = render("try", view(draft=DRAFT))
    (call,) = model().invoke(messages).tool_calls
    assert call["args"]["sql"] == DRAFT["reference"]
    ran = render("try", view(draft=DRAFT), [entry(str(DRAFT["reference"]), '{"columns":[],"rows":[]}')])
    assert json.loads(model().invoke(ran).text) == {"problem": None}
    failed = render("try", view(draft=DRAFT), [entry(str(DRAFT["reference"]), '{"error":"no"}', failed=True)])
    assert json.loads(model().invoke(failed).text) == {"problem": '{"error":"no"}'}


def test_same_seed_same_answer_other_seed_other_answer() -> None:
    messages = render("act", view())
    answers = {str(model(seed).invoke(messages).tool_calls[0]["args"]) for seed in range(20)}
    assert model(3).invoke(messages).tool_calls == model(3).invoke(messages).tool_calls
    assert len(answers) > 1


def test_tools_may_be_bound_and_a_prompt_without_a_block_is_an_error() -> None:
    bound = model().bind_tools([])
    assert isinstance(bound.invoke(render("act", view())), AIMessage)
    with pytest.raises(ValueError, match="json block"):
        model().invoke([HumanMessage("hello")])
