"""How a snapshot's tasks are sampled: band, exemption, signals, floor; and that the manifest states it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from store.db import Store
from store.mix import LEAST, MixSettings, band, beta_cdf, floored, mix
from store.rows import Candidate, Signal, Snapshot, Task, Verdict
from store.snapshot import freeze, load, restore
from tests.store_rows import exploration, task, trajectory

SETTINGS = MixSettings()


@pytest.mark.parametrize(
    ("rate", "name"),
    [((0, 8), "hard"), ((8, 8), "easy"), ((4, 8), "in"), ((7, 8), "in"), ((1, 8), "in"), ((2, 2), "in")],
)
def test_a_rate_is_out_of_the_band_only_where_the_rollouts_say_so(rate: tuple[int, int], name: str) -> None:
    assert band(rate, [], SETTINGS)[0] == name


def test_weights_fall_from_the_middle_of_the_band_to_its_ends() -> None:
    weights = [band((n, 8), [], SETTINGS)[1] for n in range(9)]
    assert weights == [*sorted(weights[:4]), max(weights), *sorted(weights[5:], reverse=True)]
    assert weights[0] == pytest.approx(0.8**9, rel=1e-4), "8 failures of 8: Beta(1, 9) above 0.2"
    assert band((0, 200), [], SETTINGS)[1] == LEAST


@given(st.integers(0, 30), st.integers(0, 30), st.floats(0, 1))
def test_the_distribution_is_that_of_beta(successes: int, failures: int, x: float) -> None:
    """Against the density, summed by the midpoint rule."""
    n, steps = successes + failures, 4000
    norm = (n + 1) * math.comb(n, successes)
    width = x / steps
    points = ((i + 0.5) * width for i in range(steps))
    area = sum(norm * p**successes * (1 - p) ** failures for p in points) * width
    assert beta_cdf(x, successes, failures) == pytest.approx(area, abs=2e-3)


def test_a_new_task_is_judged_by_its_structure_and_without_one_is_within_reach() -> None:
    assert band(None, [(0, 8), (0, 8)], SETTINGS) == ("new", band((0, 8), [], SETTINGS)[1])
    assert band(None, [], SETTINGS) == ("new", 1.0)


@given(st.lists(st.tuples(st.floats(0.01, 10), st.booleans()), min_size=1, max_size=20), st.floats(0, 1))
def test_seeds_have_their_floor_and_probabilities_add_up(entries: list[tuple[float, bool]], floor: float) -> None:
    weights, seeds = [w for w, _ in entries], [seed for _, seed in entries]
    p = floored(weights, seeds, floor)
    assert math.fsum(p) == pytest.approx(1)
    if any(seeds):
        assert math.fsum(each for each, seed in zip(p, seeds, strict=True) if seed) >= floor - 1e-9


def born_of_a_signal(new: Task, kind: Any, t: int) -> list[Any]:
    signal = Signal(id="s", run="r", t=t, kind=kind, task_id="a", pattern=None, evidence=[], stats={})
    explored = exploration("s", t=t)
    content: Any = {"world": "shop", "user_turns": [], "tools": [], "reference": "", "index": 0}
    candidate = Candidate(id="c", exploration_id=explored.id, run="r", t=t, **content)
    decided: Any = {"adopt": True, "reason": "valid", "detail": "", "repairs": 0, "seconds": 0.0}
    return [signal, explored, candidate, Verdict(id="v", candidate_id="c", run="r", t=t, task_id=new.id, **decided)]


def test_what_a_signal_gave_birth_to_counts_in_full_for_two_iterations_and_then_by_the_band(tmp_path: Path) -> None:
    store = Store(tmp_path)
    seed, new = task(1), task(2, origin="explored")
    store.append(seed, new, born_of_a_signal(new, "forgetting", 0))
    store.append(Snapshot(id="0", run="r", t=0, task_ids=[seed.id], created_at=0.0))
    for t in range(1, 4):
        store.append(Snapshot(id=str(t), run="r", t=t, task_ids=[seed.id, new.id], created_at=0.0))
        store.append(trajectory(each, k=k, t=t, score=0.0) for each in (seed.id, new.id) for k in range(8))
    bands = [mix(store, "r", t, [seed, new], SETTINGS, growth=0.2)["band"][1] for t in (1, 2, 3, 4)]
    assert bands == ["exempt", "exempt", "hard", "hard"]
    stated = mix(store, "r", 2, [seed, new], SETTINGS, growth=0.2)
    assert stated["part"] == ["seed", "forgetting"]
    assert stated["band"] == ["hard", "exempt"]
    assert stated["p"] == pytest.approx([0.3, 0.7]), "0.13 to 2, and the floor"
    again = mix(store, "r", 4, [seed, new], SETTINGS, growth=0.2, revisit=True)
    assert again["p"] == pytest.approx([1 / 3, 2 / 3]), "1 to 2: the band is set aside"


def test_without_seeds_the_tasks_of_d_0_play_their_part(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, later = task(1, origin="explored"), task(2, origin="explored")
    store.append(Snapshot(id="0", run="r", t=0, task_ids=[first.id], created_at=0.0))
    assert mix(store, "r", 1, [first, later], SETTINGS, growth=0.2)["part"] == ["seed", "unguided"]


def test_the_manifest_states_the_mix_and_it_comes_back_from_the_store(tmp_path: Path) -> None:
    tasks, store = [task(1), task(2)], Store(tmp_path / "store")
    stated = mix(store, "r", 0, tasks, SETTINGS, growth=0.2)
    row = freeze(tmp_path / "snapshots", "r", 0, tasks, stated)
    manifest = json.loads((tmp_path / "snapshots" / f"0-{row.id}" / "manifest.json").read_text())
    assert manifest["mix"] == stated == load(tmp_path / "snapshots")[0].mix
    store.append(tasks, row)
    (kept,) = store.rows(Snapshot)
    restore(tmp_path / "snapshots", kept, tasks)
    assert load(tmp_path / "snapshots")[0].mix == stated
    assert store.query("SELECT task_id, part, band, p FROM v_mix ORDER BY p, task_id") == sorted(
        (task.id, "seed", "new", 0.5) for task in tasks
    )


@pytest.mark.parametrize("wrong", [{"hard": 0.8, "easy": 0.2}, {"signals": {"rare": 0.0}}, {"seed_floor": 1.1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MixSettings(**wrong)
