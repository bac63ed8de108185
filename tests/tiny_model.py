"""A random-weight Llama of about 25,000 parameters in the form of a real model folder.

Tests of sampling, training and resuming run on it in seconds: `hf:DIR` in place of the real model. It knows nothing;
what it writes is noise until a test trains it. `python -m tests.tiny_model DIR` writes one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from training.smollm2 import TEMPLATE

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("S", "E"), ("E", "L"), ("SE", "L"), ("L", "E"), ("a", "b"), ("b", "c")]
"""A few, and overlapping ones: one text can be cut into tokens in several ways."""


def write_random_model(folder: Path, *, seed: int = 0, context: int = 4096, head_dim: int = 8) -> Path:
    """Write config, weights and tokenizer; the same seed writes the same weights. vLLM on a CPU wants heads of 32."""
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.mul_(4)  # far from uniform, so that wrong log-probabilities are seen
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and `MERGES`, with SmolLM2's special tokens and chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL, *alphabet, *(left + right for left, right in MERGES)]
    bpe = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=MERGES))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        chat_template=TEMPLATE.read_text(),
    )


if __name__ == "__main__":
    write_random_model(Path(sys.argv[1]))
