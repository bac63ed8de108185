"""Fine-tuning learns what the assistant should write, from references that replay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from envs import registry
from envs.protocols import Message
from store.errors import UsageError
from tests.fakes import EchoEnv
from tests.tiny_model import write_random_model
from training import sft
from training.chat import solution_ids
from training.config import ModelSettings, SftSettings
from training.model import load_model, load_tokenizer
from training.sft import Solution, context, fine_tune, first_of_each, passes, solutions

FLOAT = ModelSettings(dtype="float32", threads=1)
QUICK = SftSettings(lr=1e-2, batch=2, lora_r=4, lora_alpha=8)
THREE = QUICK.model_copy(update={"batch": 3})
TALKS: list[list[Message]] = [
    [{"role": "user", "content": word}, {"role": "assistant", "content": answer}]
    for word, answer in (("a", "SELECT 1"), ("b", "SELECT b FROM a"), ("c", "SELECT c"))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model") / "tiny-random-llama")


def tune(folder: Path, *, epochs: int = 1, seed: int = 1, settings: SftSettings = QUICK) -> tuple[Any, dict[str, Any]]:
    return fine_tune(
        folder,
        None,
        [Solution(messages=talk) for talk in TALKS],
        epochs=epochs,
        seed=seed,
        settings=settings,
        model_settings=FLOAT,
        report=lambda *_: None,
    )


def completion_loss(model: Any, folder: Path) -> float:
    """Mean negative log-likelihood of all completion tokens, computed here and not by TRL."""
    tokenizer, losses = load_tokenizer(folder), []
    for talk in TALKS:
        ids, labels = (torch.tensor(each) for each in solution_ids(tokenizer, talk))
        with torch.inference_mode():
            logprobs = torch.log_softmax(model(ids[None]).logits[0, :-1], -1)
        wanted = labels[1:] != -100
        losses += (-logprobs[wanted].gather(1, labels[1:][wanted][:, None])).flatten().tolist()
    return sum(losses) / len(losses)


def test_the_loss_is_that_of_the_completions(folder: Path) -> None:
    whole_batch = QUICK.model_copy(update={"batch": 3, "lr": 1e-12})
    _, figures = tune(folder, settings=whole_batch)
    assert figures["loss"] == pytest.approx(completion_loss(load_model(folder, "float32"), folder), rel=1e-4)


def test_long_rows_are_read_in_several_passes_to_the_same_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, figures = tune(folder, epochs=3, settings=THREE)
    monkeypatch.setattr(sft, "AT_ONCE", 1)
    parts, same = tune(folder, epochs=3, settings=THREE)
    assert (figures["steps"], same["steps"]) == (3, 3)
    assert same["loss"] == pytest.approx(figures["loss"], rel=1e-4)
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


def test_so_many_passes_as_keep_the_memory_small() -> None:
    assert [passes(8, longest) for longest in (130, 512, 513, 2000, 4000, 9000)] == [1, 1, 2, 4, 8, 8]
    assert passes(6, 1500) == 3


def test_the_model_learns_its_answers(folder: Path) -> None:
    before = completion_loss(load_model(folder, "float32"), folder)
    model, figures = tune(folder, epochs=30)
    assert figures["steps"] == 60
    assert completion_loss(model.eval(), folder) < 0.75 * before


def test_only_the_adapter_moves(folder: Path) -> None:
    model, _ = tune(folder)
    base = load_model(folder, "float32").state_dict()
    frozen = {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): w for name, w in model.named_parameters()
    }
    assert all(torch.equal(frozen[name], weight) for name, weight in base.items() if name in frozen)
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)


def test_the_seed_decides_everything(folder: Path) -> None:
    def weights(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(torch.seed())  # whatever went on before
        return [weight.detach().clone() for name, weight in tune(folder, seed=seed)[0].named_parameters()]

    assert all(map(torch.equal, weights(1), weights(1)))
    assert not all(map(torch.equal, weights(1), weights(2)))


def test_a_row_longer_than_the_model_reads_is_left_out_and_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lengths = sorted(len(solution_ids(load_tokenizer(folder), talk)[0]) for talk in TALKS)
    assert context(folder) > lengths[-1]
    monkeypatch.setattr(sft, "context", lambda _: lengths[-1] - 1)
    _, figures = tune(folder)
    assert (figures["examples"], figures["too_long"], figures["steps"]) == (2, 1, 1)
    assert f"1 of 3 references are longer than the {lengths[-1] - 1} tokens" in caplog.text
    monkeypatch.setattr(sft, "context", lambda _: 1)
    with pytest.raises(UsageError, match="none of 3 references fits the 1 tokens"):
        tune(folder)


def test_references_that_do_not_replay_are_left_out() -> None:
    env = EchoEnv(words=("one", "two", "three"))
    tasks = env.seed_tasks()
    env.faults[tasks[1].id] = ["invalid"]
    assert asyncio.run(solutions(env, tasks)) == [
        Solution(messages=env.solution(task)) for task in (tasks[0], tasks[2])
    ]


def test_a_short_warm_start_is_shown_one_task_of_each_structure_first() -> None:
    seeds = registry.get("text2sql").seed_tasks()
    structures = {task.structure for task in seeds}
    order = first_of_each(seeds)
    assert sorted(task.id for task in order) == sorted(task.id for task in seeds)
    assert {task.structure for task in order[: len(structures)]} == structures
    assert order[0] == seeds[0]
