"""LangGraph Studio: the dev server comes up without a network, every graph runs there, and real runs appear in it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from coevolve.commands import run_settings
from coevolve.studio.client import remote
from coevolve.studio.place import VENV
from coevolve.workspace import Workspace, read_json
from graphs.remote import BY, remote_bench
from tests.cli import Ran, coevolve
from tests.fake_openai import serve
from tests.loops import start
from tests.refine_server import write_alpaca
from tests.studio_setup import Studio, everybody, make_workspace, rows, studio

pytestmark = pytest.mark.slow

JUDGE = ["--set", 'judge.models=["litellm:openai/judge"]']


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    VENV.install()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, serve(everybody()) as fake:
        patch.setenv("OPENAI_API_KEY", "none")
        yield fake.url


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, endpoint: str) -> Workspace:
    return make_workspace(tmp_path_factory.mktemp("studio") / "work", signals=2, api_base=endpoint)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, endpoint: str) -> Workspace:
    """The same workspace, whose graphs run in this process."""
    return make_workspace(tmp_path_factory.mktemp("here") / "work", signals=2, api_base=endpoint)


@pytest.fixture(scope="module")
def server(place: Workspace) -> Iterator[Studio]:
    with studio(place) as up:
        yield up


def refine(place: Workspace, source: Path, *more: str) -> Ran:
    out = place.root / "out.jsonl"
    form = ["--format", "alpaca", "--model", "openai/m", "--workspace", place.root]
    return coevolve("refine", source, "--out", out, *form, *more)


def test_real_runs_appear_in_studio_and_give_the_rows_of_runs_without_it(
    server: Studio, place: Workspace, here: Workspace, tmp_path: Path
) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 2)
    for where, more in ((here, []), (place, ["--studio"])):
        done = [
            coevolve("explore", *more, "--workspace", where.root),
            coevolve("validate", *JUDGE, *more, "--workspace", where.root),
            refine(where, source, *more),
        ]
        assert [(ran.code, ran.err.count("error")) for ran in done] == [(0, 0)] * 3, done
    found, wanted = rows(place), rows(here)
    assert min(len(found[kind]) for kind in ("exploration", "verdict", "vote", "span", "remark", "refined")) >= 2
    assert {kind: found[kind] == wanted[kind] for kind in wanted} == dict.fromkeys(wanted, True)
    assert (place.root / "out.jsonl").read_text() == (here.root / "out.jsonl").read_text()
    _threads_tell(server, place)


def _threads_tell(server: Studio, place: Workspace) -> None:
    """Every graph run is a thread, with its state at every step and its tool calls."""
    threads = server.post("/threads/search", metadata={"run": "r001"}, limit=100)
    ids = place.store.query("select id from exploration union all select id from candidate")
    assert sorted(thread["metadata"]["coevolve"] for thread in threads) == sorted(name for (name,) in ids)
    assert {thread["status"] for thread in threads} == {"idle"}
    (explored, *_) = (thread for thread in threads if thread["metadata"]["graph_id"] == "explore")
    history = server.get(f"/threads/{explored['thread_id']}/history?limit=100")
    nodes = {name for state in history for name in state["next"]}
    assert nodes >= {"reflect", "context", "act", "tools", "collect"}
    assert [set(call) >= {"name", "args", "observation"} for call in history[0]["values"]["log"]]
    assert history[0]["values"]["drafts"]
    (refined, *_) = server.post("/threads/search", metadata={"run": "d001"})
    steps = server.get(f"/threads/{refined['thread_id']}/history?limit=100")
    assert {name for state in steps for name in state["next"]} >= {"positions", "cross", "advise", "edit", "judge"}


def test_refine_goes_on_after_its_budget(server: Studio, place: Workspace, tmp_path: Path) -> None:
    source, out = write_alpaca(tmp_path / "in.jsonl", 3), tmp_path / "out.jsonl"
    line = ["refine", source, "--out", out, "--format", "alpaca", "--model", "openai/m", "--workspace", place.root]
    early = coevolve(*line, "--studio", "--set", "model.token_budget=3000")
    assert (early.code, "the same command with --resume goes on" in early.err) == (1, True), early.err
    said = "select count(*) from remark where job = (select max(job) from remark)"
    ((before,),) = place.store.query(said)
    assert 0 < before < 72
    done = coevolve(*line, "--studio", "--resume")
    assert done.code == 0, done.err
    assert [json.loads(text)["output"] for text in out.read_text().splitlines()] == ["r0!!!", "r1!!!", "r2!!!"]
    assert place.store.query(said) == [(72,)]


def test_a_person_may_start_every_graph_with_defaults(server: Studio) -> None:
    (thread, other, third) = (server.post("/threads")["thread_id"] for _ in range(3))
    explored = server.post(f"/threads/{thread}/runs/wait", assistant_id="explore", input={})
    draft = explored["drafts"][0]
    validated = server.post(f"/threads/{other}/runs/wait", assistant_id="validate", input={"draft": draft})
    assert set(validated["verdict"]) == {"adopt", "reason", "detail"}
    model = {"configurable": {"model": "litellm:openai/judge"}}
    asked = {"assistant_id": "judge", "config": model, "input": {"draft": draft}}
    assert server.post(f"/threads/{third}/runs/wait", **asked)["verdict"]["adopt"]
    assert len(server.get(f"/threads/{third}/history?limit=100")) > 3
    said = server.post("/runs/wait", assistant_id="refine", config=model, input={"instruction": "a", "response": "b"})
    assert (said["response"], said["stop"]) == ("b!!!", "limit")
    failed = server.post("/runs/wait", assistant_id="refine", input={"instruction": "a", "response": "b"})
    assert "model: '' is no model that can be asked; write `litellm:NAME`" in failed["__error__"]["message"]


@pytest.mark.parametrize("graph", ["explore", "validate", "judge", "refine"])
def test_every_graph_is_drawn_with_its_forms(server: Studio, graph: str) -> None:
    drawn = server.get(f"/assistants/{_assistant(server, graph)}/graph")
    assert len(drawn["nodes"]) > 5
    schemas = server.get(f"/assistants/{_assistant(server, graph)}/schemas")
    assert schemas["input_schema"]["properties"]


def _assistant(server: Studio, graph: str) -> str:
    (found,) = server.post("/assistants/search", graph_id=graph)
    return str(found["assistant_id"])


def test_what_a_person_repeats_becomes_no_row(server: Studio, place: Workspace) -> None:
    coevolve("explore", "--studio", "--workspace", place.root)
    before = rows(place)
    (thread, *_) = server.post("/threads/search", metadata={"graph_id": "explore", "run": "r001"})
    at = f"/threads/{thread['thread_id']}"
    acted = next(state for state in server.get(f"{at}/history?limit=100") if state["next"] == ["act"])
    fork = server.post(f"{at}/state", values={"context": {"where": "loans"}}, checkpoint=acted["checkpoint"])
    ended = server.post(f"{at}/runs/wait", assistant_id="explore", input=None, checkpoint=fork["checkpoint"])
    assert ended["context"] == {"where": "loans"}
    assert ended["drafts"]
    assert rows(place) == before
    assert _taken_by_a_command(server, place, thread["metadata"]["coevolve"]) == {}, "a thread of its own, not the fork"


def _taken_by_a_command(server: Studio, place: Workspace, exploration: str) -> Any:
    """The state from which `explore` would go on."""

    async def look() -> Any:
        run = place.run()
        born, settings = run.manifest["created_at"], run_settings(run)
        there = remote(place, server.url, "explore", run=run.id, t=0, created_at=born, settings=settings)
        async with remote_bench("explore", there, None) as bench:
            return await bench.values(exploration)

    return asyncio.run(look())


def test_a_phase_is_lent_to_commands_alone(server: Studio) -> None:
    asked = {"assistant_id": "explore", "input": {}, "config": {"configurable": {"resources": "explore-../../x"}}}
    assert "a command's phase" in server.post("/runs/wait", **asked)["__error__"]["message"]
    refused = server.post("/runs/wait", **asked, metadata=BY)["__error__"]["message"]
    assert "has no phase 'explore-../../x'" in refused


def test_other_pages_are_not_answered(server: Studio) -> None:
    def allowed(origin: str) -> str | None:
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        return httpx.options(f"{server.url}/runs", headers=asked).headers.get("access-control-allow-origin")

    assert allowed("https://smith.langchain.com") == "https://smith.langchain.com"
    assert allowed("https://example.com") is None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The rows of eight explorations in this process."""
    place = make_workspace(tmp_path_factory.mktemp("whole") / "work", signals=8)
    assert coevolve("explore", "--workspace", place.root).code == 0
    return rows(place)


def test_a_server_that_dies_costs_nothing_that_was_decided(tmp_path: Path, whole: dict[str, list[Any]]) -> None:
    place = make_workspace(tmp_path / "work", signals=8)
    with studio(place) as up:
        command = start(place.root, "explore", "--studio", up.url)
        while not place.store.query("select 1 from exploration"):
            assert command.poll() is None
            time.sleep(0.05)
        os.kill(up.process.pid, signal.SIGKILL)
        _, errors = command.communicate(timeout=60)
        assert command.returncode == 1, errors
        assert "does not answer" in errors
        assert "run the same command again" in errors
        _gone(up.url)
    assert 0 < len(rows(place)["exploration"]) < 8
    (place.root / "studio" / "server.json").unlink()
    with studio(place):
        assert coevolve("explore", "--studio", "--workspace", place.root).code == 0
    kinds = ("exploration", "candidate", "trajectory", "step", "span")
    found = rows(place)
    assert {kind: found[kind] for kind in kinds} == {kind: whole[kind] for kind in kinds}


def _gone(url: str) -> None:
    """The server ends by itself when `coevolve studio` was killed."""
    deadline = time.monotonic() + 30
    with suppress(httpx.HTTPError):
        while httpx.get(f"{url}/ok", timeout=2):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_client_that_is_told_to_stop_goes_on_later(tmp_path: Path, whole: dict[str, list[Any]]) -> None:
    place = make_workspace(tmp_path / "work", signals=8)
    with studio(place) as up:
        command = start(place.root, "explore", "--studio")
        while not place.store.query("select 1 from exploration"):
            assert command.poll() is None
            time.sleep(0.05)
        command.terminate()
        _, errors = command.communicate(timeout=60)
        assert "stopped as asked" in errors
        runs = [thread["status"] for thread in up.post("/threads/search", status="busy")]
        assert runs == []
        assert coevolve("explore", "--studio", "--workspace", place.root).code == 0
    found = rows(place)
    assert [found[kind] for kind in ("exploration", "candidate")] == [whole["exploration"], whole["candidate"]]


def test_threads_outlive_the_server_and_one_workspace_has_one_server(tmp_path: Path) -> None:
    place = make_workspace(tmp_path / "work")
    with studio(place):
        assert coevolve("explore", "--studio", "--workspace", place.root).code == 0
        second = coevolve("studio", "--port", "0", "--workspace", place.root)
        assert (second.code, "another process is at work on it" in second.err) == (1, True)
        other = make_workspace(tmp_path / "other")
        url = read_json(place.root / "studio/server.json")["url"]
        refused = coevolve("explore", "--studio", url, "--workspace", other.root)
        assert (refused.code, "that server has another workspace" in refused.err) == (2, True)
    with studio(place) as up:
        (thread,) = up.post("/threads/search", metadata={"run": "r001"})
        assert len(up.get(f"/threads/{thread['thread_id']}/history?limit=100")) > 4
