"""Progress where stderr is no terminal: a line every ten seconds, with what is left and what it has cost."""

from __future__ import annotations

import pytest

from coevolve import progress
from coevolve.standing import lasting


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("coevolve.progress.time.monotonic", clock)
    return clock


def test_a_line_every_ten_seconds_with_the_time_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress(lambda: "$1.50") as report:
        for done in range(1, 101):
            clock.now += 2
            report("refine", done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["refine: 1/100, $1.50", "refine: 6/100, $1.50, about 3 min left"]
    assert lines[-1] == "refine: 100/100, $1.50"
    assert len(lines) == 21


def test_what_was_done_before_counts_for_no_speed(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress() as report:
        report("update", 900, 1000)
        clock.now = 10
        report("update", 910, 1000)
    assert capsys.readouterr().err.splitlines()[1] == "update: 910/1000, about 90 s left"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "about 0 s"), (119, "about 119 s"), (150, "about 2 min"), (9000, "about 2 h")]
)
def test_rough_times(seconds: float, words: str) -> None:
    assert lasting(seconds) == words
