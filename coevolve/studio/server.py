"""`coevolve studio`: LangGraph's dev server with the workspace attached, in the foreground, on this machine alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from coevolve.config import load_settings
from coevolve.loop import CHILD_OF, draining
from coevolve.studio.place import UI, VENV, Folder
from coevolve.workspace import RunFolder, Workspace, write_json
from store.errors import CoevolveError, UsageError

HOST = "127.0.0.1"
POLL_S = 0.2
START_S = 120.0
GRACE_S = 10.0
"""Between SIGTERM and SIGKILL: the server writes its threads down meanwhile."""
JOBS = 32
"""Runs at work at once; the commands bound theirs by model.concurrency."""
QUIET = {
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_COLOR": "1",
}
"""Nothing leaves the machine unless the environment says so."""


def studio_command(
    *, workspace: str | None, port: int, announce: Callable[[dict[str, Any], str], None], **_: Any
) -> None:
    """Serve until SIGTERM or ctrl-C; `announce` is called once it answers, with the data and its words.

    UsageError where the venv is missing or the port is taken; CoevolveError with the server's own words if it ends by
    itself.
    """
    place = Workspace.find(workspace)
    load_settings(place.config)  # what is wrong there is better said here than by the server
    port, python = _free(port), VENV.need()
    folder, stop = Folder(place), threading.Event()
    url = f"http://{HOST}:{port}"
    folder.path.mkdir(exist_ok=True)
    with RunFolder(folder.path).locked("server"), draining(stop):
        folder.prepare()
        with _child(folder, python, port) as child:
            _await_answer(url, child, folder.log, stop)
            if stop.is_set():
                return
            write_json(folder.server, {"url": url, "pid": os.getpid()})
            try:
                announce({"url": url, "studio": _ui(url), "log": str(folder.log)}, _words(url))
                while not stop.wait(POLL_S):
                    if child.poll() is not None:
                        raise CoevolveError(f"the studio server has ended: {_last_words(folder.log)}; see {folder.log}")
            finally:
                folder.server.unlink(missing_ok=True)


def _ui(url: str) -> str:
    return f"{UI}/studio/?baseUrl={url}"


def _words(url: str) -> str:
    return f"API: {url}\nStudio, in a browser on this machine: {_ui(url)}\nctrl-C ends it"


def _free(port: int) -> int:
    """The port, which nobody has; a free one for 0. UsageError if it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(f"--port {port}: {error.strerror or error}; give another, or 0 for a free one") from error
        return int(probe.getsockname()[1])


@contextmanager
def _child(folder: Folder, python: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The server, in a process group of its own that ends with the block. Should this process be killed, the server
    sees that by itself (`watch_parent`)."""
    options = ["--no-browser", "--no-reload", "--allow-blocking", "--n-jobs-per-worker", str(JOBS)]
    line = [str(python), "-m", "langgraph_cli", "dev", "--host", HOST, "--port", str(port), *options]
    own = {
        "COEVOLVE_WORKSPACE": str(folder.workspace.root),
        CHILD_OF: str(os.getpid()),
        "PYTHONPATH": str(folder.path / "lib"),
    }
    with folder.log.open("wb") as log:
        child = subprocess.Popen(
            [*line, "--config", "langgraph.json"],
            cwd=folder.path,
            env={**QUIET, **os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield child
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _await_answer(url: str, child: subprocess.Popen[bytes], log: Path, stop: threading.Event) -> None:
    """Return once it answers, or a stop is asked for. CoevolveError with its words if it does not come up."""
    for _ in range(int(START_S / POLL_S)):
        if child.poll() is not None:
            raise CoevolveError(f"the studio server did not come up: {_last_words(log)}; see {log}")
        try:
            if httpx.get(f"{url}/ok", timeout=1).is_success:
                return
        except httpx.HTTPError:
            pass
        if stop.wait(POLL_S):
            return
    raise CoevolveError(f"the studio server did not answer within {START_S:g} s; see {log}")


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line] or lines
    return told[-1][:300] if told else "it said nothing"
