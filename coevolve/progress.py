"""Long work on stderr: a bar on a terminal, a line every ten seconds elsewhere. Work of no parts shows nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coevolve.standing import lasting
from envs.protocols import Report

EVERY_S = 10.0


@contextmanager
def progress(note: Callable[[], str] = str) -> Iterator[Report]:
    """A `Report` to hand to long work; the bars end with the block. `note` is said with each."""
    if sys.stderr.isatty():
        with _bars(note) as report:
            yield report
    else:
        yield _Lines(note)


@contextmanager
def _bars(note: Callable[[], str]) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        ids = {}

        def report(label: str, done: int, total: int) -> None:
            if not total:
                return
            if label not in ids:
                ids[label] = bars.add_task(label, total=total, note="")
            bars.update(ids[label], completed=done, total=total, note=note())

        yield report


class _Lines:
    def __init__(self, note: Callable[[], str]) -> None:
        self.note = note
        self.last: dict[str, float] = {}
        self.begun: dict[str, tuple[float, int]] = {}
        """{label: (monotonic seconds, parts that were done)} of the first report."""

    def __call__(self, label: str, done: int, total: int) -> None:
        now = time.monotonic()
        since, before = self.begun.setdefault(label, (now, done))
        if total and (done >= total or now - self.last.get(label, -EVERY_S) >= EVERY_S):
            self.last[label] = now
            said = [f"{label}: {done}/{total}", self.note()]
            if before < done < total:
                said.append(f"{lasting((now - since) * (total - done) / (done - before))} left")
            sys.stderr.write(f"{', '.join(filter(None, said))}\n")
            sys.stderr.flush()
