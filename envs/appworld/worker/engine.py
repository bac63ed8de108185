"""One world in one process: opened, acted in, saved."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import re
import shutil
from typing import Any

from appworld import AppWorld, update_root

ROOT = os.environ["APPWORLD_ROOT"]
"""Holds data/; what episodes write goes to runs/ beside it."""
RUNS = os.path.join(ROOT, "runs")
HERE = os.path.join(RUNS, str(os.getpid()))
"""The engine's own root in this process, with a link to the data."""
os.environ["IPYTHONDIR"] = os.path.join(HERE, "ipython")  # a world's shell writes to it
update_root(HERE)  # before anything asks for a path, which is cached

import appworld.requester as requester_module  # noqa: E402
import pytest  # noqa: E402, F401 - the engine's assertions import it when the first one is made
from appworld.api_docs import prepare_api_docs  # noqa: E402
from appworld.apps import build_main_app, get_all_apps  # noqa: E402
from appworld.collections.api_docs import ApiDocCollection  # noqa: E402
from appworld.common.utils import import_apis_module, import_models_module  # noqa: E402

from envs.appworld.worker import cage  # noqa: E402
from envs.appworld.worker.diff import canonical_diff  # noqa: E402
from envs.appworld.worker.own import copy_of  # noqa: E402

json = copy_of("json")
Json = Any
BLOCK_S = 10
CALLS_A_BLOCK = 400
CALLS = 2000
"""API calls of one episode."""
SHOWN = 20_000
"""Characters of one output that are shown."""
FAILED = "Execution failed."
HIDDEN = ("requester", "Requester", "ApiCollection", "_dh")
"""What the engine, or its shell, puts before the agent and no task needs."""


def preload() -> None:
    """All that worlds share, so that a fork finds it done. No thread is started."""
    _tidy()
    os.makedirs(HERE, exist_ok=True)
    os.symlink(os.path.join(ROOT, "data"), os.path.join(HERE, "data"))
    os.chdir(HERE)
    apps = get_all_apps()
    for app in apps:
        import_apis_module(app)
        import_models_module(app)
        for private in (False, True):
            prepare_api_docs(app, include_private_apis=private)
            requester_module._get_api_name_to_doc(app, include_private_apis=private)
    ApiDocCollection.load(load_apps=tuple(get_all_apps(skip_admin=True)), include_response_schemas=True)
    served = build_main_app(tuple(sorted(apps)))
    requester_module.build_main_app = lambda _: served
    gc.collect()
    gc.freeze()


def _tidy() -> None:
    """What processes left behind that were killed."""
    for name in os.listdir(RUNS) if os.path.isdir(RUNS) else ():
        if not os.path.exists(f"/proc/{name}") or name == str(os.getpid()):
            shutil.rmtree(os.path.join(RUNS, name), ignore_errors=True)


def forget(run: str) -> None:
    """Delete what a world wrote."""
    shutil.rmtree(os.path.join(HERE, "experiments", "outputs", run), ignore_errors=True)


class World:
    """Answers the verbs of one episode."""

    def __init__(self, task: str, instruction: str | None = None, *, caged: bool = False, truth: bool = False) -> None:
        self.task = task
        self.run_name = str(os.getpid())
        if caged:
            cage.confine(HERE, os.path.join(ROOT, "data"))
        self.app = AppWorld(
            task_id=task,
            experiment_name=self.run_name,
            load_ground_truth=truth,
            max_api_calls_per_interaction=CALLS_A_BLOCK,
            timeout_seconds=BLOCK_S,
            raise_on_failure=caged,
        )
        if instruction is not None:
            self._ask_for(instruction)
        self._save = self.app._save_state
        self.app._save_state = self.app.save_logs = lambda *_: None  # after every block, and nobody reads them
        self.calls: list[Json] = []
        self._api = ""
        self._status: int | None = None
        self._listen()
        self.caged = caged
        if caged:
            self._hide()
            self.app.shell.transform_cell = str  # else it reads magics where the code filter reads a comment
            cage.enter()

    def _ask_for(self, instruction: str) -> None:
        row = self.app.models.supervisor.Task.all()[0]
        row.instruction = instruction
        row.save()

    def _listen(self) -> None:
        """Log each tracked call with the name of its API and the status of its answer; one that raised has none. The
        engine's chance is seeded by the call's number: codes and tokens are then the same on replay, whatever use the
        agent made of `random`."""
        requester = self.app.requester
        request, add, answered = requester._request, requester.request_tracker.add_request, requester.raise_if_failure

        def named(_app_name: str, _api_name: str, **rest: Any) -> Any:
            self._api, before = f"{_app_name}.{_api_name}", len(self.calls)
            self._status = None
            try:
                return request(_app_name, _api_name, **rest)
            finally:
                if self._status is not None:
                    self.calls[before:] = [{**call, "status": self._status} for call in self.calls[before:]]

        def logged(method: str, url: str, data: Json = None) -> None:
            if len(self.calls) >= CALLS:
                raise Exception(f"No more than {CALLS} API calls are allowed for one task.")
            add(method=method, url=url, data=data)
            random.seed(len(self.calls))
            self.calls.append({"api": self._api, "method": method, "url": url, "data": _plain(data or {})})
            if not _sendable(method, url, data):
                self.calls[-1]["unsent"] = True

        def noted(response: Any, raise_on_failure: bool | None = None) -> None:
            self._status = response.status_code
            answered(response, raise_on_failure)

        requester._request = named
        requester.request_tracker.add_request = logged
        requester.raise_if_failure = noted

    def _hide(self) -> None:
        names = self.app.shell.user_ns
        for name in HIDDEN:
            names.pop(name, None)
        names["apis"].pop("admin", None)

    def __call__(self, verb: str, **arguments: Any) -> Json:
        answers: dict[str, Any] = {"start": self.start, "run": self.run, "finish": self.finish}
        return answers[verb](**arguments)

    def start(self) -> Json:
        task = self.app.task
        return {
            "instruction": task.instruction,
            "supervisor": {key: task.supervisor[key] for key in ("first_name", "last_name", "email", "phone_number")},
            "now": task.datetime.isoformat(sep=" "),
            "layers": cage.layers(),
        }

    def run(self, code: str) -> Json:
        """`calls`: those of this block."""
        before = len(self.calls)
        try:
            output = self.app.execute(code)
        except BaseException as error:  # KeyboardInterrupt and the like pass through the engine
            output = f"{FAILED} {type(error).__name__}: {error}"
        finally:
            self.app.safety_guard.disable()
        output = re.sub(r"\b0x[0-9a-f]{6,}\b", "0x...", output)  # differ from run to run
        output = output.encode("utf-8", "replace").decode()
        return {
            "output": output[:SHOWN],
            "cut": max(0, len(output) - SHOWN),
            "failed": output.startswith(FAILED),
            "completed": self.app.task_completed(),
            "calls": self.calls[before:],
            "violations": list(cage.CAUGHT),
        }

    def replay(self, calls: list[Json]) -> list[Json]:
        """Carry out logged calls, those to undocumented places left out. Those that are answered with another status
        than when they were logged: [[number, status then, status now]], None where it raised. RuntimeError where one
        raises that did not then: that is the machine's fault or the engine's, and says nothing of the agent."""
        differing = []
        for number, call in enumerate(calls):
            if documented(call["method"], call["url"]):
                random.seed(number)
                told, found = call.get("status"), self._repeat(number, call)
                if told != found:
                    differing.append([number, told, found])
        return differing

    def _repeat(self, number: int, call: Json) -> int | None:
        """Its status now; None where it raises. Without a word of it where the API refuses: the agent was told."""
        self._status = None
        try:
            if call.get("unsent"):
                raise TypeError("it was never sent")
            getattr(self.app.requester, f"_{call['method']}")(
                call["url"],
                data=dict(call["data"]),
                client=self.app.requester.client,  # which the engine's own `_patch` forgets to look up
                track=False,
                raise_on_failure=False,
            )
        except Exception as error:
            if call.get("status") is not None:
                where = f"call {number}, {call['method']} {call['url']}"
                raise RuntimeError(f"{where}: on replay {type(error).__name__}: {error}") from None
        return self._status

    def save(self) -> str:
        """The folder with all databases as they are now."""
        folder = self.app.output_db_home_path_on_disk
        self._save(folder)
        return str(folder)

    def finish(self) -> Json:
        return {"digest": digest(self.difference())}

    def difference(self) -> Json:
        """What has become of the world since its start. The world is closed after that."""
        end = self.save()
        self.app.close()
        return canonical_diff(os.path.join(HERE, "data", "tasks", self.task, "dbs"), end)


def digest(difference: Json) -> str:
    return hashlib.sha256(json.dumps(difference, sort_keys=True).encode()).hexdigest()[:16]


def _plain(data: Json) -> Json:
    return json.loads(json.dumps(data, default=str))


def _sendable(method: str, url: str, data: Json) -> bool:
    """Whether the engine's client takes it: bodies are JSON, but for those of a login; the rest is sent as text."""
    if method not in ("post", "put", "patch") or "auth/token" in url:
        return True
    try:
        json.dumps(data)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def documented(method: str, url: str) -> bool:
    """Whether it is the place of a public API, apps of the engine's own keeping left out."""
    return any(
        doc["method"].lower() == method and _pattern(doc["path"]).fullmatch(url)
        for app in get_all_apps(skip_admin=True)
        if url.startswith(f"/{app}/")
        for doc in prepare_api_docs(app, include_private_apis=False)
    )


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(r"[^/?#]*".join(map(re.escape, re.split(r"\{\w+\}", path))))
