"""Stop rules and stagnation breakers: each decision is a row with its figures."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coevolve import curves, indices, phases, stop
from coevolve.config import Settings
from coevolve.growth import novel_first, room
from coevolve.loop import Loop
from coevolve.outside import inject
from store.errors import UsageError
from store.rows import Candidate, Decision, Exploration, Figure
from tests.guarded import done, frozen, make_loop, played
from tests.store_rows import exploration


def run_of(tmp_path: Path, golds: list[int], *overrides: str, **others: list[int]) -> Loop:
    """A run whose versions 0, 1, ... have so many gold items right."""
    loop = make_loop(tmp_path / "w", *overrides)
    for version, gold in enumerate(golds):
        played(loop, version, gold=gold, **{name: values[version] for name, values in others.items()})
    return loop


def figure(loop: Loop, t: int, **values: float) -> None:
    loop.store.append(Figure(run=loop.run.id, t=t, name=n.replace("__", "/"), value=v) for n, v in values.items())


def test_a_run_that_gains_goes_on(tmp_path: Path) -> None:
    loop = run_of(tmp_path, [5, 10, 15, 25])
    assert stop.due(loop, 2, 9) is None
    assert loop.store.rows(Decision) == []


def test_a_plateau_tries_each_breaker_in_turn_and_then_stops(tmp_path: Path) -> None:
    loop = run_of(tmp_path, [20] * 7)
    assert [stop.due(loop, t, 9) is not None for t in range(5)] == [False] * 4 + [True]
    rows = loop.store.rows(Decision, order="t")
    assert [(row.t, row.rule, row.action) for row in rows] == [
        (2, "breaker", "novelty"),
        (3, "breaker", "revisit"),
        (4, "plateau", "stop"),
    ]
    assert rows[2].figures["gain"] == {"n": 40, "mean": 0.0, "low": 0.0, "high": 0.0}
    assert [stop.breaking(loop, t) for t in range(4)] == ["", "", "novelty", "revisit"]


def test_a_stop_stands_until_more_rounds_are_asked_for(tmp_path: Path) -> None:
    loop = run_of(tmp_path, [20] * 4, "explore.source=none", "stop.tokens=1")
    row = stop.due(loop, 2, 9)
    assert row is not None
    assert (row.rule, row.figures["limit"]) == ("tokens", 1)
    assert stop.due(loop, 2, 9) == row
    assert stop.due(loop, 2, 12) is None
    assert len(loop.store.rows(Decision)) == 1


@pytest.mark.parametrize(("name", "limit"), [("seconds", 3.0), ("tokens", 100), ("dollars", 0.5)])
def test_a_budget_that_is_spent_stops(tmp_path: Path, name: str, limit: float) -> None:
    loop = run_of(tmp_path, [20, 21], f"stop.{name}={limit}")
    done(loop, 0, "train", seconds=4.0)
    loop.store.append(exploration(None, run=loop.run.id, cost=0.6))
    row = stop.due(loop, 0, 9)
    assert row is not None
    assert (row.rule, row.figures["limit"]) == (name, limit)
    assert row.figures["spent"] >= limit
    assert stop.due(make_loop(tmp_path / "other", f"stop.{name}={limit * 10**6}"), 0, 9) is None


@pytest.mark.parametrize("name", ["seconds", "tokens", "dollars", "dollars_per_point"])
def test_a_budget_of_0_is_refused_with_the_field(name: str) -> None:
    with pytest.raises(UsageError, match=rf"stop.{name} = 0: input should be greater than 0"):
        Settings().overridden([f"stop.{name}=0"])


def test_gold_up_and_shifted_down_is_overfitting(tmp_path: Path) -> None:
    loop = run_of(tmp_path, [10, 15, 20, 25], shifted=[25, 20, 15, 10])
    row = stop.due(loop, 2, 9)
    assert row is not None
    assert row.rule == "overfitting"
    assert row.figures["gold"]["low"] > 0 > row.figures["shifted"]["high"]


@pytest.mark.parametrize(("gold", "price"), [(21, 4.0), (19, None)])
def test_a_point_that_costs_too_much_stops(tmp_path: Path, gold: int, price: float | None) -> None:
    loop = run_of(tmp_path, [20, 20, 20, gold], "stop.dollars_per_point=3")
    loop.store.append(exploration(None, run=loop.run.id, t=1, cost=10.0))
    row = stop.due(loop, 2, 9)
    assert row is not None
    assert (row.rule, row.figures["dollars"]) == ("cost", 10.0)
    assert (f"{price:.2f} dollars" if price else "gained no point") in row.reason


def test_a_set_that_grows_neither_harder_nor_wider_is_saturated(tmp_path: Path) -> None:
    loop = run_of(tmp_path, [20] * 5)
    figure(loop, 0, tasks=10, difficulty=2.0, diversity__ngrams=0.5)
    figure(loop, 3, tasks=16, difficulty=2.01, diversity__ngrams=0.49)
    assert stop.due(loop, 3, 9) is None
    (row,) = loop.store.rows(Decision)
    assert (row.rule, row.action, row.figures["rule"]) == ("breaker", "novelty", "saturation")
    assert row.figures["difficulty"] == pytest.approx(0.5)


def test_a_set_that_was_not_to_grow_is_not_saturated(tmp_path: Path) -> None:
    loop = run_of(tmp_path, [20] * 5)
    figure(loop, 0, tasks=10, difficulty=2.0)
    figure(loop, 3, tasks=10, difficulty=2.0)
    stop.due(loop, 3, 9)
    assert loop.store.rows(Decision)[0].figures["rule"] == "plateau"


def outside_file(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "outside.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


GOOD = {"world": "room", "user_turns": ["say it"], "reference": "hello"}


def test_kinds_of_explorations_share_no_index(tmp_path: Path) -> None:
    """Hardenings and tasks from outside did: candidates of equal index had no order of their own."""
    first = [indices.RANDOM, indices.HARDEN, indices.ADVERSARIAL, indices.FOCUS, indices.OUTSIDE]
    assert min(b - a for a, b in pairwise([0, *sorted(first)])) == 10**6
    loop = make_loop(tmp_path / "work")
    inject(loop, outside_file(tmp_path, GOOD), 0)
    assert [row.index for row in loop.store.rows(Exploration)] == [indices.OUTSIDE]


def test_outside_tasks_are_injected_validated_and_keep_their_origin(tmp_path: Path) -> None:
    loop = run_of(tmp_path, [20] * 4, f"stop.inject={outside_file(tmp_path, GOOD, {**GOOD, 'reference': ''})}")
    frozen(loop, 0, loop.env.seed_tasks())
    assert stop.due(loop, 2, 9) is None
    assert stop.breaking(loop, 2) == "inject"
    assert len(loop.store.rows(Candidate)) == 2
    assert [row.model for row in loop.store.rows(Exploration)] == ["outside"] * 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{not json", "line 2: "),
        ({"world": "room"}, "line 2: .*user_turns"),
        ({**GOOD, "user_turns": "say it"}, "line 2: .*user_turns"),
        ({**GOOD, "world": "cellar"}, "line 2: world = 'cellar' is no world to train on; use one of hall, room"),
        ({**GOOD, "hint": 1}, "line 2: .*hint"),
    ],
)
def test_a_malformed_line_is_named_and_nothing_of_the_file_is_taken(tmp_path: Path, line: Any, words: str) -> None:
    loop = make_loop(tmp_path / "w")
    path = outside_file(tmp_path, GOOD, line)
    with pytest.raises(UsageError, match=words):
        inject(loop, str(path), 0)
    assert loop.store.rows(Candidate) == []


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("1" * 23, "reference: a whole number in it does not fit 64 bits"),
        ("[" * 60 + "]" * 60, "nested more than 50 deep"),
    ],
)
def test_a_reference_that_no_row_can_hold_is_named(tmp_path: Path, reference: str, words: str) -> None:
    """It was taken, and each attempt at it failed as an error of our own."""
    loop = make_loop(tmp_path / "w")
    path = outside_file(tmp_path, GOOD, f'{{"world": "room", "user_turns": ["say it"], "reference": {reference}}}')
    with pytest.raises(UsageError, match=f"line 2: .*{words}"):
        inject(loop, str(path), 0)
    assert loop.store.rows(Candidate) == []


def test_a_file_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "w")
    path = tmp_path / "outside.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n")
    assert inject(loop, str(path), 0) == 1


def test_a_file_that_went_bad_while_the_run_was_under_way_costs_a_breaker_not_the_run(tmp_path: Path) -> None:
    loop = run_of(tmp_path, [20] * 4, f"stop.inject={tmp_path / 'gone.jsonl'}")
    assert stop.due(loop, 2, 9) is None
    (row,) = loop.store.rows(Decision)
    assert row.action == "inject"
    assert "No such file" in row.reason


def test_novelty_takes_tasks_of_new_structures_first(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "w")
    old, new = [replace(loop.env.seed_tasks()[0], structure=structure) for structure in ("_____", "__")]
    assert novel_first([("rare", old), ("rare", new)], loop.env.seed_tasks()) == [("rare", new), ("rare", old)]


@pytest.mark.parametrize(
    ("size", "growth", "count"), [(100, 0.29, 29), (15, 0.2, 3), (30, 0.1, 3), (4, 0.1, 1), (9, 0.3, 2)]
)
def test_a_round_has_room_for_its_share_of_the_set(size: int, growth: float, count: int) -> None:
    assert room(size, growth) == count


def test_curves_of_a_round_are_rows(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "w")
    phases._freeze(loop, 0, loop.env.seed_tasks())
    found = dict(loop.store.query("select name, value from v_curve where round = 0"))
    assert found["tasks"] == 6
    assert found["difficulty"] == 5
    assert found["diversity/structures"] == 1


def test_spread_and_clusters_of_two_opposite_questions() -> None:
    numpy = pytest.importorskip("numpy")
    vectors = numpy.array([[1, 0], [1, 0], [0, 1]], dtype="float32")
    assert curves.spread(vectors) == pytest.approx(2 / 3), "of three pairs two are at distance 1"
    assert curves.clusters(vectors) == 2
    assert curves.spread(vectors[:1]) == 0.0
