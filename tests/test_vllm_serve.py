"""`coevolve serve` and `vllm:URL`: a version of a run behind a server; nothing of it outlives its owner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli import coevolve
from tests.loops import make_workspace
from tests.tiny_model import write_random_model
from training.checkpoint import Checkpoint, publish
from training.guard import GRACE_S, await_that, members

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one policy version, the base model."""
    root = tmp_path_factory.mktemp("serve")
    model = write_random_model(root / "model", head_dim=32)
    work = make_workspace(root / "work", model)
    assert coevolve("seed", "--workspace", work, "--set", "seed_set.unguided=0").code == 0
    base = Checkpoint(run="r001", version=0, base=f"hf:{model}", parent=None, snapshot=None, adapter=False, counts={})
    publish(work / "runs/r001/checkpoints", base)
    return work


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def test_a_version_is_served_and_evaluated_until_sigterm(workspace: Path) -> None:
    line = [sys.executable, "-m", "coevolve", "serve", "--json", "--workspace", str(workspace)]
    serving = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert serving.stdout
    with serving.stdout as out:
        served = json.loads(out.readline())
    assert served["model"] == "coevolve/r001@v0"
    [group] = [child for child in children(serving.pid) if members(child)]
    policy = f"policy=vllm:{served['url']}"
    done = coevolve("eval", "--workspace", workspace, "--set", policy, "--suite", "gold", "--limit", "4", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)[0]["policy_version"] == 0
    asked = coevolve("sql", "select distinct policy, outcome from trajectory", "--workspace", workspace, "--json")
    assert json.loads(asked.out) == [{"policy": f"vllm:{served['url']}", "outcome": "scored"}]
    refused = coevolve("train", "--workspace", workspace, "--set", policy)
    assert refused.code == 2
    assert "has no weights to train here" in refused.err
    serving.terminate()
    assert serving.wait(GRACE_S + 10) == 0
    assert members(group) == []
    assert [path.name for path in (workspace / "runs/r001").glob("engine-*")] == []


def test_a_version_that_does_not_exist_is_bad_input(workspace: Path) -> None:
    done = coevolve("serve", "--workspace", workspace, "--policy-version", "7")
    assert done.code != 0
    assert "checkpoint" in done.err
    away = coevolve("eval", "--workspace", workspace, "--set", "policy=vllm:http://127.0.0.1:9", "--suite", "shifted")
    assert away.code == 1
    assert "http://127.0.0.1:9/v1/models cannot be reached" in away.err


def test_a_killed_owner_leaves_no_server(workspace: Path, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "tests.vllm_child", str(workspace.parent / "model"), str(tmp_path)]
    owner = subprocess.Popen(line)
    assert await_that(lambda: bool(children(owner.pid)), 60)
    [group] = children(owner.pid)
    assert await_that(lambda: any(b"EngineCore" in _command(pid) for pid in members(group)), 90), "it is coming up"
    time.sleep(1)
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    assert await_that(lambda: not members(group), GRACE_S + 6)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
