"""Long work on stderr: a bar on a terminal, a line every ten seconds elsewhere. Work of no parts shows nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from envs.protocols import Report

EVERY_S = 10.0


@contextmanager
def progress() -> Iterator[Report]:
    """A `Report` to hand to long work; the bars end with the block."""
    if sys.stderr.isatty():
        with _bars() as report:
            yield report
    else:
        yield _Lines()


@contextmanager
def _bars() -> Iterator[Report]:
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
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        ids = {}

        def report(label: str, done: int, total: int) -> None:
            if not total:
                return
            if label not in ids:
                ids[label] = bars.add_task(label, total=total)
            bars.update(ids[label], completed=done, total=total)

        yield report


class _Lines:
    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def __call__(self, label: str, done: int, total: int) -> None:
        now = time.monotonic()
        if total and (done >= total or now - self.last.get(label, -EVERY_S) >= EVERY_S):
            self.last[label] = now
            sys.stderr.write(f"{label}: {done}/{total}\n")
            sys.stderr.flush()
