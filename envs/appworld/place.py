"""Where the engine and its data lie, and how they get there.

ROOT/data         the data whole: official, or the small world (mini/)
ROOT/agent/data   the same without ground truth: all that an agent's process is shown
ROOT/{,agent/}runs  what episodes write, deleted after each
ROOT/coevolve.json  written last: which data, made by what
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from envs.errors import InfraError
from envs.venvs import Venv, envs_dir, locked
from envs.worker import Limits, Pool, Program
from store.errors import UsageError

HERE = Path(__file__).parent
VENV = Venv(
    name="appworld",
    requirements=HERE / "requirements.txt",
    setup="import os, sys; os.environ['APPWORLD_CACHE'] = sys.prefix; "
    "from appworld.install import install_package; install_package()",
)
MARKER = "coevolve.json"
MINI = "mini"
"""How the ids of the small world's tasks begin."""
TRUTH = "ground_truth"
DOWNLOAD = (
    "import requests, appworld.download as d; requests.head(d.S3_BASE_URL, timeout=20).raise_for_status; "
    "d.download_data()"
)
DOWNLOAD_S = 1800
Data = Literal["download", "mini"]


@dataclass(frozen=True, slots=True)
class Place:
    root: Path

    @property
    def data(self) -> Data | None:
        """Which data is installed; None while it is not, or was made by another version of mini/."""
        try:
            found = json.loads((self.root / MARKER).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        kind: Data = found["data"]
        return kind if kind != "mini" or found["made_by"] == _mini_version() else None

    def need(self) -> Place:
        """Itself. UsageError unless engine and data are installed."""
        VENV.need()
        if self.data is None:
            raise UsageError(
                f"env 'appworld': there is no data in {self.root}; "
                f"run `coevolve env install appworld --root {self.root}`"
            )
        return self

    def install(self, data: Data | None = None) -> str:
        """What was done, in words. Without `data`, what is there stays; where nothing is, the official data is
        downloaded, and where that fails the small world is made; several processes may ask at once. InfraError where it
        can't be done."""
        VENV.install()
        with locked(self.root):
            if self.data is None or data not in (None, self.data):
                self._make(data)
        kind = "the official data" if self.data == "download" else "the small world"
        return f"appworld is installed in {VENV.folder}, {kind} in {self.root}"

    def _make(self, data: Data | None) -> None:
        if data == "mini" and self._official():
            raise UsageError(f"--data mini: {self.root} holds the official data; choose another folder with --root")
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / MARKER).unlink(missing_ok=True)
        if data != "mini" and not self._official() and not self._download():
            if data == "download":
                raise InfraError("env install appworld: the official data cannot be downloaded; --data mini needs none")
            data = "mini"
        data = data or "download"
        if data == "mini":
            shutil.rmtree(self.root / "data", ignore_errors=True)
            builder = self._pool("mini", self.root, Limits(request_s=600, memory_mb=4096, file_mb=256, processes=4096))
            builder.ask({"verb": "build"})
            builder.close()
        _without_truth(self.root / "data", self.root / "agent" / "data")
        part = self.root / f"{MARKER}.part"
        part.write_text(json.dumps({"data": data, "made_by": _mini_version()}), "utf-8")
        part.replace(self.root / MARKER)

    def _download(self) -> bool:
        environ = {**os.environ, **environment(self.root)}
        try:
            subprocess.run([VENV.python, "-c", DOWNLOAD], env=environ, timeout=DOWNLOAD_S, capture_output=True)
        except subprocess.TimeoutExpired:
            return False
        return self._official()

    def _official(self) -> bool:
        """Whether the official data is there, by whatever way it came."""
        train = self.root / "data" / "datasets" / "train.txt"
        return train.is_file() and not train.read_text("utf-8").startswith(MINI)

    def agents(self, limits: Limits | None = None) -> Pool:
        """Processes that run agents' code, without ground truth."""
        return self._pool("worker", self.root / "agent", limits or LIMITS)

    def evaluators(self, limits: Limits | None = None) -> Pool:
        """Processes that grade; no agent's code runs in them."""
        return self._pool("worker", self.root, limits or LIMITS)

    def _pool(self, module: str, root: Path, limits: Limits) -> Pool:
        return Pool(
            Program(
                python=VENV.need(),
                module=f"envs.appworld.{module}",
                environ=environment(root),
                limits=limits,
            )
        )


LIMITS = Limits(
    request_s=90,
    memory_mb=4096,
    file_mb=256,
    processes=4096,
    sessions=1000,
    crowd=4,
    workers=os.cpu_count() or 2,
    isolated=True,
)


def environment(root: Path) -> dict[str, str]:
    """All that the engine's processes have for an environment."""
    return {
        "APPWORLD_ROOT": str(root),
        "APPWORLD_CACHE": str(root / "cache"),
        "HOME": str(root),
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def default() -> Place:
    """The one of the last `coevolve env install appworld --root`, else one beside the venv."""
    note = envs_dir() / "appworld.root"
    return Place(Path(note.read_text("utf-8")) if note.is_file() else envs_dir() / "appworld-data")


def install(root: str | None, data: str | None) -> str:
    """Install there, and have it used from now on. UsageError for data that there is none of."""
    if data is not None and data not in get_args(Data):
        raise UsageError(f"--data {data}: choose from {', '.join(get_args(Data))}")
    place = Place(Path(root).expanduser().absolute()) if root else default()
    done = place.install(cast(Data | None, data))
    (envs_dir() / "appworld.root").write_text(str(place.root), "utf-8")
    return done


def _without_truth(data: Path, copy: Path) -> None:
    """Copies, no links: a link's target would tell where the ground truth is."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(data, copy, ignore=lambda _, names: [name for name in names if name == TRUTH])


def _mini_version() -> str:
    sources = sorted((HERE / "mini").glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
