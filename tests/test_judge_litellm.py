"""Judges through the real litellm client, spoken to by a fake OpenAI server; and `[judge]` in a workspace."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from coevolve import judging, phases
from coevolve.commands import opened, start_run
from coevolve.config import parse_settings
from coevolve.workspace import LOOP, Workspace
from graphs.committee import Judges, named
from graphs.replies import opinion_schema
from graphs.settings import JudgeSettings, ModelSettings
from store.errors import UsageError
from store.rows import Verdict, Vote
from tests.cli import coevolve
from tests.fake_openai import reply, serve
from tests.graph_setup import candidate, of
from tests.judge_setup import BAD, GOOD, judged
from tests.test_graph_exports import load


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def test_a_verdict_through_litellm_costs_what_its_answers_cost(tmp_path: Path) -> None:
    with serve(reply("Adopt it, please."), reply(f"```json\n{json.dumps(GOOD)}\n```")) as server:
        calls = ModelSettings(api_base=server.url, input_price=1.0)
        court = Judges(strong=named(["litellm:hosted_vllm/m"], calls, seed=0), settings=JudgeSettings())
        (verdict,), rows = judged(tmp_path, [candidate()], court, calls=calls)
    (vote,) = of(Vote, rows)
    assert (verdict.reason, vote.model, vote.prompt_tokens) == ("valid", "litellm:hosted_vllm/m", 200)
    assert vote.cost == pytest.approx(2 * 100 / 1e6)
    first = server.requests[0]
    assert first["response_format"]["json_schema"]["schema"] == opinion_schema()
    assert (first["temperature"], len(server.requests)) == (0.0, 2)
    assert "That could not be read" in server.requests[1]["messages"][-1]["content"]


def test_the_judge_graph_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = {"user_turns": ["Which authors are there?"], "reference": "SELECT name FROM nowhere"}
    with serve(reply(json.dumps(GOOD))) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        config: Any = {"configurable": {"model": "litellm:openai/studio"}}
        ended = asyncio.run(load("judge").ainvoke({"draft": draft}, config))
        assert (ended["verdict"]["reason"], server.requests) == ("execution_error", [])
        assert asyncio.run(load("judge").ainvoke({}, config))["verdict"]["reason"] == "nothing_given"
    with pytest.raises(UsageError, match=r"model: 'procedural' is no model that can be asked; write `litellm:NAME`"):
        asyncio.run(load("judge").ainvoke({"draft": draft}, {"configurable": {"model": "procedural"}}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"models": ["gpt-4o"]}, "judge.models: 'gpt-4o' is no judge; write `litellm:NAME`"),
        ({"models": ["litellm:"]}, "judge.models: 'litellm:' is no judge"),
        ({"models": ["reward_model"]}, "judge.models: 'reward_model' is no judge"),
        ({"cheap": "reward_model"}, "judge.cheap spares judge.models, which is empty"),
        (
            {"models": ["litellm:a"], "cheap": "b"},
            "judge.cheap: 'b' is no judge; write `litellm:NAME` or `reward_model`",
        ),
        ({"min_score": 6.0}, "judge.min_score = 6.0: input should be less than or equal to 5"),
    ],
)
def test_a_bad_setting_is_named(given: Any, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_settings({"judge": given}, "x")
    assert words in str(error.value)


@pytest.mark.parametrize("key", ["token_budget", "cost_budget"])
def test_a_budget_of_nothing_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match=rf"model\.{key} = 0"):
        parse_settings({"model": {key: 0}}, "x")


def test_a_missing_key_of_a_judge_stops_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert coevolve("init", tmp_path / "work").code == 0
    options = ["--set", "policy=litellm:none", "--set", 'judge.models=["litellm:gpt-4o-mini"]']
    done = coevolve("seed", "--workspace", tmp_path / "work", *options)
    assert done.code == 2
    assert done.err == "error: judge.models: 'litellm:gpt-4o-mini' needs OPENAI_API_KEY; set it\n"


def test_a_run_with_judges_keeps_votes_and_asks_nobody_twice(tmp_path: Path) -> None:
    """Seeding with a committee that turns everything down: the votes are rows, and none is asked for again."""
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    with serve(reply(json.dumps(BAD))) as server:
        options = ["policy=litellm:openai/m", 'judge.models=["litellm:openai/m", "litellm:openai/n"]']
        run = start_run(place, (*options, f"model.api_base={server.url}", "model.token_budget=300"), 0)
        with opened(place, run, (), LOOP) as loop:
            phases._explore(loop, phases._unguided_jobs(loop, 0, 0, 2, []))
            stopped = phases._validate(loop, 0)
            before = len(server.requests)
            assert judging.judges(loop.settings, place.store, run.id).past.keys() == {  # type: ignore[union-attr]
                (vote.candidate_id, "strong", vote.judge) for vote in place.store.rows(Vote)
            }
        with opened(place, run, ("model.token_budget=100000",), LOOP) as loop:
            rest = phases._validate(loop, 0)
        asked, votes = len(server.requests), place.store.rows(Vote)
    assert before < asked == len(votes)
    verdicts = place.store.rows(Verdict)
    assert len(verdicts) == len(stopped) + len(rest)
    assert {row.reason for row in rest} & {"outvoted"}
    assert not any(row.adopt for row in verdicts)
