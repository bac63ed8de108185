"""The evidence of docs/evidence.md: does the loop beat its warm start, its parts, and fine-tuning?

    python -m scripts.evidence DIR [--seeds 5] [--jobs 2] [--arms signals,none,random,sft]

One run per (arm, seed), each a workspace DIR/<arm>-<seed> in one thread; the arms of a seed differ in one setting and
share D_0 and the warm start to the bit. A run that is finished is not repeated, one that was interrupted goes on.
Warm start and last version are played on the suite `test`, which nothing else reads; no version is chosen by a score.
Prints a table in Markdown, and writes every figure to DIR/evidence.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coevolve.workspace import Workspace
from evals.metrics import Estimate, interval, paired_gain

SUITE = "test"
ROUNDS = 5
ARMS = {
    "signals": "",
    "none": '[explore]\nsource = "none"\n',
    "random": '[explore]\nsource = "random"\n',
    "sft": "",
}
"""Settings in which an arm differs from `signals`; `sft` differs in train.method."""
METHOD = {"sft": "sft"}
CONFIG = """\
seed = {seed}
env = "text2sql"
policy = "smollm2"

[seed_set]
seeds = -1
unguided = 200

[train]
method = "{method}"

[train.model]
threads = 1
batch = 128

[train.collect]
tasks = 72
rollouts = 4
temperature = 0.8
max_tokens = 32

[train.grpo]
staleness = 3
lr = 8e-4
decay = 0.85
beta = 0.0
demonstrate = true

[train.sft]
warm_tasks = 36
warm_epochs = 1
epochs = 2

[mix]
seed_floor = 0.6

[validate]
max_difficulty = 2.5
growth = 0.2

[eval]
suites = []
final = ""

{extra}"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    arm: str
    seed: int
    seconds: float
    """Of all phases but evaluation: seed tasks, warm start, training, signals, exploration, validation, snapshots."""
    tasks: int
    """Of the last D_t that was trained on."""
    steps: int
    """Optimiser steps."""
    rollouts: int
    warm: dict[str, float]
    """Scores of the warm start by item."""
    last: dict[str, float]
    """Scores of the last version by item."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5, help="seeds of `signals` and `none`; the other arms have 3")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once, one thread each")
    parser.add_argument("--arms", default=",".join(ARMS))
    asked = parser.parse_args()
    chosen = [(arm, seed) for seed in range(asked.seeds) for arm in asked.arms.split(",") if seed < 3 or arm in PAIRED]
    with ThreadPoolExecutor(asked.jobs) as pool:
        results = list(pool.map(lambda one: run(asked.folder, *one), chosen))
    (asked.folder / "evidence.json").write_text(json.dumps([asdict(result) for result in results], indent=1))
    print(report(results))
    return 0


PAIRED = ("signals", "none")
"""Arms that run on every seed."""


def run(folder: Path, arm: str, seed: int) -> Result:
    """Bring the run of an arm to its end. CalledProcessError where the loop fails."""
    place = folder / f"{arm}-{seed}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(config(arm, seed))
    space = Workspace(place.resolve())
    begun = ["--resume"] if space.run_ids() else []
    log = (place / "log.txt").open("a")
    coevolve(place, log, "evolve", "--rounds", str(ROUNDS), *begun)
    for version in (0, ROUNDS):
        coevolve(place, log, "eval", "--suite", SUITE, "--policy-version", str(version))
    result = read(space, arm, seed)
    gain = paired_gain(*pairs(result))
    print(f"{arm} {seed}: {percent(gain)} points in {result.seconds:.0f} s", file=sys.stderr, flush=True)
    return result


def config(arm: str, seed: int) -> str:
    return CONFIG.format(seed=seed, method=METHOD.get(arm, "grpo"), extra=ARMS[arm])


def coevolve(place: Path, log: Any, *words: str) -> None:
    command = [sys.executable, "-m", "coevolve", *words, "--workspace", str(place), "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=log, stderr=log, env=environment)


def read(space: Workspace, arm: str, seed: int) -> Result:
    store, run_id = space.store, space.run().id
    counts = [
        json.loads(found)
        for (found,) in store.query("select counts::varchar from phase where run = ? and name = 'train'", [run_id])
    ]
    looped = "not starts_with(name, 'eval')"
    return Result(
        arm=arm,
        seed=seed,
        seconds=store.query(f"select sum(seconds) from phase where run = ? and {looped}", [run_id])[0][0],
        tasks=store.query("select len(task_ids) from snapshot where run = ? and t = ?", [run_id, ROUNDS - 1])[0][0],
        # GRPO counts on from iteration to iteration.
        steps=(sum if arm == "sft" else max)(count["steps"] for count in counts),
        rollouts=sum(count["rollouts"] for count in counts),
        warm=items(space, 0),
        last=items(space, ROUNDS),
    )


def items(space: Workspace, version: int) -> dict[str, float]:
    rows = space.store.query(
        "select task_id, score from trajectory where purpose = 'eval' and suite = ? and t = ? and outcome = 'scored'",
        [SUITE, version],
    )
    return dict(rows)


def pairs(result: Result, other: Result | None = None) -> tuple[list[float], list[float]]:
    """Scores of the same items: of the warm start, or of `other`'s last version, and of the result's last version."""
    before = other.last if other else result.warm
    ids = sorted(before.keys() & result.last.keys())
    return [before[i] for i in ids], [result.last[i] for i in ids]


def report(results: list[Result]) -> str:
    """A row for each run, then the difference of each arm to `signals` over the seeds that both have."""
    lines = [
        "| arm | seed | warm start | last version | gain, points | \\|D\\| | steps | rollouts | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        cells = [
            one.arm,
            one.seed,
            percent(interval(list(one.warm.values()))),
            percent(interval(list(one.last.values()))),
        ]
        cells += [percent(paired_gain(*pairs(one))), one.tasks, one.steps, one.rollouts, round(one.seconds)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "| difference | seeds | points |", "|---|---|---|"]
    by = {(one.arm, one.seed): one for one in results}
    for arm in dict.fromkeys(one.arm for one in results):
        mine = [one for one in results if one.arm == arm]
        lines.append(f"| {arm} - warm start | {len(mine)} | {percent(pooled([pairs(one) for one in mine]))} |")
    for arm in ("none", "random", "sft"):
        both = [(one, by["signals", one.seed]) for one in results if one.arm == arm and ("signals", one.seed) in by]
        if both:
            gain = pooled([pairs(signals, other) for other, signals in both])
            lines.append(f"| signals - {arm} | {len(both)} | {percent(gain)} |")
    return "\n".join(lines)


def pooled(found: list[tuple[list[float], list[float]]]) -> Estimate:
    """The gain over the items of several seeds together; an item's difference is its mean over the seeds."""
    before = [sum(values) / len(values) for values in zip(*(one for one, _ in found), strict=True)]
    after = [sum(values) / len(values) for values in zip(*(two for _, two in found), strict=True)]
    return paired_gain(before, after)


def percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


if __name__ == "__main__":
    sys.exit(main())
