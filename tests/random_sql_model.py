"""A random-weight model that says SQL: each of a few statements is one token, and an output bias prefers those.

It knows nothing of the question, so what it answers is chance: some statements are right, some are wrong, some are no
SQL. That is enough for signals to arise, so that the whole loop turns in seconds; named for what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PhiConfig, PhiForCausalLM

from envs import registry
from tests.tiny_model import byte_tokenizer

NOISE = ["SELECT", "DROP TABLE book", "SELECT 1; SELECT 2", "no idea", "SELECT name FROM nowhere"]


def write_random_sql_model(folder: Path, *, seeds: int = 3, seed: int = 0) -> Path:
    """Statements: the references of the first `seeds` seed tasks a world, and NOISE."""
    tasks = registry.get("text2sql").seed_tasks()
    worlds = list(dict.fromkeys(task.world for task in tasks))
    first = [[task for task in tasks if task.world == world][i] for i in range(seeds) for world in worlds]
    return write(folder, [*(str(task.reference) for task in first), *NOISE], seed)


def write_random_call_model(folder: Path, calls: Sequence[str], *, seed: int = 0) -> Path:
    """The same with calls of functions without arguments, and a longer context for the functions' documents."""
    made = [f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>' for name in calls]
    return write(folder, [*made, "no idea"], seed, context=32768)


def write(folder: Path, statements: Sequence[str], seed: int, context: int = 2048) -> Path:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(list(statements))
    said = [*tokenizer.convert_tokens_to_ids(list(statements)), tokenizer.eos_token_id]
    config = PhiConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=context,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = PhiForCausalLM(config)
        with torch.no_grad():
            model.lm_head.bias.fill_(-20.0)
            model.lm_head.bias[said] = 0.0
            model.lm_head.bias[tokenizer.eos_token_id] = 2.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
