"""The real litellm path against a server that throttles, hangs, cuts and babbles."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from graphs import model
from graphs.model import Budget, BudgetSpent, ModelUnavailable, Reply, call, chat_model
from graphs.settings import ModelSettings
from store.errors import UsageError
from tests.fake_openai import FakeServer, cut, garbage, reply, serve, status, tarpit, tool_call

TOOL = {
    "type": "function",
    "function": {
        "name": "run_sql",
        "description": "Runs SQL.",
        "parameters": {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
    },
}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(model, "BACKOFF_S", 0.01)


def ask(server: FakeServer, budget: Budget | None = None, tools: Any = (), **settings: Any) -> Reply:
    chosen = ModelSettings(api_base=server.url, **settings)
    chat = chat_model("litellm:openai/m", chosen, env="text2sql", seed=7)
    return asyncio.run(call(chat, [HumanMessage("hello")], settings=chosen, budget=budget or Budget(), tools=tools))


def test_an_answer_with_its_usage() -> None:
    with serve(reply("hi")) as server:
        got = ask(server, input_price=1.0, output_price=10.0)
    assert (got.text, got.prompt_tokens, got.completion_tokens) == ("hi", 100, 10)
    assert got.cost == pytest.approx((100 * 1 + 10 * 10) / 1e6)
    assert server.requests[0]["seed"] == 7


@pytest.mark.parametrize(
    ("name", "keys"), [("gpt-4o-mini", "OPENAI_API_KEY"), ("gemini/x", "GOOGLE_API_KEY or GEMINI_API_KEY")]
)
def test_a_missing_key_is_told_before_any_call(monkeypatch: pytest.MonkeyPatch, name: str, keys: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UsageError) as error:
        chat_model(f"litellm:{name}", ModelSettings(), env="text2sql", seed=0)
    assert str(error.value) == f"explorer: 'litellm:{name}' needs {keys}; set it, or use `procedural`"


@pytest.mark.parametrize("name", ["ollama/x", "bedrock/x", "vertex_ai/x", "hosted_vllm/x", "some/model"])
def test_models_that_may_do_without_a_key_are_not_refused(name: str) -> None:
    chat_model(f"litellm:{name}", ModelSettings(), env="text2sql", seed=0)


@pytest.mark.parametrize("variable", ["", "OPENAI_API_BASE", "OPENAI_BASE_URL"])
def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with serve(reply("hi")) as server:
        if variable:
            monkeypatch.setenv(variable, server.url)
        settings = ModelSettings(api_base=None if variable else server.url)
        chat = chat_model("litellm:openai/m", settings, env="text2sql", seed=0)
        assert asyncio.run(call(chat, [HumanMessage("x")], settings=settings, budget=Budget())).text == "hi"


def test_an_unknown_model_costs_nothing() -> None:
    with serve(reply("hi")) as server:
        assert ask(server).cost == 0.0


def test_throttling_is_waited_out_as_long_as_the_server_asks() -> None:
    with serve(status(429, "0.3"), reply("hi")) as server:
        assert ask(server).text == "hi"
    assert 0.3 <= server.times[1] - server.times[0] < 2


def test_a_wait_beyond_the_deadline_is_given_up_at_once() -> None:
    start = time.monotonic()
    with serve(status(429, "3600")) as server, pytest.raises(ModelUnavailable, match="3600 s"):
        ask(server, deadline_s=5)
    assert time.monotonic() - start < 4
    assert len(server.requests) == 1


@pytest.mark.parametrize("trouble", [status(500), status(503), cut()])
def test_passing_trouble_is_retried(trouble: Any) -> None:
    with serve(trouble, trouble, reply("hi")) as server:
        assert ask(server).text == "hi"
    assert len(server.requests) == 3


def test_attempts_are_bounded() -> None:
    with serve(status(503)) as server, pytest.raises(ModelUnavailable, match="3 attempts"):
        ask(server, attempts=3)
    assert len(server.requests) == 3


def test_a_bad_request_is_not_repeated() -> None:
    with serve(status(400)) as server, pytest.raises(ModelUnavailable, match="not retried"):
        ask(server)
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [401, 404])
def test_a_refused_key_or_model_is_bad_input(code: int) -> None:
    with serve(status(code)) as server, pytest.raises(UsageError, match=str(code)):
        ask(server)
    assert len(server.requests) == 1


def test_a_tarpit_is_left_at_the_deadline() -> None:
    start = time.monotonic()
    with serve(tarpit(30)) as server, pytest.raises(ModelUnavailable):
        ask(server, timeout_s=0.3, deadline_s=1)
    assert time.monotonic() - start < 5
    assert len(server.requests) >= 2


def test_a_body_that_is_no_json_ends_in_one_clear_error() -> None:
    with serve(garbage()) as server, pytest.raises(ModelUnavailable):
        ask(server, attempts=2)
    assert len(server.requests) <= 2


def test_tool_calls_become_plain_data() -> None:
    with serve(tool_call("run_sql", '{"sql": "SELECT 1"}')) as server:
        got = ask(server, tools=[TOOL])
    assert got.calls == [{"name": "run_sql", "args": {"sql": "SELECT 1"}, "text": "", "error": None}]
    assert server.requests[0]["tools"] == [TOOL]


def test_malformed_arguments_become_a_call_with_the_parse_error() -> None:
    with serve(tool_call("run_sql", '{"sql": ')) as server:
        got = ask(server, tools=[TOOL])
    assert [(one["name"], one["args"]) for one in got.calls] == [("run_sql", {})]
    assert '{"sql": ' in (got.calls[0]["error"] or "")


@pytest.mark.parametrize("arguments", ['{"a":' * 3000 + "1" + "}" * 3000, '{"a": 1' + "0" * 5000 + "}"])
def test_arguments_that_pythons_reader_cannot_take_are_the_models_own_fault(arguments: str) -> None:
    """litellm raises a server's error for them: the rollout would count for nothing, so to be unreadable would pay."""
    with serve(tool_call("run_sql", arguments)) as server:
        got = ask(server, tools=[TOOL])
        asked = len(server.requests)
    assert asked == 1
    assert [one["args"] for one in got.calls] == [{}]
    assert "could not be read" in (got.calls[0]["error"] or "")


def test_the_budget_stops_the_next_call() -> None:
    budget = Budget(max_tokens=150)
    with serve(reply("hi")) as server:
        ask(server, budget)
        ask(server, budget)
        with pytest.raises(BudgetSpent, match="220 of 150"):
            ask(server, budget)
    assert len(server.requests) == 2


def test_the_budget_counts_money() -> None:
    budget = Budget(max_cost=0.0001)
    with serve(reply("hi")) as server:
        ask(server, budget, input_price=1.0)
        with pytest.raises(BudgetSpent, match="cost_budget"):
            ask(server, budget, input_price=1.0)
