"""Spans of real graph runs, what `trace` and `export` tell of them."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from coevolve.workspace import Workspace
from envs import registry
from graphs.runner import explore_all
from graphs.state import ExploreJob
from store.rows import Exploration, Row, Span
from tests.cli import coevolve
from tests.story import MADE, make_story


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_story(tmp_path_factory.mktemp("trace") / "work")


def test_a_graph_run_leaves_its_nodes_in_its_own_batch(tmp_path: Path) -> None:
    env = registry.get("text2sql")
    batches: list[list[Row]] = []
    job = ExploreJob(run="r", t=0, index=0, world=env.worlds("train")[0].id)
    asyncio.run(
        explore_all(
            [job],
            env=env,
            model="procedural",
            seed=1,
            append=lambda rows: batches.append(list(rows)),
            checkpoints=tmp_path / "graphs.sqlite",
        )
    )
    (batch,) = batches
    assert isinstance(batch[0], Exploration)
    spans = [row for row in batch if isinstance(row, Span)]
    assert [span.index for span in spans] == list(range(len(spans)))
    assert [spans[0].node, spans[1].node, spans[-1].node] == ["act", "tools", "collect"]
    assert {span.thread for span in spans} == {job.id}
    assert [span.calls for span in spans[:2]] == [1, 0]
    texts = [message["text"] for span in spans for message in span.messages]
    assert len(texts) == len(set(texts)) > 0
    assert sum(span.seconds for span in spans) > 0


def test_the_trace_of_a_task_has_its_graph_runs_and_rollouts(place: Workspace) -> None:
    done = coevolve("trace", MADE[0].id[:10], "--workspace", place.root)
    assert done.code == 0
    for words in ("explore ", "validate ", "reflect", "valid (", "I look.", "rollout ", "SELECT name FROM item"):
        assert words in done.out


def test_the_trace_of_a_task_of_another_run_names_that_run(tmp_path: Path) -> None:
    place = make_story(tmp_path / "work")
    place.create_run({}).update(created_at=2000.0, rounds=0)
    done = coevolve("trace", MADE[0].id, "--workspace", place.root)
    assert (done.code, done.err) == (
        2,
        f"error: TASK: {MADE[0].id} is not in run r002; it is in r001: add --run r001\n",
    )
    assert "explore" in coevolve("trace", MADE[0].id, "--run", "r001", "--workspace", place.root).out


def test_the_trace_of_a_run_as_a_page_and_as_json(place: Workspace, tmp_path: Path) -> None:
    assert coevolve("trace", "r001", "--html", tmp_path / "t.html", "--workspace", place.root).code == 0
    assert (tmp_path / "t.html").read_text().count("<rect") == 18
    data = json.loads(coevolve("trace", "r001", "--json", "--workspace", place.root).out)
    assert len(data["threads"]) == 6
    assert data["threads"][0]["spans"][0]["node"] in ("reflect", "check")


def test_the_export_is_parquet_with_a_card(place: Workspace, tmp_path: Path) -> None:
    assert coevolve("export", tmp_path / "out", "--workspace", place.root).code == 0
    rollouts = pq.read_table(tmp_path / "out/rollouts/train.parquet").to_pylist()
    ((count,),) = place.store.query("select count(*) from trajectory")
    assert len(rollouts) == count
    assert [
        step["action"]
        for step in next(row for row in rollouts if row["purpose"] == "train" and row["played"])["played"]
    ]
    assert pq.read_metadata(tmp_path / "out/tasks/train.parquet").num_rows == 6
    assert "path: signals/train.parquet" in (tmp_path / "out/README.md").read_text()


@pytest.fixture
def closed(tmp_path: Path) -> Workspace:
    """A workspace one of whose tasks may not be passed on: so nothing of its environment may."""
    place = make_story(tmp_path / "work")
    with place.store.reading() as connection:
        connection.execute("UPDATE task SET redistributable = false WHERE id = ?", [MADE[0].id])
    return place


def test_an_export_has_ids_tokens_and_scores_of_a_protected_environment_but_no_texts(
    closed: Workspace, tmp_path: Path
) -> None:
    done = coevolve("export", tmp_path / "out", "--workspace", closed.root)
    assert "texts are left out" in done.out
    tasks = pq.read_table(tmp_path / "out/tasks/train.parquet").to_pylist()
    assert {row["user_turns"] for row in tasks} == {None} == {row["reference"] for row in tasks}
    assert MADE[0].id in {row["id"] for row in tasks}
    rollouts = pq.read_table(tmp_path / "out/rollouts/train.parquet").to_pylist()
    steps = [step for row in rollouts for step in row["played"] or []]
    assert any(step["tokens"] for step in steps)
    assert {step["action"] for step in steps} == {None} == {step["observation"] for step in steps}
    assert any(row["score"] == 1.0 for row in rollouts)


def test_protected_texts_are_exported_on_request_with_a_warning(closed: Workspace, tmp_path: Path) -> None:
    done = coevolve("export", tmp_path / "out", "--include-protected", "--workspace", closed.root)
    assert "warning: it has texts that may not be passed on" in done.out
    tasks = pq.read_table(tmp_path / "out/tasks/train.parquet").to_pylist()
    assert all(row["user_turns"] for row in tasks)


@pytest.mark.parametrize("command", ["report", "trace"])
def test_pages_of_a_protected_environment_have_its_texts_on_request_alone(
    closed: Workspace, tmp_path: Path, command: str
) -> None:
    page = tmp_path / "page.html"
    asked = MADE[0].user_turns[0]
    of = {"report": ["report", "--out", page], "trace": ["trace", MADE[0].id, "--html", page]}[command]
    done = coevolve(*of, "--workspace", closed.root)
    assert "texts are left out" in done.out
    assert asked not in page.read_text()
    assert MADE[0].id in page.read_text()
    done = coevolve(*of, "--include-protected", "--workspace", closed.root)
    assert "warning: it has texts" in done.out
    assert asked in page.read_text()


class Receiver(BaseHTTPRequestHandler):
    """Takes OTLP traces and keeps what came."""

    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_spans_go_to_an_opentelemetry_endpoint(place: Workspace) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        done = coevolve("trace", "r001", "--otlp", url, "--workspace", place.root)
        server.shutdown()
    assert done.out == f"24 spans sent to {url}\n"
    assert b"reflect" in gzip_or_plain(Receiver.bodies[0])


def gzip_or_plain(data: bytes) -> bytes:
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
