"""`make demo`: the loop on text-to-SQL with SmolLM2-135M-Instruct, five rounds on two CPU cores.

Makes the workspace demo/ (or goes on with the run in it that was interrupted), runs `coevolve evolve`, prints what
each round did, and fails unless every kind of signal fired and led to a task that was admitted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from coevolve.config import init_workspace
from coevolve.rounds import overview
from coevolve.show import table
from coevolve.workspace import Workspace

DEMO = Path("demo")
ROUNDS = 5


def main() -> int:
    if not (DEMO / "config.toml").exists():
        init_workspace(str(DEMO), "demo.toml")
    resume = unfinished()
    print(f"== {'going on with' if resume else 'starting'} the loop in {DEMO}/: {ROUNDS} rounds", flush=True)
    started = time.monotonic()
    command = [sys.executable, "-m", "coevolve", "evolve", "--workspace", str(DEMO), "--rounds", str(ROUNDS), "--json"]
    done = subprocess.run([*command, *(["--resume"] if resume else [])], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        print("== the loop failed; its message is above", flush=True)
        return done.returncode
    report = json.loads(done.stdout)
    for part in overview(report["rounds"]):
        table(part) if not isinstance(part, str) else print(part)
    print(f"\n== {time.monotonic() - started:.0f} s in this process; next: coevolve status --workspace {DEMO}")
    return verdict(report)


def unfinished() -> bool:
    """Whether the newest run of the workspace has rounds left."""
    workspace = Workspace(DEMO.resolve())
    if not workspace.run_ids():
        return False
    run = workspace.run().id
    rows = workspace.store.query("select count(*) from phase where run = ? and name = 'snapshot'", [run])
    return int(rows[0][0]) < ROUNDS


def verdict(report: dict[str, Any]) -> int:
    """0 if every kind of signal fired and led to an admitted task, else 1."""
    fired = {kind: sum(row["signals"].get(kind, 0) for row in report["rounds"]) for kind in report["admitted_by_kind"]}
    print(f"== signals by kind: {fired}; admitted tasks by kind: {report['admitted_by_kind']}")
    missing = [kind for kind in fired if not fired[kind] or not report["admitted_by_kind"][kind]]
    if missing:
        print(f"== FAILED: {', '.join(missing)} never fired, or never led to an admitted task")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
