"""Which signals are open, and which of them a round explores."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.db import Store
from store.errors import UsageError
from store.rows import Signal, SignalKind, content_id
from store.signals import KINDS, SignalSettings, due, open_signals, pick
from tests.store_rows import exploration, phase


def signal(name: str, t: int = 0, kind: SignalKind = "boundary", run: str = "r") -> Signal:
    return Signal(
        id=content_id(run, t, kind, name), run=run, t=t, kind=kind, task_id=name, pattern=None, evidence=["e"], stats={}
    )


def status(store: Store, which: Signal) -> str:
    ((found,),) = store.query("SELECT status FROM v_signal WHERE id = ?", [which.id])
    return str(found)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_signal_is_explored_by_a_finished_exploration(store: Store) -> None:
    done, lost, new = signal("a"), signal("b"), signal("c")
    store.append(done, lost, new, phase(0), exploration(done.id), exploration(lost.id, outcome="infra"))
    assert [status(store, each) for each in (done, lost, new)] == ["explored", "open", "open"]
    assert open_signals(store, "r") == sorted([lost, new], key=lambda each: each.id)


@pytest.mark.parametrize(("newest", "expected"), [(3, "open"), (5, "open"), (6, "expired")])
def test_a_signal_expires_when_it_is_older_than_two_iterations(store: Store, newest: int, expected: str) -> None:
    store.append(signal("a", t=3), [phase(t) for t in range(newest + 1)])
    assert status(store, signal("a", t=3)) == expected
    assert len(open_signals(store, "r", ref="boundary")) == (expected == "open")


def test_an_explored_signal_stays_explored(store: Store) -> None:
    store.append(signal("a"), exploration(signal("a").id), phase(9))
    assert status(store, signal("a")) == "explored"


def test_only_finished_train_phases_of_the_run_age_a_signal(store: Store) -> None:
    store.append(signal("a"), phase(9, "eval"), phase(9, "snapshot"), phase(9, run="other"))
    assert status(store, signal("a")) == "open"


def test_the_age_limit_is_a_setting(store: Store) -> None:
    store.append(signal("a"), phase(2))
    assert open_signals(store, "r", SignalSettings(expire=1), ref="boundary") == []
    assert open_signals(store, "r", SignalSettings(expire=2), ref="boundary") == [signal("a")]


def test_latest_is_the_newest_finished_iteration(store: Store) -> None:
    store.append(signal("old", t=1), signal("new", t=2), signal("other", t=7, run="other"), phase(1), phase(2))
    assert open_signals(store, "r") == [signal("new", t=2)]
    store.append(phase(3))
    assert open_signals(store, "r") == []


def test_latest_before_any_phase_is_the_newest_signal(store: Store) -> None:
    store.append(signal("old", t=1), signal("new", t=2))
    assert open_signals(store, "r") == [signal("new", t=2)]


def test_a_kind_names_the_open_signals_of_that_kind_newest_first(store: Store) -> None:
    store.append(signal("a", 0, "rare"), signal("b", 1, "rare"), signal("c", 1, "boundary"), phase(1))
    assert [each.task_id for each in open_signals(store, "r", ref="rare")] == ["b", "a"]


def test_an_id_names_one(store: Store) -> None:
    store.append(signal("a"), signal("b"))
    assert open_signals(store, "r", ref=signal("b").id) == [signal("b")]


def test_a_wrong_id_says_why(store: Store) -> None:
    done, old, foreign = signal("done", 9), signal("old"), signal("x", 9, run="other")
    store.append(done, old, foreign, exploration(done.id), phase(9))
    for ref, words in [
        ("nonsense", "signal nonsense: no such signal"),
        (done.id, "explored already"),
        (old.id, "expired, it is 9 iterations old"),
        (foreign.id, "belongs to run other"),
    ]:
        with pytest.raises(UsageError, match=words):
            open_signals(store, "r", ref=ref)


def many(**counts: int) -> list[Signal]:
    return [signal(str(n), 0, kind) for kind in KINDS for n in range(counts.get(kind, 0))]


@pytest.mark.parametrize(
    ("counts", "picked"),
    [
        ({"forgetting": 30, "boundary": 30, "rare": 30}, [8, 8, 8]),
        ({"forgetting": 2, "boundary": 30, "rare": 30}, [2, 11, 11]),
        ({"forgetting": 0, "boundary": 3, "rare": 30}, [0, 3, 21]),
        ({"forgetting": 1, "boundary": 1, "rare": 1}, [1, 1, 1]),
        ({"forgetting": 30, "boundary": 0, "rare": 0}, [24, 0, 0]),
    ],
)
def test_a_round_is_split_evenly_over_kinds(counts: dict[str, int], picked: list[int]) -> None:
    chosen = pick(many(**counts), 24)
    assert [sum(each.kind == kind for each in chosen) for kind in KINDS] == picked


def test_newer_signals_go_first() -> None:
    signals = [signal("a", 0), signal("b", 1), signal("c", 1)]
    assert pick(signals, 3)[2] == signals[0]
    assert pick(reversed(signals), 3) == pick(signals, 3)


def test_ties_do_not_depend_on_the_runs_name() -> None:
    ours = [signal(str(n), 0) for n in range(30)]
    theirs = [signal(str(n), 0, run="other") for n in range(30)]
    assert [each.task_id for each in pick(ours, 24)] == [each.task_id for each in pick(theirs, 24)]


@given(st.tuples(*[st.integers(0, 40)] * 3), st.integers(1, 60), st.randoms())
def test_picking_is_fair_whole_and_independent_of_order(counts: tuple[int, int, int], limit: int, rng: object) -> None:
    signals = many(**dict(zip(KINDS, counts, strict=True)))
    chosen = pick(signals, limit)
    rng.shuffle(signals)  # type: ignore[attr-defined]
    assert pick(signals, limit) == chosen
    assert len(chosen) == min(limit, len(signals)) == len({each.id for each in chosen})
    taken = [sum(each.kind == kind for each in chosen) for kind in KINDS]
    unfinished = [n for n, of in zip(taken, counts, strict=True) if n < of]
    assert all(n <= min(unfinished) + 1 for n in taken if unfinished)


def test_a_round_is_due_its_own_signals_and_older_ones_that_only_failed(store: Store) -> None:
    lost, done, half, expired, new = signal("a"), signal("b"), signal("c"), signal("d", t=-1), signal("e", t=2)
    untried = signal("f", t=1)
    store.append(lost, done, half, expired, new, untried, exploration(done.id))
    store.append(exploration(each.id, outcome="infra", index=1) for each in (lost, half, expired))
    store.append(exploration(half.id))
    assert {each.id for each in due(store, "r", 2)} == {lost.id, new.id}
    store.append(exploration(lost.id, t=2))  # the round itself changes nothing in what is due
    assert {each.id for each in due(store, "r", 2)} == {lost.id, new.id}
    assert due(store, "r", 3) == []
