"""What `coevolve studio` and --studio say where something is missing; nothing here starts a server."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from coevolve.commands import start_run
from coevolve.config import Settings
from coevolve.studio.client import remote
from coevolve.studio.place import Folder, default_model
from coevolve.workspace import Workspace
from envs.errors import SessionLost
from graphs.bench import ServerGone
from graphs.committee import Committee
from graphs.lending import borrowed, lend
from graphs.model import BudgetSpent, in_short
from graphs.remote import read, told
from store.errors import UsageError
from tests.cli import Ran, coevolve
from tests.local_server import serving
from tests.studio_setup import make_workspace


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_workspace(tmp_path_factory.mktemp("studio") / "work")


def explore(place: Workspace, *arguments: str) -> Ran:
    return coevolve("explore", *arguments, "--workspace", place.root)


def test_without_the_venv_it_says_how_to_get_it(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVOLVE_ENVS", str(place.root / "none"))
    done = coevolve("studio", "--port", "0", "--workspace", place.root)
    assert (done.code, "run `coevolve env install studio`" in done.err) == (2, True)
    (found,) = (row for row in json.loads(coevolve("doctor", "--json").out) if row["what"] == "studio")
    assert found["fix"] == "coevolve env install studio"


def test_a_port_that_is_taken_is_named(place: Workspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = coevolve("studio", "--port", str(port), "--workspace", place.root)
    assert (done.code, done.err) == (
        2,
        f"error: --port {port}: Address already in use; give another, or 0 for a free one\n",
    )


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1", "http://"])
def test_what_is_no_url_is_refused(place: Workspace, url: str) -> None:
    done = explore(place, "--studio", url)
    assert (done.code, f"--studio {url.rstrip('/')}: that is no URL" in done.err) == (2, True)


def test_without_a_server_it_says_how_to_start_one(place: Workspace) -> None:
    done = explore(place, "--studio")
    assert (done.code, "start one with `coevolve studio`, or give a URL" in done.err) == (2, True)


def test_a_server_that_does_not_answer_is_a_failure_and_loses_nothing(tmp_path: Path) -> None:
    place = make_workspace(tmp_path / "work")
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    done = explore(place, "--studio", url)
    assert (done.code, "does not answer" in done.err) == (1, True)
    assert place.store.query("select count(*) from exploration") == [(0,)]
    assert explore(place).code == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "that server has no workspace"),
        (b'[{"description": null}]', "that server has another workspace"),
        (b"hello", "that server has no workspace"),
    ],
)
def test_another_server_is_refused(place: Workspace, body: bytes, words: str) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serving(Other) as url:
        done = explore(place, "--studio", url)
    assert (done.code, words in done.err) == (2, True)


def test_what_needs_torch_stays_here(place: Workspace) -> None:
    run = start_run(place, ("policy=litellm:none",), 0)
    played = Settings(explorer="policy")
    with pytest.raises(UsageError, match="explorer = policy has weights"):
        remote(place, "", "explore", run=run.id, t=0, created_at=0.0, settings=played)


def test_the_default_model_is_the_explorer_as_far_as_it_can_play_the_part() -> None:
    asked = Settings(explorer="litellm:x")
    assert [default_model(name, asked) for name in ("explore", "judge", "refine")] == ["litellm:x"] * 3
    assert [default_model(name, Settings()) for name in ("explore", "judge", "refine")] == ["procedural", "", ""]


def test_a_phase_is_told_by_its_name_alone(place: Workspace) -> None:
    folder = Folder(place)
    name = folder.begin("explore", "r001", 3, Settings(seed=7))
    assert (folder.phase(name).run, folder.phase(name).t, folder.phase(name).settings["seed"]) == ("r001", 3, 7)
    for other in ("", "x", "../explore", "explore-../x", f"{name}/"):
        with pytest.raises(UsageError, match="has no phase"):
            folder.phase(other)


def test_a_failure_on_the_server_is_the_same_failure_here() -> None:
    for failure in (SessionLost("a: b"), BudgetSpent("spent"), UsageError("x: y"), ZeroDivisionError("by zero")):
        again = read({"error": "Failed", "message": str(told(failure))})
        assert in_short(again) == in_short(failure)
    assert isinstance(read({"error": "Failed", "message": str(told(SessionLost("a")))}), SessionLost)
    assert isinstance(read({"error": "Failed", "message": str(told(OSError(28, "full")))}), ServerGone)
    assert in_short(read({"error": "UserInterrupt", "message": "by a person"})) == "UserInterrupt: by a person"
    assert str(read({})) == "None"


def test_what_is_lent_is_had_by_its_name_and_what_is_not_is_refused() -> None:
    lend("a", 1)
    assert (borrowed("a", int), borrowed(2, int), borrowed(None, int)) == (1, 2, None)
    with pytest.raises(UsageError, match="committee: 'a' is not lent here; start the server with `coevolve studio`"):
        borrowed("a", Committee)
