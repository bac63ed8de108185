"""The AppWorld engine: a warm process that forks one child for each world.

Runs under envs/worker_host.py in the engine's venv: this folder imports the standard library and that package alone.
Two programs run it, over two roots. The agent's root has no ground truth; its children are caged, and run the agent's
code. The evaluator's root has all; its children run none of it: they replay API calls and grade what these reach.

    open    a child with the world of a task at its start           -> {"sid", "supervisor", "now", "instruction"}
    run     a block of Python in it                                 -> {"output", "failed", "completed", "calls", ...}
    finish  what the world has become: the child's last answer      -> {"digest"}
    close   the child's end
    play    all of that at once, for a reference                    -> {"steps": [...], "digest"}
    catalog, contents, grade, solve   (evaluator; grade.py)

A request that a child does not answer in time, or dies over, is answered by the child's death (worker_host.py, `died`).
"""

from __future__ import annotations

import sys
from typing import Any

from envs.appworld.worker.engine import CALLS_A_BLOCK, SHOWN, World, forget, preload
from envs.appworld.worker.fork import Child, Raised
from envs.appworld.worker.grade import catalog, contents, grade, solve

Json = Any
OPEN_S = 60.0
RUN_S = 12.0
"""Seconds that a block may take: the engine itself ends it at 10, where Python code can be ended."""
FORMS: dict[str, dict[str, type]] = {
    "run": {"output": str, "cut": int, "failed": bool, "completed": bool, "calls": list, "violations": list},
    "finish": {"digest": str},
}
CALL: dict[str, type] = {"api": str, "method": str, "url": str, "data": dict}
CHILDREN: dict[int, Child] = {}
_next = iter(range(sys.maxsize))


def open_(world: str, instruction: str | None = None) -> Json:
    sid = next(_next)
    child = CHILDREN[sid] = Child(lambda: World(world, instruction, caged=True))
    try:
        return {"sid": sid, **child.ask({"verb": "start"}, OPEN_S)}
    except BaseException:
        close(sid)
        raise


def run(sid: int, code: str) -> Json:
    return _ask(sid, {"verb": "run", "code": code}, RUN_S)


def finish(sid: int) -> Json:
    return _ask(sid, {"verb": "finish"}, OPEN_S)


def _ask(sid: int, request: Json, seconds: float) -> Json:
    """An engine that raises may be the agent's doing: the parent finds out, as of one that died."""
    try:
        answer = CHILDREN[sid].ask(request, seconds)
        if not _formed(request["verb"], answer):
            raise ProcessLookupError("it gave no answer of a world's form")
        return answer
    except (Raised, ProcessLookupError) as error:
        close(sid)
        raise ProcessLookupError(str(error)) from None


def _formed(verb: str, answer: Json) -> bool:
    """Who runs the agent's code writes the answer too: the parent is to be able to read it, whatever it says."""
    if not _has(answer, FORMS[verb]):
        return False
    if verb == "finish":
        return True
    calls, violations = answer["calls"], answer["violations"]
    return (
        len(answer["output"]) <= SHOWN
        and answer["output"].encode("utf-8", "replace").decode() == answer["output"]
        and len(calls) <= CALLS_A_BLOCK
        and all(_has(call, CALL) and isinstance(call.get("status"), int | None) for call in calls)
        and all(isinstance(each, str) for each in violations)
    )


def _has(answer: Json, form: dict[str, type]) -> bool:
    return isinstance(answer, dict) and all(isinstance(answer.get(key), kind) for key, kind in form.items())


def close(sid: int) -> None:
    if sid in CHILDREN:  # else it has died before
        _end(CHILDREN.pop(sid))


def _end(child: Child) -> None:
    child.kill()
    forget(child.name)


def play(world: str, blocks: list[str], instruction: str | None = None) -> Json:
    opened = open_(world, instruction)
    try:
        steps = [run(opened["sid"], code) for code in blocks]
        return {"layers": opened["layers"], "steps": steps, **finish(opened["sid"])}
    finally:
        close(opened["sid"])


def _apart(work: Any) -> Any:
    """Run in a child of its own: an engine that fails leaves nothing behind, the frozen clock least of all."""

    def answer(**arguments: Any) -> Json:
        child = Child(lambda: work)
        try:
            return child.ask(arguments, OPEN_S)
        finally:
            _end(child)

    return answer


preload()
HANDLERS = {
    "open": open_,
    "run": run,
    "finish": finish,
    "close": close,
    "play": play,
    "catalog": catalog,
    "contents": contents,
    "grade": _apart(grade),
    "solve": _apart(solve),
}
