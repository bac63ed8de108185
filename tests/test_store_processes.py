"""Several processes at once: writers, the loop that ingests, users that ask."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from store.db import Store
from store.rows import Task

ROOT = Path(__file__).parent.parent
WRITE = """
import sys
from pathlib import Path
from store.db import Store
from tests.store_rows import task
store, name = Store(Path(sys.argv[1])), sys.argv[2]
for number in range(60):
    store.append([task(number, world=name + half) for half in "ab"])
"""
INGEST = """
import sys
from pathlib import Path
from store.db import Store
store = Store(Path(sys.argv[1]))
for _ in range(25):
    store.ingest()
"""
ASK = """
import sys
from pathlib import Path
from store.db import Store
store, seen = Store(Path(sys.argv[1]), wait_s=0.01), 0
for _ in range(15):
    for count in (store.sql("SELECT count(*) FROM task").rows[0][0], len(store.query("FROM task"))):
        assert count >= seen and count % 2 == 0, (count, seen)  # never less, never half a batch
        seen = count
"""


@pytest.mark.slow
def test_writers_ingesters_and_users_do_not_disturb_each_other(tmp_path: Path) -> None:
    jobs = [(WRITE, "w1"), (WRITE, "w2"), (INGEST, ""), (INGEST, ""), (ASK, ""), (ASK, "")]
    children = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code, str(tmp_path), name], cwd=ROOT)
        for code, name in jobs
    ]
    assert [child.wait() for child in children] == [0] * len(jobs)
    store = Store(tmp_path)
    assert len(store.rows(Task)) == 240
    assert store.check() == []
