"""Collecting rollouts: K of each task, chunk by chunk; what is done is kept, a breakdown stops the iteration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from envs.errors import InfraError, PolicyUnavailable
from envs.protocols import Policy, Request
from envs.rollout import sampling_seed
from store.rows import Row, Step, Trajectory, Withdrawal
from tests.fakes import EchoEnv, ScriptedPolicy, echo
from training.collect import Outcomes, collect, summary
from training.config import CollectSettings

SETTINGS = CollectSettings(rollouts=2, chunk=2, max_attempts=2, min_valid=0.5)
WORDS = ("one", "two", "three", "four", "five")


class Journal(list[list[Row]]):
    """Keeps the batches that were appended."""

    def append_rows(self, rows: Iterable[Row]) -> None:
        self.append(list(rows))

    def of(self, kind: type[Any]) -> list[Any]:
        return [row for batch in self for row in batch if isinstance(row, kind)]


def run(
    env: EchoEnv,
    policy: Policy,
    *,
    journal: Journal | None = None,
    done: Sequence[Trajectory] = (),
    settings: CollectSettings = SETTINGS,
    report: Callable[[str, int, int], None] = lambda *_: None,
) -> Outcomes:
    append = (Journal() if journal is None else journal).append_rows
    return asyncio.run(
        collect(env, env.seed_tasks(), policy, settings, run="r", t=3, seed=7, done=done, append=append, report=report)
    )


def asked(policy: ScriptedPolicy) -> list[str]:
    return [echo(request) for batch in policy.batches for request in batch]


def test_every_task_gets_its_rollouts_and_each_chunk_is_one_batch_of_rows() -> None:
    env, policy, journal, reports = EchoEnv(words=WORDS), ScriptedPolicy(echo), Journal(), []
    outcomes = run(env, policy, journal=journal, report=lambda *report: reports.append(report))
    assert set(outcomes) == {(task.id, k) for task in env.seed_tasks() for k in range(2)}
    assert [len(batch) for batch in journal] == [8, 8, 4]
    assert [type(row) for row in journal[0]] == [Step, Trajectory] * 4, "a trajectory follows its steps"
    assert {(row.run, row.t, row.purpose, row.outcome) for row in journal.of(Trajectory)} == {
        ("r", 3, "train", "scored")
    }
    assert reports == [("rollouts", 4, 10), ("rollouts", 8, 10), ("rollouts", 10, 10)]
    assert summary(outcomes) == {
        "rollouts": 10,
        "scored": 10,
        "infra": 0,
        "invalid": 0,
        "mean_score": 1.0,
        "completion_tokens": 10,
    }


def test_sampling_is_seeded_by_config_seed_iteration_task_and_k() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()
    run(env, ScriptedPolicy(echo), journal=journal)
    for row in journal.of(Trajectory):
        assert row.seed == sampling_seed(7, 3, row.task_id, row.k)


def test_finished_chunks_are_not_played_again() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()
    whole = run(env, ScriptedPolicy(echo), journal=journal)
    policy, again = ScriptedPolicy(echo), Journal()
    resumed = run(env, policy, journal=again, done=journal.of(Trajectory)[:4])
    assert asked(policy) == ["three", "three", "four", "four", "five", "five"]
    assert {key: row.id for key, row in resumed.items()} == {key: row.id for key, row in whole.items()}
    assert run(env, policy, done=journal.of(Trajectory)) == whole
    assert len(asked(policy)) == 6


def test_a_chunk_written_in_part_is_played_again_as_a_whole() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()
    run(env, ScriptedPolicy(echo), journal=journal)
    policy, again = ScriptedPolicy(echo), Journal()
    run(env, policy, journal=again, done=journal.of(Trajectory)[:7])
    assert asked(policy)[:4] == ["three", "three", "four", "four"]
    assert [row.id for row in again.of(Trajectory)] == [row.id for row in journal.of(Trajectory)[4:]]


def test_a_lost_session_is_tried_again_and_both_attempts_are_rows() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()
    lost = env.seed_tasks()[1]
    env.faults[lost.id] = ["lose"]
    outcomes = run(env, ScriptedPolicy(echo), journal=journal)
    assert all(row.outcome == "scored" for row in outcomes.values())
    rows = [row for row in journal.of(Trajectory) if row.task_id == lost.id and row.k == 0]
    assert [(row.attempt, row.outcome, row.score) for row in rows] == [(0, "infra", None), (1, "scored", 1.0)]


def test_a_breakdown_stops_as_soon_as_the_floor_is_out_of_reach() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()
    policy = ScriptedPolicy(lambda _: PolicyUnavailable("no answer"))
    with pytest.raises(InfraError, match=r"8 of 10 rollouts were not scored.*no answer.*--resume"):
        run(env, policy, journal=journal)
    assert len(journal) == 2
    assert {row.attempt for row in journal.of(Trajectory)} == {0, 1}, "exactly two attempts each"


def test_a_few_lost_rollouts_do_not_stop_the_iteration_and_stay_lost() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()
    env.faults[env.seed_tasks()[0].id] = ["lose"] * 4
    outcomes = run(env, ScriptedPolicy(echo), journal=journal)
    assert summary(outcomes)["infra"] == 2
    assert summary(outcomes)["mean_score"] == 1.0, "a lost rollout is no score"
    policy = ScriptedPolicy(echo)
    run(env, policy, done=journal.of(Trajectory))
    assert asked(policy) == []


def test_after_a_breakdown_the_lost_rollouts_go_on_with_the_next_attempt() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()
    with pytest.raises(InfraError):
        run(env, ScriptedPolicy(lambda _: PolicyUnavailable("no answer")), journal=journal)
    again = Journal()
    outcomes = run(env, ScriptedPolicy(echo), journal=again, done=journal.of(Trajectory))
    assert all(row.outcome == "scored" for row in outcomes.values())
    assert {row.attempt for row in again[0] if isinstance(row, Trajectory)} == {2}
    assert {row.attempt for row in again[2] if isinstance(row, Trajectory)} == {0}, "the fifth task was never tried"
    ids = [row.id for row in [*journal.of(Trajectory), *again.of(Trajectory)]]
    assert len(ids) == len(set(ids))


def test_a_defective_task_is_withdrawn_once() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()
    bad = env.seed_tasks()[2]
    env.faults[bad.id] = ["invalid", "invalid"]
    outcomes = run(env, ScriptedPolicy(echo), journal=journal)
    assert summary(outcomes)["invalid"] == 2
    assert journal.of(Withdrawal) == [Withdrawal(run="r", task_id=bad.id, t=3, reason="the word has no echo")]


def test_a_report_that_raises_ends_it_after_whole_chunks() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()

    def report(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(env, ScriptedPolicy(echo), journal=journal, report=report)
    assert len(journal.of(Trajectory)) == 4


def test_scores_come_from_what_the_policy_says() -> None:
    env = EchoEnv(words=WORDS)

    def sometimes(request: Request) -> str:
        return echo(request) if echo(request) != "two" else "?"

    outcomes = run(env, ScriptedPolicy(sometimes), settings=SETTINGS.model_copy(update={"rollouts": 4}))
    assert summary(outcomes)["mean_score"] == pytest.approx(0.8)


def test_rows_of_other_tasks_change_nothing() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()
    run(env, ScriptedPolicy(echo), journal=journal)
    strange = [replace(row, task_id="elsewhere") for row in journal.of(Trajectory)]
    policy = ScriptedPolicy(echo)
    run(env, policy, done=strange)
    assert len(asked(policy)) == 10
    assert set(asked(policy)) == set(WORDS)


def test_a_late_rollout_is_lost_for_good() -> None:
    env, journal = EchoEnv(words=WORDS), Journal()
    slow = env.seed_tasks()[1]
    env.faults[slow.id] = ["sleep"]
    settings = SETTINGS.model_copy(update={"quorum": 0.5, "grace_s": 0.0})
    outcomes = run(env, ScriptedPolicy(echo), journal=journal, settings=settings)
    assert summary(outcomes)["infra"] == 1
    assert outcomes[(slow.id, 0)].attempt == 0
    policy = ScriptedPolicy(echo)
    assert run(env, policy, done=journal.of(Trajectory), settings=settings) == outcomes
    assert asked(policy) == [], "it is final: its chunk is not played again"
