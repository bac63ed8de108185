"""Snapshots: D_t frozen to Parquet, the only thing that a trainer reads.

    directory/LATEST                    name of the newest snapshot
    directory/<t>-<id>/tasks.parquet    the tasks, in training order
    directory/<t>-<id>/manifest.json    written last
    directory/damaged-<t>-<id>-*/       moved aside when it was made again

A snapshot appears by one rename of a finished folder, so whoever sees it sees all of it, and it never changes.
What is lost or damaged is made again from the rows of the store (`fault`, `restore`, `point`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from store.errors import StoreError, UsageError
from store.rows import Json, Snapshot, Task, snapshot_id, task_id

_TASKS, _MANIFEST, _LATEST = "tasks.parquet", "manifest.json", "LATEST"
_RUN = "run `coevolve db rebuild`"
_FIX = f"{_RUN}, which freezes it again from the store"


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
    mix: Json = None
    """How the tasks are sampled; not part of the id (store/mix.py)."""


def freeze(directory: Path, run: str, t: int, tasks: Iterable[Task], mix: Json = None) -> Snapshot:
    """Publish the tasks as D_t, with how they are sampled, and point LATEST at it. The same again is harmless.

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
    with _writing(directory):
        if published is None:
            published = _publish(directory, run, t, tasks, time.time(), mix)
        _point(directory, published.name)
    return load(published)[0]


def load(path: Path, ref: str | int = "latest") -> tuple[Snapshot, list[Task]]:
    """A snapshot and its tasks, verified. `path` is a snapshot's folder, or the directory of all and `ref` one of them:
    `latest`, a t, an id, or a folder's name.

    UsageError if there is none such; another, naming what differs, if it is not what was frozen.
    """
    folder = path if (path / _TASKS).exists() or (path / _MANIFEST).exists() else _resolve(path, str(ref))
    try:
        manifest = _manifest(folder)
        tasks = _tasks(folder, manifest)
    except OSError as error:
        raise UsageError(f"snapshot {folder} cannot be read ({error.strerror or error}); {_FIX}") from error
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
        mix=manifest.mix,
    ), tasks


def frozen(directory: Path, t: int) -> bool:
    """Whether D_t is published."""
    return any((folder / _MANIFEST).is_file() for folder in _find(directory, f"{t}-*"))


def fault(directory: Path, row: Snapshot) -> str:
    """Why `load` does not give D_t as the store's row has it; empty if it does."""
    folder = directory / f"{row.t}-{row.id}"
    if not folder.is_dir():
        return f"snapshot {folder} does not exist; {_FIX}"
    try:
        found, _ = load(directory, row.t)
    except UsageError as error:
        return str(error)
    if (found.id, found.run, found.t) != (row.id, row.run, row.t):
        return f"snapshot {folder}: its manifest says D_{found.t} of run {found.run}, id {found.id}; {_FIX}"
    return ""


def restore(directory: Path, row: Snapshot, tasks: Sequence[Task]) -> None:
    """Publish D_t again from rows of the store; what stands in its place is moved aside and kept.

    UsageError, and nothing is touched, if the tasks are not those that were frozen.
    """
    found = snapshot_id([_content_id(task) for task in tasks])
    if found != row.id:
        raise UsageError(
            f"snapshot {directory / f'{row.t}-{row.id}'}: the store has {len(tasks)} of its {len(row.task_ids)} tasks, "
            f"their content hash is {found}, not {row.id}; bring the folder back from a copy"
        )
    with _writing(directory):
        for path in directory.glob(f"{row.t}-*"):
            path.rename(directory / f"damaged-{path.name}-{secrets.token_hex(4)}")
        _publish(directory, row.run, row.t, list(tasks), row.created_at, row.mix)


def pointer_fault(directory: Path, newest: Snapshot) -> str:
    """Why LATEST does not lead to the newest snapshot; empty if it does, or to one that the store has no row of yet."""
    try:
        name = (directory / _LATEST).read_text(errors="replace").strip()
    except OSError:
        name = ""
    known = [f"{newest.t}-{newest.id}", *(folder.name for folder in _find(directory, "*"))]
    if name in known and _t(name) >= newest.t:
        return ""
    return f"snapshot {directory / _LATEST} does not name D_{newest.t}; {_RUN}, which sets it again"


def point(directory: Path, row: Snapshot) -> None:
    """Let LATEST name this snapshot."""
    with _writing(directory):
        _point(directory, f"{row.t}-{row.id}")


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


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write a snapshot to {directory}: {error.strerror or error}") from error


def _publish(directory: Path, run: str, t: int, tasks: list[Task], created_at: float, mix: Json) -> Path:
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
            created_at=created_at,
            mix=mix,
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
        raise UsageError(f"snapshot {directory}: no such folder; run `coevolve seed` first, or if it is lost {_RUN}")
    if ref == "latest":
        pointer = directory / _LATEST
        if not pointer.is_file():
            raise UsageError(
                f"snapshot latest: none in {directory}; run `coevolve seed` first, or if it is lost {_RUN}"
            )
        ref = pointer.read_text(errors="replace").strip()
    names = [folder.name for folder in _find(directory, "*")]
    matches = [name for name in names if ref in (name, *name.split("-", 1))]
    if len(matches) != 1:
        problem = f"matches {', '.join(matches)}" if matches else "does not exist"
        raise UsageError(
            f"snapshot {ref}: {problem} in {directory}; give one of latest, {', '.join(names) or '(none)'}, or if it "
            f"is lost {_RUN}"
        )
    return directory / matches[0]


def _find(directory: Path, pattern: str) -> list[Path]:
    """Published folders, oldest t first."""
    folders = [path for path in directory.glob(pattern) if path.is_dir() and path.name.split("-")[0].isdigit()]
    return sorted(folders, key=lambda path: _t(path.name))


def _t(name: str) -> int:
    return int(name.split("-")[0])


def _manifest(folder: Path) -> Manifest:
    path = folder / _MANIFEST
    if not path.exists():
        raise UsageError(f"snapshot {folder}: {_MANIFEST} is missing, so it is not whole; {_FIX}")
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise UsageError(f"snapshot {folder}: {_MANIFEST} is damaged ({error}); {_FIX}") from error


def _tasks(folder: Path, manifest: Manifest) -> list[Task]:
    from pyarrow import parquet

    from store.arrow import from_tuples

    path = folder / _TASKS
    if not path.exists():
        raise UsageError(f"snapshot {folder}: {_TASKS} is missing; {_FIX}")
    found = _sha256(path)
    if found != manifest.sha256:
        raise _differs(folder, f"sha256 of {_TASKS}", manifest.sha256, found)
    columns = parquet.read_table(path).to_pydict()
    return list(from_tuples(Task, zip(*columns.values(), strict=True)))


def _differs(folder: Path, what: str, manifest: str, found: str) -> UsageError:
    return UsageError(
        f"snapshot {folder}: {what} is {found}, its manifest says {manifest}: it was changed after it was frozen; "
        f"{_FIX}"
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
    right = _content_id(task)
    if given not in (None, right):
        raise UsageError(f"{where}: id is {given}, its content has {right}; leave id out or correct it")
    return replace(task, id=right)


def _content_id(task: Task) -> str:
    """The id that the task's content has, whatever its row says."""
    return task_id(
        env=task.env,
        env_version=task.env_version,
        world=task.world,
        user_turns=task.user_turns,
        tools=task.tools,
        reference=task.reference,
        expected=task.expected,
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
