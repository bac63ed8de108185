"""Where the dev server of a workspace lives: DIR/studio, and a venv that all workspaces share.

DIR/studio/langgraph.json     what the server loads
DIR/studio/lib/               links to our packages, and to nothing else of the environment that this runs in
DIR/studio/server.json        URL of the server that is up
DIR/studio/server.log         its words
DIR/studio/phases/<name>.json what the server must know to lend a phase its resources
DIR/studio/.langgraph_api/    threads and checkpoints, written by the server every ten seconds and at its end
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from coevolve.config import Settings
from coevolve.workspace import Workspace, read_json, write_json
from envs.venvs import Venv
from graphs.tracing import GraphName
from store.errors import CoevolveError, UsageError

VENV = Venv(name="studio", requirements=Path(__file__).with_name("requirements.txt"))
PACKAGES = ("coevolve", "graphs", "envs", "training", "store", "evals")
GRAPHS = ("explore", "validate", "judge", "refine")
UI = "https://smith.langchain.com"
ORIGINS = [UI, "https://eu.smith.langchain.com"]
"""Pages that the server answers."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase that is played on the server."""

    graph: GraphName
    run: str
    """Of refine: the job."""
    t: int
    settings: dict[str, Any]


@dataclass(frozen=True)
class Folder:
    workspace: Workspace

    @property
    def path(self) -> Path:
        return self.workspace.root / "studio"

    @property
    def server(self) -> Path:
        return self.path / "server.json"

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    def prepare(self) -> None:
        """Write what the server loads."""
        (self.path / "lib").mkdir(parents=True, exist_ok=True)
        home = Path(__file__).parents[2]
        for name in PACKAGES:
            link = self.path / "lib" / name
            link.unlink(missing_ok=True)
            link.symlink_to(home / name)
        write_json(self.path / "langgraph.json", config(self.workspace))

    def begin(self, graph: GraphName, run: str, t: int, settings: Settings) -> str:
        """The name of a new phase, which the server can look up."""
        name = f"{graph}-{run}-{t}-{secrets.token_hex(4)}"
        dumped = settings.model_dump(mode="json", by_alias=True)
        (self.path / "phases").mkdir(parents=True, exist_ok=True)
        told = Phase(graph=graph, run=run, t=t, settings=dumped)
        write_json(self.path / "phases" / f"{name}.json", msgspec.to_builtins(told))
        return name

    def phase(self, name: str) -> Phase:
        """UsageError if the workspace has none of that name."""
        path = self.path / "phases" / f"{name}.json"
        if not re.fullmatch(r"[a-z]+-[\w.-]+", name) or not path.is_file():
            raise UsageError(f"resources: workspace {self.workspace.root} has no phase {name!r}; leave it out")
        try:
            return msgspec.convert(read_json(path), Phase)
        except msgspec.ValidationError as error:
            raise CoevolveError(f"{path} is damaged: {error}") from error


def config(workspace: Workspace) -> dict[str, Any]:
    """langgraph.json. The description is what tells a client which workspace the server has, and a person too."""
    about = description(workspace)
    return {
        "dependencies": ["."],
        "graphs": {name: {"path": f"coevolve.studio.attached:{name}", "description": about} for name in GRAPHS},
        "http": {"cors": {"allow_origins": ORIGINS}},
    }


def description(workspace: Workspace) -> str:
    return f"coevolve workspace {workspace.root}"


def default_model(graph: str, settings: Settings) -> str:
    """The model of a graph that a person starts; "" where there is none that could play its part."""
    explorer = settings.policy if settings.explorer == "policy" else settings.explorer
    asked = explorer if explorer.startswith("litellm:") else ""
    if graph == "judge":
        return next(iter(settings.judge.models), asked)
    if graph == "refine":
        return asked
    return asked or "procedural"
