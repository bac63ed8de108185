"""A workspace whose loop turns in a minute: a random-weight model, few tasks, one thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from store.db import Store

CONFIG = """
policy = "hf:{model}"
[seed_set]
seeds = 6
unguided = 4
[train.model]
threads = 1
dtype = "float32"
[train.collect]
rollouts = 8
max_tokens = 4
chunk = 4
[train.sft]
warm_epochs = 1
[train.grpo]
groups = 2
[signals]
per_round = 6
[eval]
limit = 6
final = "test"
"""
KILLER = Path(__file__).parent / "killer"


def make_workspace(root: Path, model: Path) -> Path:
    root.mkdir(parents=True)
    (root / "config.toml").write_text(CONFIG.format(model=model))
    return root


def start(workspace: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A `coevolve` process in the workspace. One thread, so that sums are added in one order."""
    return subprocess.Popen(
        [sys.executable, "-m", "coevolve", *arguments, "--workspace", str(workspace)],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{KILLER}{os.pathsep}{KILLER.parent.parent}",
            **environment,
        },
        cwd=workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def command(workspace: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same, run to its end."""
    process = start(workspace, *arguments, **environment)
    out, err = process.communicate(timeout=900)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


CONTENT = {
    "run": "select id, seed, env, policy from run order by id",
    "task": "select * from task order by id",
    "snapshot": "select id, run, t, task_ids from snapshot order by run, t",
    "trajectory": "select * exclude (seconds, created_at) from trajectory order by id",
    "step": "select * exclude (seconds) from step order by trajectory_id, index",
    "signal": "select * from signal order by id",
    "exploration": "select * exclude (seconds) from exploration order by id",
    "candidate": "select * from candidate order by id",
    "verdict": "select * exclude (seconds) from verdict order by id",
    "score": "select * from score order by all",
    "phase": "select run, t, name from phase order by all",
}
"""What two runs of one seed must agree on: everything but times."""


def content(workspace: Path) -> dict[str, list[tuple[Any, ...]]]:
    store = Store(workspace / "store")
    return {name: store.query(query) for name, query in CONTENT.items()}
