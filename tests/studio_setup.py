"""A workspace with signals to explore, its `coevolve studio`, and the rows that matter."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from coevolve import phases
from coevolve.commands import opened, start_run
from coevolve.workspace import LOOP, Workspace
from envs.text2sql.env import builtin
from store.db import Store
from store.rows import Json, Signal
from tests.cli import coevolve
from tests.fake_openai import Behaviour, answer
from tests.judge_setup import GOOD
from tests.loops import CONTENT, start
from tests.refine_server import role_answer
from tests.store_rows import phase, step, trajectory

OFFLINE = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1,localhost"}
"""Whoever looks beyond this machine finds nobody."""
ROWS = CONTENT | {
    "span": 'select * exclude (seconds, started_at) from span order by thread, "index"',
    "vote": "select * exclude (seconds) from vote order by all",
    "remark": "select * exclude (seconds) from remark order by all",
    "refined": "select * from refined order by all",
}


def everybody() -> Behaviour:
    """An endpoint that plays the roles of `refine`, and a judge who likes every task."""

    def said(request: Json) -> str:
        text = request["messages"][-1]["content"]
        return json.dumps(GOOD) if '"role": "judge"' in text or '"role":"judge"' in text else role_answer(request)

    return answer(said)


def make_workspace(root: Path, *, signals: int = 1, **model: Any) -> Workspace:
    """With the run r001, whose iteration 0 is trained and has open signals; no policy is needed for that."""
    assert coevolve("init", root).code == 0
    if model:
        lines = [f"{key} = {json.dumps(value)}" for key, value in model.items()]
        (root / "config.toml").write_text("\n".join(["[model]", *lines, ""]))
    place = Workspace.find(str(root))
    run = start_run(place, ("policy=litellm:none", "explore.per_signal=1"), 0)
    with opened(place, run, (), LOOP) as loop:
        tasks = phases.seed_tasks(loop)[:8]
        place.store.append(tasks)
        phases._freeze(loop, 0, tasks)
    shown = trajectory("a", run=run.id, world=builtin().worlds("train")[0].id)
    about: dict[str, Any] = {"pattern": None, "evidence": [shown.id], "stats": {}}
    found = [Signal(id=f"s{at}", run=run.id, t=0, kind="boundary", task_id=f"a{at}", **about) for at in range(signals)]
    place.store.append(shown, step(shown, ["SELECT"]), found, phase(0, run=run.id), phase(0, "signals", run=run.id))
    return place


@dataclass(frozen=True)
class Studio:
    url: str
    process: subprocess.Popen[str]

    def post(self, path: str, **body: Any) -> Any:
        done = httpx.post(f"{self.url}{path}", json=body, timeout=120)
        assert done.is_success, done.text
        return done.json()

    def get(self, path: str) -> Any:
        done = httpx.get(f"{self.url}{path}", timeout=30)
        assert done.is_success, done.text
        return done.json()


@contextmanager
def studio(place: Workspace) -> Iterator[Studio]:
    """`coevolve studio` without a network, ended by SIGTERM unless it has ended by then."""
    process = start(place.root, "studio", "--port", "0", **OFFLINE)
    told = place.root / "studio" / "server.json"
    try:
        while not told.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        yield Studio(json.loads(told.read_text())["url"], process)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -9), errors


def rows(place: Workspace) -> dict[str, list[Any]]:
    store = Store(place.root / "store")
    return {kind: store.query(sql) for kind, sql in ROWS.items()}
