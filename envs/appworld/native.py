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
from contextlib import contextmanager
from pathlib import Path

from envs.appworld import tokens
from envs.appworld.env import DONE, AppWorld
from envs.appworld.place import HERE, TRUTH, Place
from envs.errors import InvalidTask
from envs.protocols import Report
from envs.worker import Blamed, Pool, WorkerError
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


def write(env: AppWorld, tasks: Sequence[Task], folder: Path, report: Report) -> dict[str, str | None]:
    """{task id: why it is left out, None if it is there}. `folder` is a new one."""
    data = folder.absolute() / "data"
    (data / "datasets").mkdir(parents=True)
    for name in LINKS:
        if (env.place.root / "data" / name).exists():
            (data / name).symlink_to(env.place.root / "data" / name)
    found: dict[str, str | None] = {}
    with _evaluators(folder.absolute()) as evaluators:
        for done, task in enumerate(tasks, 1):
            place = data / "tasks" / native_id(task)
            found[task.id] = _written(env, task, place) or _failing(evaluators, task)
            if found[task.id] is not None:
                shutil.rmtree(place, ignore_errors=True)
            report("tasks", done, len(tasks))
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


@contextmanager
def _evaluators(root: Path) -> Iterator[Pool]:
    """The engine over the new root, which keeps nothing of what it writes there."""
    evaluators = Place(root).evaluators()
    try:
        yield evaluators
    finally:
        evaluators.close()
        for name in ("runs", "ipython", "cache"):
            shutil.rmtree(root / name, ignore_errors=True)


def _failing(evaluators: Pool, task: Task) -> str | None:
    """What the engine finds wrong with the written task."""
    name = native_id(task)
    solved = evaluators.ask({"verb": "solve", "world": name})
    if not all(ok for *_, ok in solved["tests"]) or solved["digest"] != task.expected["digest"]:
        return "its solution does not pass in AppWorld's form"
    for calls in ([], [DONE]):
        graded = evaluators.ask({"verb": "grade", "world": name, "official": True, "calls": calls})
        if all(ok for *_, ok in graded["tests"]):
            return "doing nothing passes in AppWorld's form"
    return None


def _json(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value), "utf-8")
