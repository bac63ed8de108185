"""`coevolve eval --env bfcl --policy litellm:...`: an OpenAI-compatible server is evaluated without a run, its rollouts
are kept, and graded anew they score the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from coevolve.config import load_settings
from coevolve.untrained import folder
from coevolve.workspace import Workspace
from envs.bfcl.env import Bfcl
from envs.protocols import Message
from evals.suites import suite
from tests.cli import Ran, coevolve
from tests.fake_openai import FakeServer, answering, serve
from tests.local_server import serving

NAME = "multi_turn_miss_func"
LIMIT = 6


@pytest.fixture
def server(bfcl: Bfcl) -> Iterator[FakeServer]:
    with serve(answering(answers(bfcl))) as fake:
        yield fake


def answers(bfcl: Bfcl) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Knows them, those of every second entry only up to the first turn; and it says what looks like a call."""
    tasks = suite(bfcl, NAME, LIMIT)
    plays = {task.user_turns[0]: list(_play(bfcl.solution(task))) for task in tasks}
    for task in tasks[::2]:
        plays[task.user_turns[0]] = [{"role": "assistant", "content": '[{"name": "ls", "args": {}}]'}] * 20

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        at = sum(message["role"] == "assistant" for message in request["messages"])
        return _openai(plays[_first(request)][at])

    return answer


def _first(request: dict[str, Any]) -> str:
    return next(message["content"] for message in request["messages"] if message["role"] == "user")


def _play(messages: list[Message]) -> Iterator[Message]:
    yield from (message for message in messages if message["role"] == "assistant")


def _openai(message: Message) -> dict[str, Any]:
    functions = [
        {"name": call["name"], "arguments": json.dumps(call["args"])} for call in message.get("tool_calls", ())
    ]
    calls = [{"id": str(at), "type": "function", "function": function} for at, function in enumerate(functions)]
    return {"content": message["content"], **({"tool_calls": calls} if calls else {})}


def evaluate(work: Path, server: FakeServer, *more: str) -> Ran:
    place = ["eval", "--workspace", str(work), "--env", "bfcl", "--policy", "litellm:openai/some", "--split", NAME]
    return coevolve(*place, "--limit", str(LIMIT), "--json", "--set", f"model.api_base={server.url}", *more)


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
    assert "note: 0 rollouts score otherwise than is stored" in again.err
    assert [_plain(row) for row in found if row["metric"] == "accuracy"] == json.loads(done.out)
    whole = {row["metric"]: row["value"] for row in found if row["slice"] == "all"}
    assert whole == {"accuracy": 0.5, "official": 0.5, "strict": 0.5}

    sampled = evaluate(tmp_path, server, "--samples", "2")
    assert json.loads(sampled.out)[0]["suite"] == f"{NAME}[{LIMIT}]@2"
    assert len(server.requests) == 3 * asked
    assert coevolve("status", "--workspace", tmp_path, "--json").out.strip() == '{"run": null}'


def test_rollouts_that_are_in_no_mean_are_told(tmp_path: Path, bfcl: Bfcl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "config.toml").write_text("")
    knows = answers(bfcl)
    broken = suite(bfcl, NAME, LIMIT)[1].user_turns[0]

    def one_fails(request: dict[str, Any]) -> dict[str, Any]:
        return {"tool_calls": "none"} if _first(request) == broken else knows(request)

    with serve(answering(one_fails)) as fake:
        done, told = evaluate(tmp_path, fake), evaluate(tmp_path, fake)
    assert done.code == 0, done.err
    whole = json.loads(done.out)[0]
    assert (whole["n"], whole["value"]) == (LIMIT - 1, 0.4)
    for ran in (done, told):
        assert f"note: {NAME}[{LIMIT}]: 1 of {LIMIT} rollouts failed by the machine and are in no mean" in ran.err


class Models(BaseHTTPRequestHandler):
    """Tells of one model, as vLLM does."""

    model = "one"

    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": self.model, "root": "/nowhere", "max_model_len": 9}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_another_model_behind_the_same_url_is_another_evaluation(bfcl: Bfcl, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    place, found = Workspace.find(str(tmp_path)), []
    with serving(Models) as url:
        settings = load_settings(place.config, ("env=bfcl", f"policy=vllm:{url}", "train.collect.tools=true"))
        for Models.model in ("one", "two", "one"):
            found.append(folder(place, settings, bfcl, [NAME]).id)
    assert found[0] == found[2] != found[1]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "metric"}


def test_what_it_cannot_play_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    place = ["eval", "--workspace", str(tmp_path)]
    for arguments, words in (
        (["--env", "bfcl", "--run", "r001"], "leave --run"),
        (["--env", "bfcl", "--suite", "gold"], "'gold' is not a suite of bfcl"),
        (["--env", "chess"], "chess"),
        (["--policy", "litellm:x/y", "--set", "env=bfcl", "--suite", NAME], "--env bfcl"),
        (["--env", "bfcl", "--rescore"], "no rollout of multi_turn_base_train"),
    ):
        done = coevolve(*place, *arguments)
        assert (done.code, words in done.err) == (2, True), done.err
