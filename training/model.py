"""Loading local models: a base folder and what was trained on it, quiet, offline, seeded.

What lies on the base is a list of layers: folders with a LoRA adapter each, to be merged in this order, or with all
weights of the model, which take the place of what is below them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is local; an accidental look-up would hang without a network
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Without it matrix products on a GPU are not repeatable, and torch says so at each; it must be there before the first.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy
import torch
from peft import LoraConfig, PeftModel, prepare_model_for_kbit_training
from peft.tuners.lora import LoraLayer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from transformers.utils import logging as transformers_logging

from store.errors import UsageError
from training import attention as grouped
from training import ranks
from training.chat import ensure_template
from training.config import Dtype, ModelSettings, SftSettings, TrainedWeights

transformers_logging.disable_progress_bar()


def prepare(settings: ModelSettings, seed: int) -> None:
    """Fix threads and every source of randomness of this process."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # A debugging aid that comes with it and costs a tenth of a step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def torch_dtype(name: Dtype) -> torch.dtype:
    """bfloat16 where it is faster: a GPU, or a CPU whose matrix kernels take it (AVX-512)."""
    if name == "auto":
        fast = device() == "cuda" or torch.backends.cpu.get_cpu_capability().startswith("AVX512")
        return torch.bfloat16 if fast else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def require_four_bit() -> None:
    """UsageError where no model can be held in 4 bits."""
    if device() != "cuda":
        raise UsageError("train.sft.qlora = true: 4-bit weights need a CUDA GPU, and there is none; set it to false")
    if find_spec("bitsandbytes") is None:
        raise UsageError("train.sft.qlora = true: bitsandbytes is not installed; run `pip install '.[qlora]'`")


def load_four_bit(folder: Path, *, attention: str = "sdpa") -> Any:
    """The base model in NF4 with double quantisation, ready for an adapter on top; it computes in bfloat16."""
    require_four_bit()
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, quantization_config=config, device_map={"": 0}, attn_implementation=attention
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"policy: cannot load the model in {folder} in 4 bits: {error}") from error
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


def load_model(folder: Path, dtype: Dtype, *, attention: str = "sdpa", weights: Path | None = None) -> Any:
    """The base model in evaluation mode; with `weights`, its weights are those of that folder.

    UsageError if there is no model, or the weights were not made for it."""
    form = {"dtype": torch_dtype(dtype), "attn_implementation": attention}
    model: Any
    try:
        if weights is None:
            model = AutoModelForCausalLM.from_pretrained(folder, **form)
        else:
            model = _filled(folder, weights, form)
    except (OSError, ValueError) as error:
        raise UsageError(f"policy: cannot load the model in {weights or folder}: {error}") from error
    return model.to(device()).eval()


def _filled(folder: Path, weights: Path, form: Mapping[str, Any]) -> Any:
    config = AutoConfig.from_pretrained(folder)
    both: Any
    try:
        both = AutoModelForCausalLM.from_pretrained(weights, config=config, output_loading_info=True, **form)
    except RuntimeError as error:  # so it reports other shapes
        raise _misfit("weights", weights, folder, error) from error
    model, found = both
    if other := [*found["missing_keys"], *found["unexpected_keys"], *found["mismatched_keys"]]:
        raise _misfit("weights", weights, folder, KeyError(str(other[0])))
    return model


def load_tokenizer(folder: Path, *, tools: bool = False) -> Any:
    """Its tokenizer, which must have an end-of-turn token and a chat template fit for training, with `tools` also for
    conversations that use them."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"policy: cannot load the tokenizer in {folder}: {error}") from error
    if not tokenizer.chat_template or tokenizer.eos_token_id is None:
        raise UsageError(f"policy: the tokenizer in {folder} has no chat template or eos token; use a chat model")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    ensure_template(tokenizer, tools=tools)
    return tokenizer


def kind(layer: Path) -> TrainedWeights:
    """What a layer is."""
    return "lora" if (layer / "adapter_config.json").is_file() else "full"


def merged(folder: Path, layers: Sequence[Path], dtype: Dtype, *, attention: str = "") -> Any:
    """Base plus layers as one plain model: no LoRA arithmetic while sampling."""
    attention = attention or (grouped.NAME if device() == "cpu" else "sdpa")
    start = max((at for at, layer in enumerate(layers, 1) if kind(layer) == "full"), default=0)
    model = load_model(folder, dtype, attention=attention, weights=layers[start - 1] if start else None)
    for adapter in layers[start:]:
        adapted = with_adapter(model, adapter)
        _put(dict(_plain(adapted)), merged_weights(adapted))
        model = adapted.unload()
    return model.eval()


def plain_weights(folder: Path, layers: Sequence[Path], dtype: Dtype) -> Iterable[tuple[str, torch.Tensor]]:
    """(name, tensor) of base + layers, as `merged` makes them."""
    weights: dict[str, torch.Tensor] = merged(folder, layers, dtype).state_dict()
    return weights.items()


def fresh_lora(settings: SftSettings) -> LoraConfig:
    """The adapter that every method trains."""
    return LoraConfig(
        r=settings.lora_r, lora_alpha=settings.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
    )


def master_dtype(weights: TrainedWeights, dtype: Dtype) -> Dtype:
    """Of the weights that a trainer loads: where all of them are trained a bfloat16 would swallow small steps."""
    return "float32" if weights == "full" else dtype


def autocast(weights: TrainedWeights, dtype: Dtype) -> bool:
    """Whether the trainer computes in bfloat16 with float32 weights. Below LoRA, the base has its own dtype."""
    return weights == "full" and torch_dtype(dtype) == torch.bfloat16


def finite(model: Any) -> bool:
    """Whether no weight has become infinite or no number; of a sharded model, of what this rank has of it."""
    return all(ranks.part(weight).isfinite().all() for weight in model.parameters())


@torch.no_grad()
def merged_weights(model: Any, dtype: torch.dtype | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of all parameters of the plain model that `model` is: a base with an active adapter, or plain.

    The names are those of the base model's own state, the dtype is the base's if not another is asked for. The model
    itself is left alone. One weight at a time is made, for all together are as large as the model; of a sharded model
    all ranks must take all of them.
    """
    layers: dict[str, Any] = {
        name: module for name, module in _base(model).named_modules() if isinstance(module, LoraLayer)
    }
    for name, weight in _plain(model):
        module, _, last = name.rpartition(".")
        merged = weight.detach()
        if last == "weight" and module in layers:
            layer = layers[module]
            merged = merged + layer.get_delta_weight(layer.active_adapters[0]).to(weight.dtype)
        yield name, ranks.whole(merged.to(dtype or merged.dtype))


def _base(model: Any) -> Any:
    return model.base_model.model if isinstance(model, PeftModel) else model


def _plain(model: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """The parameters of a model, those below an adapter under the names that they have without it."""
    for name, weight in _base(model).named_parameters():
        if ".lora_" not in name:
            yield name.replace(".base_layer.", "."), weight


def put_weights(model: Any, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Overwrite the model's weights of these names, tied ones under either; KeyError for one that it does not have."""
    _put(model.state_dict(), weights)


@torch.no_grad()
def _put(own: Mapping[str, torch.Tensor], weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    for name, weight in weights:
        own[name].copy_(weight)


def with_adapter(model: Any, folder: Path, *, trainable: bool = False) -> Any:
    """The model with the LoRA adapter in `folder`. UsageError if it was not made for this model."""
    try:
        return PeftModel.from_pretrained(model, folder, is_trainable=trainable)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise _misfit("adapter", folder, model.config._name_or_path, error) from error


def _misfit(what: str, layer: Path, base: Path | str, error: Exception) -> UsageError:
    reason = str(error).strip().splitlines()
    return UsageError(
        f"policy: the {what} {layer} does not fit the model in {base} "
        f"({reason[-1].strip() if reason else type(error).__name__}); put back the model that the run was "
        "started with, or start a new run"
    )
