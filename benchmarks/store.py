"""Rows a second into the journal and into the index, and what asking costs: `python -m benchmarks.store [--rows N]`.

The baseline of the ingest in the same run is `executemany`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from store.db import Store
from store.rows import Row, Step, Task
from store.schema import columns

T = TypeVar("T")
BATCH = 200
"""Rows of one `append`."""


def steps(count: int) -> list[Row]:
    """As a small model makes them: 100 prompt ids, 30 sampled ids with their logprobs."""
    return [
        Step(
            trajectory_id=f"{number // 2:016x}",
            index=number % 2,
            action="SELECT name FROM item WHERE price > 3",
            observation="name\nsalt\npepper\n" * 4,
            tokens=["SELECT", "WHERE"],
            failed=False,
            prompt_ids=list(range(100)),
            completion_ids=list(range(30)),
            logprobs=[-0.123456 - i for i in range(30)],
            seconds=0.1,
        )
        for number in range(count)
    ]


def timed(label: str, action: Callable[[], T], *, rows: int = 0) -> tuple[T, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    rate = f"{rows / wall:12,.0f} rows/s" if rows else ""
    print(f"{label:<44}{wall:9.3f} s {cpu:9.3f} cpu-s{rate}")
    return result, wall


def append_all(store: Store, rows: list[Row]) -> None:
    for at in range(0, len(rows), BATCH):
        store.append(rows[at : at + BATCH])


def insert_one_by_one(store: Store, rows: list[Row]) -> None:
    with store.reading() as connection:
        connection.execute("CREATE TEMP TABLE slow AS FROM step LIMIT 0")
        values = [[getattr(row, name) for name in (column.name for column in columns(Step))] for row in rows]
        connection.executemany("INSERT INTO slow VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    count = parser.parse_args().rows
    rows = steps(count)
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        timed(f"append {count} steps, {BATCH} a batch", lambda: append_all(store, rows), rows=count)
        _, ingest = timed(f"ingest {count} steps and export", store.ingest, rows=count)
        few = rows[: count // 100]
        _, slow = timed(f"executemany of {len(few)} steps", lambda: insert_one_by_one(store, few), rows=len(few))
        print(f"{'ratio of their rates':<44}{slow / len(few) / (ingest / count):9.1f} x")
        timed("ask, nothing new", lambda: store.query("SELECT count(*) FROM step"))
        timed("typed rows of one trajectory", lambda: store.rows(Step, "trajectory_id = ?", ["0" * 16]))
        timed("typed rows, no match", lambda: store.rows(Task))
        timed("a user's statement", lambda: store.sql("SELECT count(*) FROM step"))
        timed("check", store.check)
        timed("rebuild", store.rebuild, rows=count)
        size = sum(path.stat().st_size for path in (store.root / "journal").iterdir())
        print(f"journal {size / 2**20:.0f} MiB, index {store.index.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
