"""Venvs of benchmarks whose packages cannot live beside ours: made once, shared by all workspaces.

A venv lies in `<envs>/<name>-<hash of requirements and Python>`; its marker is written last, so one without a marker
was interrupted, and is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from envs.errors import InfraError
from store.errors import UsageError
from store.places import cache_dir

MARKER = "coevolve-complete"


@dataclass(frozen=True, kw_only=True, slots=True)
class Venv:
    name: str
    """Of the environment."""
    requirements: Path
    """A complete requirements file, every version pinned."""
    setup: str = ""
    """Python that the venv's interpreter runs once, after pip."""

    @property
    def folder(self) -> Path:
        pinned = self.requirements.read_bytes() + self.setup.encode() + sys.version.encode()
        return envs_dir() / f"{self.name}-{hashlib.sha256(pinned).hexdigest()[:12]}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def installed(self) -> bool:
        return (self.folder / MARKER).is_file() and self.python.exists()

    def need(self) -> Path:
        """Its interpreter. UsageError unless it is installed."""
        if not self.installed:
            raise UsageError(
                f"env {self.name!r}: its packages are not installed; run `coevolve env install {self.name}`"
            )
        return self.python

    def install(self) -> Path:
        """Its folder, made unless it is there; several processes may ask at once. InfraError where pip fails."""
        with locked(self.folder) as lock:
            if not self.installed:
                self._make(lock)
        return self.folder

    def _make(self, lock: int) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        _run(
            [sys.executable, "-m", "venv", str(self.folder)], f"env install {self.name}: the venv cannot be made", lock
        )
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
        hint = "see that pip reaches an index (PIP_INDEX_URL names another one), and run the same command again"
        _run(
            [*pip, "--no-deps", "-r", str(self.requirements)],
            f"env install {self.name}: pip cannot install {self.requirements.name}; {hint}",
            lock,
        )
        if self.setup:
            _run([str(self.python), "-c", self.setup], f"env install {self.name}: it cannot be set up", lock)
        part = self.folder / f"{MARKER}.part"
        part.write_bytes(self.requirements.read_bytes())
        part.replace(self.folder / MARKER)


def envs_dir() -> Path:
    """$COEVOLVE_ENVS, else `envs` in the cache (store/places.py)."""
    own = os.environ.get("COEVOLVE_ENVS")
    return Path(own).expanduser().absolute() if own else cache_dir().absolute() / "envs"


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Whoever installs in the folder waits here for another process that does; the lock's file descriptor."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _run(command: list[str], problem: str, lock: int) -> None:
    """InfraError with the first error that the command said.

    The command holds the lock too: should this process be killed, nobody else writes there until it has ended."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", pass_fds=[lock])
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR:")] or said
        raise InfraError(f"{problem}: {errors[0] if errors else f'exit code {done.returncode}'}")
