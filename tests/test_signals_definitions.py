"""Forgetting, boundary and rare, at each edge of the definitions in docs/concepts.md."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from store.db import Store
from store.rows import Signal, Step, Trajectory
from store.signals import SignalSettings, detect
from tests.store_rows import step, trajectory


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def history(task: str, scores: dict[int, float], **changes: Any) -> list[Trajectory]:
    """One rollout of the task in each iteration."""
    return [trajectory(task, t=t, score=score, **changes) for t, score in scores.items()]


def group(task: str, scores: Iterable[float], **changes: Any) -> list[Trajectory]:
    """K rollouts of the task in one iteration."""
    return [trajectory(task, k, score=score, **changes) for k, score in enumerate(scores)]


def sequences(patterns: Iterable[list[str]], **changes: Any) -> list[Trajectory | Step]:
    """One rollout a pattern, each of a task of its own, all successes."""
    rows: list[Trajectory | Step] = []
    for number, tokens in enumerate(patterns):
        rollout = trajectory(f"task{number}", **changes)
        rows += [rollout, step(rollout, tokens)]
    return rows


def of_kind(kind: str, store: Store, t: int, **settings: Any) -> list[Signal]:
    return [signal for signal in detect(store, "r", t, SignalSettings(**settings)) if signal.kind == kind]


def patterns(store: Store, t: int = 0, **settings: Any) -> list[list[str] | None]:
    return [signal.pattern for signal in of_kind("rare", store, t, **settings)]


# ---- forgetting


def test_a_task_that_succeeded_and_now_fails_is_forgotten(store: Store) -> None:
    rows = history("a", {0: 1.0, 1: 0.75, 2: 0.25})
    store.append(rows)
    (signal,) = of_kind("forgetting", store, 2)
    assert (signal.task_id, signal.pattern, signal.t, signal.run) == ("a", None, 2, "r")
    assert signal.stats == {"best": 1.0, "best_t": 0, "now": 0.25}
    assert signal.evidence == [rows[2].id]


def test_half_is_a_success(store: Store) -> None:
    store.append(history("was", {0: 0.5, 1: 0.0}), history("is", {0: 1.0, 1: 0.5}), history("not", {0: 0.49, 1: 0.0}))
    assert [signal.task_id for signal in of_kind("forgetting", store, 1)] == ["was"]


def test_the_mean_of_the_rollouts_counts(store: Store) -> None:
    rows = group("a", [1, 1, 0, 0], t=0) + group("a", [1, 0, 0, 0], t=1)
    store.append(rows)
    (signal,) = of_kind("forgetting", store, 1)
    assert signal.stats == {"best": 0.5, "best_t": 0, "now": 0.25}
    assert signal.evidence == sorted(row.id for row in rows if row.t == 1 and row.score == 0)


def test_a_mean_of_half_is_not_moved_by_the_order_of_adding(store: Store) -> None:
    store.append(group("a", [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9], t=0), history("a", {1: 0.0}))
    assert [signal.stats["best"] for signal in of_kind("forgetting", store, 1)] == [0.5]


def test_a_window_that_is_not_full_counts(store: Store) -> None:
    store.append(history("a", {0: 1.0, 1: 0.0}))
    assert len(of_kind("forgetting", store, 1, window=5)) == 1


@pytest.mark.parametrize(("success_at", "expected"), [(0, 0), (1, 1), (4, 1)])
def test_the_window_holds_five_iterations_with_the_current_one(store: Store, success_at: int, expected: int) -> None:
    store.append(history("a", {t: float(t == success_at) for t in range(6)}))
    assert len(of_kind("forgetting", store, 5)) == expected


def test_the_window_counts_the_tasks_own_iterations(store: Store) -> None:
    store.append(history("a", {0: 1.0, 7: 0.0, 20: 0.0, 40: 0.0, 90: 0.0}))
    assert len(of_kind("forgetting", store, 90, window=5)) == 1
    assert len(of_kind("forgetting", store, 90, window=4)) == 0


def test_iterations_without_a_scored_rollout_take_no_place_in_the_window(store: Store) -> None:
    lost = [trajectory("a", t=t, outcome="infra") for t in (1, 2, 3)]
    store.append(history("a", {0: 1.0, 4: 0.0}), lost)
    assert len(of_kind("forgetting", store, 4, window=2)) == 1


def test_a_task_seen_for_the_first_time_is_not_forgotten(store: Store) -> None:
    store.append(history("a", {3: 0.0}))
    assert of_kind("forgetting", store, 3) == []


def test_a_task_that_was_not_seen_in_this_iteration_is_not_forgotten_now(store: Store) -> None:
    store.append(history("a", {0: 1.0, 1: 0.0}), history("b", {2: 1.0}))
    assert of_kind("forgetting", store, 2) == []
    assert len(of_kind("forgetting", store, 1)) == 1


def test_later_iterations_do_not_reach_back(store: Store) -> None:
    store.append(history("a", {0: 0.0, 1: 1.0}))
    assert of_kind("forgetting", store, 0) == []


def test_best_t_is_the_latest_of_the_best(store: Store) -> None:
    store.append(history("a", {0: 1.0, 1: 1.0, 2: 0.5, 3: 0.0}))
    assert of_kind("forgetting", store, 3)[0].stats["best_t"] == 1


# ---- boundary


def test_mixed_rollouts_are_a_boundary(store: Store) -> None:
    rows = group("mixed", [1, 0, 0.5, 0.49]) + group("all", [1, 1]) + group("none", [0, 0])
    store.append(rows)
    (signal,) = of_kind("boundary", store, 0)
    assert signal.task_id == "mixed"
    assert signal.stats == {"successes": 2, "failures": 2}
    assert signal.evidence == sorted(row.id for row in rows[:4])


def test_success_in_one_iteration_and_failure_in_another_is_no_boundary(store: Store) -> None:
    store.append(history("a", {0: 1.0, 1: 0.0}))
    assert of_kind("boundary", store, 0) == of_kind("boundary", store, 1) == []


def test_one_task_can_be_forgotten_and_on_the_boundary(store: Store) -> None:
    store.append(group("a", [1, 1, 1], t=0), group("a", [1, 0, 0], t=1))
    assert [signal.kind for signal in detect(store, "r", 1)] == ["forgetting", "boundary"]


# ---- rare


def test_a_pattern_in_fewer_than_theta_percent_is_rare(store: Store) -> None:
    rows = sequences([["SELECT", "HAVING"]] * 4 + [["SELECT"]] * 96)
    store.append(rows)
    assert patterns(store) == [["HAVING"], ["SELECT", "HAVING"]]
    signal = of_kind("rare", store, 0)[0]
    assert signal.stats == {"count": 4, "rollouts": 100}
    assert signal.evidence == sorted(row.id for row in rows[:8:2] if isinstance(row, Trajectory))
    assert signal.task_id is None


def test_a_pattern_at_exactly_theta_is_not_rare(store: Store) -> None:
    store.append(sequences([["HAVING"]] * 5 + [["SELECT"]] * 95))
    assert patterns(store) == []


def test_a_pattern_twice_in_one_rollout_counts_once(store: Store) -> None:
    store.append(sequences([["SET", "SET", "SET"]] * 4 + [["SELECT"]] * 96))
    assert [signal.stats["count"] for signal in of_kind("rare", store, 0)] == [4, 4, 4]
    assert patterns(store) == [["SET"], ["SET", "SET"], ["SET", "SET", "SET"]]


def test_a_pattern_in_the_middle_and_again_at_the_end_counts_once(store: Store) -> None:
    store.append(sequences([["a", "b", "c", "a", "b"]] * 3 + [["a", "b"], *[["z"]] * 96]))
    assert {tuple(signal.pattern or ()): signal.stats["count"] for signal in of_kind("rare", store, 0)} == {
        ("a",): 4,
        ("a", "b"): 4,
        ("a", "b", "c"): 3,
        ("b",): 4,
        ("b", "c"): 3,
        ("b", "c", "a"): 3,
        ("c",): 3,
        ("c", "a"): 3,
        ("c", "a", "b"): 3,
    }


def test_patterns_run_over_the_steps_of_a_rollout_in_order(store: Store) -> None:
    rollout = trajectory("multi")
    store.append(
        sequences([["a"], ["b"], ["c"], ["d"]] * 10),
        rollout,
        [step(rollout, ["c", "d"], index=1), step(rollout, ["a", "b"], index=0), step(rollout, [], index=2)],
    )
    assert patterns(store) == [["a", "b"], ["a", "b", "c"], ["b", "c"], ["b", "c", "d"], ["c", "d"]]


def test_patterns_do_not_run_from_one_rollout_into_the_next(store: Store) -> None:
    store.append(sequences([["a"], ["b"]] * 30))
    assert patterns(store) == []


def test_the_longest_pattern_is_a_setting(store: Store) -> None:
    store.append(sequences([["a", "b", "c", "d"], *[["z"]] * 99]))
    assert {len(pattern or []) for pattern in patterns(store)} == {1, 2, 3}
    assert patterns(store, ngram=1) == [["a"], ["b"], ["c"], ["d"]]


def test_theta_is_a_setting(store: Store) -> None:
    store.append(sequences([["a"]] * 9 + [["b"]] * 91))
    assert patterns(store, theta=5) == []
    assert patterns(store, theta=9) == []
    assert patterns(store, theta=9.01) == [["a"]]


def test_rollouts_without_tokens_count_among_all(store: Store) -> None:
    store.append(sequences([["a"]] * 4), [trajectory(f"silent{k}", k) for k in range(96)])
    assert patterns(store) == [["a"]]


def test_hostile_tokens_are_plain_text(store: Store) -> None:
    hostile = ["'); DROP TABLE task; --", "", "a\x00b", "\x1f", "é", "😀"]
    store.append(sequences([hostile[:3], hostile[3:], *[["z"]] * 98]))
    found = [pattern[0] for pattern in patterns(store, ngram=1) if pattern]
    assert sorted(found) == sorted(hostile)


def test_no_rollout_no_signal(store: Store) -> None:
    assert detect(store, "r", 0) == []


# ---- which rows count


@pytest.mark.parametrize("purpose", ["eval", "validate", "explore"])
def test_only_training_rollouts_raise_signals(store: Store, purpose: str) -> None:
    store.append(history("a", {0: 1.0, 1: 1.0}))
    planted = group("a", [1, 0, 0, 0, 0, 0], t=1, purpose=purpose, suite="gold")
    store.append(planted, [step(row, ["HAVING"]) for row in planted])
    assert detect(store, "r", 1) == []


def test_an_eval_success_is_not_what_was_forgotten(store: Store) -> None:
    store.append(history("a", {0: 1.0}, purpose="eval"), history("a", {0: 0.0, 1: 0.0}))
    assert detect(store, "r", 1) == []


@pytest.mark.parametrize("outcome", ["infra", "invalid"])
def test_rollouts_without_a_score_raise_no_signal(store: Store, outcome: str) -> None:
    rows = group("a", [1, 1, 1], t=0) + [trajectory("a", k=k, t=1, outcome=outcome) for k in range(1, 30)]
    store.append(rows, trajectory("a", t=1), [step(row, ["HAVING"]) for row in rows if row.t == 1])
    assert detect(store, "r", 1) == []


def test_lost_rollouts_do_not_lower_the_mean(store: Store) -> None:
    store.append(history("a", {0: 1.0, 1: 1.0}), [trajectory("a", k=k, t=1, outcome="infra") for k in range(1, 8)])
    assert detect(store, "r", 1) == []


def test_lost_rollouts_are_not_among_all(store: Store) -> None:
    lost = [trajectory(f"lost{k}", k, outcome="infra") for k in range(900)]
    store.append(sequences([["a"]] * 5 + [["b"]] * 95), lost)
    assert patterns(store) == []


def test_of_several_attempts_only_the_scored_one_counts_and_once(store: Store) -> None:
    lost = trajectory("a", attempt=0, outcome="infra")
    first = trajectory("a", attempt=1, score=1.0)
    late = trajectory("a", attempt=2, score=0.0)  # a duplicate that arrived late
    store.append(lost, first, late, step(lost, ["x"]), step(late, ["y"]), step(first, ["z"]))
    store.append(sequences([["z"]] * 99))
    assert detect(store, "r", 0) == []


def test_other_runs_do_not_count(store: Store) -> None:
    store.append(history("a", {0: 1.0}, run="other"), history("a", {0: 0.0, 1: 0.0}))
    store.append(group("b", [0, 0, 0], t=1, run="other"), group("b", [1, 1, 1], t=1))
    store.append(sequences([["HAVING"]], run="other", t=1), sequences([["SELECT"]] * 50, t=1))
    assert detect(store, "r", 1) == []


# ---- identity and order


def test_ids_and_order_are_the_same_again(store: Store, tmp_path: Path) -> None:
    rows: list[Any] = [*history("b", {0: 1.0}), *history("a", {0: 1.0}), *group("b", [0, 1, 0], t=1)]
    rows += [*group("a", [0, 1, 0], t=1), *sequences([["HAVING"], *[["SELECT"]] * 60], t=1)]
    store.append(rows)
    other = Store(tmp_path / "other")
    for row in reversed(rows):
        other.append(row)
    signals = detect(store, "r", 1)
    assert signals == detect(other, "r", 1) == detect(store, "r", 1)
    assert [(signal.kind, signal.task_id or signal.pattern) for signal in signals] == [
        ("forgetting", "a"),
        ("forgetting", "b"),
        ("boundary", "a"),
        ("boundary", "b"),
        ("rare", ["HAVING"]),
    ]
    assert len({signal.id for signal in signals}) == len(signals)
    store.append(signals)
    store.append(signals)
    assert store.rows(Signal, order="id") == sorted(signals, key=lambda signal: signal.id)
