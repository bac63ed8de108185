"""`coevolve env` and `coevolve doctor` for AppWorld, with the real engine and the small world."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from envs.appworld.env import AppWorld, at
from envs.appworld.place import VENV
from tests.cli import coevolve


@pytest.fixture
def envs(tmp_path: Path, appworld: AppWorld, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of venvs with the engine and no data."""
    engine = VENV.folder
    monkeypatch.setenv("COEVOLVE_ENVS", str(tmp_path))
    VENV.folder.symlink_to(engine)
    at.cache_clear()
    return tmp_path


def test_install_is_remembered_and_doctor_looks_at_all_of_it(envs: Path, appworld: AppWorld) -> None:
    installed = coevolve("env", "install", "appworld", "--root", str(appworld.place.root), "--data", "mini")
    assert installed.code == 0
    assert f"the small world in {appworld.place.root}" in installed.out
    found = {row["what"]: row for row in json.loads(coevolve("doctor", "--json").out) if "appworld" in row["what"]}
    assert {row["state"] for row in found.values()} == {"ok"}
    assert len(found) > 9
    assert "audit hook" in found["env appworld: layers"]["found"]
    at().close()


def test_without_data_doctor_says_how_to_get_some(envs: Path) -> None:
    (row,) = [row for row in json.loads(coevolve("doctor", "--json").out) if row["what"] == "env appworld"]
    assert row["found"].startswith("not installed")
    assert row["fix"] == "coevolve env install appworld"


def test_data_of_no_kind_is_refused(envs: Path) -> None:
    refused = coevolve("env", "install", "appworld", "--data", "maxi")
    assert refused.code == 2
    assert "choose from download, mini" in refused.err


def test_official_data_that_is_there_is_used_and_never_overwritten(envs: Path, appworld: AppWorld) -> None:
    """Played by the small world under other names."""
    root = envs / "own"
    shutil.copytree(appworld.place.root / "data", root / "data")
    train = root / "data" / "datasets" / "train.txt"
    train.write_text("official_1\n" + train.read_text())
    refused = coevolve("env", "install", "appworld", "--root", str(root), "--data", "mini")
    assert refused.code == 2
    assert "holds the official data" in refused.err
    assert "the official data in" in coevolve("env", "install", "appworld", "--root", str(root)).out
    assert not list((root / "agent").rglob("ground_truth"))


def test_nothing_is_left_behind_by_an_episode(appworld: AppWorld) -> None:
    own = AppWorld(appworld.place)  # the shared one may still be ending a world of another test
    try:
        own.agents.ask({"verb": "play", "world": "mini002_1", "blocks": ["print(1)"]})
        (pid,) = own.agents.pids
        folder = appworld.place.root / "agent" / "runs" / str(pid)
        assert list((folder / "experiments" / "outputs").iterdir()) == []
    finally:
        own.close()
