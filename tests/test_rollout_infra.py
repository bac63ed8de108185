"""Half of everything fails by infrastructure: no score comes of it, and none is changed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from envs.errors import PolicyUnavailable
from envs.protocols import Request
from envs.rollout import Played
from store.db import Store
from store.rows import Trajectory
from store.signals import detect
from tests.fakes import Answer, EchoEnv, Fault, ScriptedPolicy, echo
from tests.rollouts import both_modes, jobs, run
from training.collect import rows_of

WORDS = ("a b", "c", "d e f")
FAULTS: list[Fault] = ["lose", "lose_start", "lose_grade", "crash", "cancelled"]


def play(faults: dict[int, list[Fault | None]], *, concurrent: bool, **options: Any) -> list[Played]:
    """4 rollouts of each of three tasks; `faults` of the sessions opened on each task, by its number."""
    env = EchoEnv(turns=2)
    todo = jobs(env, *WORDS, k=4)
    env.faults = {todo[4 * number].task.id: list(given) for number, given in faults.items()}
    return run(env, todo, ScriptedPolicy(answer, concurrent=concurrent), **options)


def answer(request: Request) -> Answer:
    return echo(request) if request.seed % 3 else f"no {request.seed % 2}"


def scored(played: list[Played]) -> dict[tuple[str | None, int], Any]:
    """All that the trainer and the signals read of a rollout."""
    return {
        (row.task_id, row.k): (row.score, row.seed, row.prompt_tokens, row.completion_tokens, text(steps))
        for row, steps in played
        if row.outcome == "scored"
    }


def text(steps: Any) -> list[Any]:
    return [(step.index, step.action, step.observation, step.tokens, step.failed) for step in steps]


CLEAN = play({}, concurrent=False)


def test_the_rollouts_differ() -> None:
    assert len(scored(CLEAN)) == 12
    assert {row.score for row, _ in CLEAN} == {0.0, 1.0}
    assert {len(steps) for _, steps in CLEAN} == {1, 2}


@given(
    st.dictionaries(st.integers(0, 2), st.lists(st.sampled_from([None, *FAULTS]), max_size=12)),
    st.integers(1, 3),
)
@both_modes
def test_a_failure_is_no_score_and_changes_none(
    concurrent: bool, faults: dict[int, list[Fault | None]], attempts: int
) -> None:
    played = play(faults, concurrent=concurrent, max_attempts=attempts)
    assert all(row.score is None and row.error for row, _ in played if row.outcome != "scored")
    assert scored(played).items() <= scored(CLEAN).items()
    tries: dict[tuple[str | None, int], list[Trajectory]] = {}
    for row, _ in played:
        tries.setdefault((row.task_id, row.k), []).append(row)
    assert list(tries) == list(scored(CLEAN)), "every rollout, in job order"
    for rows in tries.values():
        assert [row.attempt for row in rows] == list(range(len(rows)))
        assert all(row.outcome == "infra" for row in rows[:-1])
        assert rows[-1].outcome == "scored" or len(rows) == attempts


@both_modes
def test_half_of_all_sessions_lost_changes_no_signal(concurrent: bool, tmp_path: Path) -> None:
    faults: dict[int, list[Fault | None]] = {
        number: [fault for index in range(4) for fault in (FAULTS[number + index - 2], None)] for number in range(3)
    }
    played = play(faults, concurrent=concurrent, max_attempts=5)
    assert [row.outcome for row, _ in played].count("infra") == 12 == len(scored(played))
    assert scored(played) == scored(CLEAN)
    assert signals(tmp_path / "lossy", played) == signals(tmp_path / "clean", CLEAN)


@both_modes
def test_those_lost_for_good_are_as_if_never_played(concurrent: bool, tmp_path: Path) -> None:
    faults: dict[int, list[Fault | None]] = {n: [FAULTS[n], None] * 2 for n in range(3)}
    played = play(faults, concurrent=concurrent, max_attempts=1)
    kept = [one for one in played if one[0].outcome == "scored"]
    assert (len(kept), len(played)) == (6, 12)
    assert signals(tmp_path / "all", played) == signals(tmp_path / "kept", kept)


def signals(folder: Path, played: list[Played]) -> list[Any]:
    """Without their evidence, whose ids tell the attempt."""
    store = Store(folder)
    store.append(rows_of(played))
    found = detect(store, "r", 1)
    assert found
    return [(signal.kind, signal.task_id, signal.pattern, signal.stats) for signal in found]


@both_modes
def test_a_policy_that_fails_half_of_the_time_changes_no_score(concurrent: bool) -> None:
    rng = random.Random(2)

    def half(request: Request) -> Answer:
        return PolicyUnavailable("503") if rng.random() < 0.5 else answer(request)

    env = EchoEnv(turns=2)
    played = run(env, jobs(env, *WORDS, k=4), ScriptedPolicy(half, concurrent=concurrent), max_attempts=20)
    assert {row.outcome for row, _ in played} == {"infra", "scored"}
    assert scored(played) == scored(CLEAN)
