"""GRPO that trains all weights of the model: what it leaves, what goes on from it, what its reference is."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

import training.grpo
from store.errors import UsageError
from store.rows import Metric
from tests.grpo_jobs import FULL, SETTINGS, Ran, run
from tests.test_gpu_paths import as_on_a_gpu
from training import checkpoint
from training.config import GrpoSettings, ModelSettings, TrainSettings
from training.model import load_model, merged, merged_weights
from training.policy import HFPolicy
from training.sync import DiskReload

WARM = FULL.model_copy(update={"warm_start": True})


@pytest.fixture(scope="module")
def trainers() -> list[Any]:
    """Those of the iterations of `ran`, in their order."""
    return []


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, trainers: list[Any]) -> Ran:
    """Iterations 0 and 1 after a warm start, done once."""
    root = tmp_path_factory.mktemp("full")
    with pytest.MonkeyPatch.context() as patch:
        make = training.grpo.make_trainer
        patch.setattr(
            training.grpo, "make_trainer", lambda *a, **k: (trainer := make(*a, **k), trainers.append(trainer))[0]
        )
        return run(root, 0, settings=WARM) | run(root, 1, settings=WARM)


def plain(root: Path, version: int) -> dict[str, torch.Tensor]:
    model = merged(root / "model", checkpoint.layers(root / "checkpoints", version), "float32")
    return {name: weight.detach() for name, weight in model.named_parameters()}


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((weight - other[name]).abs().max().item() for name, weight in one.items())


def test_a_version_is_one_folder_of_all_weights(ran: Ran) -> None:
    root = ran.root / "checkpoints"
    for version in (0, 1, 2):
        made = checkpoint.required(root, version)
        assert (made.full, made.adapter, made.weights) == (True, False, "full")
        assert "model.safetensors" in made.files
        assert not any("adapter" in name for name in made.files)
        assert checkpoint.layers(root, version) == [root / str(version)]
    assert [checkpoint.required(root, version).on for version in (0, 1, 2)] == [None, 0, 0]


def test_each_version_moved_all_weights(ran: Ran) -> None:
    versions = [dict(load_model(ran.root / "model", "float32").named_parameters())]
    versions += [plain(ran.root, version) for version in (0, 1, 2)]
    for before, after in pairwise(versions):
        assert all((after[name] - weight).abs().max() > 1e-4 for name, weight in before.items())


def test_the_policy_of_a_version_has_the_weights_that_were_trained(ran: Ran, trainers: list[Any]) -> None:
    for trainer, version in zip(trainers, (1, 2), strict=True):
        layers = checkpoint.layers(ran.root / "checkpoints", version)
        policy = HFPolicy(ran.root / "model", spec="x", layers=layers, settings=FULL.model)
        sampling = dict(policy.model.named_parameters())
        trained = dict(merged_weights(trainer.model))
        assert trained.keys() == sampling.keys()
        assert all(weight.equal(sampling[name]) for name, weight in trained.items())


def test_tied_embeddings_stay_tied(ran: Ran) -> None:
    assert "lm_head.weight" not in load_file(ran.root / "checkpoints/2/model.safetensors")
    model = merged(ran.root / "model", checkpoint.layers(ran.root / "checkpoints", 2), "float32")
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_an_iteration_goes_on_with_weights_and_optimiser(ran: Ran, trainers: list[Any]) -> None:
    steps = [ran.counts[t]["steps"] for t in (0, 1)]
    assert 0 < steps[0] < steps[1]
    states = [torch.load(ran.root / f"checkpoints/{v}/optimizer.pt", weights_only=True) for v in (1, 2)]
    assert [int(next(iter(state["state"].values()))["step"]) for state in states] == steps
    assert trainers[1].state.global_step == steps[1]
    longest = (steps[1] - steps[0]) * FULL.grpo.lr
    # A step of AdamW is seldom much longer than the learning rate.
    assert 0 < apart(plain(ran.root, 1), plain(ran.root, 2)) < 3 * longest


def test_the_reference_is_version_0_in_all_iterations(ran: Ran, trainers: list[Any]) -> None:
    wanted = plain(ran.root, 0)
    for trainer in trainers:
        assert apart(dict(trainer.ref_model.named_parameters()), wanted) == 0
        assert apart(dict(trainer.model.named_parameters()), wanted) > 1e-4
    kl = {row.step: row.value for row in ran.rows if isinstance(row, Metric) and row.name == "kl"}
    assert kl[1] == pytest.approx(0, abs=1e-9)
    assert kl[ran.counts[0]["steps"] + 1] > 1e-6


def test_without_a_warm_start_the_reference_is_the_base_and_without_kl_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    make = training.grpo.make_trainer
    monkeypatch.setattr(
        training.grpo, "make_trainer", lambda *a, **k: (trainer := make(*a, **k), made.append(trainer))[0]
    )
    run(tmp_path, 0, settings=FULL)
    run(tmp_path, 1, settings=FULL.model_copy(update={"grpo": GrpoSettings(groups=2, lr=1e-3, beta=0)}))
    base = dict(load_model(tmp_path / "model", "float32").named_parameters())
    assert apart(dict(made[0].ref_model.named_parameters()), base) == 0
    assert made[1].ref_model is None


def test_a_server_starts_with_a_version_as_with_the_weights_of_a_sync(ran: Ran, tmp_path: Path) -> None:
    disk = DiskReload(ran.root / "model", tmp_path, 1.0)
    layers = checkpoint.layers(ran.root / "checkpoints", 2)
    written = load_file(
        disk.write(merged(ran.root / "model", layers, "float32").state_dict().items()) / "model.safetensors"
    )
    assert all(weight.equal(written[name]) for name, weight in plain(ran.root, 2).items())


@pytest.mark.parametrize(("first", "second"), [("lora", "full"), ("full", "lora")])
@pytest.mark.parametrize("method", ["grpo", "sft"])
def test_what_is_trained_stays_within_a_run(tmp_path: Path, method: str, first: str, second: str) -> None:
    kinds = {"lora": SETTINGS, "full": FULL}
    run(tmp_path, 0, settings=kinds[first].model_copy(update={"method": method}))
    with pytest.raises(UsageError, match=rf"train.weights = '{second}': .*checkpoints/1 has '{first}'.*a new run"):
        run(tmp_path, 1, settings=kinds[second].model_copy(update={"method": method}))


def test_nor_does_a_killed_iteration_go_on_with_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "publish", killed_after_version_0(checkpoint.publish))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, 0, settings=FULL)
    with pytest.raises(UsageError, match=r"train.weights = 'lora': .*checkpoint-\d+ has 'full'"):
        run(tmp_path, 0)
    run(tmp_path, 0, settings=FULL)


def killed_after_version_0(publish: Any) -> Any:
    def killed(root: Path, made: checkpoint.Checkpoint, *more: Any) -> Path:
        if made.version:
            raise KeyboardInterrupt
        found: Path = publish(root, made, *more)
        return found

    return killed


def test_where_nothing_can_be_learned_the_version_is_the_old_one(tmp_path: Path) -> None:
    run(tmp_path, 0, score=lambda said: 0.0, settings=FULL)
    made = checkpoint.required(tmp_path / "checkpoints", 1)
    assert (made.weights, made.on, made.steps) == (None, 0, 0)
    assert run(tmp_path, 1, settings=FULL).counts[1]["steps"] > 0


def test_sft_goes_on_from_all_weights(tmp_path: Path) -> None:
    settings = WARM.model_copy(update={"method": "sft"})
    run(tmp_path, 0, settings=settings)
    run(tmp_path, 1, settings=settings)
    versions = [plain(tmp_path, version) for version in (0, 1, 2)]
    for before, after in pairwise(versions):
        assert 0 < apart(before, after) < 0.1, "a few steps from the one before"


def bfloat16(settings: TrainSettings) -> TrainSettings:
    return settings.model_copy(update={"model": ModelSettings(dtype="bfloat16", threads=1, batch=8)})


@pytest.mark.parametrize("gpu", [False, True], ids=["as on a CPU", "as on a GPU"])
def test_in_bfloat16_the_weights_that_are_trained_are_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool
) -> None:
    if gpu:
        as_on_a_gpu(monkeypatch)
    ran = run(tmp_path, 0, settings=bfloat16(FULL))
    kept = load_file(tmp_path / "checkpoints/1/model.safetensors")
    assert {weight.dtype for weight in kept.values()} == {torch.float32}
    layers = checkpoint.layers(tmp_path / "checkpoints", 1)
    sampling = dict(merged(tmp_path / "model", layers, "bfloat16").named_parameters())
    assert all(kept[name].to(torch.bfloat16).equal(weight) for name, weight in sampling.items())
    ratio = {row.step: row.value for row in ran.rows if isinstance(row, Metric) and row.name == "is_ratio/mean"}
    assert ratio[1] == pytest.approx(1, abs=0.05), "it samples what it trains"


def test_weights_of_another_model_are_refused(ran: Ran, tmp_path: Path) -> None:
    shape = {"vocab_size": 265, "num_hidden_layers": 2, "num_attention_heads": 4}
    for name, width in (("wider", 64), ("deeper", 32)):
        config = LlamaConfig(hidden_size=width, **(shape | ({"num_hidden_layers": 3} if name == "deeper" else {})))
        LlamaForCausalLM(config).save_pretrained(tmp_path / name)
        with pytest.raises(UsageError, match=rf"weights .*checkpoints/2 does not fit the model in .*{name}"):
            merged(tmp_path / name, checkpoint.layers(ran.root / "checkpoints", 2), "float32")
