"""Which tasks of a suite are played, and the scores of its slices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from envs import registry
from envs.bfcl.env import Bfcl
from evals.run import scores, selected
from evals.suites import label, slices, suite
from tests.store_rows import task, trajectory

ENV = registry.get("text2sql")


def test_a_part_is_spread_over_worlds_and_structures() -> None:
    whole, part = suite(ENV, "gold"), suite(ENV, "gold", 30)
    seen = {one.structure for one in ENV.seed_tasks()}
    assert Counter(one.world for one in part) == dict.fromkeys({one.world for one in whole}, 5)
    share = sum(one.structure not in seen for one in whole) / len(whole)
    assert sum(one.structure not in seen for one in part) / 30 == pytest.approx(share, abs=0.05)
    assert [one for one in whole if one in part] == part == suite(ENV, "gold", 30)


@pytest.mark.parametrize("limit", [1, 7, 149, 150, 151, 0])
def test_a_part_has_as_many_tasks_as_asked_for(limit: int) -> None:
    found = suite(ENV, "gold", limit)
    assert len({one.id for one in found}) == len(found) == (min(limit, 150) or 150)


def test_a_part_is_another_measure() -> None:
    assert [label("gold", 0, 1), label("gold", 30, 1), label("gold", 30, 4)] == ["gold", "gold[30]", "gold[30]@4"]


def test_an_empty_slice_has_no_score() -> None:
    tasks = [replace(task(number), structure="A") for number in (1, 2)]
    parts: dict[str, set[str]] = {"all": {one.id for one in tasks}, "unseen": set()}
    parts["seen"] = parts["all"]
    rows = [trajectory(one.id, purpose="eval", score=1.0) for one in tasks]
    found = scores("r", 0, "gold", parts, rows)
    assert [(row.slice, row.n, row.value, row.high) for row in found] == [("all", 2, 1.0, 1.0), ("seen", 2, 1.0, 1.0)]
    assert scores("r", 0, "gold", parts, []) == []


def test_slices_are_seen_unseen_and_the_parts_that_the_environment_tells(bfcl: Bfcl) -> None:
    whole = suite(ENV, "gold")
    found = slices(ENV, whole)
    assert list(found) == ["all", "seen", "unseen"]
    assert len(found["seen"]) + len(found["unseen"]) == len(found["all"]) == len(whole)
    by_service = slices(bfcl, suite(bfcl, "multi_turn_base"))
    assert len(by_service) == 9
    assert len(by_service["all"]) == 200
    assert max(len(ids) for name, ids in by_service.items() if name != "all") < 200


def test_a_greedy_rollout_is_no_sample() -> None:
    one = task(1)
    rows = [replace(trajectory(one.id, purpose="eval", score=1.0), k=k) for k in range(4)]
    assert [at for _, at in selected([one], 1, rows)] == [0]
    assert [at for _, at in selected([one], 2, rows)] == [1, 2]
