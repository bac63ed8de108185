"""Scenario goal completion: a scenario counts if all of its tasks succeed."""

from __future__ import annotations

import pytest

from evals.run import scenario_scores
from tests.store_rows import trajectory

CASES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}


def sgc(scores: dict[tuple[str, int], float]) -> float:
    rows = [trajectory(task, k, score=score, purpose="eval") for (task, k), score in scores.items()]
    (found,) = scenario_scores("r", 0, "test_normal", CASES, rows)
    assert (found.metric, found.n) == ("sgc", 2)
    return found.value


@pytest.mark.parametrize(
    ("scores", "value"),
    [
        ({("a1", 0): 1, ("a2", 0): 1, ("b1", 0): 1, ("b2", 0): 0}, 0.5),
        ({("a1", 0): 1, ("a2", 0): 0, ("b1", 0): 1, ("b2", 0): 0}, 0.0),
        ({("a1", 0): 1, ("a2", 0): 1, ("b1", 0): 1, ("b2", 0): 1}, 1.0),
    ],
)
def test_all_of_a_scenario_or_nothing(scores: dict[tuple[str, int], float], value: float) -> None:
    assert sgc(scores) == value


def test_rollouts_are_told_apart() -> None:
    one = {("a1", 1): 1.0, ("a2", 1): 0.0, ("b1", 1): 1.0, ("b2", 1): 1.0}
    two = {("a1", 2): 0.0, ("a2", 2): 1.0, ("b1", 2): 1.0, ("b2", 2): 1.0}
    assert sgc(one | two) == 0.5


def test_a_scenario_with_a_task_that_has_no_score_has_none() -> None:
    rows = [trajectory("a1", 0), trajectory("b1", 0), trajectory("b2", 0)]
    rows.append(trajectory("a2", 0, outcome="infra", score=None))
    (found,) = scenario_scores("r", 0, "test_normal", CASES, rows)
    assert (found.n, found.value) == (1, 1.0)


def test_without_scenarios_there_is_no_score() -> None:
    assert scenario_scores("r", 0, "gold", {}, [trajectory("a1")]) == []
