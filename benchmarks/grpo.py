"""One GRPO step: our harness against TRL's own trainer on the same batch.

    python -m benchmarks.grpo [--policy smollm2] [--groups 4] [--rollouts 8] [--prompt 130] [--tokens 30] [--repeat 3]

Both are handed the same groups through `rollout_func`, so nothing is sampled; both update a fresh LoRA of the same
size, without a KL term. Ours also syncs the weights to the sampler and saves the step, which is counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from training.config import CollectSettings, GrpoSettings, ModelSettings, TrainSettings
from training.flatten import Row
from training.groups import Group, Member
from training.grpo import GroupTrainer, GRPOTrainer, Job, Server, make_trainer
from training.model import load_tokenizer, merged_weights
from training.policy import HFPolicy
from training.smollm2 import resolve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="smollm2")
    for name, default in (("groups", 4), ("rollouts", 8), ("prompt", 130), ("tokens", 30), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    settings = TrainSettings(
        model=ModelSettings(),
        collect=CollectSettings(rollouts=asked.rollouts),
        grpo=GrpoSettings(groups=asked.groups, beta=0.0),
    )
    folder = resolve(asked.policy)
    generator = torch.Generator().manual_seed(0)
    groups = [a_group(asked, generator) for _ in range(asked.groups)]
    with tempfile.TemporaryDirectory() as scratch:
        job = Job(folder=folder, reference=[], start=None, scratch=Path(scratch), version=0, seed=0, settings=settings)
        sampler = HFPolicy(folder, spec=asked.policy, settings=settings.model)
        takes: dict[str, list[float]] = {"TRL": [], "ours": [], "ours, update only": []}
        for _ in range(asked.repeat):
            takes["TRL"].append(seconds(bare(job), groups, asked.groups))
            trainer = make_trainer(job, server(job), steps=2, callbacks=[])
            takes["ours, update only"].append(update := seconds(trainer, groups, asked.groups))
            takes["ours"].append(update + after(trainer, sampler))
    best = {name: min(found) for name, found in takes.items()}
    for name, found in best.items():
        print(f"{name:20} {found:6.2f} s a step   {found / best['TRL']:.2f} of TRL's   (goal <= 1.05)")


def a_group(asked: argparse.Namespace, generator: torch.Generator) -> Group:
    def ids(count: int) -> list[int]:
        return torch.randint(100, 40_000, (count,), generator=generator).tolist()

    prompt = ids(asked.prompt)
    members = []
    for k in range(asked.rollouts):
        length = asked.tokens - k % 4
        row = Row(prompt_ids=prompt, completion_ids=ids(length), env_mask=[1] * length, logprobs=[-10.0] * length)
        members.append(Member(row=row, score=float(k % 2)))
    return Group(task="x", members=members)


def server(job: Job) -> Server:
    pad = load_tokenizer(job.folder).pad_token_id
    return Server(rollouts=job.settings.collect.rollouts, pad=pad)


def bare(job: Job) -> GRPOTrainer:
    """TRL's trainer as it comes, with the same arguments."""
    return make_trainer(job, server(job), steps=2, callbacks=[], trainer_class=GRPOTrainer)


def seconds(trainer: Any, groups: list[Group], count: int) -> float:
    """Of the second of two steps: the first warms up."""
    stamps: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            stamps.append(time.perf_counter())

    trainer.rollout_func.groups = groups * 2
    trainer.args.max_steps = 2
    trainer.add_callback(Clock())
    trainer.train()
    return stamps[1] - stamps[0]


def after(trainer: GroupTrainer, sampler: HFPolicy) -> float:
    """What our loop adds to a step: weight sync and saving."""
    started = time.perf_counter()
    sampler.load(merged_weights(trainer.model), version=0, step=1)
    trainer._save_checkpoint(trainer.model, None)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
