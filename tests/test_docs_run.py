"""Commands of the documentation that only look at a run are run, on a small one as the loop leaves it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli import coevolve
from tests.story import MADE, make_story
from tests.test_docs import commands

LOOKS = {"status", "why", "sql", "signals", "report", "trace", "export", "review", "refined", "completion"}
ENDLESS_OR_ELSEWHERE = r"--live|--otlp|--read|--file"
LINES = sorted(
    {line for _, line in commands() if line.split()[1] in LOOKS and not re.search(ENDLESS_OR_ELSEWHERE, line)}
)
PLACEHOLDERS = {"TASK": MADE[0].id, "257f96": MADE[0].id, "RUN": "r001"}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_story(tmp_path_factory.mktemp("story") / "work").root


@pytest.mark.parametrize("line", LINES)
def test_a_documented_look_at_a_run_works(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)  # what it writes is named relative to here
    monkeypatch.setenv("COEVOLVE_WORKSPACE", str(work))
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line, comments=True)[1:]]
    done = coevolve(*words)
    assert done.code == 0, done.err
