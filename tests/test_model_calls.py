"""What `call` does around any chat model: which errors are worth a second attempt, waits, bad specs."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from graphs import model
from graphs.model import Budget, ModelUnavailable, Reply, call, chat_model
from graphs.settings import ModelSettings
from store.errors import CoevolveError, UsageError
from store.rows import Json
from tests.scripted import ScriptedChatModel, says


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "BACKOFF_S", 0.001)


class Http(Exception):
    """An endpoint's error, as client libraries raise it."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.response = SimpleNamespace(headers={name.replace("_", "-"): value for name, value in headers.items()})


def ask(*answers: AIMessage | Exception, **settings: Any) -> tuple[Reply | CoevolveError, int]:
    """(reply or error, number of requests) of a model that gives these answers."""
    left, asked = list(answers), 0

    def policy(messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        nonlocal asked
        asked += 1
        return left.pop(0) if len(left) > 1 else left[0]

    chat = ScriptedChatModel(policy=policy)
    chosen = ModelSettings(**{"attempts": 3, **settings})
    try:
        return asyncio.run(call(chat, [HumanMessage("x")], settings=chosen, budget=Budget())), asked
    except CoevolveError as error:
        return error, asked


@pytest.mark.parametrize(
    "error",
    [Http(408), Http(429), Http(500), Http(529), TimeoutError(), ConnectionResetError(), httpx.ReadError("cut")],
    ids=repr,
)
def test_passing_errors_are_repeated(error: Exception) -> None:
    reply, asked = ask(error, says("hi"))
    assert isinstance(reply, Reply)
    assert asked == 2


@pytest.mark.parametrize("error", [Http(400), Http(413), Http(422), ValueError("bug"), KeyError("choices")], ids=repr)
def test_other_errors_are_not(error: Exception) -> None:
    failure, asked = ask(error, says("hi"))
    assert isinstance(failure, ModelUnavailable)
    assert asked == 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_of_key_or_name_is_bad_input(status: int) -> None:
    failure, asked = ask(Http(status), says("hi"))
    assert isinstance(failure, UsageError)
    assert asked == 1


@pytest.mark.parametrize(
    "words", ["Missing credentials. Please pass an `api_key`", "Missing Gemini API key. Set", "Incorrect API key given"]
)
def test_a_missing_key_is_bad_input_whatever_its_status(words: str) -> None:
    error = Http(500)
    error.args = (words,)
    failure, asked = ask(error, says("hi"))
    assert isinstance(failure, UsageError)
    assert asked == 1


def test_concurrent_jobs_tell_the_same_trouble_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def policy(messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        return Http(503)

    async def all_at_once() -> None:
        chosen = ModelSettings(attempts=2)
        calls = [
            call(ScriptedChatModel(policy=policy), [HumanMessage("x")], settings=chosen, budget=Budget())
            for _ in range(5)
        ]
        await asyncio.gather(*calls, return_exceptions=True)

    monkeypatch.setattr(model, "BACKOFF_S", 0.2)
    asyncio.run(all_at_once())
    assert [record.getMessage() for record in caplog.records] == [
        "model call failed (Http: status 503), attempt 2 follows in 0.2 s"
    ]


@pytest.mark.parametrize(("value", "seconds"), [("0", 0.0), ("2.5", 2.5), ("-3", 0.0), ("soon", None), ("", None)])
def test_retry_after_in_seconds(value: str, seconds: float | None) -> None:
    assert model._retry_after(Http(429, retry_after=value)) == seconds


def test_retry_after_as_a_date() -> None:
    later = email.utils.formatdate(time.time() + 60, usegmt=True)
    assert model._retry_after(Http(429, retry_after=later)) == pytest.approx(60, abs=2)
    past = email.utils.formatdate(time.time() - 60, usegmt=True)
    assert model._retry_after(Http(429, retry_after=past)) == 0.0


def test_a_model_that_hangs_is_left_at_the_deadline() -> None:
    class Hanging(ScriptedChatModel):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(60)

    start = time.monotonic()
    chosen = ModelSettings(timeout_s=0.1, deadline_s=0.25)
    chat = Hanging(policy=lambda messages, tools: says(""))
    with pytest.raises(ModelUnavailable, match=r"0\.25 s"):
        asyncio.run(call(chat, [HumanMessage("x")], settings=chosen, budget=Budget()))
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("spec", ["", "gpt-9", "litellm:", "hf:dir", "Procedural"])
def test_an_unknown_spec_is_bad_input(spec: str) -> None:
    with pytest.raises(UsageError, match="litellm:NAME"):
        chat_model(spec, ModelSettings(), env="text2sql", seed=0)


def test_an_environment_without_an_explorer_is_bad_input() -> None:
    with pytest.raises(UsageError, match="echo"):
        chat_model("procedural", ModelSettings(), env="echo", seed=0)


def test_an_error_in_a_circle_of_errors_is_told_like_any_other() -> None:
    """One object raised by several calls at once gets a circle of contexts."""
    first, second = RuntimeError("gone"), KeyError("gone too")
    first.__context__, second.__context__ = second, first

    async def ask() -> None:
        async def raises() -> None:
            raise first

        await model._retried(raises, ModelSettings(attempts=1))

    with pytest.raises(ModelUnavailable, match="RuntimeError: gone"):
        asyncio.run(ask())
