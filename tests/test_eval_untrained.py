"""`coevolve eval --env bfcl --policy litellm:...`: an OpenAI-compatible server is evaluated without a run, its rollouts
are kept, and graded anew they score the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.bfcl.env import Bfcl
from envs.protocols import Message
from evals.suites import suite
from tests.cli import Ran, coevolve
from tests.fake_openai import FakeServer, answering, serve

NAME = "multi_turn_miss_func"
LIMIT = 6


@pytest.fixture
def server(bfcl: Bfcl) -> Iterator[FakeServer]:
    """Knows the answers, those of every second entry only up to the first turn; and it says what looks like a call."""
    tasks = suite(bfcl, NAME, LIMIT)
    plays = {task.user_turns[0]: list(_play(bfcl.solution(task))) for task in tasks}
    for task in tasks[::2]:
        plays[task.user_turns[0]] = [{"role": "assistant", "content": '[{"name": "ls", "args": {}}]'}] * 20

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        first = next(message["content"] for message in request["messages"] if message["role"] == "user")
        at = sum(message["role"] == "assistant" for message in request["messages"])
        return _openai(plays[first][at])

    with serve(answering(answer)) as fake:
        yield fake


def _play(messages: list[Message]) -> Iterator[Message]:
    yield from (message for message in messages if message["role"] == "assistant")


def _openai(message: Message) -> dict[str, Any]:
    functions = [
        {"name": call["name"], "arguments": json.dumps(call["args"])} for call in message.get("tool_calls", ())
    ]
    calls = [{"id": str(at), "type": "function", "function": function} for at, function in enumerate(functions)]
    return {"content": message["content"], **({"tool_calls": calls} if calls else {})}


def evaluate(work: Path, server: FakeServer, *more: str) -> Ran:
    return coevolve(
        *["eval", "--workspace", work, "--env", "bfcl", "--policy", "litellm:openai/some", "--split", NAME],
        *["--limit", str(LIMIT), "--json", "--set", f"model.api_base={server.url}", *more],
    )


def test_a_server_is_evaluated_without_a_run(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "config.toml").write_text("")
    done = evaluate(tmp_path, server)
    assert done.code == 0, done.err
    rows = {row["slice"]: row for row in json.loads(done.out)}
    assert (rows["all"]["n"], rows["all"]["value"]) == (LIMIT, 0.5)
    assert 0 < rows["all"]["low"] < 0.5 < rows["all"]["high"] < 1
    assert len(rows) > 2, "services have scores of their own"
    asked = len(server.requests)

    assert evaluate(tmp_path, server).out == done.out
    again = evaluate(tmp_path, server, "--rescore")
    assert len(server.requests) == asked, "nothing is played twice"
    found = json.loads(again.out)
    assert [_plain(row) for row in found if row["metric"] == "accuracy"] == json.loads(done.out)
    whole = {row["metric"]: row["value"] for row in found if row["slice"] == "all"}
    assert whole["official"] == 0.5 > whole["strict"], "the answers call before they may"

    sampled = evaluate(tmp_path, server, "--samples", "2")
    assert json.loads(sampled.out)[0]["suite"] == f"{NAME}[{LIMIT}]@2"
    assert len(server.requests) == 3 * asked
    assert coevolve("status", "--workspace", tmp_path, "--json").out.strip() == '{"run": null}'


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "metric"}


def test_what_it_cannot_play_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    place = ["eval", "--workspace", tmp_path]
    for arguments, words in (
        (["--env", "bfcl", "--run", "r001"], "leave --run"),
        (["--env", "bfcl", "--suite", "gold"], "'gold' is not a suite of bfcl"),
        (["--env", "chess"], "chess"),
        (["--policy", "litellm:x/y", "--set", "env=bfcl", "--suite", NAME], "--env bfcl"),
        (["--env", "bfcl", "--rescore"], "no rollout of multi_turn_base_train"),
    ):
        done = coevolve(*place, *arguments)
        assert (done.code, words in done.err) == (2, True), done.err
