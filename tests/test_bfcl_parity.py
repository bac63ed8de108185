"""Verdicts and observations are those of the package's own executor and checker, but for deviations that have tests of
their own (test_bfcl_session.py)."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.bfcl.catalog import ENVIRON, VENV, Entry
from envs.bfcl.env import Bfcl
from tests.bfcl_corruptions import Corruptor, Turns, text

CORRUPTIONS = 3000
Case = tuple[Entry, Turns]


def official(cases: Sequence[tuple[Entry, Any]]) -> list[Any]:
    """The package's verdicts. Turns of None: the answer as it is written in the package."""
    lines = [json.dumps({"entry": entry.id, "turns": turns}) for entry, turns in cases]
    script = Path(__file__).with_name("bfcl_official.py")
    done = subprocess.run(
        [VENV.python, "-P", script], input="\n".join(lines), env=ENVIRON, capture_output=True, text=True, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(cases)
    return found


def ours(env: Bfcl, cases: Sequence[Case], grading: str = "official") -> list[Any]:
    return [
        env.pool.ask(
            {"verb": "play", "world": entry.id, "reference": entry.reference, "steps": turns, "grading": grading}
        )
        for entry, turns in cases
    ]


def written(turns: Turns) -> list[list[list[str]]]:
    return [[[text(call) for call in step] for step in turn] for turn in turns]


def observations(result: Any) -> list[str]:
    return [shown for turn in result["observations"] for shown, _ in turn]


def compare(cases: Sequence[Case], theirs: Sequence[Any], mine: Sequence[Any]) -> list[Any]:
    """The cases that are judged or answered otherwise."""
    return [
        (entry.id, written(turns), expected, found)
        for (entry, turns), expected, found in zip(cases, theirs, mine, strict=True)
        if expected["valid"] != found["official"] or expected["observations"] != observations(found)
    ]


@pytest.fixture(scope="module")
def entries(bfcl: Bfcl) -> dict[str, Entry]:
    return bfcl.catalog.entries


def grouped(entry: Entry) -> Turns:
    return [[turn] if turn else [] for turn in entry.reference]


def single(entry: Entry) -> Turns:
    return [[[call] for call in turn] for turn in entry.reference]


def test_the_packages_answers_as_they_are_written(bfcl: Bfcl, entries: dict[str, Entry]) -> None:
    cases = [(entry, grouped(entry)) for entry in entries.values()]
    theirs = official([(entry, None) for entry in entries.values()])
    assert len(cases) == 800
    assert all(each["valid"] for each in theirs)
    assert compare(cases, theirs, ours(bfcl, cases)) == []


def test_the_packages_answers_call_by_call(bfcl: Bfcl, entries: dict[str, Entry]) -> None:
    cases = [(entry, single(entry)) for entry in entries.values() if max(map(len, entry.reference)) <= 20]
    theirs = official([(entry, written(turns)) for entry, turns in cases])
    assert len(cases) == 798  # two have a turn of more calls than steps are allowed
    assert all(each["valid"] for each in theirs)
    assert compare(cases, theirs, ours(bfcl, cases)) == []


@pytest.mark.slow
def test_corrupted_answers(bfcl: Bfcl, entries: dict[str, Entry]) -> None:
    corruptor = Corruptor(entries, seed=0)
    cases = [corruptor.one() for _ in range(CORRUPTIONS)]
    theirs = official([(entry, written(turns)) for entry, turns in cases])
    mine = ours(bfcl, cases)
    assert compare(cases, theirs, mine) == []
    verdicts = Counter(each["valid"] for each in theirs)
    assert min(verdicts.values()) > CORRUPTIONS // 10  # both verdicts are put to the test


def test_strict_is_the_packages_own_measure_of_abstention(bfcl: Bfcl, entries: dict[str, Entry]) -> None:
    """Doing the work of a turn whose function is hidden, early, is what `official` lets pass."""
    cases = [(entry, early(entry)) for entry in entries.values() if entry.category == "miss_func"]
    theirs = official([(entry, written(turns)) for entry, turns in cases])
    mine = ours(bfcl, cases)
    assert [each["valid"] for each in theirs] == [each["official"] for each in mine]
    assert sum(each["official"] for each in mine) > 150
    assert not any(each["strict"] for each in mine)
    assert not any(each["abstained"] for each in theirs)


def early(entry: Entry) -> Turns:
    """The work of the turn after the abstaining one, done in that; then any call."""
    turns = grouped(entry)
    at = entry.reference.index([])
    turns[at] = turns[at + 1]
    turns[at + 1] = [[{"name": "nothing", "args": {}}]]
    return turns
