"""`--studio [URL]`: the graphs of a command run on the workspace's dev server; rows are made and written here."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx
from langgraph_sdk import get_sync_client

from coevolve.config import Settings
from coevolve.studio.place import Folder, description
from coevolve.workspace import Workspace, read_json
from graphs.remote import Remote, gone
from graphs.settings import REWARD_MODEL
from graphs.tracing import GraphName
from store.errors import CoevolveError, UsageError

RUNNING = ""
"""`--studio` without a URL: the server that `coevolve studio` has started for the workspace."""
ANSWER_S = 10.0


def remote(
    place: Workspace, url: str, graph: GraphName, *, run: str, t: int, created_at: float, settings: Settings
) -> Remote:
    """A new phase on the server. UsageError for a URL that is none, a server of another workspace, and for what the
    server has no packages for; ServerGone if it does not answer."""
    _needs_no_torch(settings, graph)
    url = server(place, url)
    phase = Folder(place).begin(graph, run, t, settings)
    return Remote(url=url, phase=phase, run=run, t=t, origin=f"{created_at}")


def server(place: Workspace, given: str) -> str:
    """The URL of the server, which has this workspace."""
    url = given.rstrip("/") if given != RUNNING else _running(place)
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise UsageError(f"--studio {url}: that is no URL; write for example --studio http://127.0.0.1:2024")
    try:
        with get_sync_client(url=url, api_key=None, timeout=ANSWER_S) as client:
            found = client.assistants.search(graph_id="explore", limit=1)
        told = str(found[0]["description"])
    except httpx.HTTPStatusError as error:
        raise UsageError(f"--studio {url}: no LangGraph server ({error.response.status_code})") from error
    except httpx.HTTPError as error:
        raise gone(url, error) from error
    except (LookupError, TypeError, ValueError):
        raise UsageError(f"--studio {url}: that server has no workspace; start one with `coevolve studio`") from None
    if told != description(place):
        raise UsageError(f"--studio {url}: that server has another workspace ({told}), not {place.root}")
    return url


def _running(place: Workspace) -> str:
    path = Folder(place).server
    if not path.exists():
        raise UsageError(f"--studio: no server is up for {place.root}; start one with `coevolve studio`, or give a URL")
    try:
        return str(read_json(path)["url"])
    except (LookupError, TypeError) as error:
        raise CoevolveError(f"{path} is damaged; start `coevolve studio` again") from error


def _needs_no_torch(settings: Settings, graph: GraphName) -> None:
    if graph == "refine":
        return
    if settings.explorer == "policy" and not settings.policy.startswith("litellm:"):
        raise UsageError("--studio: explorer = policy has weights, which the server cannot load; leave --studio out")
    if graph == "validate" and settings.judge.cheap == REWARD_MODEL:
        raise UsageError(f"--studio: judge.cheap = {REWARD_MODEL} needs torch, which the server has not; leave it out")
