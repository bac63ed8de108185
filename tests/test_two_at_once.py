"""Two `coevolve` processes at once: on one run the second is refused, on two runs neither disturbs the other; and one
whose parent died before it looked."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store.db import Store
from tests.loops import command, make_workspace, start
from tests.random_sql_model import write_random_sql_model

pytestmark = pytest.mark.slow
ROLLOUTS = """
    select t.task_id, t.k, t.attempt, t.outcome, t.score, s."index", s.completion_ids
    from trajectory t join step s on s.trajectory_id = t.id where t.run = ? and t.purpose = 'train' order by all
"""
DYING = """
import os, subprocess, sys
environment = {**os.environ, "COEVOLVE_CHILD_OF": str(os.getpid())}
quiet = subprocess.DEVNULL
print(subprocess.Popen(sys.argv[1:], env=environment, stdin=quiet, stdout=quiet, stderr=quiet).pid)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """With the runs r001 and r002, of one seed, nothing trained yet."""
    root = make_workspace(tmp_path / "work", write_random_sql_model(tmp_path / "model"))
    for _ in range(2):
        assert command(root, "seed", "--set", "seed_set.unguided=0").returncode == 0
    return root


def test_two_trainings_at_once(workspace: Path) -> None:
    both = [start(workspace, "train", "--run", run) for run in ("r001", "r002")]
    while not (workspace / "runs/r001/checkpoints").exists():
        assert both[0].poll() is None
        time.sleep(0.1)
    third = command(workspace, "train", "--run", "r001")
    assert third.returncode == 1
    assert f"run r001: another process is at work on it (PID {both[0].pid}); wait for it, or stop it" in third.stderr
    for process in both:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    store = Store(workspace / "store")
    one, other = (store.query(ROLLOUTS, [run]) for run in ("r001", "r002"))
    assert one == other != []
    assert command(workspace, "db", "check").returncode == 0


def test_a_child_whose_parent_died_before_it_looked_ends(workspace: Path) -> None:
    line = [sys.executable, "-m", "coevolve", "train", "--follow", "--workspace", str(workspace)]
    done = subprocess.run([sys.executable, "-c", DYING, *line], cwd=Path(__file__).parent.parent, capture_output=True)
    pid, deadline = int(done.stdout), time.monotonic() + 60
    while runs(pid):
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            pytest.fail("it went on without its parent")
        time.sleep(0.1)
    assert not (workspace / "runs/r001/checkpoints").exists()
    assert not (workspace / "runs/r002/checkpoints").exists()


def runs(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
