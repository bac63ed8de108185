"""The policy as explorer: it takes part in both graphs as any chat model does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from coevolve import wiring
from coevolve.commands import start_run
from coevolve.config import Settings
from coevolve.guidance import guidance
from coevolve.loop import Loop
from coevolve.workspace import Workspace
from envs.errors import PolicyUnavailable
from envs.protocols import Request
from envs.text2sql.env import builtin
from graphs.policy_model import PolicyChatModel
from graphs.runner import explore_all, validate_all
from graphs.settings import ModelSettings
from store.rows import Candidate, Exploration, Row, Step
from tests.cli import coevolve
from tests.fakes import Answer, ScriptedPolicy
from tests.graph_setup import WORD, Echo, job, of


def answer(request: Request) -> Answer:
    """Looks once in each role that has tools, then says what is asked for."""
    asked = str(next(message["content"] for message in request.messages if message["role"] == "user"))
    if request.tools and not any(message["role"] == "tool" for message in request.messages):
        return {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "look", "args": {}}]}
    if asked.startswith("ROLE: abstract"):
        return json.dumps({"tasks": [WORD]})
    return '{"problem": null}' if asked.startswith("ROLE: try") else "enough"


def played(policy: ScriptedPolicy, tmp: Path) -> list[Row]:
    rows: list[Row] = []
    common: dict[str, Any] = {
        "env": Echo(),
        "model": "policy",
        "factory": lambda seed: PolicyChatModel(policy=policy, settings=ModelSettings(), seed=seed),
        "seed": 0,
        "append": rows.extend,
        "checkpoints": tmp / "graphs.sqlite",
        "calls": ModelSettings(attempts=1),
    }
    asyncio.run(explore_all([job()], **common))
    asyncio.run(validate_all(of(Candidate, rows), t=0, known=[], held_out=[], **common))
    return rows


def test_it_writes_a_task_and_reviews_it_in_a_session_of_its_own(tmp_path: Path) -> None:
    policy = ScriptedPolicy(answer)
    rows = played(policy, tmp_path)
    (exploration,) = of(Exploration, rows)
    assert (exploration.outcome, exploration.steps, exploration.tokens > 0) == ("done", 1, True)
    assert [step.action for step in of(Step, rows)] == ['[{"name": "look", "args": {}}]'] * 2
    asked = [request.messages for batch in policy.batches for request in batch]
    review = [messages for messages in asked if "ROLE: try" in messages[1]["content"]]
    assert all('"log":[]' in messages[1]["content"] for messages in review), "it sees nothing of the exploration"
    assert all(message["role"] != "tool" for message in review[0])


def test_a_policy_that_is_gone_is_our_own_fault(tmp_path: Path) -> None:
    rows = played(ScriptedPolicy(lambda request: PolicyUnavailable("no memory")), tmp_path)
    (exploration,) = of(Exploration, rows)
    assert (exploration.outcome, "no memory" in str(exploration.error)) == ("infra", True)


def test_only_the_explorer_named_policy_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    run = start_run(place, ("policy=litellm:openai/m", "explorer=policy"), 0)
    settings = Settings(policy="litellm:openai/m", explorer="policy")
    assert wiring.explorer(Settings(), run, 0) is None
    factory = wiring.explorer(settings, run, 0)
    assert factory is not None
    assert factory(1).model == "openai/m"  # type: ignore[attr-defined]


def test_its_examples_have_no_reference(tmp_path: Path) -> None:
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    run = start_run(place, ("policy=litellm:none",), 0)
    tasks = builtin().seed_tasks()
    for explorer, shown in (("policy", False), ("procedural", True)):
        settings = Settings.model_validate({"explorer": explorer, "explore": {"guidance": ["examples"]}})
        loop = Loop(workspace=place, run=run, settings=settings, overrides=(), env=builtin(), report=lambda *_: None)
        told = guidance(loop, tasks).told("unguided", 0)
        assert told is not None
        assert [bool(example["reference"]) for example in told["examples"]] == [shown] * 3
