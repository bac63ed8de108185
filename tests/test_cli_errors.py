"""Bad input to the command line: one clear line with field, value and fix, exit code 2, nothing changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli import coevolve
from tests.loops import make_workspace
from tests.tiny_model import write_random_model


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose newest run has D_0 and nothing else."""
    root = tmp_path_factory.mktemp("seeded")
    workspace = make_workspace(root / "work", write_random_model(root / "model"))
    assert coevolve("seed", "--workspace", workspace).code == 0
    return workspace


@pytest.fixture
def work(seeded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(seeded, tmp_path / "work"))


def state(workspace: Path) -> dict[str, bytes]:
    """Everything that a refused command must leave alone: journal, snapshots, checkpoints, settings."""
    kept = [
        path
        for path in workspace.rglob("*")
        if path.is_file() and path.suffix in (".jsonl", ".parquet", ".json", ".toml")
    ]
    return {str(path): path.read_bytes() for path in kept}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evolve", "--set", "train.sft.speed=1"], "unknown key 'train.sft.speed'"),
        (["evolve", "--set", "train.collect.top_p=0.9"], "training samples from the full distribution"),
        (["evolve", "--set", "env=chess"], "chess"),
        (["evolve", "--set", "policy=hf:/no/such/model"], "/no/such/model"),
        (["evolve", "--set", "policy=gpt"], "hf:DIR"),
        (["evolve", "--set", "policy=litellm:some/model"], "no weights to train"),
        (["evolve", "--set", "explorer=litellm:"], "names no model"),
        (["evolve", "--set", "seed=99999999999999999999"], "seed = 99999999999999999999"),
        (["evolve", "--set", "eval.k=0"], "eval.k = 0"),
        (["evolve", "--set", "eval.limit=-4"], "eval.limit = -4"),
        (["evolve", "--run", "r001"], "--resume"),
        (["evolve", "--resume", "--run", "r9"], "no run 'r9'"),
        (["evolve", "--resume", "--env", "text2sql"], "leave --env out"),
        (["evolve", "--env", "chess"], "chess"),
        (["eval", "--env", "text2sql", "--policy-version", "0"], "leave --run, --policy-version out"),
        (["eval", "--policy", "gpt", "--suite", "gold"], "hf:DIR"),
        (["seed", "--set", "explorer=oracle"], "oracle"),
        (["seed", "--set", "seed_set.seeds=0", "--set", "seed_set.unguided=0"], "D_0 is empty"),
        (["train", "--snapshot", "nonsense"], "nonsense"),
        (["train", "--snapshot", "7"], "7"),
        (["signals"], "nothing is trained yet"),
        (["explore", "--signals", "latest"], "nothing is trained yet"),
        (["validate"], "nothing is trained yet"),
        (["eval", "--suite", "platinum"], "'platinum' is not a suite"),
        (["eval"], "no policy version yet"),
        (
            ["eval", "--set", "train.collect.max_tokens=9"],
            "--set train.collect.max_tokens=9: scores of run r001 are kept",
        ),
        (["eval", "--policy-version", "5"], "5"),
        (["why", "zzz"], "no task 'zzz'"),
        (["why", ""], "no task ''"),
        (["sql", "selec 1"], "selec"),
        (["sql", "select scor from trajectory"], "score"),
        (["sql", "drop table task"], "read-only"),
        (["sql", "select 1", "--json", "--csv"], "one of them"),
        (["status", "--run", "r7"], "no run 'r7'"),
    ],
)
def test_refused_with_a_reason(work: Path, arguments: list[str], words: str) -> None:
    before = state(work)
    done = coevolve(arguments[0], "--workspace", work, *arguments[1:])
    assert (done.code, done.out) == (2, "")
    lines = [line for line in done.err.splitlines() if line.startswith("error:")]
    assert len(lines) == 1
    assert words in lines[0]
    assert state(work) == before


@pytest.mark.parametrize("key", ["explorer", "policy"])
def test_a_missing_api_key_stops_a_start_at_once(work: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    before = state(work)
    done = coevolve("seed", "--workspace", work, "--set", f"{key}=litellm:gpt-4o-mini")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert done.err.startswith(f"error: {key}: 'litellm:gpt-4o-mini' needs OPENAI_API_KEY; set it, or use `")
    assert state(work) == before


@pytest.mark.parametrize("text", ["seed = ", "sed = 1", "[train]\nk = 8", "[train.collect]\ntop_p = 0.9"])
def test_a_bad_config_stops_every_start(work: Path, text: str) -> None:
    (work / "config.toml").write_text(text)
    for command in ("seed", "evolve"):
        assert coevolve(command, "--workspace", work).code == 2


def test_no_workspace_here(tmp_path: Path) -> None:
    done = coevolve("status", "--workspace", tmp_path)
    assert done.code == 2
    assert "coevolve init" in done.err


def test_init_refuses_no_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = coevolve("init", "")
    assert (done.code, done.err) == (2, "error: DIR: '' is no folder; name one, or `.` for this one\n")
    assert list(tmp_path.iterdir()) == []


def test_init_refuses_a_workspace(work: Path) -> None:
    done = coevolve("init", work)
    assert (done.code, "already" in done.err) == (2, True)


def change(folder: Path) -> None:
    parquet = folder / "tasks.parquet"
    parquet.write_bytes(parquet.read_bytes()[:-1] + b"x")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (change, "changed after it was frozen"),
        (lambda folder: (folder / "tasks.parquet").unlink(), "tasks.parquet is missing"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json is damaged"),
        (lambda folder: shutil.rmtree(folder), "does not exist"),
        (lambda folder: shutil.rmtree(folder.parent), "no such folder"),
        (lambda folder: (folder.parent / "LATEST").unlink(), "snapshot latest: none"),
    ],
)
def test_a_snapshot_that_is_lost_or_damaged_is_refused_with_the_command_that_mends_it(
    work: Path, damage: Callable[[Path], object], words: str
) -> None:
    (folder,) = work.glob("runs/r001/snapshots/0-*")
    damage(folder)
    done = coevolve("train", "--workspace", work)
    assert done.code == 2
    assert words in done.err
    assert "`coevolve db rebuild`" in done.err
    assert not (work / "runs/r001/checkpoints").exists()


@pytest.mark.parametrize("text", ["{}", "[]", '{"seed": 0, "env": "text2sql"}'])
def test_settings_of_a_run_that_were_cut_are_not_filled_with_defaults(work: Path, text: str) -> None:
    (work / "runs/r001/config.json").write_text(text)
    done = coevolve("train", "--workspace", work)
    assert done.code == 1
    assert "config.json is damaged: it lacks" in done.err
    assert not (work / "runs/r001/checkpoints").exists()


@pytest.mark.parametrize(
    ("at_work", "refused"),
    [
        ("train", ["train"]),
        ("eval", ["eval"]),
        ("evolve", ["seed --resume", "evolve --resume", "signals", "explore", "validate"]),
    ],
)
def test_a_second_command_on_a_run_at_work_is_refused(work: Path, at_work: str, refused: list[str]) -> None:
    from coevolve.workspace import Workspace

    for command in refused:
        with Workspace.find(str(work)).run().locked(at_work):
            done = coevolve(*command.split(), "--workspace", work)
        assert done.code == 1
        assert f"(PID {os.getpid()})" in done.err
