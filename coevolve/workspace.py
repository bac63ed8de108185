"""Where things lie: a workspace folder and the runs in it.

DIR/config.toml                      settings, commented
DIR/store/                           journal, index (see store/)
DIR/runs/<id>/config.json            the resolved settings of the run
DIR/runs/<id>/manifest.json          id, versions, rounds asked for
DIR/runs/<id>/snapshots/             D_0, D_1, ... and LATEST
DIR/runs/<id>/checkpoints/<version>/ policy versions
DIR/runs/<id>/graphs.sqlite          LangGraph checkpoints
DIR/evals/<id>/config.json           the resolved settings of an evaluation without a run
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from store.errors import CoevolveError, UsageError

if TYPE_CHECKING:
    from store.db import Store

CONFIG = "config.toml"
MANIFEST = "manifest.json"
LOOP = "evolve"
"""The lock of `evolve`, the phases that it does in its own process, and mending: one of them at a time on a run."""


@dataclass(frozen=True)
class Workspace:
    root: Path

    @staticmethod
    def find(given: str | None) -> Workspace:
        """The given folder, else the nearest folder upward that has a config.toml. UsageError if there is none."""
        start = Path(given or os.environ.get("COEVOLVE_WORKSPACE") or ".").resolve()
        candidates = [start] if given or os.environ.get("COEVOLVE_WORKSPACE") else [start, *start.parents]
        if str(start) != str(start).encode(errors="replace").decode():
            raise UsageError(f"workspace: the path {str(start)!a} is not UTF-8; rename the folder")
        for folder in candidates:
            if (folder / CONFIG).is_file():
                return Workspace(folder)
        raise UsageError(
            f"workspace: no {CONFIG} in {start}; make one with `coevolve init DIR`, or pass --workspace DIR"
        )

    @property
    def config(self) -> Path:
        return self.root / CONFIG

    @cached_property
    def store(self) -> Store:
        from store.db import Store

        return Store(self.root / "store")

    def run_ids(self) -> list[str]:
        return sorted(path.parent.name for path in (self.root / "runs").glob(f"*/{MANIFEST}"))

    def run(self, given: str | None = None) -> RunFolder:
        """The named run, or the newest. UsageError if there is none."""
        ids = self.run_ids()
        if not ids:
            raise UsageError(f"run: {self.root} has no run yet; start one with `coevolve evolve` or `coevolve seed`")
        if given is None:
            return max(map(self._folder, ids), key=lambda run: (run.manifest["created_at"], run.id))
        if given not in ids:
            raise UsageError(f"run: no run {given!r}; there are {', '.join(ids)}")
        return self._folder(given)

    def _folder(self, run: str) -> RunFolder:
        return RunFolder(self.root / "runs" / run)

    def evaluation(self, name: str, config: dict[str, Any]) -> RunFolder:
        """The folder of an evaluation that belongs to no run."""
        folder = self.root / "evals" / name
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", config)
        return RunFolder(folder)

    def create_run(self, config: dict[str, Any]) -> RunFolder:
        """A new numbered folder. It is a run once it has its manifest, which is to be written last (`update`).

        The rows of a run whose folder was deleted are still there: its number is not given again.
        """
        names = [path.name for path in (self.root / "runs").glob("r*")]
        names += [name for (name,) in self.store.query("select id from run")]
        numbers = [int(m[1]) for name in names if (m := re.fullmatch(r"r(\d+)", name))]
        number = max(numbers, default=0) + 1
        while True:
            folder = self.root / "runs" / f"r{number:03d}"
            try:
                folder.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
        write_json(folder / "config.json", config)
        return RunFolder(folder)


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def manifest(self) -> dict[str, Any]:
        """CoevolveError if it is damaged."""
        found = read_json(self.path / MANIFEST)
        wanted = {"created_at": float, "rounds": int}
        if not isinstance(found, dict) or not all(isinstance(found.get(key), kind) for key, kind in wanted.items()):
            raise CoevolveError(f"{self.path / MANIFEST} is damaged: it needs the numbers {', '.join(wanted)}")
        return found

    def update(self, **manifest: Any) -> None:
        """Write these entries of the manifest; the others stay."""
        path = self.path / MANIFEST
        write_json(path, {"id": self.id, **(self.manifest if path.exists() else {}), **manifest})

    @property
    def snapshots(self) -> Path:
        return self.path / "snapshots"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def graphs(self) -> Path:
        return self.path / "graphs.sqlite"

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Held while `what` changes this run; a second process is refused at once and told who holds it."""
        path = self.path / f".{what}.lock"
        with path.open("a+") as file:
            try:
                _flock(file)
            except OSError:
                file.seek(0)
                raise CoevolveError(
                    f"run {self.id}: another process is at work on it (PID {file.read().strip() or '?'}); "
                    "wait for it, or stop it"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def holder(self, what: str) -> int | None:
        """The PID of the process that does `what` on this run; None if there is none."""
        try:
            with (self.path / f".{what}.lock").open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return int(file.read().strip() or 0)
        except FileNotFoundError:
            pass
        return None


def _flock(file: IO[str]) -> None:
    """Lock the file; OSError if another process has it. `holder` may have it for a moment, so that is waited out."""
    for _ in range(5):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_json(path: Path) -> Any:
    """The JSON document at `path`; CoevolveError that names the file if it is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CoevolveError(f"{path}: {error}") from error


def write_json(path: Path, value: Any) -> None:
    """Write by rename, so that a reader sees the old document or the new one, never half of it."""
    temporary = path.with_suffix(f".tmp{os.getpid()}")
    with temporary.open("w") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
