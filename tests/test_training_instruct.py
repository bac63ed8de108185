"""`coevolve train --sft`: a conversation file makes a model folder; the loss is that of what the assistant writes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli import coevolve
from tests.loops import make_workspace
from tests.tiny_model import write_random_model
from training.chat import solution_ids
from training.model import load_model, load_tokenizer

ALPACA: list[Any] = [
    {"instruction": "a", "input": "b", "output": "SELECT 1"},
    {"instruction": "c", "output": "SELECT b FROM a"},
    {"instruction": "d", "output": " "},
]
TALK: list[Any] = [
    {"from": "system", "value": "ab"},
    {"from": "human", "value": "a"},
    {"from": "gpt", "value": "SELECT 1"},
    {"from": "human", "value": "b"},
    {"from": "gpt", "value": "SELECT 2"},
]
QUICK = [part for each in ("lr=1e-2", "batch=2", "lora_r=4", "epochs=20") for part in ("--set", f"train.sft.{each}")]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sft")
    return make_workspace(root / "work", write_random_model(root / "model"))


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def loss(folder: Path, messages: list[Any]) -> float:
    """Mean negative log-likelihood of what the assistant writes, computed here."""
    tokenizer, model = load_tokenizer(folder), load_model(folder, "float32")
    ids, labels = (torch.tensor(each) for each in solution_ids(tokenizer, messages))
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(ids[None]).logits[0, :-1], -1)
    wanted = labels[1:] != -100
    return -float(logprobs[wanted].gather(1, labels[1:][wanted][:, None]).mean())


def test_an_alpaca_file_makes_a_model_that_has_learnt_it(work: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", *ALPACA)
    done = coevolve("train", "--sft", file, "--out", tmp_path / "out", "--workspace", work, "--json", *QUICK)
    assert done.code == 0, done.err
    counts = json.loads(done.out)
    assert (counts["examples"], counts["empty"], counts["steps"]) == (2, 1, 20)
    talk = [{"role": "user", "content": "a\n\nb"}, {"role": "assistant", "content": "SELECT 1"}]
    assert loss(tmp_path / "out", talk) < 0.75 * loss(work.parent / "model", talk)
    before, after = (load_tokenizer(folder) for folder in (work.parent / "model", tmp_path / "out"))
    assert before.chat_template == after.chat_template


def test_all_turns_of_a_conversation_bear_loss_and_nothing_else(work: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", {"conversations": TALK})
    tiny = ["--set", "train.sft.lr=1e-12", "--set", "train.sft.epochs=1"]
    done = coevolve("train", "--sft", file, "--out", tmp_path / "out", "--workspace", work, "--json", *tiny)
    roles = {"system": "system", "human": "user", "gpt": "assistant"}
    talk = [{"role": roles[one["from"]], "content": one["value"]} for one in TALK]
    assert math.isclose(json.loads(done.out)["loss"], loss(work.parent / "model", talk), rel_tol=1e-4)


def test_the_folder_is_a_policy(work: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", *ALPACA)
    assert coevolve("train", "--sft", file, "--out", tmp_path / "out", "--workspace", work).code == 0
    again = ["--set", f"policy=hf:{tmp_path / 'out'}"]
    done = coevolve("train", "--sft", file, "--out", tmp_path / "out2", "--workspace", work, *again)
    assert done.code == 0, done.err
    assert "use it as policy" in done.out


@pytest.mark.parametrize(
    ("records", "more", "words"),
    [
        (ALPACA, [], "--sft FILE and --out DIR go together"),
        (ALPACA, ["--out", "there"], "there exists; name another folder"),
        (ALPACA, ["--out", "no/there"], "there is no folder"),
        (ALPACA, ["--out", "new", "--run", "r1"], "--run: --sft trains beside the runs"),
        (ALPACA, ["--out", "new", "--follow"], "--follow: --sft trains beside the runs"),
        (ALPACA, ["--out", "new", "--from", "base"], "--from: --sft trains beside the runs"),
        ([*ALPACA, {"instruction": "a"}], ["--out", "new"], "line 4: output: missing"),
        ([], ["--out", "new"], "holds no record"),
        (ALPACA[2:], ["--out", "new"], "none of 0 references"),
        (ALPACA, ["--out", "new", "--set", "policy=litellm:x"], "no weights to train"),
    ],
)
def test_refused_with_a_reason(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: Any, more: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    done = coevolve("train", "--sft", write(tmp_path / "a.jsonl", *records), "--workspace", work, *more)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert not (tmp_path / "new").exists()
