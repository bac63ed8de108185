"""Every branch of the exploration graph, with a scripted explorer in the echo world."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage

from graphs.sessions import SESSIONS
from graphs.settings import ExploreSettings, ModelSettings
from graphs.state import Evidence, StepView
from store.errors import UsageError
from store.rows import Candidate, Step, Trajectory
from tests.graph_setup import CONTEXT, DONE, LOOK, WORD, Echo, explore, explorer, job, of, signal
from tests.scripted import Roles, calls, says


def test_unguided_exploration_acts_and_abstracts(tmp_path: Path) -> None:
    play = explorer()
    (found,), rows = explore(play, tmp_path, [job()])
    assert [role for role, _ in play.seen] == ["act", "act", "abstract"]
    assert (found.outcome, found.steps, found.context, found.signal_id) == ("done", 1, None, None)
    (step,) = of(Step, rows)
    assert json.loads(step.action) == [{"name": "look", "args": {}}]
    assert json.loads(step.observation) == {"word": "hello"}
    (trajectory,) = of(Trajectory, rows)
    assert (trajectory.id, trajectory.purpose, trajectory.score) == (found.trajectory_id, "explore", None)
    (candidate,) = of(Candidate, rows)
    assert (candidate.user_turns, candidate.reference) == (WORD["user_turns"], "hello")
    assert candidate.exploration_id == found.id


def test_a_signal_is_reflected_upon_first(tmp_path: Path) -> None:
    play = explorer()
    (found,), _ = explore(play, tmp_path, [job(signal=signal())])
    assert [role for role, _ in play.seen] == ["reflect", "act", "act", "abstract"]
    assert found.context == CONTEXT
    assert found.signal_id == signal().id
    shown = play.payloads("reflect")[0]["view"]["signal"]
    assert shown["kind"] == "boundary"
    assert shown["evidence"][0]["steps"][0]["action"] == "hallo"
    assert play.payloads("act")[0]["view"]["context"] == CONTEXT


def test_an_endless_attempt_is_cut_before_it_is_shown(tmp_path: Path) -> None:
    steps = [StepView(action=f"{i} " + "x" * 1_000_000, observation="y" * 1_000_000, failed=True) for i in range(20)]
    endless = Evidence(questions=["q"], structure="s", score=0.0, steps=steps)
    play = explorer()
    explore(play, tmp_path, [dataclasses.replace(job(signal=signal()), evidence=[endless])])
    shown = play.payloads("reflect")[0]["view"]["signal"]["evidence"][0]["steps"]
    assert [step["action"].split()[0] for step in shown] == [str(i) for i in range(8, 20)]
    assert max(len(step[field]) for step in shown for field in ("action", "observation")) < 2100


def test_the_log_is_shown_to_the_next_call_and_counts_down_its_steps(tmp_path: Path) -> None:
    play = explorer(act=[LOOK, calls("say", word="x"), DONE])
    explore(play, tmp_path, [job()])
    views = [payload["view"] for payload in play.payloads("act")]
    assert [len(view["log"]) for view in views] == [0, 1, 2]
    assert [view["steps_left"] for view in views] == [4, 3, 2]
    assert [entry["name"] for entry in views[2]["log"]] == ["look", "say"]


def test_an_unreadable_reflection_is_asked_for_once_more(tmp_path: Path) -> None:
    play = explorer(reflect=["I think it failed because ...", CONTEXT])
    (found,), _ = explore(play, tmp_path, [job(signal=signal())])
    assert found.context == CONTEXT
    assert len(play.payloads("reflect")) == 2


def test_a_reflection_that_stays_unreadable_leaves_the_signal_alone(tmp_path: Path) -> None:
    (found,), rows = explore(explorer(reflect="no idea"), tmp_path, [job(signal=signal())])
    assert found.context == {"where": "", "failure": "boundary", "vary": []}
    assert len(of(Candidate, rows)) == 1


def test_a_looping_model_is_stopped_by_the_step_budget(tmp_path: Path) -> None:
    play = explorer(act=LOOK)
    (found,), rows = explore(play, tmp_path, [job()])
    assert found.steps == 4 == len(of(Step, rows))
    assert len(play.payloads("act")) == 4
    assert of(Candidate, rows), "partial work is kept"


def test_a_looping_model_is_stopped_by_the_token_budget(tmp_path: Path) -> None:
    play = explorer(act=calls("look", tokens=600))
    settings = ExploreSettings(steps=50, token_budget=1000)
    (found,), _ = explore(play, tmp_path, [job()], settings=settings)
    assert (found.steps, found.tokens) == (2, 1200)


def test_the_deadline_stops_and_keeps_what_there_is(tmp_path: Path) -> None:
    env = Echo("sleep")
    settings = ExploreSettings(deadline_s=0.3)
    (found,), rows = explore(explorer(), tmp_path, [job()], env=env, settings=settings)
    assert (found.outcome, found.steps) == ("done", 0)
    assert of(Candidate, rows) == []


def test_more_calls_than_steps_left_are_cut(tmp_path: Path) -> None:
    many = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": str(i)} for i in range(9)])
    (found,), _ = explore(explorer(act=[many, DONE]), tmp_path, [job()])
    assert found.steps == 4


def test_a_call_that_can_not_be_read_is_answered_with_the_error(tmp_path: Path) -> None:
    bad = AIMessage("", invalid_tool_calls=[{"name": "look", "args": "{", "id": "1", "error": "cut off"}])
    play = explorer(act=[bad, LOOK, DONE])
    (found,), rows = explore(play, tmp_path, [job()])
    first, second = of(Step, rows)
    assert first.failed
    assert "cut off" in first.observation
    assert not second.failed
    assert play.payloads("act")[1]["view"]["log"][0]["failed"]
    assert found.outcome == "done"


def test_an_unknown_tool_is_an_observation(tmp_path: Path) -> None:
    (found,), rows = explore(explorer(act=[calls("fly"), DONE]), tmp_path, [job()])
    assert [step.failed for step in of(Step, rows)] == [True]
    assert (found.outcome, of(Candidate, rows)) == ("done", [])


def test_nothing_is_abstracted_from_nothing(tmp_path: Path) -> None:
    play = explorer(act=DONE)
    (found,), rows = explore(play, tmp_path, [job()])
    assert (found.steps, of(Candidate, rows), play.payloads("abstract")) == (0, [], [])


def test_candidates_are_limited_and_equal_ones_count_once(tmp_path: Path) -> None:
    words = [{"user_turns": ["say"], "reference": word} for word in ("a", "a", "b", "c", "d")]
    _, rows = explore(explorer(abstract={"tasks": words}), tmp_path, [job()])
    assert [(one.reference, one.index) for one in of(Candidate, rows)] == [("a", 0), ("b", 1), ("c", 2)]


def test_a_lost_session_is_opened_again_once(tmp_path: Path) -> None:
    env = Echo("lose")
    (found,), rows = explore(explorer(), tmp_path, [job()], env=env)
    assert (found.outcome, found.error) == ("done", None)
    assert len(of(Candidate, rows)) == 1
    assert all(session.closed for session in env.sessions)


def test_an_exploration_that_keeps_failing_is_an_infra_row_and_the_next_goes_on(tmp_path: Path) -> None:
    one_by_one = ModelSettings(attempts=1, concurrency=1)
    env = Echo("lose", "crash")
    found, rows = explore(explorer(act=[LOOK, LOOK, LOOK, DONE]), tmp_path, [job(0), job(1)], env=env, calls=one_by_one)
    assert [one.outcome for one in found] == ["infra", "done"]
    assert found[0].error == "RuntimeError: a bug in the environment"
    assert [one.exploration_id for one in of(Candidate, rows)] == [found[1].id]
    failed = next(one for one in of(Trajectory, rows) if one.id == found[0].trajectory_id)
    assert (failed.outcome, failed.score) == ("infra", None)


def test_a_failing_model_is_an_infra_row(tmp_path: Path) -> None:
    (found,), rows = explore(explorer(act=ConnectionError("no route")), tmp_path, [job()])
    assert found.outcome == "infra"
    assert "no route" in (found.error or "")
    assert of(Candidate, rows) == []


def test_a_world_that_is_not_trained_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cellar"):
        explore(explorer(), tmp_path, [job(world="cellar")])


def test_cost_and_tokens_are_counted(tmp_path: Path) -> None:
    play = Roles(act=[calls("look", tokens=100), says("done", tokens=50)], abstract=says('{"tasks": []}', tokens=7))
    (found,), rows = explore(play, tmp_path, [job()])
    assert found.tokens == 157
    (trajectory,) = of(Trajectory, rows)
    assert (trajectory.prompt_tokens, trajectory.completion_tokens) == (157, 0)


def test_sessions_are_closed(tmp_path: Path) -> None:
    env = Echo()
    explore(explorer(), tmp_path, [job(0), job(1)], env=env)
    assert env.sessions
    assert all(session.closed for session in env.sessions)
    assert len(SESSIONS) == 0
