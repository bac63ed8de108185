"""What sends the explorer out in a round (`explore.source`): signals, nothing in particular, or it stays at home."""

from __future__ import annotations

from pathlib import Path

import pytest

from coevolve import phases
from coevolve.commands import opened, start_run
from coevolve.workspace import LOOP, Workspace
from envs.text2sql.env import builtin
from store.rows import Exploration, Signal
from tests.cli import coevolve
from tests.store_rows import phase, step, trajectory


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    """A run whose iteration 0 is trained and has two open signals; no policy is needed for that."""
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    run = start_run(place, ("policy=litellm:none",), 0)
    shown = trajectory("a", run=run.id, world=builtin().worlds("train")[0].id)
    found = [
        Signal(
            id=f"s{i}", run=run.id, t=0, kind="boundary", task_id=f"a{i}", pattern=None, evidence=[shown.id], stats={}
        )
        for i in range(2)
    ]
    place.store.append(shown, step(shown, ["SELECT"]), *found, phase(0, run=run.id), phase(0, "signals", run=run.id))
    return place


def round_of(place: Workspace, source: str) -> tuple[phases.Counts, list[Exploration]]:
    with opened(place, place.run(), (f"explore.source={source}",), LOOP) as loop:
        counts = phases.explore(loop, 0)
    return counts, place.store.rows(Exploration, order='"index"')


def test_random_explores_as_often_as_the_signals_would_and_about_none(place: Workspace) -> None:
    counts, rows = round_of(place, "random")
    assert counts == {"signals": 0, "done": 4}
    assert [row.signal_id for row in rows] == [None] * 4
    assert len({row.world for row in rows}) == 4, "the train worlds in turn"
    assert round_of(place, "random") == (counts, rows), "a round is done once"


def test_none_stays_at_home(place: Workspace) -> None:
    assert round_of(place, "none") == ({"signals": 0}, [])


def test_none_leaves_d_as_it_is_even_where_valid_tasks_wait(tmp_path: Path) -> None:
    options = ["policy=litellm:none", "seed_set.seeds=0", "seed_set.unguided=2", "explore.source=none"]
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    run = start_run(place, tuple(options), 0)
    with opened(place, run, (), LOOP) as loop:
        assert phases.seed(loop, 0)["pending"] > 0
        assert phases.snapshot(loop, 0)["admitted"] == 0


def test_signals_are_explored_by_default(place: Workspace) -> None:
    counts, rows = round_of(place, "signals")
    assert (counts["signals"], sorted({str(row.signal_id) for row in rows})) == (2, ["s0", "s1"])
