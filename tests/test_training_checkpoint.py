"""Checkpoints are complete or not there: half-written, damaged and missing ones are told apart."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store.errors import StoreError
from training import checkpoint
from training.checkpoint import Checkpoint
from training.folders import MANIFEST


def a_version(version: int, *, adapter: bool = True) -> Checkpoint:
    return Checkpoint(
        run="r",
        version=version,
        base="smollm2",
        parent=version - 1 if version else None,
        snapshot="abc",
        adapter=adapter,
        counts={"loss": 0.5},
    )


def weights(folder: Path) -> None:
    (folder / "adapter_model.safetensors").write_bytes(b"weights")


def test_a_published_version_is_read_back(tmp_path: Path) -> None:
    checkpoint.publish(tmp_path, a_version(0), weights)
    read = checkpoint.load(tmp_path, 0)
    assert read is not None
    assert (read.run, read.version, read.snapshot, read.counts) == ("r", 0, "abc", {"loss": 0.5})
    assert list(read.files) == ["adapter_model.safetensors"]
    assert checkpoint.layers(tmp_path, 0) == [tmp_path / "0"]


def test_the_base_model_is_a_version_without_adapter(tmp_path: Path) -> None:
    checkpoint.publish(tmp_path, a_version(0, adapter=False))
    assert checkpoint.layers(tmp_path, 0) == []


def test_the_newest_version_is_the_highest_complete_one(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "nowhere") is None
    for version in (2, 10, 9):
        checkpoint.publish(tmp_path, a_version(version), weights)
    (tmp_path / "11").mkdir()
    (tmp_path / ".12.half").mkdir()
    (tmp_path / ".12.half" / MANIFEST).touch()
    assert checkpoint.newest(tmp_path) == 10


def test_a_missing_version_says_which_iteration_makes_it(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path, 3) is None
    with pytest.raises(StoreError, match="3 does not exist; train iteration 2 first"):
        checkpoint.layers(tmp_path, 3)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def full(folder: Path) -> None:
        weights(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match=r"No space left on device.*--resume"):
        checkpoint.publish(tmp_path, a_version(1), full)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_the_adapter_is_saved_is_one_clear_error(tmp_path: Path) -> None:
    program = f"""
import resource, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from store.errors import StoreError
from tests.test_training_checkpoint import a_version
from training import checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write = lambda folder: save_file({{"w": torch.zeros(10_000)}}, folder / "adapter_model.safetensors")
try:
    checkpoint.publish(Path({str(tmp_path)!r}), a_version(1), write)
except StoreError as error:
    sys.exit(0 if "could not be written" in str(error) else 3)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent.parent, check=False)
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [b"weightz", b"weight", None])
def test_damaged_weights_are_found_before_they_are_loaded(tmp_path: Path, damage: bytes | None) -> None:
    file = checkpoint.publish(tmp_path, a_version(1), weights) / "adapter_model.safetensors"
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    with pytest.raises(StoreError, match=r"damaged.*delete it and train again"):
        checkpoint.load(tmp_path, 1)


def test_a_damaged_manifest_is_said_to_be_one(tmp_path: Path) -> None:
    (checkpoint.publish(tmp_path, a_version(1), weights) / MANIFEST).write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        checkpoint.load(tmp_path, 1)


def test_what_killed_writers_left_is_swept_after_an_hour(tmp_path: Path) -> None:
    for name, age in ((".1.old", 4000), (".1.young", 60)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    checkpoint.publish(tmp_path, a_version(1), weights)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".1.young", "1"]


def test_the_first_of_two_writers_is_kept(tmp_path: Path) -> None:
    def overtaken(folder: Path) -> None:
        checkpoint.publish(tmp_path, a_version(1), weights)
        (folder / "late").touch()

    checkpoint.publish(tmp_path, a_version(1), overtaken)
    assert sorted(path.name for path in (tmp_path / "1").iterdir()) == ["adapter_model.safetensors", MANIFEST]
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_folder_without_manifest_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "rest of a copy").touch()
    checkpoint.publish(tmp_path, a_version(1), weights)
    assert checkpoint.load(tmp_path, 1) is not None
