"""Output tokens/s of a vLLM server against transformers' own `generate`, and what our loop and weight sync add.

    python -m benchmarks.vllm [--policy smollm2] [--sequences 32] [--group 8] [--prompt 200] [--tokens 48] [--repeat 3]

Twice: with prompts that have nothing in common, and with groups of as many rollouts of one prompt as GRPO samples (the
server's prefix cache is emptied before each take). The server, `generate` (same weights, bfloat16 on a machine where
it is fast) and our rollout loop take turns in one run, the fastest of each counts, and no sequence may end early.
`list` is one request with all prompts, the least that a server can be asked; `loop` is `envs.rollout.play` over as many
single-turn episodes of an environment that does nothing. Needs vLLM.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from envs.protocols import Message, Observation, Outcome
from envs.rollout import Job, play
from store.rows import Task
from tests.fakes import EchoEnv, EchoSession
from training import rest
from training.chat import encode
from training.completions import FULL_SUPPORT
from training.config import EngineSettings, ModelSettings
from training.model import load_model, load_tokenizer, prepare
from training.smollm2 import resolve
from training.vllm import VLLMPolicy


class _Idle(EchoSession):
    """One turn, whatever is said."""

    def __init__(self, text: str) -> None:
        super().__init__(None, tools=False, turns=1, fault=None)
        self._text = text

    async def start(self) -> list[Message]:
        return [{"role": "user", "content": self._text}]

    async def act(self, message: Message) -> Observation:
        return Observation(messages=[], done=True)

    async def evaluate(self) -> Outcome:
        return Outcome(kind="scored", score=0.0)


class _IdleEnv(EchoEnv):
    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> _Idle:
        assert task is not None
        return _Idle(str(task.reference))


def texts(tokenizer: Any, count: int, length: int) -> list[str]:
    """User messages whose prompts have about `length` tokens, no two with the same beginning."""
    words = "Table orders has columns id, customer, amount, status and date. Write one SQL query. " * length
    empty = len(encode(tokenizer, [{"role": "user", "content": ""}]))
    return [
        tokenizer.decode(tokenizer(f"{at} case. {words}", add_special_tokens=False).input_ids[: length - empty])
        for at in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of one take, or the least of several."""

    theirs: float
    """transformers' `generate`."""
    listed: float
    looped: float
    sync: float


def generate(model: Any, tokenizer: Any, prompts: Sequence[list[int]], tokens: int) -> float:
    tokenizer.padding_side = "left"
    started = time.perf_counter()
    batch = tokenizer.pad({"input_ids": list(prompts)}, return_tensors="pt").to(model.device)
    with torch.inference_mode():
        model.generate(**batch, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=True, top_k=0, top_p=1.0)
    return time.perf_counter() - started


def one_list(policy: VLLMPolicy, prompts: Sequence[list[int]], tokens: int) -> float:
    body = FULL_SUPPORT | {
        "model": policy._served.name,
        "prompt": list(prompts),
        "max_tokens": tokens,
        "temperature": 1.0,
        "seed": 1,
        "logprobs": 0,
        "return_token_ids": True,
        "ignore_eos": True,
        "skip_special_tokens": False,
    }
    rest.post(f"{policy._served.url}/reset_prefix_cache", {}, 60)
    started = time.perf_counter()
    answer = rest.post(f"{policy._served.url}/v1/completions", body, 600)
    seconds = time.perf_counter() - started
    assert sum(len(choice["token_ids"]) for choice in answer["choices"]) == len(prompts) * tokens
    return seconds


def loop(policy: VLLMPolicy, messages: Sequence[str], tokens: int) -> float:
    env = _IdleEnv()
    jobs = [Job(task=env.task(text), k=0, seed=at) for at, text in enumerate(messages)]
    rest.post(f"{policy._served.url}/reset_prefix_cache", {}, 60)
    started = time.perf_counter()
    played = asyncio.run(
        play(env, jobs, policy, run="b", t=0, purpose="train", temperature=1.0, max_tokens=tokens, deadline_s=600)
    )
    seconds = time.perf_counter() - started
    assert sum(row.completion_tokens for row, _ in played) == len(jobs) * tokens
    return seconds


def take(policy: VLLMPolicy, model: Any, tokenizer: Any, messages: Sequence[str], tokens: int) -> Seconds:
    prompts = [encode(tokenizer, [{"role": "user", "content": text}]) for text in messages]
    return Seconds(
        theirs=generate(model, tokenizer, prompts, tokens),
        listed=one_list(policy, prompts, tokens),
        looped=loop(policy, messages, tokens),
        sync=policy.load(model.state_dict().items(), version=0, step=0),
    )


def told(name: str, takes: Sequence[Seconds], total: int) -> str:
    """The least of all takes; `total` tokens were written in each."""
    best = Seconds(*(min(getattr(each, field.name) for each in takes) for field in fields(Seconds)))
    rows = (("transformers generate", best.theirs), ("vLLM, one list", best.listed), ("vLLM, our loop", best.looped))
    lines = [f"{words:22} {seconds:6.2f} s  {total / seconds:6.0f} tokens/s" for words, seconds in rows]
    lines += [
        f"vLLM / transformers    {best.theirs / best.listed:6.2f}   (goal 2)",
        f"our loop / one list    {best.listed / best.looped:6.2f}   (goal 0.9)",
        f"weight sync            {best.sync:6.2f} s (goal 2)",
    ]
    return "\n".join([name, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--group", type=int, default=8, help="sequences of one prompt, the second time")
    parser.add_argument("--prompt", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeat", type=int, default=3, help="alternating runs of each; the fastest counts")
    options = parser.parse_args()
    if options.sequences % options.group:
        parser.error(f"--group {options.group}: not a divisor of --sequences {options.sequences}")

    folder = resolve(options.policy)
    prepare(ModelSettings(), seed=0)
    tokenizer, model = load_tokenizer(folder), load_model(folder, "auto")
    with tempfile.TemporaryDirectory() as home:
        engine = EngineSettings(backend="vllm")
        policy = VLLMPolicy(folder, spec=options.policy, run="bench", home=Path(home), engine=engine)
        policy._speaker.stops = []  # no sequence ends early
        try:
            for group in dict.fromkeys((1, options.group)):
                distinct = texts(tokenizer, options.sequences // group, options.prompt)
                messages = [text for text in distinct for _ in range(group)]
                takes = []
                for at in range(options.repeat):
                    takes.append(take(policy, model, tokenizer, messages, options.tokens))
                    print(f"take {at + 1}: {takes[-1]}", file=sys.stderr)
                name = f"{len(distinct)} prompts of {options.prompt} tokens, {group} sequences of each"
                print(told(name, takes, options.sequences * options.tokens), end="\n\n", flush=True)
        finally:
            policy.close()


if __name__ == "__main__":
    main()
