"""Venvs of benchmarks: made once, whole or not at all, also by several processes at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envs.errors import InfraError
from envs.venvs import MARKER, Venv, envs_dir
from store.errors import UsageError


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Venv:
    """Of no packages: it takes seconds, and no index."""
    monkeypatch.setenv("COEVOLVE_ENVS", str(tmp_path / "envs"))
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("# nothing\n")
    return Venv(name="sample", requirements=requirements)


def script(venv: Venv) -> list[str]:
    code = (
        f"from pathlib import Path; from envs.venvs import Venv; "
        f"print(Venv(name='sample', requirements=Path({str(venv.requirements)!r})).install(), flush=True)"
    )
    return [sys.executable, "-c", code]


def test_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COEVOLVE_ENVS", raising=False)
    monkeypatch.setenv("COEVOLVE_CACHE", str(tmp_path))
    assert envs_dir() == tmp_path / "envs"
    monkeypatch.setenv("COEVOLVE_ENVS", str(tmp_path / "own"))
    assert envs_dir() == tmp_path / "own"


def test_other_requirements_are_another_venv(venv: Venv) -> None:
    before = venv.folder
    venv.requirements.write_text("# other\n")
    assert venv.folder != before


def test_what_is_not_installed_says_how_to(venv: Venv) -> None:
    with pytest.raises(UsageError, match="run `coevolve env install sample`"):
        venv.need()


@pytest.mark.slow
def test_it_is_made_once(venv: Venv) -> None:
    folder = venv.install()
    assert subprocess.run([venv.need(), "-c", "print(1)"], capture_output=True, text=True, check=True).stdout == "1\n"
    (folder / "mine").touch()
    assert venv.install() == folder
    assert (folder / "mine").exists()


@pytest.mark.slow
def test_one_that_was_killed_is_made_anew(venv: Venv) -> None:
    with subprocess.Popen(script(venv)) as first:
        while not (venv.folder / "bin").exists():
            time.sleep(0.01)
        first.send_signal(signal.SIGKILL)
    assert not venv.installed
    (venv.folder / "left over").touch()
    venv.install()
    assert venv.installed
    assert not (venv.folder / "left over").exists()


@pytest.mark.slow
def test_two_processes_make_one(venv: Venv) -> None:
    both = [subprocess.Popen(script(venv), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0].strip() for process in both]
    assert said == [str(venv.folder)] * 2
    assert venv.installed


@pytest.mark.slow
def test_without_an_index_the_message_says_what_to_do(venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.requirements.write_text("a-package==1.0\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InfraError, match=r"pip cannot install .* run the same command again: ERROR: .*a-package"):
        venv.install()
    assert not (venv.folder / MARKER).exists()
