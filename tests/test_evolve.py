"""The whole loop, real processes and all, with a random-weight model that says SQL (tests/random_sql_model.py)."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from envs import registry
from store.db import Store
from store.rows import Task
from store.snapshot import load
from tests.event_files import scalars
from tests.loops import command, content, make_workspace, start
from tests.random_sql_model import write_random_sql_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
ROUNDS = 2
KILLS = 20
"""Places at which the run is killed at least."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_sql_model(tmp_path_factory.mktemp("model") / "random-sql")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A workspace with one uninterrupted run; `operations` holds one dot per durable operation."""
    workspace = make_workspace(tmp_path_factory.mktemp("loop") / "finished", model)
    counter = str(workspace / "operations")
    done = command(workspace, "evolve", "--rounds", str(ROUNDS), "--json", KILL_COUNTER=counter, KILL_AT="0")
    assert done.returncode == 0, done.stderr
    (workspace / "report.json").write_text(done.stdout)
    return workspace


def report(workspace: Path) -> Any:
    return json.loads((workspace / "report.json").read_text())


def test_every_phase_left_its_mark(finished: Path) -> None:
    rounds = report(finished)["rounds"]
    assert [row["round"] for row in rounds] == [0, 1, 2]
    assert [row["tasks"] for row in rounds] == [10, 10, 12]
    assert all(set(row["scores"]) >= {"gold[6]", "shifted[6]"} for row in rounds)
    assert rounds[2]["admitted"] == 2
    assert sum(row["explored"] for row in rounds) > 0


def test_every_explored_task_has_its_whole_lineage(finished: Path) -> None:
    store = Store(finished / "store")
    explored = store.rows(Task, "origin = 'explored'")
    assert explored
    for task in explored:
        found = json.loads(command(finished, "why", task.id, "--json").stdout) if task is explored[0] else None
        assert found is None or found["lineage"][0]["verdict"]["reason"] == "valid"
    unlinked = store.query(
        """
        select t.id from task t
        left join verdict v on v.task_id = t.id and v.adopt
        left join candidate c on c.id = v.candidate_id
        left join exploration e on e.id = c.exploration_id
        left join step s on s.trajectory_id = e.trajectory_id
        where t.origin = 'explored' and s.trajectory_id is null
        """
    )
    assert unlinked == []


def test_snapshots_only_grow(finished: Path) -> None:
    members = [[task.id for task in load(finished / "runs/r001/snapshots", t)[1]] for t in range(ROUNDS + 1)]
    for before, after in pairwise(members):
        assert after[: len(before)] == before
        assert 0 < len(after) - len(before) <= max(1, int(0.2 * len(before)))


def test_no_held_out_question_or_sql_is_in_any_snapshot(finished: Path) -> None:
    env = registry.get("text2sql")
    held_out = {key for suite in env.suites().values() for task in suite for key in env.twins(task)}
    for t in range(ROUNDS + 1):
        for task in load(finished / "runs/r001/snapshots", t)[1]:
            assert held_out.isdisjoint(env.twins(task)), task.user_turns


def test_signals_come_from_training_rollouts_alone(finished: Path) -> None:
    rows = Store(finished / "store").query(
        "select distinct t.purpose from (select unnest(evidence) id from signal) e join trajectory t using (id)"
    )
    assert rows == [("train",)]


def test_the_final_suite_is_played_once(finished: Path) -> None:
    rows = Store(finished / "store").query("select distinct t from trajectory where suite = 'test'")
    assert len(rows) == 1


def test_figures_of_every_optimiser_step_are_in_tensorboard_too(finished: Path) -> None:
    stored = Store(finished / "store").query("select name, step, value from metric order by all")
    shown = sorted(scalars(finished / "runs/r001/tensorboard"))
    assert stored != []
    assert [row[:2] for row in shown] == [row[:2] for row in stored]
    assert [row[2] for row in shown] == pytest.approx([row[2] for row in stored])


def test_overlap_explores_while_the_next_iteration_trains(tmp_path: Path, model: Path) -> None:
    """Signals of iteration 0 reach D_2, and two such runs make the same snapshots."""
    workspace = make_workspace(tmp_path / "overlap", model)
    done = command(workspace, "evolve", "--rounds", "3", "--overlap", "--json", "--set", "eval.suites=[]")
    assert done.returncode == 0, done.stderr
    rounds = json.loads(done.stdout)["rounds"]
    born = """
        select m.t, max(l.signal_t) from v_membership m join v_lineage l using (run, task_id)
        where l.signal_t is not null group by m.t order by m.t
    """
    newest = dict(Store(workspace / "store").query(born))
    assert newest == {2: 0, 3: 1}, "what was explored beside iteration t is in D_{t+1}, not before"
    assert sum(row["saved_s"] for row in rounds) > 0
    done = command(workspace, "evolve", "--rounds", "3", "--overlap", "--set", "eval.suites=[]")
    assert done.returncode == 0, done.stderr
    snapshots = Store(workspace / "store").query(
        "select run, list(id order by t) from snapshot group by run order by run"
    )
    assert snapshots[0][1] == snapshots[1][1]


def test_what_is_finished_starts_no_process(finished: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "again"
    shutil.copytree(finished, workspace)
    done = command(workspace, "evolve", "--resume", PROCESSES=str(workspace / "processes"))
    assert done.returncode == 0, done.stderr
    (line,) = (workspace / "processes").read_text().splitlines()
    assert "-m coevolve evolve" in line


def test_more_rounds_do_not_look_at_the_final_suite_again(finished: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "longer"
    shutil.copytree(finished, workspace)
    done = command(workspace, "evolve", "--resume", "--rounds", str(ROUNDS + 1))
    assert done.returncode == 0, done.stderr
    played = "select count(*) from trajectory where suite = 'test'"
    assert Store(workspace / "store").query(played) == Store(finished / "store").query(played)


def test_a_checkpoint_that_was_deleted_is_made_again(finished: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "lost"
    shutil.copytree(finished, workspace)
    shutil.rmtree(workspace / "runs/r001/checkpoints/2")
    done = command(workspace, "evolve", "--resume")
    assert done.returncode == 0, done.stderr
    assert weights(workspace) == weights(finished)
    assert content(workspace) == content(finished)


def test_fewer_rounds_than_are_finished_are_refused(finished: Path) -> None:
    done = command(finished, "evolve", "--resume", "--rounds", "1")
    assert done.returncode == 2
    assert "it has finished 2" in done.stderr


def test_another_run_with_the_same_seed_is_the_same(finished: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "twice"
    shutil.copytree(finished, workspace)
    done = command(workspace, "evolve", "--rounds", "1", "--set", "eval.suites=[]")
    assert done.returncode == 0, done.stderr
    store = Store(workspace / "store")
    snapshots = store.query("select t, run, id from snapshot where t <= 1 order by all")
    assert [row[1] for row in snapshots] == ["r001", "r002"] * 2
    assert [snapshots[0][2], snapshots[2][2]] == [snapshots[1][2], snapshots[3][2]]
    signals = "select kind, task_id, pattern, stats from signal where run = ? and t = 0 order by all"
    assert store.query(signals, ["r001"]) == store.query(signals, ["r002"]) != []


def test_killed_at_many_places_it_equals_an_uninterrupted_run(tmp_path: Path, model: Path, finished: Path) -> None:
    workspace = make_workspace(tmp_path / "killed", model)
    places = len((finished / "operations").read_text())
    step = places // 18  # some of it is done again after each kill
    published: dict[str, str] = {}
    for kill in range(20 * KILLS):
        counter = workspace / f"operations-{kill}"
        resume = ["--resume"] if (workspace / "runs/r001/manifest.json").exists() else []
        done = command(
            workspace,
            "evolve",
            "--rounds",
            str(ROUNDS),
            *resume,
            KILL_COUNTER=str(counter),
            KILL_AT=str(step + kill % 2),
            KILL_ALL=str(kill // 2 % 2),
        )
        published = unchanged(workspace, published)
        if done.returncode == 0:
            break
        assert len(counter.read_text()) >= step, done.stderr
    assert done.returncode == 0, done.stderr
    assert kill >= KILLS
    assert content(workspace) == content(finished)
    assert weights(workspace) == weights(finished)
    assert command(workspace, "db", "check").returncode == 0
    shown = [row[:2] for row in scalars(workspace / "runs/r001/tensorboard")]
    assert len(shown) == len(set(shown)), "no step is shown twice"


def test_sigterm_drains_and_resume_goes_on(tmp_path: Path, model: Path, finished: Path) -> None:
    workspace = make_workspace(tmp_path / "stopped", model)
    running = start(workspace, "evolve", "--rounds", str(ROUNDS))
    store = Store(workspace / "store")
    while not store.query("select 1 from trajectory where purpose = 'train' limit 1"):
        assert running.poll() is None
        time.sleep(0.2)
    running.terminate()
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 1
    assert errors.count("stopping once what is under way is finished and kept") == 1
    assert "stopped as asked" in errors
    done = command(workspace, "evolve", "--resume")
    assert done.returncode == 0, done.stderr
    assert content(workspace) == content(finished)


def test_killed_with_the_real_model(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "real", tmp_path)
    settings = {"policy": "smollm2", "seed_set.unguided": 2, "train.model.dtype": "auto", "eval.limit": 3}
    settings |= {
        "train.collect.rollouts": 2,
        "train.collect.max_tokens": 24,
        "eval.final": "",
        "train.warm_start": "false",
    }
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    counter = str(workspace / "operations")
    done = command(workspace, "evolve", "--rounds", "1", *overrides, KILL_COUNTER=counter, KILL_AT="1000000")
    operations = len(Path(counter).read_text())
    assert done.returncode == 0, done.stderr
    whole = content(workspace)
    shutil.rmtree(workspace / "runs")
    shutil.rmtree(workspace / "store")
    killed = command(
        workspace,
        "evolve",
        "--rounds",
        "1",
        *overrides,
        KILL_COUNTER=counter,
        KILL_AT=str(operations + operations // 2),
    )
    assert killed.returncode == -9 or "SIGKILL" in killed.stderr
    done = command(workspace, "evolve", "--resume")
    assert done.returncode == 0, done.stderr
    for name in ("task", "snapshot", "phase"):
        assert content(workspace)[name] == whole[name]
    ids = "select count(*), count(distinct id) from trajectory"
    ((rows, distinct),) = Store(workspace / "store").query(ids)
    assert rows == distinct == len(whole["trajectory"])


def unchanged(workspace: Path, before: dict[str, str]) -> dict[str, str]:
    """Hashes of all published snapshots; those that were there before are the same."""
    now = {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for manifest in sorted(workspace.glob("runs/r001/snapshots/[0-9]*/manifest.json"))
        for path in sorted(manifest.parent.iterdir())
    }
    assert {path: now.get(path) for path in before} == before
    return now


def weights(workspace: Path) -> dict[str, str]:
    files = sorted(workspace.glob("runs/r001/checkpoints/[0-9]*/*.safetensors"))
    return {str(path.relative_to(workspace)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
