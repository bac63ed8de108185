"""A refining job: one data set in, one out. DIR/refine/<id>/manifest.json holds what `--resume` must find unchanged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from coevolve.workspace import MANIFEST, RunFolder, Workspace, read_json, write_json
from graphs.sitting import Place, Said, place_of
from store.db import Store
from store.errors import CoevolveError, UsageError
from store.instructions import Format
from store.rows import Json, Refined, RefineRole, Remark

CHUNK = 512
"""Samples whose past is in memory at once."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    created_at: float
    source: str
    sha256: str
    form: Format
    target: str
    samples: int
    models: dict[RefineRole, str]
    settings: dict[str, Any]
    attempt: int = 0
    """Runs of the command before the present one."""
    finished: bool = False


FIXED = {"source": "IN", "sha256": "IN (its SHA-256)", "form": "--format", "models": "models", "settings": "[refine]"}
"""{field: what a person calls it} of what a job keeps."""


@dataclass(frozen=True)
class Job:
    path: Path

    @property
    def manifest(self) -> Manifest:
        """CoevolveError if it is damaged."""
        try:
            return msgspec.convert(read_json(self.path / MANIFEST), Manifest)
        except msgspec.ValidationError as error:
            raise CoevolveError(f"{self.path / MANIFEST} is damaged: {error}") from error

    def write(self, manifest: Manifest) -> Manifest:
        write_json(self.path / MANIFEST, msgspec.to_builtins(manifest))
        return manifest

    @contextmanager
    def locked(self) -> Iterator[None]:
        """CoevolveError if another process is at work on the job."""
        with RunFolder(self.path).locked("refine"):
            yield


def jobs(place: Workspace) -> list[Job]:
    """All jobs, oldest first."""
    return [Job(path.parent) for path in sorted((place.root / "refine").glob(f"*/{MANIFEST}"))]


def find(place: Workspace, given: str | None) -> Job:
    """The named job, or the newest. UsageError if there is none."""
    found = {job.path.name: job for job in jobs(place)}
    if not found:
        raise UsageError(f"job: {place.root} has refined no data set yet; run `coevolve refine IN --out OUT ...`")
    if given is not None and given not in found:
        raise UsageError(f"job: no job {given!r}; there are {', '.join(found)}")
    return found[given] if given else list(found.values())[-1]


def writing_to(place: Workspace, target: Path) -> Job | None:
    """The newest job whose output is `target`."""
    return next((job for job in reversed(jobs(place)) if job.manifest.target == str(target)), None)


def create(place: Workspace, wanted: Manifest) -> Job:
    """A new numbered folder with its manifest."""
    root = place.root / "refine"
    number = len(list(root.glob("d*"))) + 1
    while True:
        folder = root / f"d{number:03d}"
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
    job = Job(folder)
    job.write(msgspec.structs.replace(wanted, id=folder.name, created_at=time.time()))
    return job


def differing(old: Manifest, new: Manifest) -> str:
    """What a resumed job would find changed, in words; "" = nothing."""
    for field, name in FIXED.items():
        before, now = getattr(old, field), getattr(new, field)
        if before != now:
            return f"{name}: {_difference(before, now)}"
    return ""


def _difference(before: Json, now: Json) -> str:
    if isinstance(before, dict):
        changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        before, now = ({key: each.get(key) for key in changed} for each in (before, now))
    return f"it was {before}, now it is {now}"


class Past:
    """What the store has of the samples of a job, a chunk at a time: they are asked for in order."""

    def __init__(self, store: Store, job: str) -> None:
        self._store, self._job = store, job
        self._chunk = -1
        self._done: dict[int, Refined] = {}
        self._said: dict[int, dict[Place, Remark]] = {}

    def __call__(self, sample: int) -> tuple[Refined | None, Said]:
        if sample // CHUNK != self._chunk:
            self._load(sample // CHUNK)
        return self._done.get(sample), self._said.get(sample, {})

    def _load(self, chunk: int) -> None:
        self._chunk = chunk
        where = "job = $job and sample between $first and $last"
        values = {"job": self._job, "first": chunk * CHUNK, "last": (chunk + 1) * CHUNK - 1}
        done = f"{where} and outcome <> 'failed'"
        with self._store.reading():
            self._done = {row.sample: row for row in self._store.rows(Refined, done, values)}
            left = f"{where} and sample not in (select sample from refined where {done})"
            self._said = {}
            for row in self._store.rows(Remark, left, values):
                self._said.setdefault(row.sample, {})[place_of(row)] = row


def spent(store: Store, job: str) -> tuple[int, float]:
    """(tokens, US dollars) of the job so far."""
    ((tokens, cost),) = store.query(
        "select coalesce(sum(prompt_tokens + completion_tokens), 0)::bigint, coalesce(sum(cost), 0)::double "
        "from remark where job = ?",
        [job],
    )
    return int(tokens), float(cost)
