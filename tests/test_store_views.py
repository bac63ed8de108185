"""The views that answer the usual questions: why is a task there, what is pending, how did it fare."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.db import Store
from store.rows import Candidate, Signal, Snapshot, Verdict, Withdrawal
from tests.store_rows import exploration, task, trajectory

SEED, GUIDED, UNGUIDED = task(1), task(2, origin="explored"), task(3, origin="explored")


def signal() -> Signal:
    return Signal(id="g", run="r", t=0, kind="boundary", task_id=SEED.id, pattern=None, evidence=["e"], stats={})


def candidate(name: str, exploration_id: str) -> Candidate:
    return Candidate(
        id=name,
        exploration_id=exploration_id,
        run="r",
        t=0,
        world="shop",
        user_turns=["q"],
        tools=[],
        reference="SELECT 1",
        index=0,
    )


def verdict(of: str, task_id: str | None, reason: str = "valid") -> Verdict:
    return Verdict(
        id=f"v-{of}",
        candidate_id=of,
        run="r",
        t=0,
        adopt=task_id is not None,
        reason=reason,
        detail="",
        task_id=task_id,
        repairs=0,
        seconds=0.1,
    )


def snapshot(t: int, *ids: str) -> Snapshot:
    return Snapshot(id=f"s{t}", run="r", t=t, task_ids=list(ids), created_at=0.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    guided, unguided = exploration("g"), exploration(None)
    store.append(SEED, GUIDED, UNGUIDED, signal(), guided, unguided)
    store.append(candidate("c1", guided.id), candidate("c2", unguided.id), candidate("c3", guided.id))
    store.append(verdict("c1", GUIDED.id), verdict("c2", UNGUIDED.id), verdict("c3", None, "duplicate"))
    return store


def test_lineage_goes_from_task_to_signal(store: Store) -> None:
    sql = "SELECT verdict_id, candidate_id, signal_id, signal_kind, signal_task_id FROM v_lineage WHERE task_id = ?"
    assert store.query(sql, [GUIDED.id]) == [("v-c1", "c1", "g", "boundary", SEED.id)]
    assert store.query(sql, [UNGUIDED.id]) == [("v-c2", "c2", None, None, None)]
    assert store.query(sql, [SEED.id]) == [(None, None, None, None, None)]


def test_an_adopted_task_is_pending_until_a_snapshot_has_it(store: Store) -> None:
    pending = "SELECT task_id FROM v_pending ORDER BY verdict_id"
    assert store.query(pending) == [(GUIDED.id,), (UNGUIDED.id,)]
    store.append(snapshot(1, SEED.id, GUIDED.id))
    assert store.query(pending) == [(UNGUIDED.id,)]
    store.append(Withdrawal(run="r", task_id=UNGUIDED.id, t=1, reason="replay"))
    assert store.query(pending) == []


def test_another_runs_snapshot_does_not_settle_it(store: Store) -> None:
    store.append(Snapshot(id="s", run="other", t=0, task_ids=[GUIDED.id], created_at=0.0))
    assert len(store.query("FROM v_pending")) == 2


def test_membership_tells_place_and_snapshot(store: Store) -> None:
    store.append(snapshot(0, SEED.id), snapshot(1, SEED.id, GUIDED.id))
    found = store.query('SELECT t, snapshot_id, "position", task_id FROM v_membership ORDER BY t, "position"')
    assert found == [(0, "s0", 0, SEED.id), (1, "s1", 0, SEED.id), (1, "s1", 1, GUIDED.id)]


def test_task_scores_are_means_of_scored_training_rollouts(store: Store) -> None:
    store.append([trajectory("a", k, score=score) for k, score in enumerate([1.0, 0.5, 0.25])])
    store.append(trajectory("a", 3, outcome="infra"), trajectory("a", 4, purpose="eval", score=0.0))
    assert store.query("SELECT run, task_id, t, round(score, 4), rollouts, successes, failures FROM v_task_score") == [
        ("r", "a", 0, 0.5833, 3, 2, 1)
    ]


def test_the_funnel_counts_verdicts_by_reason(store: Store) -> None:
    assert store.query("SELECT reason, adopt, n FROM v_funnel ORDER BY reason") == [
        ("duplicate", False, 1),
        ("valid", True, 2),
    ]
