"""Two processes train one model: as one would, each group once, and none waits for one that has gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.grpo_jobs import HERE
from training import checkpoint, ranks
from training.folders import fingerprints
from training.model import load_model, merged

ALONE = [sys.executable, "-m"]
TWO = [*ALONE, "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]


def job(launcher: list[str], root: Path, case: str = "") -> subprocess.CompletedProcess[str]:
    """A training of `tests.rank_jobs`; a rank that hangs runs into the deadline."""
    return subprocess.run(
        [*launcher, "tests.rank_jobs", str(root), case],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=150,
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two iterations on two processes."""
    root = tmp_path_factory.mktemp("two")
    done = job(TWO, root)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="module")
def two_full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All weights trained on two processes."""
    root = tmp_path_factory.mktemp("two-full")
    done = job(TWO, root, "full")
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in one process."""
    root = tmp_path_factory.mktemp("one")
    done = job(ALONE, root)
    assert done.returncode == 0, done.stderr
    return root


def weights(root: Path, step: int, rank: int = 0) -> Any:
    return torch.load(root / f"step-{step}-{rank}.pt", weights_only=True)


def steps(root: Path) -> range:
    return range(1, checkpoint.required(root / "checkpoints", 2).steps + 1)


@pytest.mark.slow
def test_both_ranks_have_the_same_weights_after_each_step(two: Path) -> None:
    assert len(steps(two)) >= 5
    for step in steps(two):
        mine, theirs = weights(two, step), weights(two, step, 1)
        assert all(weight.equal(theirs[name]) for name, weight in mine.items())


@pytest.mark.slow
def test_a_step_is_that_of_one_process_with_the_same_groups(one: Path, two: Path) -> None:
    alone, together = weights(one, 1), weights(two, 1)
    assert max(weight.abs().max() for name, weight in alone.items() if "lora_B" in name) > 5e-3, "it moved"
    for name, weight in alone.items():
        torch.testing.assert_close(together[name], weight, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_each_group_is_trained_once(one: Path, two: Path) -> None:
    shares = [json.loads((two / f"groups-{rank}.json").read_text()) for rank in (0, 1)]
    wanted = json.loads((one / "groups-0.json").read_text())
    assert any(len(groups) == 1 for groups in wanted), "a step with a group for one rank only is among them"
    for first, second, alone in zip(*shares, wanted, strict=True):
        assert (first, second) == (alone[0::2], alone[1::2])


@pytest.mark.slow
def test_rank_0_alone_publishes(two: Path) -> None:
    for version in (1, 2):
        made = checkpoint.required(two / "checkpoints", version)
        assert {"rng_state_0.pth", "rng_state_1.pth", "optimizer.pt"} <= made.files.keys()
        assert made.files.keys() == fingerprints(two / "checkpoints" / str(version)).keys() - {"manifest.json"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "reason"),
    [("broken", ""), ("diverged", "lower train.grpo.lr"), ("odd", "2 processes share the groups of a step")],
)
def test_where_rank_0_fails_the_other_ends(tmp_path: Path, case: str, reason: str) -> None:
    done = job(TWO, tmp_path, case)
    assert done.returncode != 0
    assert reason in done.stderr
    assert checkpoint.newest(tmp_path / "checkpoints") == 0


@pytest.mark.slow
def test_all_weights_too_are_trained_by_both_ranks_as_by_one_process(two_full: Path, tmp_path: Path) -> None:
    done = job(ALONE, tmp_path, "full")
    assert done.returncode == 0, done.stderr
    assert len(steps(two_full)) >= 4
    for step in steps(two_full):
        mine, theirs = weights(two_full, step), weights(two_full, step, 1)
        assert all(weight.equal(theirs[name]) for name, weight in mine.items())
    same_step(tmp_path, two_full)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "unsplit"), [("fsdp", "two"), ("fsdp-full", "two_full")])
def test_what_accelerate_splits_is_trained_as_the_whole(
    tmp_path: Path, case: str, unsplit: str, request: pytest.FixtureRequest
) -> None:
    done = job(TWO, tmp_path, case)
    assert done.returncode == 0, done.stderr
    whole = request.getfixturevalue(unsplit)
    same_step(whole, tmp_path)
    for version in (1, 2):
        made, wanted = (checkpoint.required(root / "checkpoints", version) for root in (tmp_path, whole))
        assert made.weights == wanted.weights
        assert made.files.keys() - {"optimizer.bin"} == wanted.files.keys() - {"optimizer.pt"}
    kept = dict(
        merged(tmp_path / "model", checkpoint.layers(tmp_path / "checkpoints", 2), "float32").named_parameters()
    )
    last = weights(tmp_path, steps(tmp_path)[-1])
    assert case == "fsdp" or all(weight.equal(kept[name]) for name, weight in last.items())


def same_step(one: Path, other: Path) -> None:
    """The first: both have sampled the same for it."""
    begun = dict(load_model(one / "model", "float32").named_parameters())  # of an adapter, what moves begins at 0
    mine, theirs = weights(one, 1), weights(other, 1)
    assert mine.keys() == theirs.keys()
    names = [name for name in mine if "lora_A" not in name]
    moved = torch.cat([(mine[name] - begun.get(name, 0)).detach().flatten() for name in names])
    apart = torch.cat([(theirs[name] - mine[name]).flatten() for name in names])
    # AdamW's first step has the same length however small a gradient is, so that rounding turns a few of them around.
    assert apart.norm() < 0.05 * moved.norm()


@pytest.mark.slow
@pytest.mark.parametrize("case", ["sharded", "sharded-full"])
def test_a_split_model_is_gathered_for_the_sampler(tmp_path: Path, case: str) -> None:
    done = job(TWO, tmp_path, case)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.glob("sharded-*")} == {"sharded-0", "sharded-1"}


def test_a_program_that_is_no_part_of_the_training_does_not_hear_of_it() -> None:
    given = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_PORT": "1", "ACCELERATE_USE_FSDP": "true", "RANKING": "kept"}
    given |= {"FSDP_VERSION": "2", "TORCHELASTIC_RUN_ID": "x", "PATH": "/bin", "WORLD_SIZE": "2"}
    assert ranks.place_free(given) == {"RANKING": "kept", "PATH": "/bin"}


def test_the_warm_start_is_work_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with ranks.alone():
        assert ranks.world() == 1
    assert ranks.world() == 2


def test_one_process_asks_nobody() -> None:
    assert ranks.share(lambda: 5) == 5
    assert ranks.mine([1, 2, 3]) == [1, 2, 3]
    assert not ranks.agreed(False)
    ranks.await_all()
    ranks.dismiss()
