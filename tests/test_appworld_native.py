"""Our tasks in AppWorld's own form: its engine opens them, doing nothing fails, the reference passes."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from coevolve.workspace import Workspace
from envs.appworld.env import AppWorld
from envs.appworld.native import DATASET, native_id, write
from envs.appworld.place import VENV, Place, environment
from store.rows import Run, Task
from store.snapshot import freeze
from tests.appworld_play import COUNT, NOTE, synthetic
from tests.cli import coevolve

NOTE_WORDS = 'Make a note "List" that says "bread".'
PLAY = """
import json
from appworld import AppWorld, load_task_ids
found = []
for task in load_task_ids("coevolve"):
    with AppWorld(task_id=task, experiment_name="probe", ground_truth_mode="full") as world:
        asked = world.execute('print(apis.supervisor.show_active_task()["instruction"])').strip()
        before = world.evaluate().to_dict()
        world.execute(world.task.ground_truth.solution_code + "\\nsolution(apis, requester)")
        found.append([world.task.instruction, asked, before, world.evaluate().to_dict()])
print("FOUND" + json.dumps(found))
"""
"""By nothing but AppWorld: (instruction, the one that the agent is told, grade of nothing, grade of the solution)."""


def silent(label: str, done: int, total: int) -> None:
    """A report that nobody reads."""


@pytest.fixture(scope="module")
def made(appworld: AppWorld) -> list[Task]:
    return [
        synthetic(appworld, NOTE_WORDS, NOTE),
        synthetic(appworld, "How many songs are in my Spotify library?", COUNT),
    ]


@pytest.fixture(scope="module")
def root(appworld: AppWorld, made: list[Task], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native") / "out"
    assert write(appworld, made, folder, silent) == {task.id: None for task in made}
    return folder


def test_nothing_but_data_is_left_behind(root: Path, made: list[Task]) -> None:
    assert {path.name for path in root.iterdir()} == {"README", "data"}
    assert "only encrypted" in (root / "README").read_text()
    ids = (root / "data" / "datasets" / f"{DATASET}.txt").read_text().split()
    assert ids == [native_id(task) for task in made]


def test_an_evaluation_by_appworld_is_ours(appworld: AppWorld, root: Path, made: list[Task]) -> None:
    """The same changes, told by the file beside the task."""
    for task in made:
        truth = root / "data" / "tasks" / native_id(task) / "ground_truth"
        graded, _ = appworld.reached(task)
        assert json.loads((truth / "private_data.json").read_text())["changes"] == graded["difference"]["changes"]
        assert json.loads((truth / "answer.json").read_text()) == task.expected["answer"]


@pytest.mark.slow
def test_appworld_itself_passes_the_reference_and_not_doing_nothing(root: Path, made: list[Task]) -> None:
    ran = subprocess.run(
        [VENV.python, "-c", PLAY], env=environment(root), cwd=root, capture_output=True, text=True, check=True
    )
    found = json.loads(ran.stdout.rpartition("FOUND")[2])
    assert [row[:2] for row in found] == [[task.user_turns[0]] * 2 for task in made]
    for _, _, nothing, solved in found:
        assert not nothing["success"]
        assert {each["label"] for each in nothing["passes"]} <= {"no_op_pass"}
        assert {each["label"] for each in nothing["failures"]} == {"no_op_fail"}
        assert solved["success"]
        assert not solved["failures"]


def test_by_appworlds_grade_other_doings_fail_and_the_same_by_other_code_pass(
    appworld: AppWorld, root: Path, made: list[Task]
) -> None:
    evaluators = Place(root).evaluators()
    asked = {"verb": "grade", "world": native_id(made[0]), "official": True}
    try:
        for code, good in ((NOTE.replace('"bread"', '"butter"'), False), ("print(1)\n" + NOTE, True)):
            played = appworld.agents.ask({"verb": "play", "world": made[0].world, "blocks": [code]})
            graded = evaluators.ask({**asked, "calls": played["steps"][0]["calls"]})
            assert all(ok for *_, ok in graded["tests"]) == good
    finally:
        evaluators.close()


def test_a_task_that_does_not_replay_is_left_out(appworld: AppWorld, made: list[Task], tmp_path: Path) -> None:
    spoilt = replace(made[0], expected={**made[0].expected, "digest": "0" * 16})
    found = write(appworld, [spoilt], tmp_path / "out", silent)
    assert "does not replay" in (found[spoilt.id] or "")
    assert not list((tmp_path / "out" / "data").glob("tasks/*"))


@pytest.fixture
def workspace(appworld: AppWorld, made: list[Task], tmp_path: Path) -> Workspace:
    (tmp_path / "config.toml").write_text("")
    place = Workspace(tmp_path)
    run = place.create_run({})
    run.update(created_at=1.0, rounds=1)
    spec = f"appworld:{appworld.place.root}"
    place.store.append([Run(id=run.id, created_at=1.0, seed=0, env=spec, policy="x", config={}, versions={}), *made])
    freeze(run.snapshots, run.id, 0, made)
    return place


def test_a_run_is_exported_with_a_warning_and_on_request_alone(workspace: Workspace, made: list[Task]) -> None:
    out = workspace.root / "out"
    asked = ("export", out, "--native", "--workspace", workspace.root)
    refused = coevolve(*asked)
    assert refused.code == 2
    assert "--include-protected" in refused.err
    assert not out.exists()
    done = coevolve(*asked, "--include-protected", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["tasks"] == len(made)
    assert (out / "data" / "tasks" / native_id(made[0]) / "specs.json").is_file()


def test_tasks_of_another_environment_have_no_native_form(workspace: Workspace) -> None:
    run = workspace.create_run({})
    run.update(created_at=2.0, rounds=1)
    workspace.store.append([Run(id=run.id, created_at=2.0, seed=0, env="bfcl", policy="x", config={}, versions={})])
    refused = coevolve("export", workspace.root / "out", "--native", "--workspace", workspace.root)
    assert refused.code == 2
    assert "appworld" in refused.err
