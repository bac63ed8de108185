"""Folders that are complete or not there: built beside their place, manifest written last, published by a rename."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MANIFEST = "manifest.json"

Files = dict[str, tuple[int, str]]
"""{file name: (bytes, SHA-256)}."""


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A work folder that becomes `folder` when the block ends; if the block raises, nothing is left of it.

    A `folder` that was published meanwhile by another process is kept, and the work dropped.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    work = folder.parent / f".{folder.name}.{uuid.uuid4().hex}"
    work.mkdir()
    try:
        yield work
        for path in work.iterdir():
            _sync(path)
        _sync(work)
        if not (folder / MANIFEST).is_file():
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
            _sync(folder.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def fingerprints(folder: Path) -> Files:
    """Size and hash of each file in `folder`."""
    return {path.name: (path.stat().st_size, sha256(path)) for path in sorted(folder.iterdir())}


def differences(folder: Path, files: Files, *, deep: bool) -> list[str]:
    """Where `folder` differs from its manifest: in sizes and, if `deep`, in hashes. [] = nowhere."""
    found: list[str] = []
    for name, (size, digest) in files.items():
        path = folder / name
        if not path.is_file():
            found.append(f"{path} is missing")
        elif path.stat().st_size != size:
            found.append(f"{path} has {path.stat().st_size} bytes instead of {size}")
        elif deep and sha256(path) != digest:
            found.append(f"{path} has another SHA-256 than its manifest says")
    return found


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sweep(folder: Path) -> None:
    """Remove what killed processes left of earlier tries; nobody needs an hour for one."""
    for rest in folder.parent.glob(f".{folder.name}.*"):
        if time.time() - rest.stat().st_mtime > 3600:
            shutil.rmtree(rest, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
