"""Which groups an optimiser step gets: another task's in place of one that teaches nothing, never an infra rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.errors import InfraError, PolicyUnavailable
from envs.protocols import Completion, Request
from store.rows import Row, Step, Trajectory
from tests.fakes import ScriptedPolicy
from tests.grpo_jobs import ScoredEnv
from training.config import CollectSettings
from training.flatten import Row as Tokens
from training.groups import Clocked, Feed, Group, Ledger, Member, Tally, task_order
from training.grpo import Server

SETTINGS = CollectSettings(rollouts=4, max_attempts=2, min_valid=0.5)


def a_feed(answer: Callable[[Request], Any], rows: list[Row], *, words: int = 6, batch: int = 1, **more: Any) -> Feed:
    """With a batch of 1 no more tasks are sampled at once than groups are missing."""
    env = ScoredEnv(lambda said: float(said == "yes"), words=[f"word{i}" for i in range(words)], turns=1)
    policy = Ids(answer)
    policy.batch = batch
    ledger = Ledger(
        done=more.pop("done", []), recall=more.pop("recall", lambda ids: {}), append=rows.extend, record=lambda *_: None
    )
    return Feed(
        env=env,
        tasks=env.seed_tasks(),
        policy=policy,
        settings=SETTINGS,
        run="r",
        t=0,
        seed=0,
        ledger=ledger,
        report=lambda *_: None,
    )


class Ids(ScriptedPolicy):
    """A scripted policy whose completions carry ids, as a sampler's do."""

    async def sample(self, requests: Any) -> list[Completion | Exception]:
        answers = await super().sample(requests)
        return [
            answer
            if isinstance(answer, Exception)
            else Completion(message=answer.message, prompt_ids=[1], completion_ids=[7, 2], logprobs=[-1.0, -0.5])
            for answer in answers
        ]


def word(request: Request) -> str:
    return str(request.messages[1]["content"])


TURNS = cycle(["yes", "no"])


def mixed(request: Request) -> str:
    """Every second rollout of a group is right."""
    return next(TURNS)


def only(*taught: str) -> Callable[[Request], str]:
    return lambda request: mixed(request) if word(request) in taught else "no"


def fill(feed: Feed, groups: int) -> list[Group]:
    return asyncio.run(feed.fill(groups))


def test_a_group_that_teaches_nothing_is_replaced_by_the_next_tasks() -> None:
    rows: list[Row] = []
    feed = a_feed(only("word1", "word3", "word4"), rows)
    groups = fill(feed, 2)
    names = {task.id: task.user_turns[0] for task in feed.tasks}
    assert [names[group.task] for group in groups] == ["word1", "word3"]
    assert feed.tally.position == 4
    assert feed.tally.kinds == {"failed": 2, "informative": 2}
    assert len([row for row in rows if isinstance(row, Trajectory)]) == 16, "their rollouts are kept: signals need them"


def test_the_last_step_has_what_is_left() -> None:
    feed = a_feed(only("word0"), [])
    assert len(fill(feed, 4)) == 1
    assert feed.tally.position == 6
    assert fill(feed, 4) == []


def test_so_many_tasks_are_sampled_as_will_fill_the_step() -> None:
    """All are taken to be informative at first; then none was in 2, in 6, in 14."""
    feed = a_feed(only("word19"), [], words=20, batch=64)
    asked = list[int]()
    feed.report = lambda label, done, total: asked.append(done // feed.settings.rollouts)
    assert len(fill(feed, 2)) == 1
    assert asked == [2, 6, 14, 20], "2 / (2 / 2) tasks, then 2 / (2 / 4), 2 / (2 / 8), and what is left"


def test_informative_groups_that_the_step_has_no_place_for_are_counted_apart() -> None:
    feed = a_feed(only("word2", "word3", "word4", "word5"), [], words=8, batch=64)
    assert len(fill(feed, 2)) == 2
    assert feed.tally.kinds == {"failed": 2, "informative": 2, "surplus": 2}, "2 / ((0 + 2) / (2 + 2)) = 4 tasks"
    assert feed.tally.since(Tally())["zero_variance"] == pytest.approx(1 / 3)


def test_solved_and_failed_groups_are_counted_apart() -> None:
    feed = a_feed(lambda request: "yes" if word(request) < "word2" else "no", [])
    assert fill(feed, 2) == []
    assert feed.tally.kinds == {"solved": 2, "failed": 4}


def test_rollouts_that_are_in_the_store_are_not_sampled_again() -> None:
    rows: list[Row] = []
    feed = a_feed(mixed, rows)
    first = fill(feed, 2)
    steps: dict[str, list[Step]] = {}
    for row in rows:
        if isinstance(row, Step):
            steps.setdefault(row.trajectory_id, []).append(row)
    done = [row for row in rows if isinstance(row, Trajectory)]
    again = a_feed(lambda request: pytest.fail("sampled"), [], done=done, recall=lambda ids: steps)
    assert fill(again, 2) == first


def test_an_infra_rollout_is_in_no_baseline_and_no_loss() -> None:
    failing: Callable[[Request], Any] = lambda request: (  # noqa: E731
        PolicyUnavailable("gone") if request.seed % 4 == 0 else mixed(request)
    )
    groups = fill(a_feed(failing, [], words=12), 12)
    lost = [member for group in groups for member in group.members if member.score is None]
    assert lost
    for group in groups:
        served = Server(rollouts=4, pad=0, groups=[group])([""] * 4, None)
        for member, score, mask in zip(group.members, served["score"], served["env_mask"], strict=True):
            assert score == member.score
            assert any(mask) == (member.score is not None)


def test_a_group_of_which_too_few_were_scored_is_left_out_whole() -> None:
    rollout = Member(row=Tokens(prompt_ids=[1], completion_ids=[2], env_mask=[1], logprobs=[-1.0]), score=1.0)
    lost = Member(row=None, score=None)
    zero = Member(row=rollout.row, score=0.0)
    assert Group(task="x", members=[rollout, zero, lost, lost]).kind(0.5) == "informative"
    assert Group(task="x", members=[rollout, zero, lost, lost]).kind(0.75) == "infra"
    assert Group(task="x", members=[rollout, lost, lost, lost]).kind(0.25) == "infra", "one score is no group"


def test_an_iteration_that_mostly_fails_for_our_own_faults_is_broken_off() -> None:
    with pytest.raises(InfraError, match="min_valid"):
        fill(a_feed(lambda request: PolicyUnavailable("gone"), []), 2)


@given(st.lists(st.sampled_from([0.0, 1.0, 0.25, None]), min_size=2, max_size=8))
def test_only_a_group_with_two_different_scores_is_informative(scores: list[float | None]) -> None:
    group = Group(task="x", members=[Member(row=None, score=score) for score in scores])
    known = [score for score in scores if score is not None]
    informative = group.kind(0.0) == "informative"
    assert informative == (len(set(known)) > 1)


def test_every_iteration_has_an_order_of_its_own() -> None:
    tasks = ScoredEnv(words=[f"word{i}" for i in range(20)]).seed_tasks()
    orders = [[task.id for task in task_order(tasks, 0, t)] for t in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == sorted(task.id for task in tasks)


def stated(p: list[float], part: str | list[str] = "unguided", floor: float = 0.0) -> Any:
    parts = [part] * len(p) if isinstance(part, str) else part
    return {"p": p, "part": parts, "seed_floor": floor}


def test_tasks_of_more_weight_are_drawn_more_often() -> None:
    tasks = ScoredEnv(words=[f"word{i}" for i in range(40)]).seed_tasks()
    mix = stated([0.25, 1.0, 0.25, 1.0] * 10)
    drawn = [task for t in range(200) for task in task_order(tasks, 0, t, limit=10, mix=mix)]
    heavy = {task.id for task, p in zip(tasks, mix["p"], strict=True) if p == 1.0}
    assert 0.72 < sum(task.id in heavy for task in drawn) / len(drawn) < 0.82, "simulated: 0.77"


def test_a_limited_draw_has_no_task_twice_and_equal_weights_are_none() -> None:
    tasks = ScoredEnv(words=[f"word{i}" for i in range(20)]).seed_tasks()
    drawn = task_order(tasks, 0, 3, limit=8)
    assert len({task.id for task in drawn}) == 8
    assert drawn == task_order(tasks, 0, 3, limit=8, mix=stated([1.0] * 20))


@given(
    seeds=st.integers(0, 10),
    others=st.integers(0, 30),
    limit=st.integers(0, 25),
    floor=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
def test_the_seeds_never_have_less_than_their_floor_of_a_draw(
    seeds: int, others: int, limit: int, floor: float
) -> None:
    tasks = ScoredEnv(words=[f"word{i}" for i in range(seeds + others)]).seed_tasks()
    own = {task.id for task in tasks[:seeds]}
    mix = stated([0.01] * seeds + [1.0] * others, ["seed"] * seeds + ["boundary"] * others, floor)
    drawn = task_order(tasks, 0, 0, limit=limit, mix=mix)
    assert len({task.id for task in drawn}) == len(drawn) <= (limit or len(tasks))
    assert not seeds or sum(task.id in own for task in drawn) >= floor * len(drawn) - 1e-9
    if floor == 0 or not seeds:
        assert len(drawn) == min(limit or len(tasks), len(tasks))


def test_time_of_requests_that_overlap_is_counted_once() -> None:
    class Slow(ScriptedPolicy):
        async def sample(self, requests: Any) -> list[Completion | Exception]:
            await asyncio.sleep(0.05)
            return []

    policy = Clocked(inner=Slow(lambda request: ""))

    async def many() -> None:
        await asyncio.gather(*(policy.sample([]) for _ in range(20)))

    asyncio.run(many())
    assert 0.05 <= policy.seconds < 0.5
