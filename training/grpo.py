"""GRPO by TRL: one iteration's optimiser steps on groups of rollouts, resumable after every step.

The objective of CoEvolve (arXiv 2604.15840, section 3.1) for one group of K rollouts of a task:

    J = (1 / sum_k |tau_k|) * sum_k sum_t min(r A_k, clip(r, 1 - eps, 1 + eps) A_k)  -  beta * KL(pi || pi_ref)

In TRL that is `loss_type="bnpo"` with one group a micro-batch; a step accumulates `groups` of them. The ratio r is
taken to the probabilities of the sampler, and pi_ref is the model below the adapter: version 0 in all rounds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.model import device, finite, fresh_lora, load_tokenizer, merged, merged_weights, prepare

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is marked experimental in TRL 1.16

# isort: split
import msgspec
import torch
from datasets import Dataset
from peft import set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from envs.errors import InfraError
from store.errors import StoreError
from store.rows import Json
from training.config import TrainSettings
from training.engine import Engine
from training.folders import MANIFEST, Files, differences, fingerprints
from training.groups import Feed, Group, Member, Tally
from training.logps import one_prompt, shared_prompt_logps

logging.getLogger("trl.trainer.grpo_trainer").setLevel(logging.ERROR)  # it warns of each rollout without a score

ADAPTER = "adapter_model.safetensors"
CURSOR = "cursor.json"


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """Written last into the folder of a step: where the data stood when its weights were made."""

    step: int
    """Optimiser steps of the run."""
    tally: Tally
    files: Files


class GroupTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL is not typed
    """The one place where TRL 1.16 has no extension point: whose probabilities the ratio is taken to.

    Without its own vLLM client TRL takes the trainer's probabilities as the old ones, so a sampler that differs from
    the trainer (another kernel, another engine, older weights) goes uncorrected. And it reads K copies of a prompt.
    """

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        output["old_per_token_logps"] = output["sampling_per_token_logps"]
        return output

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        self._sampled = inputs["old_per_token_logps"], inputs["completion_mask"] * inputs["tool_mask"]
        return super()._compute_loss(model, inputs)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, *args: Any, **options: Any
    ) -> Any:
        prompts = input_ids[:, :-logits_to_keep]
        if device() == "cpu" and attention_mask[:, :-logits_to_keep].all() and one_prompt(prompts):
            found: Any = shared_prompt_logps(
                model,
                prompts[:1],
                input_ids[:, -logits_to_keep:],
                attention_mask[:, -logits_to_keep:],
                self.temperature,
            )
            found = (*found, None)
        else:
            found = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, *args, **options
            )
        if torch.is_grad_enabled():
            old, mask = self._sampled
            ratio = ((found[0].detach() - old) * mask).exp()
            self._metrics["train"]["is_ratio/mean"].append((ratio * mask).sum().item() / max(1, mask.sum().item()))
            self._metrics["train"]["is_ratio/max"].append((ratio * mask).max().item())
        return found


@dataclass(kw_only=True, slots=True)
class Server:
    """Hands the groups of a step to TRL, one a micro-batch, as its `rollout_func`."""

    rollouts: int
    """K."""
    pad: int
    """Id of a token that stands where nothing was sampled; masked out."""
    size: int
    """Groups of a step; where there are fewer, blanks take the places that are left."""
    groups: list[Group] = field(default_factory=list)
    served: int = 0
    """Real groups of the step at hand."""

    def take(self, groups: list[Group]) -> None:
        """The groups of the next step."""
        self.groups, self.served = groups, len(groups)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """{"prompt_ids", "completion_ids", "logprobs", "env_mask", "score"}, each [K]; TRL's `prompts` are blanks."""
        members = self.groups.pop(0).members if self.groups else [Member(row=None, score=None)] * self.rollouts
        prompt = next((member.row.prompt_ids for member in members if member.row), [self.pad])
        rows = [self._row(member, prompt) for member in members]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _row(self, member: Member, prompt: list[int]) -> dict[str, Any]:
        row = member.row
        if row is None:
            # Two tokens: TRL takes a single column for one value a sequence, and forgets the mask.
            empty = {"completion_ids": [self.pad] * 2, "logprobs": [0.0] * 2, "env_mask": [0] * 2}
            return {"prompt_ids": prompt, **empty, "score": member.score}
        mask = row.env_mask if member.score is not None else [0] * len(row.env_mask)
        return {
            "prompt_ids": row.prompt_ids,
            "completion_ids": row.completion_ids,
            "logprobs": row.logprobs,
            "env_mask": mask,
            "score": member.score,
        }


def reward(score: list[float | None], **_: Any) -> list[float | None]:
    """The environment's score; None is left out of the baseline by TRL."""
    return score


@dataclass(kw_only=True, slots=True)
class Job:
    """One iteration's update."""

    folder: Path
    """The base model."""
    reference: Sequence[Path]
    """Adapters below the one that is trained; with them merged in, the base is pi_ref."""
    start: Path | None
    """The checkpoint to go on from: adapter, optimiser, scheduler, RNG. None = a fresh adapter."""
    scratch: Path
    """Where the steps of this iteration are kept until it is published."""
    version: int
    """Policy version that is trained on."""
    seed: int
    settings: TrainSettings


def train_iteration(job: Job, feed: Feed, engine: Engine) -> tuple[Path | None, dict[str, Json]]:
    """Take all optimiser steps that the iteration's tasks give.

    Returns the folder of the last step, None where no group had anything to teach, and figures. Running it again after
    a kill goes on after the last step that is on the disk.
    """
    prepare(job.settings.model, job.seed)
    begun = newest_step(job.scratch)
    server = Server(
        rollouts=job.settings.collect.rollouts,
        pad=load_tokenizer(job.folder).pad_token_id,
        size=job.settings.grpo.groups,
    )
    with asyncio.Runner() as runner:
        loop = Loop(job=job, feed=feed, engine=engine, server=server, runner=runner)
        if begun:
            feed.tally = loop.cursor = begun[1].tally
        try:
            _train(job, loop, begun[0] if begun else job.start)
        except (OSError, SafetensorError, RuntimeError) as error:
            if not disk_refused(error):
                raise
            raise StoreError(f"{job.scratch}: {error}; free space and run again with --resume") from error
    found = newest_step(job.scratch)
    return found[0] if found else None, figures(feed, loop)


def _train(job: Job, loop: Loop, start: Path | None) -> None:
    trainer = make_trainer(job, loop.server, steps=len(loop.feed.tasks), callbacks=[loop])
    if start:
        set_peft_model_state_dict(trainer.model, load_file(start / ADAPTER))
    loop.steps = steps_of(start)
    loop.sync(trainer.model)
    if not loop.fill():
        return
    trainer.args.max_steps = loop.steps + len(loop.feed.tasks)
    trainer.train(resume_from_checkpoint=str(start) if start else None)
    if not finite(trainer.model):
        raise InfraError(f"the update diverged; lower train.grpo.lr, now {job.settings.grpo.lr:g}")


def disk_refused(error: Exception) -> bool:
    """Whether a checkpoint could not be written: torch reports that as a RuntimeError of its zip writer."""
    return not isinstance(error, RuntimeError) or "inline_container.cc" in str(error)


def figures(feed: Feed, loop: Loop) -> dict[str, Json]:
    tally = feed.tally
    return {
        "steps": loop.steps,
        "groups": dict(tally.kinds),
        "sample_seconds": tally.sample_seconds,
        "environment_seconds": tally.env_seconds,
        "sync_seconds": loop.sync_seconds,
    }


def make_trainer(
    job: Job,
    server: Server,
    *,
    steps: int,
    callbacks: Sequence[TrainerCallback],
    kind: type[GRPOTrainer] = GroupTrainer,
) -> Any:
    """A trainer on a fresh adapter, for at most `steps` optimiser steps."""
    settings = job.settings
    base = merged(job.folder, job.reference, settings.model.dtype, attention="eager" if device() == "cpu" else "sdpa")
    torch.manual_seed(job.seed % 2**63)
    trainer = kind(
        model=base,
        peft_config=fresh_lora(settings.sft),
        reward_funcs=reward,
        args=arguments(job),
        train_dataset=Dataset.from_dict({"prompt": [""] * (steps + 1) * settings.grpo.groups}),
        processing_class=load_tokenizer(job.folder),
        rollout_func=server,
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def arguments(job: Job) -> GRPOConfig:
    settings, on_cpu = job.settings, device() == "cpu"
    return GRPOConfig(
        output_dir=str(job.scratch),
        per_device_train_batch_size=settings.collect.rollouts,
        num_generations=settings.collect.rollouts,
        gradient_accumulation_steps=settings.grpo.groups,
        steps_per_generation=1,
        loss_type="bnpo",
        scale_rewards="group",
        epsilon=settings.grpo.epsilon,
        beta=settings.grpo.beta,
        use_bias_correction_kl=True,  # the KL is of pi, but pi_old sampled: DeepSeek-V3.2, arXiv 2512.02556
        temperature=settings.collect.temperature,
        learning_rate=settings.grpo.lr,
        lr_scheduler_type="constant",
        max_steps=1,
        seed=job.seed % 2**32,
        shuffle_dataset=False,
        ignore_data_skip=True,
        use_cpu=on_cpu,
        bf16=False,
        dataloader_pin_memory=not on_cpu,
        gradient_checkpointing=not on_cpu,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


@dataclass(kw_only=True, eq=False)
class Loop(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """What happens between two optimiser steps: sync the sampler, sample the next groups, save."""

    job: Job
    feed: Feed
    engine: Engine
    server: Server
    runner: asyncio.Runner
    """One event loop for the whole iteration: clients of servers live in it."""
    steps: int = 0
    sync_seconds: float = 0.0
    cursor: Tally = field(default_factory=lambda: Tally())
    """As it stood before the groups of the next step were sampled."""
    figures: dict[str, float] = field(default_factory=dict)
    blanks: float = 1.0
    """Groups of the last step, the blank ones included, for each real one."""

    def sync(self, model: Any) -> None:
        self.sync_seconds += self.engine.load(merged_weights(model), version=self.job.version, step=self.steps)

    def fill(self) -> bool:
        """Sample the groups of the next step. False where no task is left that teaches anything."""
        self.server.take(self.runner.run(self.feed.fill(self.server.size)))
        return bool(self.server.groups)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.steps = state.global_step
        self.blanks = self.server.size / max(1, self.server.served)
        synced = self.sync_seconds
        self.sync(model)
        now = self.feed.tally
        self.figures = now.since(self.cursor) | {"seconds/sync": self.sync_seconds - synced}
        self.cursor = now
        control.should_save = True
        control.should_training_stop = not self.fill()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        (folder / "README.md").unlink(missing_ok=True)
        files = fingerprints(folder)
        cursor = Cursor(step=state.global_step, tally=self.cursor, files=files)
        (folder / CURSOR).write_bytes(msgspec.json.encode(cursor))
        for other in folder.parent.glob("checkpoint-*"):
            if other != folder:
                shutil.rmtree(other)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs and "reward" in logs:
            ours = {name: logs[key] for name, key in METRICS.items() if isinstance(logs.get(key), int | float)}
            ours |= {name: ours[name] * self.blanks for name in OF_ALL_GROUPS if name in ours}
            self.feed.ledger.record(state.global_step, ours | self.figures)


OF_ALL_GROUPS = ("kl", "entropy", "clip_fraction", "is_ratio/mean", "is_ratio/max", "length/mean", "length/max")
"""Figures that TRL averages over the step's groups, in which a blank one counts as 0."""

METRICS = {
    "reward": "reward",
    "reward_std": "reward_std",
    "loss": "loss",
    "kl": "kl",
    "entropy": "entropy",
    "clip_fraction": "clip_ratio/region_mean",
    "is_ratio/mean": "is_ratio/mean",
    "is_ratio/max": "is_ratio/max",
    "length/mean": "completions/mean_length",
    "length/max": "completions/max_length",
    "grad_norm": "grad_norm",
    "lr": "learning_rate",
    "seconds/train": "step_time",
}
"""{our name: TRL's} of the figures of one optimiser step; lengths in sampled tokens."""


def newest_step(scratch: Path) -> tuple[Path, Cursor] | None:
    """The newest step whose folder is complete."""
    found: list[tuple[Path, Cursor]] = []
    for path in scratch.glob(f"checkpoint-*/{CURSOR}"):
        try:
            cursor = msgspec.json.decode(path.read_bytes(), type=Cursor)
        except (OSError, msgspec.MsgspecError):
            continue
        if not differences(path.parent, cursor.files, deep=True):
            found.append((path.parent, cursor))
    return max(found, key=lambda pair: pair[1].step, default=None)


def copy_step(step: Path, folder: Path) -> None:
    """Everything that a later iteration goes on from: adapter, optimiser, scheduler, RNG, trainer state."""
    for path in step.iterdir():
        if path.is_file() and path.name not in (CURSOR, MANIFEST):
            shutil.copy2(path, folder / path.name)


def steps_of(folder: Path | None) -> int:
    """Optimiser steps in a saved trainer state."""
    if folder is None:
        return 0
    return int(msgspec.json.decode((folder / "trainer_state.json").read_bytes())["global_step"])
