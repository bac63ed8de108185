"""What failed for our own faults: a later `explore`, or round, tries them again; counts tell what was done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coevolve import phases
from coevolve.commands import opened, start_run
from coevolve.loop import Loop
from coevolve.workspace import LOOP, Workspace
from envs.errors import SessionLost
from envs.text2sql.env import Text2Sql, builtin
from store.rows import Exploration, Signal
from tests.cli import Ran, coevolve
from tests.store_rows import phase, step, trajectory

WORLD = builtin().worlds("train")[0].id


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    """A run whose iteration 0 is trained and has one open signal; no policy is needed for that."""
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    run = start_run(place, ("policy=litellm:none",), 0)
    shown = trajectory("a", run=run.id, world=WORLD)
    about = {"task_id": "a", "pattern": None, "evidence": [shown.id], "stats": {}}
    found = Signal(id="s0", run=run.id, t=0, kind="boundary", **about)
    place.store.append(shown, step(shown, ["SELECT"]), found, phase(0, run=run.id), phase(0, "signals", run=run.id))
    return place


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment loses every session, until `broken.undo()`."""

    def lose(*_: Any, **__: Any) -> Any:
        raise SessionLost("no memory")

    monkeypatch.setattr(Text2Sql, "open", lose)
    return monkeypatch


def explore(place: Workspace, *arguments: str) -> Ran:
    return coevolve("explore", *arguments, "--workspace", place.root)


def outcomes(place: Workspace) -> list[tuple[int, int, str]]:
    return place.store.query('select t, "index", outcome from exploration order by t, "index", outcome desc')


def test_what_failed_is_told_and_explored_by_the_next_call(place: Workspace, broken: pytest.MonkeyPatch) -> None:
    failed = explore(place)
    assert failed.code == 1
    assert "none of 1 open signals was explored; the last of 2 explorations failed with: SessionLost" in failed.err
    broken.undo()
    done = explore(place, "--json")
    assert (done.code, json.loads(done.out)) == (0, {"signals": 1, "done": 2})
    assert outcomes(place) == [(0, 0, "infra"), (0, 0, "done"), (0, 1, "infra"), (0, 1, "done")]
    assert len({row.trajectory_id for row in place.store.rows(Exploration)}) == 4


def test_attempts_are_bounded(place: Workspace, broken: pytest.MonkeyPatch) -> None:
    for _ in range(phases.EXPLORE_ATTEMPTS):
        assert "failed with" in explore(place).err
    assert "none of 1 open signals is left to explore: 4 attempts failed" in explore(place).err
    assert len(outcomes(place)) == 2 * phases.EXPLORE_ATTEMPTS


def test_no_open_signal_is_told(place: Workspace) -> None:
    done = explore(place, "--signals", "forgetting")
    assert (done.code, done.out) == (0, "run r001: no open signal (forgetting), so there was nothing to explore\n")


def in_round(place: Workspace, t: int) -> phases.Counts:
    with opened(place, place.run(), (), LOOP) as loop:
        return phases.explore(loop, t)


def test_a_round_tries_once_and_a_later_one_again(place: Workspace, broken: pytest.MonkeyPatch) -> None:
    assert in_round(place, 0) == {"signals": 0, "infra": 2}
    assert in_round(place, 0) == {"signals": 0, "infra": 2}
    assert len(outcomes(place)) == 2
    broken.undo()
    assert in_round(place, 1) == {"signals": 1, "done": 2}
    assert in_round(place, 1) == {"signals": 1, "done": 2}
    assert in_round(place, 2) == {"signals": 0}
    assert outcomes(place) == [(0, 0, "infra"), (0, 1, "infra"), (1, 0, "done"), (1, 1, "done")]


def test_a_round_that_was_killed_between_two_explorations_ends_the_same(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was committed before the kill, what is due stays the same."""
    whole = phases._explore

    def half(loop: Loop, jobs: list[Any]) -> list[Exploration]:
        whole(loop, jobs[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(phases, "_explore", half)
    with pytest.raises(KeyboardInterrupt):
        in_round(place, 0)
    monkeypatch.undo()
    assert in_round(place, 0) == {"signals": 1, "done": 2}
    assert outcomes(place) == [(0, 0, "done"), (0, 1, "done")]
