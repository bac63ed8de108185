"""What the machine and other people's hands do to a workspace: one clear line, never a traceback, never a wrong run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from store.db import Store
from store.rows import Run
from tests.cli import coevolve
from tests.loops import make_workspace
from tests.tiny_model import write_random_model


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which model and workspace lie side by side, and the policy is named from the workspace."""
    root = tmp_path_factory.mktemp("machine")
    write_random_model(root / "model")
    workspace = make_workspace(root / "work", Path("../model"))
    assert coevolve("seed", "--workspace", workspace, "--set", "seed_set.unguided=0").code == 0
    return workspace


@pytest.fixture
def work(seeded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(seeded, tmp_path / "work"))


def test_folders_are_named_from_the_workspace(seeded: Path) -> None:
    config = json.loads((seeded / "runs/r001/config.json").read_text())
    assert config["policy"] == f"hf:{seeded.parent / 'model'}"


def test_a_run_that_could_not_be_stored_is_no_run(work: Path) -> None:
    shutil.rmtree(work / "store")
    (work / "store").touch()
    assert coevolve("seed", "--workspace", work, "--set", f"policy=hf:{work.parent}").code == 2
    model = write_random_model(work.parent / "model")
    assert coevolve("seed", "--workspace", work, "--set", f"policy=hf:{model}").code == 1
    assert [path.parent.name for path in work.glob("runs/*/manifest.json")] == ["r001"]


@pytest.mark.parametrize("text", ["", "{}", "[]", "5", "null", '{"created_at": "x", "rounds": 1}', "\udcff"])
def test_a_damaged_manifest_is_named_and_other_runs_can_be_asked_for(work: Path, text: str) -> None:
    shutil.copytree(work / "runs/r001", work / "runs/r002")
    (work / "runs/r002/manifest.json").write_text(text, errors="surrogateescape")
    done = coevolve("status", "--workspace", work)
    assert done.code == 1
    assert "r002/manifest.json" in done.err
    assert coevolve("status", "--workspace", work, "--run", "r001").code == 0


@pytest.mark.parametrize("name", ["store/index.duckdb", "store/export.duckdb"])
def test_a_folder_where_a_file_should_be_is_one_line(work: Path, name: str) -> None:
    (work / name).unlink()
    (work / name).mkdir()
    done = coevolve("sql", "--workspace", work, "select 1")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("error: ")
    assert Path(name).name in done.err.splitlines()[-1]


@pytest.mark.parametrize("key", ["seed=9", "env=chess", "policy=hf:/elsewhere"])
@pytest.mark.parametrize("command", [["seed", "--resume"], ["evolve", "--resume"], ["train"], ["eval"]])
def test_what_a_run_rests_on_cannot_be_overridden(work: Path, command: list[str], key: str) -> None:
    done = coevolve(*command, "--workspace", work, "--set", key)
    assert done.code == 2
    assert "start a new run" in done.err


def test_refused_rounds_change_no_manifest(work: Path) -> None:
    manifest = work / "runs/r001/manifest.json"
    before = manifest.read_bytes()
    assert coevolve("evolve", "--resume", "--workspace", work, "--rounds", "7", "--set", "x").code == 2
    assert manifest.read_bytes() == before


def test_text_that_is_not_utf8_is_bad_input(work: Path) -> None:
    for arguments in (["why", "\udcff"], ["sql", "select '\udcff'"], ["evolve", "--set", "policy=\udcff"]):
        done = coevolve(arguments[0], "--workspace", work, *arguments[1:])
        assert done.code == 2
        assert "not valid text" in done.err


def test_a_workspace_whose_path_is_not_utf8_is_refused(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Path(os.fsdecode(os.fsencode(work.parent) + b"/\xff"))
    shutil.copytree(work, odd)
    monkeypatch.setenv("COEVOLVE_WORKSPACE", str(odd))
    done = coevolve("status")
    assert done.code == 2
    assert "not UTF-8" in done.err


def test_json_is_json_whatever_the_values(work: Path) -> None:
    done = coevolve("sql", "--workspace", work, "--json", "select 'nan'::float a, ['inf'::float, 1] a, {'x': 1} b")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(done.out, parse_constant=refuse) == [{"a": None, "a_1": [None, 1.0], "b": {"x": 1}}]


def test_a_start_beside_an_unfinished_run_says_how_to_go_on_with_it(work: Path, seeded: Path) -> None:
    model = f"policy=hf:{seeded.parent / 'model'}"
    done = coevolve("seed", "--workspace", work, "--set", "seed_set.unguided=0", "--set", model)
    assert done.out == "run r002: D_0 has 6 seed tasks and 0 explored ones\nnext: coevolve train\n"
    assert done.err == (
        "note: this is a new run, r002; run r001 is unfinished (0 of 3 rounds); "
        "to go on with it instead: coevolve evolve --resume --run r001\n"
    )
    again = coevolve("seed", "--resume", "--run", "r001", "--workspace", work)
    assert (again.err, again.out.splitlines()[1]) == ("", "next: coevolve train --run r001")


def test_the_run_row_is_there_before_the_run_is(seeded: Path) -> None:
    (row,) = Store(seeded / "store").rows(Run)
    assert row.created_at == json.loads((seeded / "runs/r001/manifest.json").read_text())["created_at"]
