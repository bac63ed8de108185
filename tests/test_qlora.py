"""QLoRA is for GPUs: elsewhere it is refused, in words, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from store.errors import UsageError
from training import model
from training.config import TrainSettings


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train.sft.qlora = true: 4-bit weights need a CUDA GPU"):
        model.load_four_bit(tmp_path)


def test_without_bitsandbytes_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "device", lambda: "cuda")
    monkeypatch.setattr(model, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install '.\[qlora\]'"):
        model.require_four_bit()


def test_all_weights_cannot_be_trained_in_4_bits() -> None:
    with pytest.raises(ValueError, match=r"sft.qlora: all weights are trained"):
        TrainSettings.model_validate({"weights": "full", "sft": {"qlora": True}})
