"""Our tasks in AppWorld's own form: a root that its tools open, with an evaluation that rests on our comparison.

    DIR/data/tasks/<task id>_1/   specs.json, dbs/, ground_truth/ as official tasks have them
    DIR/data/datasets/coevolve.txt
    DIR/data/{base_dbs,api_docs,version.txt}   links to the installed data

Each task is tried by the engine before it stays: its solution passes, doing nothing does not. All of it derives from
AppWorld's data, so it may be passed on only encrypted.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from envs.appworld import tokens
from envs.appworld.env import DONE, AppWorld
from envs.appworld.place import HERE, TRUTH, Place
from envs.errors import InvalidTask
from envs.worker import Blamed, WorkerError
from store.rows import Json, Task

DATASET = "coevolve"
LINKS = ("base_dbs", "api_docs", "version.txt")
EVALUATION = HERE / "worker" / "evaluation.py"
REQUIREMENT = re.compile(r'with test\("(.*)"\):')
NOTE = f"""Tasks of coevolve in AppWorld's form: data set `{DATASET}`, this folder as APPWORLD_ROOT.
They derive from AppWorld's data, whose licence allows them to be passed on only encrypted.
"""
IMPORTS = """import calendar, datetime, itertools, json, math, random, re
from collections import Counter, defaultdict
from copy import deepcopy
from functools import reduce

from appworld.common.datetime import VanillaDate as Date, VanillaDateTime as DateTime, VanillaTime as Time, pendulum
"""
"""What the engine has imported before a block of code runs."""


def write(env: AppWorld, tasks: Sequence[Task], folder: Path) -> dict[str, str | None]:
    """{task id: why it is left out, None if it is there}. `folder` is a new one."""
    data = folder.absolute() / "data"
    (data / "datasets").mkdir(parents=True)
    for name in LINKS:
        if (env.place.root / "data" / name).exists():
            (data / name).symlink_to(env.place.root / "data" / name)
    found = {task.id: _written(env, task, data / "tasks" / native_id(task)) for task in tasks}
    found |= _tried(folder.absolute(), [task for task in tasks if found[task.id] is None])
    kept = [native_id(task) for task in tasks if found[task.id] is None]
    (data / "datasets" / f"{DATASET}.txt").write_text("".join(f"{name}\n" for name in kept), "utf-8")
    (folder / "README").write_text(NOTE, "utf-8")
    return found


def native_id(task: Task) -> str:
    """Each is a scenario of its own."""
    return f"{task.id}_1"


def _written(env: AppWorld, task: Task, folder: Path) -> str | None:
    """Why not."""
    if task.expected["grading"] != "task":
        return "it is AppWorld's own"
    try:
        graded, calls = env.reached(task)
    except (InvalidTask, Blamed, WorkerError) as error:
        return f"its reference does not replay: {error}"
    start = env.place.root / "data" / "tasks" / task.world
    specs = json.loads((start / "specs.json").read_text("utf-8")) | {"instruction": task.user_turns[0]}
    shutil.copytree(start / "dbs", folder / "dbs")
    with (folder / "dbs" / "supervisor.jsonl").open("a", encoding="utf-8") as changes:
        changes.write(json.dumps(["UPDATE tasks SET instruction=?", [task.user_turns[0]], False]) + "\n")
    (folder / TRUTH).mkdir()
    _json(folder / "specs.json", specs)
    for name, value in _truth(task, graded, calls).items():
        _json(folder / TRUTH / f"{name}.json", value)
    for name, code in _code(task).items():
        head = f"# Canary String: {specs['canary_string']}\n" if "canary_string" in specs else ""
        (folder / TRUTH / f"{name}.py").write_text(head + code, "utf-8")
    return None


def _truth(task: Task, graded: Json, calls: list[Json]) -> dict[str, Json]:
    apis = {mark for mark in tokens.of_code(task.reference) if "." in mark}
    apps = sorted({api.partition(".")[0] for api in apis} - {"supervisor", "api_docs"})
    found = graded["difference"]
    return {
        "metadata": {
            "mode": "full",
            "difficulty": round(task.difficulty),
            "num_apps": len(apps),
            "num_apis": len(apis),
            "num_api_calls": len(calls),
            "num_solution_code_lines": len(task.reference.splitlines()),
        },
        "public_data": {},
        "private_data": {"changes": found["changes"]},
        "answer": found["answer"],
        "required_apps": apps,
        "api_calls": [{key: call[key] for key in ("method", "url", "data")} for call in calls],
        "test_data": list(_labels(found)),
    }


def _labels(found: Json) -> Iterator[Json]:
    """Which assertions doing nothing passes."""
    done, answer, *rows = REQUIREMENT.findall(EVALUATION.read_text("utf-8"))
    yield {"requirement": done, "label": "no_op_fail"}
    yield {"requirement": answer, "label": "no_op_pass" if found["answer"] is None else "no_op_fail"}
    for each in rows:
        yield {"requirement": each, "label": "no_op_fail" if found["changes"] else "no_op_pass"}


def _code(task: Task) -> dict[str, str]:
    """As a function of a tree, not of indented lines: texts in it may have lines of their own."""
    solution = ast.parse("def solution(apis, requester): pass")
    function = solution.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = ast.parse(task.reference).body
    text = f"{IMPORTS}\n\n{ast.unparse(solution)}\n"
    return {"evaluation": EVALUATION.read_text("utf-8"), "solution": text, "compiled_solution": text}


def _tried(root: Path, tasks: Sequence[Task]) -> dict[str, str | None]:
    """By the engine over the new root. What fails is deleted."""
    evaluators = Place(root).evaluators()
    found: dict[str, str | None] = {}
    try:
        for task in tasks:
            name = native_id(task)
            solved = evaluators.ask({"verb": "solve", "world": name})
            if not all(ok for *_, ok in solved["tests"]) or solved["digest"] != task.expected["digest"]:
                found[task.id] = "its solution does not pass in AppWorld's form"
            for calls in ([], [DONE]):
                graded = evaluators.ask({"verb": "grade", "world": name, "official": True, "calls": calls})
                if all(ok for *_, ok in graded["tests"]):
                    found[task.id] = "doing nothing passes in AppWorld's form"
    finally:
        evaluators.close()
        for name in ("runs", "ipython", "cache"):
            shutil.rmtree(root / name, ignore_errors=True)
    for task in tasks:
        if task.id in found:
            shutil.rmtree(root / "data" / "tasks" / native_id(task))
    return found


def _json(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value), "utf-8")
