"""Snapshots: D_t frozen to Parquet, the only thing that a trainer reads.

    directory/LATEST                    name of the newest snapshot
    directory/<t>-<id>/tasks.parquet    the tasks, in training order
    directory/<t>-<id>/manifest.json    written last

A snapshot appears by one rename of a finished folder, so whoever sees it sees all of it, and it never changes.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from store.errors import StoreError, UsageError
from store.rows import Snapshot, Task, snapshot_id, task_id

_TASKS, _MANIFEST, _LATEST = "tasks.parquet", "manifest.json", "LATEST"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """Hash of the content: the ids of the tasks, in order."""
    run: str
    t: int
    n: int
    """Tasks."""
    sha256: str
    """Of tasks.parquet."""
    created_at: float
    """Unix seconds."""


def freeze(directory: Path, run: str, t: int, tasks: Iterable[Task]) -> Snapshot:
    """Publish the tasks as D_t and point LATEST at it. The same again is harmless.

    UsageError if there is no task, if one occurs twice, or if another D_t is published; StoreError if the disk
    refuses.
    """
    tasks = list(tasks)
    ids = [task.id for task in tasks]
    _check_ids(t, ids)
    published = next(iter(_find(directory, f"{t}-*")), None)
    if published is not None and published.name != f"{t}-{snapshot_id(ids)}":
        raise UsageError(
            f"snapshot t = {t}: {published.name} is published already and never changes, got {t}-{snapshot_id(ids)}; "
            "freeze under the next t"
        )
    try:
        if published is None:
            published = _publish(directory, run, t, tasks)
        _point(directory, published.name)
    except OSError as error:
        raise StoreError(f"cannot write a snapshot to {directory}: {error.strerror or error}") from error
    return load(published)[0]


def load(path: Path, ref: str | int = "latest") -> tuple[Snapshot, list[Task]]:
    """A snapshot and its tasks, verified. `path` is a snapshot's folder, or the directory of all and `ref` one of them:
    `latest`, a t, an id, or a folder's name.

    UsageError if there is none such; another, naming what differs, if it is not what was frozen.
    """
    folder = path if (path / _TASKS).exists() or (path / _MANIFEST).exists() else _resolve(path, str(ref))
    manifest = _manifest(folder)
    tasks = _tasks(folder, manifest)
    if not tasks:
        raise UsageError(f"snapshot {folder}: D_{manifest.t} is empty; add seed tasks or explore first")
    found = snapshot_id([task.id for task in tasks])
    if found != manifest.id:
        raise _differs(folder, "content hash", manifest.id, found)
    return Snapshot(
        id=manifest.id,
        run=manifest.run,
        t=manifest.t,
        task_ids=[task.id for task in tasks],
        created_at=manifest.created_at,
    ), tasks


def read_tasks(path: Path) -> list[Task]:
    """Tasks of a JSON-lines file, one Task row a line; an `id` may be left out, a given one is verified.

    UsageError names line and field of the first bad line.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"task file {path}: {error.strerror}; give a JSON-lines file of tasks") from error
    tasks = [_parse(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not tasks:
        raise UsageError(f"task file {path}: no task in it; give one JSON object a line")
    return tasks


def _check_ids(t: int, ids: Sequence[str]) -> None:
    if not ids:
        raise UsageError(f"snapshot t = {t}: D_{t} is empty; add seed tasks or explore first")
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            raise UsageError(f"snapshot t = {t}: task {each} occurs twice; give each task once")
        seen.add(each)


def _publish(directory: Path, run: str, t: int, tasks: list[Task]) -> Path:
    from pyarrow import parquet

    from store.arrow import to_arrow

    manifest_id = snapshot_id([task.id for task in tasks])
    folder = directory / f"{t}-{manifest_id}"
    draft = directory / f".draft-{os.getpid()}-{secrets.token_hex(4)}"
    draft.mkdir(parents=True)
    try:
        parquet.write_table(to_arrow(Task, tasks), draft / _TASKS)
        _sync(draft / _TASKS)
        manifest = Manifest(
            id=manifest_id,
            run=run,
            t=t,
            n=len(tasks),
            sha256=_sha256(draft / _TASKS),
            created_at=time.time(),
        )
        (draft / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        _sync(draft / _MANIFEST)
        _sync(draft)
        draft.rename(folder)
        _sync(directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _point(directory: Path, name: str) -> None:
    """Replace LATEST by rename, so that it names a whole snapshot at every moment."""
    draft = directory / f".latest-{os.getpid()}-{secrets.token_hex(4)}"
    draft.write_text(name + "\n")
    _sync(draft)
    draft.replace(directory / _LATEST)
    _sync(directory)


def _resolve(directory: Path, ref: str) -> Path:
    if not directory.is_dir():
        raise UsageError(f"snapshot {directory}: no such folder; run `coevolve seed` first")
    if ref == "latest":
        pointer = directory / _LATEST
        if not pointer.exists():
            raise UsageError(f"snapshot latest: none in {directory}; run `coevolve seed` first")
        ref = pointer.read_text(errors="replace").strip()
    names = [folder.name for folder in _find(directory, "*")]
    matches = [name for name in names if ref in (name, *name.split("-", 1))]
    if len(matches) != 1:
        problem = f"matches {', '.join(matches)}" if matches else "does not exist"
        raise UsageError(
            f"snapshot {ref}: {problem} in {directory}; give one of latest, {', '.join(names) or '(none)'}"
        )
    return directory / matches[0]


def _find(directory: Path, pattern: str) -> list[Path]:
    """Published folders, oldest t first."""
    folders = [path for path in directory.glob(pattern) if path.is_dir() and path.name.split("-")[0].isdigit()]
    return sorted(folders, key=lambda path: int(path.name.split("-")[0]))


def _manifest(folder: Path) -> Manifest:
    path = folder / _MANIFEST
    if not path.exists():
        raise UsageError(f"snapshot {folder}: {_MANIFEST} is missing, so it is not whole; freeze it again")
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise UsageError(f"snapshot {folder}: {_MANIFEST} is damaged ({error}); restore it or freeze again") from error


def _tasks(folder: Path, manifest: Manifest) -> list[Task]:
    from pyarrow import parquet

    from store.arrow import from_tuples

    path = folder / _TASKS
    if not path.exists():
        raise UsageError(f"snapshot {folder}: {_TASKS} is missing; restore it or freeze again")
    found = _sha256(path)
    if found != manifest.sha256:
        raise _differs(folder, f"sha256 of {_TASKS}", manifest.sha256, found)
    columns = parquet.read_table(path).to_pydict()
    return list(from_tuples(Task, zip(*columns.values(), strict=True)))


def _differs(folder: Path, what: str, manifest: str, found: str) -> UsageError:
    return UsageError(
        f"snapshot {folder}: {what} is {found}, its manifest says {manifest}: it was changed after it was frozen; "
        "restore it or freeze again"
    )


def _parse(path: Path, number: int, line: bytes) -> Task:
    where = f"task file {path}, line {number}"
    try:
        content = msgspec.json.decode(line)
        if not isinstance(content, dict):
            raise UsageError(
                f"{where}: expected a JSON object with the fields of Task, got {line[:60].decode(errors='replace')}"
            )
        given = content.get("id")
        task = msgspec.convert({**content, "id": given or ""}, Task)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{where}: {error}; correct that field") from error
    right = task_id(
        env=task.env,
        env_version=task.env_version,
        world=task.world,
        user_turns=task.user_turns,
        tools=task.tools,
        reference=task.reference,
        expected=task.expected,
    )
    if given not in (None, right):
        raise UsageError(f"{where}: id is {given}, its content has {right}; leave id out or correct it")
    return replace(task, id=right)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
