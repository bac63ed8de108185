"""Seconds to sample K rollouts of tasks of one world, against transformers' own `generate` in the same run.

    python -m benchmarks.sampling [--policy smollm2] [--tasks 8] [--rollouts 8] [--tokens 32]

Both sample from the full distribution, in the same batches, and write the same number of tokens (no stop token), so
the ratio compares the work alone: prompts read once instead of once a rollout, keys not repeated while decoding.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Any

import torch

from envs.protocols import Message
from envs.registry import get
from training.chat import encode
from training.config import ModelSettings
from training.model import load_model, load_tokenizer, prepare
from training.policy import HFPolicy
from training.sample import Draw, generate
from training.smollm2 import resolve


def prompts(count: int) -> list[list[Message]]:
    """First messages of text2sql seed tasks, world by world as they come."""
    env = get("text2sql")

    async def start() -> list[list[Message]]:
        return [await env.open(task.world, task).start() for task in env.seed_tasks()[:count]]

    return asyncio.run(start())


def naive(model: Any, tokenizer: Any, ids: Sequence[list[int]], tokens: int) -> float:
    """Seconds of `generate` on left-padded rows, one row a rollout."""
    tokenizer.padding_side = "left"
    started = time.perf_counter()
    batch = tokenizer.pad({"input_ids": list(ids)}, return_tensors="pt").to(model.device)
    with torch.inference_mode():
        model.generate(
            **batch, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=True, top_k=0, top_p=1.0, temperature=1.0
        )
    return time.perf_counter() - started


def ours(model: Any, ids: Sequence[list[int]], tokens: int) -> float:
    draws = [Draw(prompt=tuple(row), seed=seed, temperature=1.0, max_tokens=tokens) for seed, row in enumerate(ids)]
    started = time.perf_counter()
    generate(model, draws, frozenset())
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3, help="alternating runs of each; the fastest counts")
    options = parser.parse_args()

    folder = resolve(options.policy)
    prepare(ModelSettings(), seed=0)
    tokenizer = load_tokenizer(folder)
    policy = HFPolicy(folder, spec=options.policy)
    reference = load_model(folder, "auto")
    rows = [encode(tokenizer, messages) for messages in prompts(options.tasks) for _ in range(options.rollouts)]
    times = [
        (naive(reference, tokenizer, rows, options.tokens), ours(policy.model, rows, options.tokens))
        for _ in range(options.repeat)
    ]
    theirs, mine = (min(each) for each in zip(*times, strict=True))
    total = len(rows) * options.tokens
    print(
        f"{options.tasks} tasks x {options.rollouts} rollouts, prompts of {min(map(len, rows))}-{max(map(len, rows))}"
    )
    print(f"transformers generate  {theirs:6.2f} s  {total / theirs:6.0f} tokens/s")
    print(f"training.sample        {mine:6.2f} s  {total / mine:6.0f} tokens/s")
    print(f"ratio                  {theirs / mine:6.2f}")


if __name__ == "__main__":
    main()
