"""Rollouts: lockstep, whose fault, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from envs import episode
from envs.errors import PolicyUnavailable
from envs.protocols import Env, Policy, Request
from envs.rollout import Job, action_text, sampling_seed
from store.errors import UsageError
from tests.fakes import EchoEnv, ScriptedPolicy, echo
from tests.rollouts import jobs, outcomes, run

typed_env: Env = EchoEnv()
typed_policy: Policy = ScriptedPolicy(echo)


def test_right_answers_score_and_leave_complete_rows() -> None:
    env = EchoEnv()
    (row, steps), _ = run(env, jobs(env, "ping", k=2), ScriptedPolicy(echo, version=3))
    assert (row.outcome, row.score, row.error, row.violation) == ("scored", 1.0, None, None)
    assert (row.policy, row.policy_version, row.task_id, row.world) == ("scripted", 3, env.task("ping").id, "room")
    assert (row.steps, row.prompt_tokens, row.completion_tokens) == (1, 2, 1)
    assert [(s.index, s.action, s.observation, s.tokens, s.failed) for s in steps] == [(0, "ping", "", ["ping"], False)]
    assert steps[0].trajectory_id == row.id
    assert all(session.closed for session in env.sessions)


def test_batches_follow_the_job_order_and_the_policys_size() -> None:
    env = EchoEnv(turns=2)
    policy = ScriptedPolicy(lambda r: "no" if len(r.messages) == 2 and r.messages[1]["content"] != "b" else echo(r))
    policy.batch = 2
    run(env, jobs(env, "a", "b", "c"), policy)
    words = [[request.messages[1]["content"] for request in batch] for batch in policy.batches]
    assert words == [["a", "b"], ["c"], ["a", "c"]]


def test_the_second_turn_sees_the_first_and_has_a_seed_of_its_own() -> None:
    env = EchoEnv(turns=2)
    policy = ScriptedPolicy(lambda request: "wrong")
    ((row, steps),) = run(env, jobs(env, "a"), policy)
    first, second = (batch[0] for batch in policy.batches)
    assert [m["content"] for m in second.messages] == ["Say it back.", "a", "wrong", "Again."]
    assert first.seed != second.seed
    assert (row.score, row.steps, [s.failed for s in steps]) == (0.0, 2, [True, True])


def test_a_lost_session_is_tried_again_with_the_same_seed() -> None:
    env = EchoEnv()
    todo = jobs(env, "a", "b")
    env.faults[todo[0].task.id] = ["lose"]
    policy = ScriptedPolicy(echo)
    played = run(env, todo, policy)
    assert outcomes(played) == [("infra", None, 0), ("scored", 1.0, 1), ("scored", 1.0, 0)]
    lost, again = played[0][0], played[1][0]
    assert lost.error == "SessionLost: the echo is gone"
    assert lost.id != again.id
    assert lost.seed == again.seed
    assert policy.batches[0][0].seed == policy.batches[1][0].seed


def test_failures_of_the_machine_change_no_score() -> None:
    def scores(broken: int) -> list[tuple[str, int, float | None, int]]:
        env = EchoEnv(turns=2)
        todo = jobs(env, "a", "b", "c", k=8)
        for index, job in enumerate(todo[:broken]):
            env.faults.setdefault(job.task.id, []).append("lose" if index % 2 else None)
        policy = ScriptedPolicy(lambda r: echo(r) if r.seed % 3 else "no")
        rows = [row for row, _ in run(env, todo, policy) if row.outcome == "scored"]
        return [(str(row.task_id), row.k, row.score, row.seed) for row in rows]

    assert len(scores(0)) == 24
    assert {score for *_, score, _ in scores(0)} == {0.0, 1.0}
    assert scores(24) == scores(0)


def test_no_jobs_ask_for_nothing() -> None:
    policy = ScriptedPolicy(echo)
    assert run(EchoEnv(), [], policy) == []
    assert policy.batches == []


def test_retries_are_bounded_and_count_from_the_jobs_attempt() -> None:
    env = EchoEnv()
    (job,) = jobs(env, "a")
    env.faults[job.task.id] = ["lose"] * 9
    assert outcomes(run(env, [job], ScriptedPolicy(echo), max_attempts=3)) == [("infra", None, n) for n in range(3)]
    late = Job(task=job.task, k=0, seed=1, attempt=2)
    assert outcomes(run(env, [late], ScriptedPolicy(echo), max_attempts=3)) == [("infra", None, 2)]


@pytest.mark.parametrize("fault", ["crash", "sleep"])
def test_a_bug_or_a_silent_session_costs_its_own_episode_only(fault: Any) -> None:
    env = EchoEnv()
    todo = jobs(env, "a", "b")
    env.faults[todo[0].task.id] = [fault, fault]
    played = run(env, todo, ScriptedPolicy(echo), deadline_s=0.05)
    assert outcomes(played) == [("infra", None, 0), ("infra", None, 1), ("scored", 1.0, 0)]


def test_a_defective_task_is_invalid_and_not_tried_again() -> None:
    env = EchoEnv()
    todo = jobs(env, "a")
    env.faults[todo[0].task.id] = ["invalid"]
    ((row, _),) = run(env, todo, ScriptedPolicy(echo))
    assert (row.outcome, row.score, row.error) == ("invalid", None, "the word has no echo")


def test_an_exception_in_one_entry_is_that_rollouts_alone() -> None:
    env = EchoEnv()
    policy = ScriptedPolicy(lambda r: PolicyUnavailable("429") if echo(r) == "a" else echo(r))
    played = run(env, jobs(env, "a", "b"), policy, max_attempts=1)
    assert outcomes(played) == [("infra", None, 0), ("scored", 1.0, 0)]
    assert played[0][0].error == "PolicyUnavailable: 429"
    assert played[0][1] == []


class _Broken(ScriptedPolicy):
    async def sample(self, requests: Sequence[Request]) -> Any:
        answer = self.answer(requests[0])
        if isinstance(answer, Exception):
            raise answer
        return [answer] if answer == "short" else await asyncio.sleep(3600)


@pytest.mark.parametrize("answer", [PolicyUnavailable("down"), RuntimeError("bug"), "short", "hang"])
def test_a_policy_that_fails_as_a_whole_makes_infra_rows(answer: Any) -> None:
    env = EchoEnv()
    policy = _Broken(lambda request: answer)
    played = run(env, jobs(env, "a", "b"), policy, max_attempts=1, deadline_s=0.05)
    assert [row.outcome for row, _ in played] == ["infra", "infra"]
    assert all(session.closed for session in env.sessions)


def test_wrong_settings_of_the_policy_are_not_swallowed() -> None:
    env = EchoEnv()
    with pytest.raises(UsageError, match="no such model"):
        run(env, jobs(env, "a"), _Broken(lambda request: UsageError("no such model")))
    assert all(session.closed for session in env.sessions)


def test_an_episode_that_does_not_end_is_scored_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode, "MAX_TURNS", 3)
    env = EchoEnv()
    todo = jobs(env, "a")
    env.faults[todo[0].task.id] = ["never_done"]
    ((row, steps),) = run(env, todo, ScriptedPolicy(echo))
    assert (row.outcome, row.score, len(steps)) == ("scored", 1.0, 3)


def test_long_observations_are_cut_before_the_policy_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode, "OBSERVATION_CHARS", 3)
    env = EchoEnv(turns=2)
    policy = ScriptedPolicy(lambda request: "x")
    ((_, steps),) = run(env, jobs(env, "a"), policy)
    assert steps[0].observation == policy.batches[1][0].messages[-1]["content"] == "Aga... [3 characters cut]"


def test_tool_calls_are_recorded_as_json() -> None:
    env = EchoEnv()
    call = {"id": "1", "name": "say", "args": {"word": "a"}}
    policy = ScriptedPolicy(lambda request: {"role": "assistant", "content": "", "tool_calls": [call]})
    ((row, steps),) = run(env, jobs(env, "a"), policy, tools=True)
    assert (row.score, steps[0].action) == (1.0, '[{"name": "say", "args": {"word": "a"}}]')
    assert [tool["function"]["name"] for tool in policy.batches[0][0].tools] == ["look", "say"]


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ({}, ""),
        ({"content": None}, ""),
        ({"content": "a\ud800"}, "a?"),
        ({"content": [{"type": "text"}]}, ' [{"type": "text"}]'),
        ({"tool_calls": "nonsense"}, '"nonsense"'),
        ({"tool_calls": [None, {"name": "f"}]}, '[null, {"name": "f", "args": null}]'),
    ],
)
def test_any_message_has_an_action_text(message: dict[str, Any], action: str) -> None:
    assert action_text(message) == action


def test_sampling_seeds_depend_on_all_but_the_attempt() -> None:
    seeds = {sampling_seed(s, t, task, k) for s in (0, 1) for t in (0, 1) for task in "ab" for k in (0, 1)}
    assert len(seeds) == 16
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_the_same_call_gives_the_same_rows() -> None:
    def ids() -> list[tuple[str, int, int]]:
        env = EchoEnv(turns=2)
        policy = ScriptedPolicy(lambda r: echo(r) if r.seed % 2 else "no")
        played = run(env, jobs(env, "a", "b", k=4), policy)
        return [(row.id, row.seed, row.steps) for row, _ in played]

    assert ids() == ids()
