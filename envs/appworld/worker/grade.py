"""What only the evaluator is asked: the tasks there are, and how good an episode's API calls were.

A grade rests on nothing but the log of calls: it is replayed in a clean world, by code that the agent never touched.
Rows that were forged in the agent's process are not in that log, so they earn nothing; that the two worlds differ is
how they are found out.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import appworld
from appworld import evaluate_task, load_task_ids
from appworld.apps import get_all_apps
from appworld.task import Task

from envs.appworld.worker.engine import ROOT, World, digest

Json = Any
AGENT_APPS = get_all_apps(skip_admin=True)
SPLITS = ("train", "dev", "test_normal", "test_challenge")


def catalog() -> Json:
    """{"splits": {name: [task id]}, "tasks": {id: {"instruction", "supervisor", "now", "difficulty"}}, "apps"}."""
    splits = {name: load_task_ids(name) for name in SPLITS if os.path.exists(f"{ROOT}/data/datasets/{name}.txt")}
    tasks = {task: _facts(task) for ids in splits.values() for task in ids}
    apps = Task.load(next(iter(tasks)), load_ground_truth=False).app_descriptions if tasks else {}
    return {"splits": splits, "tasks": tasks, "apps": apps}


def contents() -> Json:
    """What there is, for a check-up."""
    documents = [_read(os.path.join(ROOT, "data", "api_docs", "standard", f"{app}.json")) for app in AGENT_APPS]
    return {
        "engine": appworld.__version__,
        "databases": len(os.listdir(os.path.join(ROOT, "data", "base_dbs"))),
        "documents": sum(map(len, documents)),
        "clock": time.time(),
    }


def _facts(task: str) -> Json:
    folder = os.path.join(ROOT, "data", "tasks", task)
    specs = _read(os.path.join(folder, "specs.json"))
    supervisor = specs.get("supervisor") or specs["main_user"]
    truth = os.path.join(folder, "ground_truth", "metadata.json")
    return {
        "instruction": specs["instruction"],
        "supervisor": supervisor,
        "now": specs["datetime"].replace("T", " "),
        "difficulty": _read(truth)["difficulty"] if os.path.exists(truth) else None,
    }


def _read(path: str) -> Json:
    with open(path) as file:
        return json.load(file)


def grade(world: str, calls: list[Json], official: bool) -> Json:
    """{"digest", "difference", "tests", "differing"}: `tests` are the official assertions, [[requirement, label,
    passed]], `differing` the calls that were answered otherwise when they were logged (World.replay)."""
    replayed = World(world, truth=official)
    differing = replayed.replay(calls)
    return {"differing": differing, **_graded(replayed, official)}


def solve(world: str) -> Json:
    """The official solution, played here and graded. None where the data holds none."""
    place = os.path.join(ROOT, "data", "tasks", world, "ground_truth", "compiled_solution.py")
    if not os.path.exists(place):
        return None
    with open(place) as file:
        code = file.read()
    solver = World(world, truth=True)
    solver.app.requester.raise_on_failure = True
    names: dict[str, Any] = {}
    exec(compile(code, place, "exec"), names)
    names["solution"](solver.app.apis, solver.app.requester)
    return {"calls": solver.calls, **_graded(solver, True)}


def _graded(world: World, official: bool) -> Json:
    tests: list[Json] = []
    if official:
        world.save()
        done = evaluate_task(world.task, world.run_name, save_report=False).to_dict()
        labels = [("passes", True), ("failures", False)]
        tests = [[it["requirement"], it["label"], ok] for key, ok in labels for it in done[key]]
    difference = world.difference()
    return {"digest": digest(difference), "difference": difference, "tests": tests}
