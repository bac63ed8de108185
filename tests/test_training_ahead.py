"""The sampler beside the trainer: how far it goes, when weights may change, and what becomes of its errors."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from envs.errors import PolicyUnavailable
from envs.protocols import Completion, Request
from store.rows import Row, Step, Trajectory
from tests.test_grpo_groups import Ids, a_feed, mixed, only, word
from training.ahead import Ahead, Filled
from training.groups import Feed


class Slow(Ids):
    """Each answer takes a while; it notes who asked, and refuses weights under a request."""

    def __init__(self, answer: Callable[[Request], Any], *, seconds: float = 0.01) -> None:
        super().__init__(answer, concurrent=True, step=0)
        self.seconds = seconds
        self.asked = 0
        self.threads: set[str] = set()

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        self.threads.add(threading.current_thread().name)
        self.asked += 1
        try:
            await asyncio.sleep(self.seconds)
            return await super().sample(requests)
        finally:
            self.asked -= 1

    def load(self, step: int) -> None:
        assert not self.asked
        self.step = step


def a_slow_feed(rows: list[Row], *, answer: Callable[[Request], Any] = mixed, **more: Any) -> tuple[Feed, Slow]:
    feed = a_feed(answer, rows, **more)
    feed.policy = policy = Slow(answer)
    return feed, policy


def step_of(ahead: Ahead, policy: Slow, step: int) -> Filled:
    """What the trainer does before it takes step `step` + 1."""
    with ahead.idle():
        policy.load(step)
    return ahead.next(step)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def played(rows: list[Row]) -> list[Trajectory]:
    return [row for row in rows if isinstance(row, Trajectory)]


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_it_samples_for_as_many_later_steps_as_it_may_be_behind(staleness: int) -> None:
    rows: list[Row] = []
    feed, policy = a_slow_feed(rows, words=12)
    with Ahead(feed, groups=2, staleness=staleness) as ahead:
        for step in range(6):
            filled = step_of(ahead, policy, step)
            assert [member.step for group in filled.groups for member in group.members] == [
                max(0, step - staleness)
            ] * 8
            most = min(12, 2 * (step + 1 + staleness))
            until(lambda most=most: feed.tally.position >= most)  # type: ignore[misc]
            time.sleep(0.05)
            assert feed.tally.position == most, "and then waits for newer weights"
        assert step_of(ahead, policy, 6).groups == []
    assert len(played(rows)) == 12 * 4


def test_on_policy_nothing_happens_beside_the_trainer() -> None:
    feed, policy = a_slow_feed([])
    with Ahead(feed, groups=2, staleness=0) as ahead:
        step_of(ahead, policy, 0)
        assert policy.threads == {threading.current_thread().name}
        assert ahead.waited > 0.01


def test_each_step_tells_how_far_it_was_before_and_after() -> None:
    feed, policy = a_slow_feed([], words=8)
    with Ahead(feed, groups=2, staleness=2) as ahead:
        steps = [step_of(ahead, policy, step) for step in range(4)]
    assert [(filled.before.position, filled.after.position) for filled in steps] == [(0, 2), (2, 4), (4, 6), (6, 8)]


def test_weights_change_between_two_batches_and_a_step_goes_on_with_the_new_ones() -> None:
    """Of the groups of step 2 the first is played while step 1 is taken, its second after the sync."""
    feed, policy = a_slow_feed([], words=5)
    policy.answer = only(*(task.user_turns[0] for at, task in enumerate(feed.tasks) if at != 3))
    with Ahead(feed, groups=2, staleness=1) as ahead:
        step_of(ahead, policy, 0)
        policy.seconds = 0.2
        until(lambda: policy.asked > 0)
        second = step_of(ahead, policy, 1)
    assert [[member.step for member in group.members] for group in second.groups] == [[0] * 4, [1] * 4]


def test_the_trainer_does_not_wait_for_what_was_sampled_meanwhile() -> None:
    feed, policy = a_slow_feed([], words=8)
    policy.seconds = 0.1
    with Ahead(feed, groups=2, staleness=1) as ahead:
        step_of(ahead, policy, 0)
        waited = ahead.waited
        assert waited >= 0.1
        until(lambda: feed.tally.position == 4)
        step_of(ahead, policy, 1)
        assert ahead.waited - waited < 0.1


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_an_error_beside_the_trainer_is_the_trainers(error: type[BaseException]) -> None:
    def report(label: str, done: int, total: int) -> None:
        if done > 8:
            raise error("stop")

    feed, policy = a_slow_feed([], words=12)
    feed.report = report
    with Ahead(feed, groups=2, staleness=1) as ahead:
        step_of(ahead, policy, 0)
        until(lambda: feed.tally.position == 4)
        with pytest.raises(error, match="stop"):
            step_of(ahead, policy, 1)
        time.sleep(0.05)
        assert feed.tally.position == 4, "nothing is begun after it"
    assert "sampling ahead" not in {thread.name for thread in threading.enumerate()}


def test_an_end_in_the_middle_leaves_nothing_under_way() -> None:
    rows: list[Row] = []
    feed, policy = a_slow_feed(rows, words=12)
    with Ahead(feed, groups=2, staleness=1) as ahead:
        step_of(ahead, policy, 0)
        until(lambda: feed.tally.position == 4)
        policy.seconds = 60
        step_of(ahead, policy, 1)
        until(lambda: policy.asked > 0)
    assert policy.asked == 0
    assert len(played(rows)) == 16, "what was begun is lost, as by a kill"
    assert all(session.closed for session in feed.env.sessions)  # type: ignore[attr-defined]


def test_nothing_is_sampled_after_a_sync_that_failed() -> None:
    feed, policy = a_slow_feed([], words=12)
    with Ahead(feed, groups=1, staleness=3) as ahead:
        step_of(ahead, policy, 0)
        with suppress(InterruptedError), ahead.idle():
            at = feed.tally.position
            raise InterruptedError
        time.sleep(0.1)
        assert (feed.tally.position, policy.asked) == (at, 0)


def fill(feed: Feed, groups: int, oldest: int) -> list[Any]:
    return asyncio.run(feed.fill(groups, oldest))


def stored(rows: list[Row]) -> dict[str, Any]:
    steps: dict[str, list[Step]] = {}
    for row in rows:
        if isinstance(row, Step):
            steps.setdefault(row.trajectory_id, []).append(row)
    return {"done": played(rows), "recall": lambda ids: {i: steps.get(i, []) for i in ids}}


def test_rows_that_are_too_old_are_sampled_again_as_further_attempts() -> None:
    rows: list[Row] = []
    feed, policy = a_slow_feed(rows)
    policy.load(3)
    first = fill(feed, 2, 3)
    policy.load(4)
    fill(feed, 1, 4)

    again: list[Row] = []
    feed, policy = a_slow_feed(again, **stored(rows))
    policy.load(5)
    groups = fill(feed, 3, 4)
    assert [group.members[0].step for group in groups] == [5, 5, 4]
    assert {(row.task_id, row.attempt, row.policy_step) for row in played(again)} == {
        (group.task, 1, 5) for group in first
    }
    assert not {row.id for row in played(rows)} & {row.id for row in played(again)}

    once_more, policy = a_slow_feed(more := [], **stored([*rows, *again]))
    policy.load(6)
    assert fill(once_more, 3, 4) == groups
    assert more == [], "the newer attempt is the one that counts"


def test_rows_that_are_young_enough_are_used() -> None:
    rows: list[Row] = []
    feed, policy = a_slow_feed(rows)
    policy.load(3)
    first = fill(feed, 2, 3)
    feed, policy = a_slow_feed([], answer=lambda request: pytest.fail("sampled"), **stored(rows))
    assert fill(feed, 2, 3) == first


def test_a_rollout_that_was_not_scored_is_not_too_old() -> None:
    """It is in no baseline and no loss, and was tried as often as it may be."""
    rows: list[Row] = []
    answer = lambda request: PolicyUnavailable("gone") if request.seed % 4 == 0 else mixed(request)  # noqa: E731
    feed, _ = a_slow_feed(rows, answer=answer, words=12)
    fill(feed, 12, 0)
    lost = [row for row in played(rows) if row.outcome == "infra"]
    assert lost
    young = [
        row if row.outcome == "infra" else replace(row, policy_step=7) for row in rows if isinstance(row, Trajectory)
    ]
    feed, _ = a_slow_feed(again := [], answer=answer, words=12, **stored(rows) | {"done": young})
    fill(feed, 12, 7)
    assert again == []


def test_of_a_chunk_that_a_server_has_played_in_part_only_the_rest_is_played() -> None:
    rows: list[Row] = []
    feed, _ = a_slow_feed(rows)
    kept = fill(feed, 1, 0)
    asked: list[str] = []
    feed, _ = a_slow_feed(
        again := [], answer=lambda request: asked.append(word(request)) or mixed(request), **stored(rows)
    )
    groups = fill(feed, 2, 0)
    assert groups[0] == kept[0]
    assert set(asked) == {feed.tasks[1].user_turns[0]}
    assert len(played(again)) == 4
