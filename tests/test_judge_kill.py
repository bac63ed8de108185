"""SIGKILL while an editor and a committee are at work; run again, nobody is asked twice but for calls in flight."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from store.rows import Json, Verdict, Vote
from tests.graph_child import read_rows
from tests.judge_child import ASKED, CANDIDATES, CONCURRENCY, JUDGES, judging
from tests.test_graph_kill import content, run_killed

CALLS = {"strong": 1, "polish": 2}
"""Calls of one vote."""


def asked(folder: Path) -> list[tuple[str, ...]]:
    """(who, role, reference, ...) of every request that was made."""
    path = folder / ASKED
    lines = path.read_text().splitlines() if path.exists() else []
    return [(who, role, *about) for who, role, about in map(json.loads, lines)]


def in_order(rows: list[Json]) -> list[Json]:
    """Which of several concurrent calls is answered first is left open."""
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Json], Counter[tuple[str, ...]], int]:
    """(rows, requests, number of events) of a phase that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    assert run_killed(folder, 0, judging) == 0
    return in_order(content(folder)), Counter(asked(folder)), int((folder / "events").read_text())


def test_the_phase_exercises_what_it_should(whole: tuple[list[Json], Counter[tuple[str, ...]], int]) -> None:
    rows, requests, _ = whole
    verdicts = {row["candidate_id"]: row for row in rows if "repairs" in row}
    ends = [verdicts[one.id] for one in CANDIDATES]
    assert [row["reason"] for row in ends] == ["valid", "outvoted", "valid", "outvoted", "valid"]
    assert [row["edit"]["outcome"] for row in ends] == [*["accepted"] * 3, "not_preferred", "accepted"]
    votes = Counter(row["stage"] for row in rows if "judge" in row)
    assert votes == {"polish": 5 * len(JUDGES), "strong": 5 * len(JUDGES)}
    assert all(count == 1 for (_, role, *_), count in requests.items() if role != "try")


def killed_and_resumed(whole: tuple[list[Json], Counter[tuple[str, ...]], int], folder: Path, at: int) -> int:
    """Dies at the event and is run again; the number of votes on record by then whose candidate was undecided."""
    rows, requests, _ = whole
    assert run_killed(folder, at, judging) == -9
    left = read_rows(folder / "rows.jsonl")
    before = asked(folder)
    assert run_killed(folder, 0, judging) == 0
    assert in_order(content(folder)) == rows

    again = asked(folder)[len(before) :]
    words = {one.id: str(one.reference) for one in CANDIDATES}
    heard = {(row.model, _role(row), words[row.candidate_id]) for row in left if isinstance(row, Vote)}
    decided = {words[row.candidate_id] for row in left if isinstance(row, Verdict)}
    assert not [call for call in again if call[:3] in heard], "what is on record is asked for again"
    assert not [call for call in again if call[2] in decided], "a candidate that was decided is worked at again"
    twice = [call for call in again if call in before and call[1] != "try"]
    lost = Counter(who for who, *_ in twice)
    assert lost["editor"] <= CONCURRENCY
    assert len(twice) - lost["editor"] <= CONCURRENCY * CALLS["polish"], "more than were in flight"
    assert set(before) | set(again) == set(requests)
    return sum(reference not in decided for _, _, reference in heard)


def _role(vote: Vote) -> str:
    return "compare" if vote.stage == "polish" else "judge"


@pytest.mark.parametrize("share", [0.2, 0.4, 0.55, 0.7, 0.9])
def test_killed_once(whole: tuple[list[Json], Counter[tuple[str, ...]], int], tmp_path: Path, share: float) -> None:
    killed_and_resumed(whole, tmp_path, int(share * whole[2]))


@pytest.mark.slow
def test_killed_at_every_fifth_event(whole: tuple[list[Json], Counter[tuple[str, ...]], int], tmp_path: Path) -> None:
    heard = [killed_and_resumed(whole, tmp_path / str(at), at) for at in range(1, int(0.9 * whole[2]), 5)]
    assert heard[0] == 0
    assert sum(map(bool, heard)) > 20, "kills fell between votes"
