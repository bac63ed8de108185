"""The folders of GRPO's optimiser steps: `checkpoint-<step>/` holds what the trainer saves and, written last, a cursor.

A step without a readable cursor, or whose files are not those that the cursor names, was cut off and does not count.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from training.folders import MANIFEST, Files, differences, fingerprints
from training.groups import Tally

CURSOR = "cursor.json"


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """Written last into the folder of a step: where the data stood when its weights were made."""

    step: int
    """Optimiser steps of the run."""
    tally: Tally
    files: Files


def finish_step(folder: Path, step: int, tally: Tally) -> None:
    """Write the cursor, last, and remove the step before."""
    for name in ("README.md", "pytorch_model_fsdp.bin"):  # FSDP writes the weights twice
        (folder / name).unlink(missing_ok=True)
    cursor = Cursor(step=step, tally=tally, files=fingerprints(folder))
    (folder / CURSOR).write_bytes(msgspec.json.encode(cursor))
    for other in folder.parent.glob("checkpoint-*"):
        if other != folder:
            shutil.rmtree(other)


def newest_step(scratch: Path) -> tuple[Path, Cursor] | None:
    """The newest step whose folder is complete."""
    found: list[tuple[Path, Cursor]] = []
    for path in scratch.glob(f"checkpoint-*/{CURSOR}"):
        try:
            cursor = msgspec.json.decode(path.read_bytes(), type=Cursor)
        except (OSError, msgspec.MsgspecError):
            continue
        if not differences(path.parent, cursor.files, deep=True):
            found.append((path.parent, cursor))
    return max(found, key=lambda pair: pair[1].step, default=None)


def copy_step(step: Path, folder: Path) -> None:
    """Everything that a later iteration goes on from: weights, optimiser, scheduler, RNG, trainer state."""
    for path in step.iterdir():
        if path.is_file() and path.name not in (CURSOR, MANIFEST):
            shutil.copy2(path, folder / path.name)


def steps_of(folder: Path | None) -> int:
    """Optimiser steps in a saved trainer state."""
    if folder is None:
        return 0
    return int(msgspec.json.decode((folder / "trainer_state.json").read_bytes())["global_step"])
