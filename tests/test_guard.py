"""The gold guard: what counts as a fall, what it does then, and that it decides once."""

from __future__ import annotations

from pathlib import Path

import pytest

from coevolve import guard, phases
from coevolve.guard import Paused
from coevolve.loop import Loop
from coevolve.train import steps_ahead
from store.rows import Decision, Metric, Snapshot, Withdrawal
from store.snapshot import load
from tests.guarded import frozen, make_loop, played, trained, with_overrides


def the_row(loop: Loop, t: int) -> Decision:
    found = guard.decided(loop.store, loop.run.id, t)
    assert found is not None
    return found


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    """Version 1 was trained on D_0 and was the best; D_1 has two more tasks, and version 2 was trained on it."""
    loop = make_loop(tmp_path / "w")
    seeds = loop.env.seed_tasks()
    for version in range(3):
        trained(loop, version)
    frozen(loop, 0, seeds[:4])
    frozen(loop, 1, seeds)
    played(loop, 0, gold=10)
    played(loop, 1, gold=30)
    return loop


def test_a_version_that_holds_its_ground_goes_on(loop: Loop) -> None:
    played(loop, 2, gold=29)
    assert not guard.fell(loop, 1)
    assert (the_row(loop, 1).action, the_row(loop, 1).version) == ("go_on", None)
    assert guard.standing(loop.store, loop.run.id, 2) == 2


def test_a_fall_goes_back_to_the_best_checkpoint_and_its_snapshot(loop: Loop) -> None:
    played(loop, 2, gold=15)
    assert guard.fell(loop, 1)
    row, (first, _) = the_row(loop, 1), loop.store.rows(Snapshot, order="t")
    assert (row.action, row.version, row.snapshot) == ("rollback", 1, first.id)
    assert row.checkpoint
    assert "gold fell by 37.5 points" in row.reason
    assert guard.standing(loop.store, loop.run.id, 2) == 1, "what samples in iteration 2"

    assert phases.restore(loop, 1)["withdrawn"] == 2
    restored, _ = load(loop.run.snapshots, "2")
    assert restored.id == first.id
    quarantined = loop.store.rows(Withdrawal)
    assert {each.task_id for each in quarantined} == {task.id for task in loop.env.seed_tasks()[4:]}
    assert all(each.reason.startswith("quarantined after round 2: gold fell") for each in quarantined)


def test_the_hash_of_the_checkpoint_is_that_of_its_files(loop: Loop) -> None:
    played(loop, 2, gold=15)
    guard.fell(loop, 1)
    before = the_row(loop, 1).checkpoint
    other = make_loop(loop.workspace.root.parent / "other")
    for version in (0, 1, 2):
        trained(other, version)
    frozen(other, 0, other.env.seed_tasks())
    frozen(other, 1, other.env.seed_tasks()[:3])
    played(other, 0, gold=30)
    played(other, 1, gold=25)
    played(other, 2, gold=5)
    assert guard.fell(other, 1)
    assert (the_row(other, 1).version, the_row(other, 1).checkpoint == before) == (0, False)


@pytest.mark.parametrize("suite", ["shifted", "robust"])
def test_another_suite_may_fall_too(loop: Loop, suite: str) -> None:
    played(loop, 2, **{"gold": 30, suite: 5})
    assert guard.fell(loop, 1)
    assert the_row(loop, 1).reason.startswith(f"{suite} fell")


def test_gold_up_and_shifted_down_is_not_the_guards_matter(loop: Loop) -> None:
    played(loop, 2, gold=39, shifted=5)
    assert not guard.fell(loop, 1)


def test_what_is_left_to_the_stop_rule_is_said(loop: Loop) -> None:
    played(loop, 2, gold=39, shifted=5)
    guard.fell(loop, 1)
    row = the_row(loop, 1)
    assert row.action == "go_on"
    assert row.reason == (
        "shifted fell by 37.5 points (at least 25.0, 40 items), gold rose: overfitting, which is a stop rule's matter"
    )


@pytest.mark.parametrize("fallen", [{"robust": 5}, {"robust": 5, "shifted": 5}])
def test_gold_up_does_not_excuse_a_fall_that_no_stop_rule_looks_at(loop: Loop, fallen: dict[str, int]) -> None:
    played(loop, 2, gold=39, **fallen)
    assert guard.fell(loop, 1)
    assert "robust fell by 37.5 points" in the_row(loop, 1).reason


def test_a_fall_within_chance_is_none(loop: Loop) -> None:
    played(loop, 2, gold=28)
    assert not guard.fell(loop, 1), "2 of 40 items: the upper bound touches 0 in more than 5 % of the resamples"


def test_it_decides_once(loop: Loop) -> None:
    played(loop, 2, gold=15)
    assert guard.fell(loop, 1)
    assert guard.fell(loop, 1)
    assert len(loop.store.rows(Decision)) == 1


def test_pause_waits_for_a_word_and_takes_it(loop: Loop) -> None:
    played(loop, 2, gold=15)
    paused = with_overrides(loop, "guard.on_drop=pause")
    for _ in range(2):
        with pytest.raises(Paused, match=r"gold fell by .*--on-drop rollback"):
            guard.fell(paused, 1)
    assert len(loop.store.rows(Decision)) == 1
    assert not guard.fell(with_overrides(loop, "guard.on_drop=continue"), 1)
    assert [row.action for row in loop.store.rows(Decision)] == ["pause", "continue"]
    assert guard.standing(loop.store, loop.run.id, 2) == 2


def test_the_second_rollback_in_a_row_to_one_version_pauses(loop: Loop) -> None:
    played(loop, 2, gold=15)
    assert guard.fell(loop, 1)
    phases.restore(loop, 1)
    trained(loop, 3)
    played(loop, 3, gold=14)
    with pytest.raises(Paused, match="second time in a row"):
        guard.fell(loop, 2)
    assert guard.fell(loop, 2), "resumed: it tries once more"


def test_a_version_that_was_given_up_is_never_the_best(loop: Loop) -> None:
    played(loop, 2, gold=32, shifted=0)
    played(loop, 3, gold=31)
    assert guard.best(loop, 2) == 2
    loop.store.append(
        Decision(
            run=loop.run.id, t=1, rule="guard", number=0, action="rollback", reason="", figures={}, version=1,
            checkpoint="", snapshot="", decided_at=0.0,
        )
    )  # fmt: skip
    assert guard.best(loop, 2) == 1


def test_without_suites_there_is_no_guard(loop: Loop) -> None:
    assert not guard.fell(with_overrides(loop, "eval.suites=[]"), 1)
    assert loop.store.rows(Decision) == []


@pytest.mark.parametrize(("parent", "steps", "ahead"), [(0, 0, 13), (2, 6, 7), (2, 13, 0)])
def test_figures_of_steps_go_on_after_the_runs_last(tmp_path: Path, parent: int, steps: int, ahead: int) -> None:
    """A version that was made after a rollback has seen fewer steps: those after it had the numbers of others, and
    their figures were lost."""
    loop = make_loop(tmp_path / "work")
    loop.store.append(
        Metric(run=loop.run.id, t=t, step=step, name="reward", value=0.5) for t, step in [(0, 7), (1, 13)]
    )
    trained(loop, parent, steps=steps)
    assert steps_ahead(loop, 2, parent) == ahead
