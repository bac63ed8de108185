"""Commands of the documentation that only look at a run are run, on a small one as the loop leaves it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from coevolve.config import Settings
from coevolve.workspace import write_json
from tests.cli import coevolve
from tests.story import MADE, make_story
from tests.test_docs import commands

LOOKS = {"status", "why", "sql", "signals", "report", "trace", "export", "review", "completion"}
ENDLESS_OR_ELSEWHERE = r"--live|--otlp|--read|--file|--native"
LINES = sorted({shlex.join(shlex.split(line, comments=True)[1:]) for _, line in commands()})
PLACEHOLDERS = {"TASK": MADE[0].id, "257f96": MADE[0].id, "RUN": "r001"}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = make_story(tmp_path_factory.mktemp("story") / "work")
    write_json(place.run().path / "config.json", Settings().model_dump(mode="json", by_alias=True))
    return place.root


@pytest.mark.parametrize(
    "line", [line for line in LINES if line.split()[0] in LOOKS and not re.search(ENDLESS_OR_ELSEWHERE, line)]
)
def test_a_documented_look_at_a_run_works(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)  # what it writes is named relative to here
    monkeypatch.setenv("COEVOLVE_WORKSPACE", str(work))
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line)]
    done = coevolve(*words)
    assert done.code == 0, done.err
