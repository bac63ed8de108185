"""Figures of optimiser steps in TensorBoard (a real event file) and W&B (a fake): no tracker breaks or blocks a run."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from store.errors import UsageError
from tests.cli import coevolve
from tests.event_files import scalars
from tests.fake_wandb import FakeWandB, fake_wandb
from training import trackers
from training.trackers import Trackers, chosen

FIGURES = {"reward": 0.5, "seconds/sample": 2.0}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWandB:
    (tmp_path / "site").mkdir()
    return fake_wandb(tmp_path / "site", monkeypatch)


def tracked(home: Path, *names: str, steps: range = range(1, 3), after: int = 0) -> None:
    """What a process does that takes these optimiser steps."""
    watching = Trackers(names, run="r001-x", home=home, after=after)
    for step in steps:
        watching.record(step, FIGURES)
    watching.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_every_figure_of_every_step_is_in_the_event_file(tmp_path: Path) -> None:
    tracked(tmp_path, "tensorboard")
    assert scalars(tmp_path / "tensorboard") == [
        (name, step, value) for step in (1, 2) for name, value in FIGURES.items()
    ]


def test_a_resumed_run_goes_on_and_no_step_is_there_twice(tmp_path: Path) -> None:
    tracked(tmp_path, "tensorboard", steps=range(1, 4))
    tracked(tmp_path, "tensorboard", steps=range(3, 6), after=3)
    assert [step for name, step, _ in scalars(tmp_path / "tensorboard") if name == "reward"] == [1, 2, 3, 4, 5]


def test_a_run_that_takes_no_step_leaves_no_file(tmp_path: Path) -> None:
    tracked(tmp_path, "tensorboard", steps=range(0))
    assert list(tmp_path.iterdir()) == []


def test_auto_is_what_is_installed(fake: FakeWandB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trackers.PACKAGES, "trackio", ("no-such-package",))
    assert chosen("auto") == ["tensorboard", "wandb"]
    assert chosen("wandb") == ["wandb"]
    assert chosen("none") == []
    with pytest.raises(UsageError, match=r"train.report_to = 'trackio': .*`pip install no-such-package`"):
        chosen("trackio")


def test_what_is_not_installed_stops_a_start_at_once(tmp_path: Path) -> None:
    assert coevolve("init", str(tmp_path / "work")).code == 0
    missing = [name for name in ("trackio", "wandb") if name not in chosen("auto")]
    for name in missing:
        done = coevolve("evolve", "--workspace", tmp_path / "work", "--set", f"train.report_to={name}")
        assert done.code == 2
        assert f"`pip install {name}`" in done.err


def test_without_a_key_wandb_is_offline(tmp_path: Path, fake: FakeWandB) -> None:
    tracked(tmp_path, "wandb")
    [options] = fake.started
    assert options == {
        "project": "coevolve",
        "name": "r001-x",
        "id": "r001-x",
        "dir": str(tmp_path),
        "mode": "offline",
        "settings": {"console": "off", "init_timeout": trackers.ONLINE_S},
    }
    assert fake.logged == [(1, FIGURES), (2, FIGURES)]
    assert fake.finished


@pytest.mark.parametrize("known", ["variable", "login"])
def test_with_a_key_but_no_network_wandb_goes_on_offline(
    tmp_path: Path, fake: FakeWandB, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, known: str
) -> None:
    if known == "variable":
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    else:
        fake.logged_in = True
    fake.offline_only = True
    tracked(tmp_path, "wandb")
    assert [options["mode"] for options in fake.started] == ["online", "offline"]
    assert fake.started[0]["resume"] == "allow"
    assert len(fake.logged) == 2
    assert len(warnings(caplog)) == 1


def test_what_the_user_set_for_wandb_holds(tmp_path: Path, fake: FakeWandB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    tracked(tmp_path, "wandb")
    assert [options["mode"] for options in fake.started] == ["disabled"]


def test_one_that_fails_is_told_of_once_and_the_others_go_on(
    tmp_path: Path, fake: FakeWandB, caplog: pytest.LogCaptureFixture
) -> None:
    fake.broken = True
    tracked(tmp_path, "wandb", "tensorboard", steps=range(1, 9))
    [said] = warnings(caplog)
    assert said.startswith("train.report_to: wandb is left out from here on (ValueError: no such chart)")
    assert len(scalars(tmp_path / "tensorboard")) == 8 * len(FIGURES)


def test_one_that_hangs_holds_nobody_up(
    tmp_path: Path, fake: FakeWandB, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trackers, "CLOSE_S", 0.2)
    fake.hangs = True
    started = time.monotonic()
    tracked(tmp_path, "wandb", steps=range(1, 9))
    assert time.monotonic() - started < 5
    [said] = warnings(caplog)
    assert "wandb is left out from here on (it did not end within 0.2 s)" in said


def test_a_folder_that_takes_no_file_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tensorboard").write_text("no folder can be here")
    tracked(tmp_path, "tensorboard")
    assert len(warnings(caplog)) == 1
