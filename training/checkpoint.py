"""Checkpoints of a run: `checkpoints/<version>/` holds an adapter, or all weights, and, written last, its manifest."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from safetensors import SafetensorError

from store.errors import StoreError, UsageError
from store.rows import Json
from training.config import TrainedWeights
from training.folders import MANIFEST, Files, building, differences, fingerprints


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What made a version of the policy."""

    run: str
    version: int
    base: str
    """Spec of the base model."""
    parent: int | None
    """The version that was trained further; None = the base model."""
    snapshot: str | None
    """Id of the snapshot that it was trained on; None for the base model itself."""
    adapter: bool
    """The folder has an adapter. Neither this nor `full`: the version has the weights of what it stands `on`."""
    full: bool = False
    """The folder has all weights of the model."""
    on: int | None = None
    """The version whose weights this one was trained on; None = the base model itself. For GRPO that is version 0
    throughout the run: it is the fixed reference of the KL term."""
    steps: int = 0
    """Optimiser steps of the run until here, the warm start's not counted."""
    counts: dict[str, Json]
    """What `train` reported when it made it."""
    created_at: float = msgspec.field(default_factory=time.time)
    files: Files = {}

    @property
    def weights(self) -> TrainedWeights | None:
        """What it has of its own."""
        return "full" if self.full else "lora" if self.adapter else None


def publish(root: Path, checkpoint: Checkpoint, write: Callable[[Path], None] | None = None) -> Path:
    """Publish a version; `write` saves its weights into a folder. StoreError if the disk does not take it."""
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


def layers(root: Path, version: int) -> list[Path]:
    """The folders that make the version of the base model (training/model.py). StoreError if one is not there."""
    checkpoint = required(root, version)
    own = [root / str(version)] if checkpoint.weights else []
    below = [] if checkpoint.full or checkpoint.on is None else layers(root, checkpoint.on)
    return [*below, *own]


def refuse_other(weights: TrainedWeights, found: TrainedWeights | None, place: Path) -> None:
    """UsageError where the weights in `place` are not of the kind that is to be trained."""
    if found and found != weights:
        raise UsageError(
            f"train.weights = {weights!r}: {place} has {found!r}, and the one does not go on from the other; go on "
            "with that, or start a new run"
        )


def newest(root: Path) -> int | None:
    """The highest published version, None if there is none."""
    complete = [int(path.parent.name) for path in root.glob(f"*/{MANIFEST}") if path.parent.name.isdecimal()]
    return max(complete, default=None)
