"""Checkpoints of a run: `checkpoints/<version>/` holds a LoRA adapter and, written last, its manifest."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from safetensors import SafetensorError

from store.errors import StoreError
from store.rows import Json
from training.folders import MANIFEST, Files, building, differences, fingerprints


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What made a version of the policy."""

    run: str
    version: int
    base: str
    """Spec of the base model."""
    parent: int | None
    """The version whose adapter was trained further; None = a fresh adapter."""
    snapshot: str | None
    """Id of the snapshot that it was trained on; None for the base model itself."""
    adapter: bool
    """False: this version has the weights of what it stands `on`, unchanged."""
    on: int | None = None
    """The version whose merged weights this adapter was trained on; None = the base model itself. For GRPO that is
    version 0 throughout the run: it is the fixed reference of the KL term."""
    steps: int = 0
    """Optimiser steps of the run until here, the warm start's not counted."""
    counts: dict[str, Json]
    """What `train` reported when it made it."""
    created_at: float = msgspec.field(default_factory=time.time)
    files: Files = {}


def publish(root: Path, checkpoint: Checkpoint, write: Callable[[Path], None] | None = None) -> Path:
    """Publish a version; `write` saves the adapter's files into a folder. StoreError if the disk does not take it."""
    folder = root / str(checkpoint.version)
    try:
        with building(folder) as work:
            if write:
                write(work)
            complete = msgspec.structs.replace(checkpoint, files=fingerprints(work))
            (work / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(complete)))
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"checkpoint {folder} could not be written ({error}); free space and run again with --resume"
        ) from error
    return folder


def load(root: Path, version: int) -> Checkpoint | None:
    """The manifest of a version, its files verified; None if there is no such version. StoreError if it is damaged."""
    folder = root / str(version)
    try:
        checkpoint = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Checkpoint)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"checkpoint {folder} is damaged ({error}); delete it and train again") from error
    if wrong := differences(folder, checkpoint.files, deep=True):
        raise StoreError(f"checkpoint {folder} is damaged ({wrong[0]}); delete it and train again")
    return checkpoint


def required(root: Path, version: int) -> Checkpoint:
    """The manifest of a version that must be there. StoreError if it is not."""
    checkpoint = load(root, version)
    if checkpoint is None:
        raise StoreError(f"checkpoint {root / str(version)} does not exist; train iteration {version - 1} first")
    return checkpoint


def adapters(root: Path, version: int) -> list[Path]:
    """The adapter folders to be merged into the base model, in this order. StoreError if a version is not there."""
    checkpoint = required(root, version)
    below = [] if checkpoint.on is None else adapters(root, checkpoint.on)
    return [*below, root / str(version)] if checkpoint.adapter else below


def newest(root: Path) -> int | None:
    """The highest published version, None if there is none."""
    complete = [int(path.parent.name) for path in root.glob(f"*/{MANIFEST}") if path.parent.name.isdecimal()]
    return max(complete, default=None)
