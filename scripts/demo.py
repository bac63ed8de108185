"""`make demo`: the loop on text-to-SQL with SmolLM2-135M-Instruct, five rounds on two CPU cores.

Makes the workspace demo/ (or goes on with the run in it that was interrupted), runs `coevolve evolve`, prints what
each round did, and fails unless boundary and rare signals led to tasks that were admitted and the held-out score rose.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from coevolve.config import init_workspace
from coevolve.guard import given_up
from coevolve.rounds import overview
from coevolve.show import table
from coevolve.workspace import Workspace

DEMO = Path("demo")
ROUNDS = 5
RISE = 10
"""Points of gold that the best version which the guard has kept must gain over the warm start."""


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
    """0 if the loop did what it is for, else 1. Forgetting is rare where a task is not sampled in every round."""
    admitted = report["admitted_by_kind"]
    fired = {kind: sum(row["signals"].get(kind, 0) for row in report["rounds"]) for kind in admitted}
    print(f"== signals by kind: {fired}; admitted tasks by kind: {admitted}")
    gold = [100 * row["scores"]["gold"]["value"] for row in report["rounds"]]
    undone = given_up(Workspace(DEMO.resolve()).store, report["run"])
    best = max(score for version, score in enumerate(gold) if version not in undone)
    taken = f"; versions taken back by the guard: {sorted(undone)}" if undone else ""
    print(f"== gold: warm start {gold[0]:.1f} %, best version {best:.1f} %{taken}")
    faults = [f"no {kind} signal led to an admitted task" for kind in ("boundary", "rare") if not admitted[kind]]
    if best - gold[0] < RISE:
        faults.append(f"gold rose by less than {RISE} points")
    for fault in faults:
        print(f"== FAILED: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
