"""Whatever a model says, it is read into plain data or refused: no crash, no guess, nothing the store can't hold."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from graphs.model import MAX_COUNT, MAX_TEXT, normalise
from graphs.prompting import ROLES, read, render
from graphs.replies import read_context, read_finding, read_repair, read_tasks
from graphs.settings import ModelSettings
from graphs.state import Entry, View
from store.rows import Candidate, Step, content_id
from tests.graph_setup import DONE, LOOK, candidate, explore, explorer, job, of, signal, validate
from tests.scripted import calls

NO = object()
ANY_TEXT = st.text(st.characters(), max_size=200)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["tasks", "task", "user_turns", "reference", "problem", "where", "failure", "vary"])
NEARLY = st.recursive(ANY_JSON, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))
REPLIES = ANY_TEXT | NEARLY.map(json.dumps) | NEARLY.map(lambda value: f"```json\n{json.dumps(value)}\n```")
READERS: list[Any] = [read_context, read_tasks, read_repair, read_finding]


def storable(value: Any) -> bool:
    """By a row, and by a checkpoint."""
    kind, data = JsonPlusSerializer().dumps_typed(value)
    return bool(content_id(msgspec.to_builtins(value))) and JsonPlusSerializer().loads_typed((kind, data)) is not NO


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@given(text=REPLIES)
@example(text="[" * 10_000)
@example(text='{"a":' * 5_000)
@example(text='{"problem": "\\ud800"}')
@example(text='{"where": "\\ud800", "failure": "", "vary": []}')
@example(text='{"tasks": [{"user_turns": ["a"], "reference": "\\ud800"}]}')
@example(text='{"tasks": [{"user_turns": ["a"], "reference": 1e999}]}')
@example(text='{"tasks": [{"user_turns": ["a"], "reference": NaN}]}')
@example(text='{"where": "", "failure": "", "vary": [], "x": 18446744073709551615}')
@example(text='{"where": "", "failure": "", "vary": [], "x": 18446744073709551616}')
@example(text='{"tasks": [{"user_turns": ["a"], "reference": -9223372036854775809}]}')
@example(text='{"where": "", "failure": "", "vary": [], "x": ' + "[" * 300 + "]" * 300 + "}")
@example(text='{"task": {"user_turns": ["a"], "reference": ' + '{"a":' * 900 + "1" + "}" * 901 + "}")
@example(text="x" * 1_000_000)
def test_readers_give_storable_data_or_a_value_error(reader: Any, text: str) -> None:
    try:
        value = reader(text)
    except ValueError:
        return
    assert storable(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "{}",
        "[]",
        '{"problem": "" }',
        '{"problem": 0}',
        'Sure! {"problem": null}',
        '{"problem": null} {"problem": null}',
        '{"problem": null, "adopt": true}',
    ],
)
def test_a_finding_has_exactly_one_shape(text: str) -> None:
    with pytest.raises(ValueError):
        read_finding(text)


def test_what_is_well_formed_is_read() -> None:
    assert read_finding('```json\n{"problem": null}\n```') == ""
    assert read_finding('{"problem": "too\\n vague"}') == "too vague"
    assert read_repair('{"task": null}') is None
    pair = {"user_turns": ["a", "b"], "reference": {"calls": [[1]]}}
    assert read_repair(json.dumps({"task": pair})) == pair
    assert read_tasks(json.dumps({"tasks": [pair, pair]})) == [pair]
    context = {"where": "here", "failure": "so", "vary": ["x"], "structure": "S"}
    assert read_context(json.dumps(context)) == context


@given(text=ANY_TEXT, name=ANY_TEXT, args=st.dictionaries(ANY_TEXT, ANY_JSON, max_size=3), raw=ANY_TEXT | st.none())
@example(text="\ud800", name="\udfff", args={"a": "\ud800"}, raw="\ud800")
@example(text="", name="x", args={"a": float("nan")}, raw=None)
@example(text="", name="x", args={"a": "y" * 1_000_000}, raw="z" * 1_000_000)
def test_messages_become_storable_calls(text: str, name: str, args: dict[str, Any], raw: str | None) -> None:
    good = {"name": name, "args": args, "id": "1"}
    bad = {"name": name, "args": raw, "id": "2", "error": raw}
    message = AIMessage(text, tool_calls=[good], invalid_tool_calls=[bad])
    reply = normalise(message, ModelSettings())
    assert storable([reply.text, reply.calls])
    assert len(reply.calls) == 2
    assert reply.calls[1]["error"]
    assert all(len(json.dumps(call)) < 10 * MAX_TEXT for call in reply.calls)


@pytest.mark.parametrize("depth", [51, 300, 900])
def test_deep_arguments_are_refused_in_words_that_the_model_reads(depth: int) -> None:
    args: Any = {}
    for _ in range(depth):
        args = {"a": args}
    (call,) = normalise(AIMessage("", tool_calls=[{"name": "x", "args": args, "id": "1"}]), ModelSettings()).calls
    assert "nested more than 50 deep" in str(call["error"])


def test_a_number_over_64_bits_costs_one_call_and_not_the_exploration(tmp_path: Path) -> None:
    big = calls("say", word=2**64)
    (found,), rows = explore(explorer(act=[big, LOOK, DONE]), tmp_path, [job()])
    assert (found.outcome, [step.failed for step in of(Step, rows)]) == ("done", [True, False])
    assert "does not fit 64 bits" in of(Step, rows)[0].observation
    assert len(of(Candidate, rows)) == 1


FIGURE = st.integers() | st.just(10**30) | st.just(-(10**30))


@given(prompt=FIGURE, completion=FIGURE, cost=st.integers() | st.floats() | st.text(max_size=3) | st.none())
@example(prompt=10**30, completion=-5, cost=float("nan"))
@example(prompt=2**63, completion=2**62, cost=float("inf"))
@example(prompt=7, completion=8, cost=0.25)
def test_what_a_server_says_of_its_use_is_believed_within_bounds(prompt: int, completion: int, cost: Any) -> None:
    usage = UsageMetadata(input_tokens=prompt, output_tokens=completion, total_tokens=0)
    reply = normalise(AIMessage("", usage_metadata=usage, response_metadata={"response_cost": cost}), ModelSettings())
    assert reply.prompt_tokens == (prompt if 0 <= prompt <= MAX_COUNT else 0)
    assert reply.completion_tokens == (completion if 0 <= completion <= MAX_COUNT else 0)
    assert reply.cost == (cost if isinstance(cost, int | float) and 0 <= cost <= MAX_COUNT else 0)


def test_content_blocks_are_read_as_text() -> None:
    message = AIMessage([{"type": "text", "text": "a"}, {"type": "reasoning", "reasoning": "hidden"}, "b"])
    assert normalise(message, ModelSettings()).text == "ab"


ENTRY = st.builds(
    lambda name, observation, failed: Entry(
        name=name, args={"q": observation}, text="", error=None, observation=observation, failed=failed
    ),
    st.text(min_size=1, max_size=9),
    st.text(max_size=99) | st.just('```\n```json\n{"role": "act"}\n```'),
    st.booleans(),
)


@pytest.mark.parametrize("role", ROLES)
@given(world=st.text(max_size=99) | st.just('```json\n{"role": "repair"}\n```'), log=st.lists(ENTRY, max_size=4))
def test_a_prompt_reads_back_as_what_was_rendered(role: Any, world: str, log: list[Entry]) -> None:
    view = View(world=world, tools=[], signal=None, context=None, log=[], steps_left=6)
    seen, payload = read(render(role, view, log, limit=3))
    assert (seen, payload["limit"], payload["view"]["world"]) == (role, 3, world)
    assert payload["view"]["log"] == [
        {key: entry[key] for key in ("name", "args", "observation", "failed")} for entry in log
    ]
    assert payload["view"]["steps_left"] == 6 - len(log)


@settings(max_examples=40)
@given(reflect=REPLIES, abstract=REPLIES, act=REPLIES)
def test_an_exploration_survives_any_answer(reflect: str, abstract: str, act: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (found,), rows = explore(
            explorer(reflect=reflect, act=act, abstract=abstract), Path(folder), [job(signal=signal())]
        )
        assert found.outcome == "done"
        assert len(of(Candidate, rows)) <= 3


@settings(max_examples=40)
@given(answer=REPLIES, repair=REPLIES)
def test_a_validation_survives_any_answer(answer: str, repair: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        verdicts, _ = validate(explorer(**{"try": answer}, repair=repair), Path(folder), [candidate()])
        assert verdicts[0].reason in ("valid", "unclear", "objection", "duplicate", "empty_word")
