"""One exploration and one validation through the real litellm client, spoken to by a fake OpenAI server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from graphs.runner import explore_all, validate_all
from graphs.settings import ModelSettings
from store.rows import Candidate, Row, Step, Task
from tests.fake_openai import reply, serve, tool_call
from tests.graph_setup import CONTEXT, WORD, Echo, job, of, signal


def test_both_graphs_through_litellm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    script = [
        reply(json.dumps(CONTEXT)),
        tool_call("look", "{}"),
        tool_call("say", '{"word": '),
        reply("I have seen enough."),
        reply("```json\n" + json.dumps({"tasks": [WORD]}) + "\n```"),
        tool_call("say", '{"word": "hello"}'),
        reply('{"problem": null}'),
    ]
    rows: list[Row] = []
    with serve(*script) as server:
        common: dict[str, Any] = {
            "env": Echo(),
            "model": "litellm:openai/m",
            "seed": 0,
            "append": rows.extend,
            "checkpoints": tmp_path / "graphs.sqlite",
            "calls": ModelSettings(api_base=server.url, input_price=1.0),
        }
        (exploration,) = asyncio.run(explore_all([job(signal=signal())], **common))
        candidates = of(Candidate, rows)
        (verdict,) = asyncio.run(validate_all(candidates, t=0, known=[], held_out=[], **common))

    assert (exploration.outcome, exploration.steps, exploration.tokens) == ("done", 2, 550)
    assert exploration.cost == pytest.approx(5 * 100 / 1e6)
    assert [step.failed for step in of(Step, rows)] == [False, True, False]
    assert (verdict.reason, len(of(Task, rows))) == ("valid", 1)

    third = server.requests[2]["messages"]
    assert [message["role"] for message in third] == ["system", "user", "assistant", "tool"]
    assert third[2]["tool_calls"][0]["function"]["name"] == "look"
    assert {tool["function"]["name"] for tool in server.requests[1]["tools"]} == {"look", "say"}
    assert '{"word": ' in server.requests[3]["messages"][-1]["content"], "the parse error goes back to the model"
    assert "tools" not in server.requests[0]
