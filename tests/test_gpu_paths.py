"""What a GPU does otherwise, as far as a CPU can do it too: TRL's own forward pass, checkpointing, bfloat16."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import training.grpo
from tests.grpo_jobs import SETTINGS, run
from tests.tiny_model import write_random_model
from training.config import ModelSettings
from training.engine import Engines
from training.grpo import arguments
from training.model import load_model, merged, merged_weights, put_weights
from training.sft import with_lora


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL reads K copies of a prompt, gradients are checkpointed, memory is not pinned, for there is none to pin."""

    def on_a_gpu(job: Any) -> Any:
        made = arguments(job)
        made.gradient_checkpointing = True
        return made

    monkeypatch.setattr(training.grpo, "one_row", lambda *_: False)
    monkeypatch.setattr(training.grpo, "arguments", on_a_gpu)


def test_the_update_is_that_of_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = [tmp_path / "cpu", tmp_path / "gpu"]
    for root in roots:
        root.mkdir()
        if root.name == "gpu":
            as_on_a_gpu(monkeypatch)
        run(root, 0)
    mine, theirs = (load_file(root / "checkpoints/1/adapter_model.safetensors") for root in roots)
    for name, weight in mine.items():
        torch.testing.assert_close(weight, theirs[name], atol=1e-3, rtol=1e-2)


def test_a_bfloat16_base_trains_under_a_float32_adapter_without_autocast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_a_gpu(monkeypatch)
    ran = run(tmp_path, 0, settings=SETTINGS.model_copy(update={"model": ModelSettings(dtype="bfloat16", threads=1)}))
    assert ran.counts[0]["steps"] > 0
    adapter = load_file(tmp_path / "checkpoints/1/adapter_model.safetensors")
    assert {weight.dtype for weight in adapter.values()} == {torch.float32}


def test_one_weight_is_merged_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All deltas at once would be a second model, in float32: 26 GB for 7B."""
    model = with_lora(load_model(write_random_model(tmp_path), "float32"), None, SETTINGS.sft)
    made: list[str] = []
    for name, layer in model.named_modules():
        if hasattr(layer, "get_delta_weight"):
            delta = layer.get_delta_weight
            monkeypatch.setattr(layer, "get_delta_weight", lambda a, n=name, d=delta: (made.append(n), d(a))[1])
    for count, (name, _) in enumerate(merged_weights(model), 1):
        assert len(made) <= count, name
    assert len(made) == 14


@pytest.mark.parametrize("source", ["cpu", "meta"])
def test_weights_go_to_the_device_of_the_model(tmp_path: Path, source: str) -> None:
    model = load_model(write_random_model(tmp_path), "float32")
    if source == "meta":  # stands for a model elsewhere: what is copied to it stays there
        model = model.to("meta")
    put_weights(model, load_model(tmp_path, "float32").state_dict().items())
    assert {weight.device.type for weight in model.parameters()} == {source}


def test_an_engine_goes_on_to_another_version_of_a_model_with_tied_embeddings(tmp_path: Path) -> None:
    folder = write_random_model(tmp_path / "one")
    engines = Engines(SETTINGS, run="r", home=tmp_path)
    engine: Any = engines.get(folder, [], spec="x", version=0, step=0)
    other = write_random_model(tmp_path / "two", seed=1)
    assert engines.get(other, [], spec="x", version=1, step=3) is engine
    assert (engine.version, engine.step) == (1, 3)
    wanted = merged(other, [], "float32").state_dict()
    assert all(weight.equal(wanted[name]) for name, weight in engine.model.state_dict().items())


def test_matrix_products_on_a_gpu_are_repeatable() -> None:
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
