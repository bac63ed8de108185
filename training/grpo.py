"""GRPO by TRL: one iteration's optimiser steps on groups of rollouts, resumable after every step.

The objective of CoEvolve (arXiv 2604.15840, section 3.1) for one group of K rollouts of a task:

    J = (1 / sum_k |tau_k|) * sum_k sum_t min(r A_k, clip(r, 1 - eps, 1 + eps) A_k)  -  beta * KL(pi || pi_ref)

In TRL that is `loss_type="bnpo"` with one group a micro-batch; a step accumulates `groups` of them, or with several
processes (training/ranks.py) each its share of them. The ratio r is taken to the probabilities of the sampler, and
pi_ref is version 0 in all rounds: the model below the adapter, or, where all weights are trained, a second model.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.model import (
    autocast,
    device,
    finite,
    fresh_lora,
    kind,
    load_tokenizer,
    master_dtype,
    merged,
    merged_weights,
    prepare,
    torch_dtype,
)

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is marked experimental in TRL 1.16

# isort: split
import torch
from datasets import Dataset
from peft import set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from envs.errors import InfraError
from store.errors import StoreError, UsageError
from store.rows import Json
from training import ranks
from training.ahead import Ahead
from training.at_once import AtOnce
from training.checkpoint import refuse_other
from training.config import TrainSettings
from training.engine import Engine
from training.groups import Feed, Group, Member, Tally, staleness
from training.logps import one_row, shared_prompt_logps
from training.steps import finish_step, newest_step, steps_of
from training.sync import Weights

logging.getLogger("trl.trainer.grpo_trainer").setLevel(logging.ERROR)  # it warns of each rollout without a score

ADAPTER = "adapter_model.safetensors"


class GroupTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL is not typed
    """The one place where TRL 1.16 has no extension point: whose probabilities the ratio is taken to.

    Without its own vLLM client TRL takes the trainer's probabilities as the old ones, so a sampler that differs from
    the trainer (another kernel, another engine, older weights) goes uncorrected. And it reads K copies of a prompt.
    """

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        ranks.keep_outputs(self.accelerator)

    def _load_from_checkpoint(self, *_: Any, **__: Any) -> None:
        """The weights are there before the first rollouts, and only the rest is left to be loaded."""

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
        prompts, read = input_ids.split([input_ids.shape[1] - logits_to_keep, logits_to_keep], dim=1)
        before, real = attention_mask.split([prompts.shape[1], logits_to_keep], dim=1)
        # On several ranks each forward pass waits for the others', so all must take the same number: TRL's one.
        alone = device() == "cpu" and ranks.world() == 1
        if alone and before.all() and one_row(model, prompts, real):
            found: Any = (*shared_prompt_logps(model, prompts[:1], read, real, self.temperature), None)
        else:
            found = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, *args, **options
            )
        if torch.is_grad_enabled():
            old, mask = self._sampled
            old.copy_(torch.where(old.isnan(), found[0].detach(), old))  # nobody sampled a demonstration
            ratio = ((found[0].detach() - old) * mask).exp()
            here = torch.stack([(ratio * mask).sum(), mask.sum().to(ratio.dtype), (ratio * mask).max()])
            everywhere: Any = self.accelerator.gather(here)
            total, tokens, largest = everywhere.view(-1, 3).unbind(1)
            if tokens.sum() > 0:  # else the step has fewer groups, and this is the place of one that is not there
                self._metrics["train"]["is_ratio/mean"].append((total.sum() / tokens.sum()).item())
                self._metrics["train"]["is_ratio/max"].append(largest.max().item())
        return found


@dataclass(kw_only=True, slots=True)
class Server:
    """Hands this rank's groups of a step to TRL, one a micro-batch, as its `rollout_func`."""

    rollouts: int
    """K."""
    pad: int
    """Id of a token that stands where nothing was sampled; masked out."""
    groups: list[Group] = field(default_factory=list)
    """Where there are fewer than a step has, blanks take the places that are left."""

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
    """The layers that make pi_ref of the base."""
    start: Path | None
    """The checkpoint to go on from: weights, optimiser, scheduler, RNG. None = begin at pi_ref."""
    scratch: Path
    """Where the steps of this iteration are kept until it is published."""
    version: int
    """Policy version that is trained on."""
    seed: int
    settings: TrainSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What the other ranks need to know to take part in an iteration."""

    job: Job
    start: Path | None
    """The checkpoint to go on from."""
    tasks: int
    """An upper bound of the optimiser steps."""


def train_iteration(job: Job, feed: Feed, engine: Engine) -> tuple[Path | None, dict[str, Json]]:
    """Take all optimiser steps that the iteration's tasks give; the other ranks `take_part`.

    Returns the folder of the last step, None where no group had anything to teach, and figures. Running it again after
    a kill goes on after the last step that is on the disk.
    """
    prepare(job.settings.model, job.seed)
    begun = newest_step(job.scratch)
    if begun:
        refuse_other(job.settings.weights, kind(begun[0]), begun[0])
    told = ranks.share(lambda: _told(job, begun[0] if begun else job.start, len(feed.tasks)))
    if begun:
        feed.tally = begun[1].tally
    grpo = job.settings.grpo
    source = Ahead if engine.concurrent else AtOnce
    with source(feed, groups=grpo.groups, staleness=grpo.staleness) as ahead:
        lead = Lead(feed=feed, engine=engine, ahead=ahead)
        try:
            steps = _train(told, lead)
        except (OSError, SafetensorError, RuntimeError) as error:
            if not disk_refused(error):
                raise
            raise StoreError(f"{job.scratch}: {error}; free space and run again with --resume") from error
    found = newest_step(job.scratch)
    return found[0] if found else None, figures(lead, steps)


def take_part(told: Told) -> None:
    """The same on a rank other than 0."""
    prepare(told.job.settings.model, told.job.seed)
    _train(told, None)


def _told(job: Job, start: Path | None, tasks: int) -> Told:
    groups, world = job.settings.grpo.groups, ranks.world()
    if groups % world:
        raise UsageError(
            f"train.grpo.groups = {groups}: {world} processes share the groups of a step; set a multiple of {world}"
        )
    if ranks.shards_flat():
        raise UsageError("train.accelerate: fsdp_version = 1 hides the names of the weights; set fsdp_version: 2 in it")
    return Told(job=job, start=start, tasks=tasks)


def _train(told: Told, lead: Lead | None) -> int:
    """Returns the optimiser steps of the run."""
    job = told.job
    server = Server(rollouts=job.settings.collect.rollouts, pad=load_tokenizer(job.folder).pad_token_id)
    loop = Loop(job=job, server=server, lead=lead, steps=steps_of(told.start))
    trainer = make_trainer(job, server, steps=told.tasks, callbacks=[loop], start=told.start)
    if not loop.fill(trainer.model):
        return loop.steps
    trainer.args.max_steps = loop.steps + told.tasks
    trainer.train(resume_from_checkpoint=str(told.start) if told.start else None)
    if not ranks.agreed(finite(trainer.model)):
        raise InfraError(f"the update diverged; lower train.grpo.lr, now {job.settings.grpo.lr:g}")
    return loop.steps


def disk_refused(error: Exception) -> bool:
    """Whether a checkpoint could not be written: torch reports that as a RuntimeError of its zip writer."""
    return not isinstance(error, RuntimeError) or "inline_container.cc" in str(error)


def figures(lead: Lead, steps: int) -> dict[str, Json]:
    tally = lead.feed.tally
    return {
        "steps": steps,
        "groups": dict(tally.kinds),
        "sample_seconds": tally.sample_seconds,
        "environment_seconds": tally.env_seconds,
        "sync_seconds": lead.sync_seconds,
        "wait_seconds": lead.ahead.waited,
    }


def make_trainer(
    job: Job,
    server: Server,
    *,
    steps: int,
    callbacks: Sequence[TrainerCallback],
    start: Path | None = None,
    trainer_class: type[GRPOTrainer] = GroupTrainer,
) -> Any:
    """A trainer with the weights of `start` (None: those to begin with), for at most `steps` optimiser steps."""
    settings, lora = job.settings, job.settings.weights == "lora"
    below = [start] if start and not lora else job.reference
    dtype = master_dtype(settings.weights, settings.model.dtype)
    base = merged(job.folder, below, dtype, attention="eager" if device() == "cpu" else "sdpa")
    if not lora:
        # From there TRL loads pi_ref, where beta > 0. Version 0 is a folder: the base model's, or its own.
        base.config._name_or_path = str([job.folder, *job.reference][-1])
    torch.manual_seed(job.seed % 2**63)
    trainer = trainer_class(
        model=base,
        peft_config=fresh_lora(settings.sft) if lora else None,
        reward_funcs=reward,
        args=arguments(job),
        train_dataset=Dataset.from_dict({"prompt": [""] * (steps + 1) * settings.grpo.groups}),
        processing_class=load_tokenizer(job.folder),
        rollout_func=server,
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    if start and lora:
        set_peft_model_state_dict(trainer.model, load_file(start / ADAPTER))
    return trainer


def arguments(job: Job) -> GRPOConfig:
    settings, on_cpu = job.settings, device() == "cpu"
    return GRPOConfig(
        output_dir=str(job.scratch),
        per_device_train_batch_size=settings.collect.rollouts,
        num_generations=settings.collect.rollouts,
        gradient_accumulation_steps=settings.grpo.groups // ranks.world(),
        steps_per_generation=1,
        loss_type="bnpo",
        scale_rewards="group",
        epsilon=settings.grpo.epsilon,
        beta=settings.grpo.beta,
        use_bias_correction_kl=True,  # the KL is of pi, but pi_old sampled: DeepSeek-V3.2, arXiv 2512.02556
        temperature=settings.collect.temperature,
        learning_rate=settings.grpo.lr * settings.grpo.decay**job.version,
        lr_scheduler_type="constant",
        max_steps=1,
        seed=job.seed % 2**32,
        shuffle_dataset=False,
        ignore_data_skip=True,
        use_cpu=on_cpu,
        bf16=autocast(settings.weights, settings.model.dtype),
        # Of pi_ref, where TRL loads it.
        model_init_kwargs={"dtype": torch_dtype(settings.model.dtype), "device_map": None},
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=not on_cpu,
        gradient_checkpointing=not on_cpu,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


@dataclass(kw_only=True, slots=True)
class Lead:
    """What rank 0 alone does between two optimiser steps: sync the sampler, get the next groups, write down."""

    feed: Feed
    engine: Engine
    ahead: Ahead | AtOnce
    sync_seconds: float = 0.0
    cursor: Tally = field(default_factory=lambda: Tally())
    """As it stood before the groups of the next step were sampled."""
    figures: dict[str, float] = field(default_factory=dict)
    """Of the step that was last taken."""
    at_hand: dict[str, float] = field(default_factory=dict)
    """What is known already of the step that is taken next."""

    def next_groups(self, weights: Weights, job: Job, step: int) -> list[Group]:
        waited, synced = self.ahead.waited, 0.0
        if self.ahead.wants_weights:
            with self.ahead.idle():
                synced = self.engine.load(weights, version=job.version, step=step)
        self.sync_seconds += synced
        self.figures = self.at_hand | {"seconds/sync": synced}
        filled = self.ahead.next(step)
        self.cursor = filled.before
        self.at_hand = filled.after.since(filled.before) | staleness(filled.groups, step)
        self.at_hand["seconds/wait"] = self.ahead.waited - waited
        return filled.groups


@dataclass(kw_only=True, eq=False)
class Loop(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """What happens on each rank between two optimiser steps."""

    job: Job
    server: Server
    lead: Lead | None
    """On rank 0."""
    steps: int
    real: int = 0
    """Groups of the step at hand, on all ranks together."""
    blanks: float = 1.0
    """Micro-batches of the last step, the blank ones included, for each real one."""

    def fill(self, model: Any) -> bool:
        """Get the groups of the next step, sampled by `model`. False where no task is left that teaches anything."""
        weights: Weights = merged_weights(model, torch_dtype(self.job.settings.model.dtype))
        if ranks.sharded(model):
            weights = ranks.kept_by_rank_0(weights)
        lead, job, step = self.lead, self.job, self.steps
        groups = ranks.share(lambda: lead.next_groups(weights, job, step) if lead else [])
        self.real = len(groups)
        self.server.groups = ranks.mine(groups)
        return bool(groups)

    def on_train_begin(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, lr_scheduler: Any = None, **_: Any
    ) -> None:
        """The checkpoint has the learning rate of the version before."""
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] = args.learning_rate
        schedule = getattr(lr_scheduler, "scheduler", lr_scheduler)
        schedule.base_lrs = schedule._last_lr = [args.learning_rate] * len(optimizer.param_groups)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.steps = state.global_step
        self.blanks = self.job.settings.grpo.groups / ranks.world() / max(1, math.ceil(self.real / ranks.world()))
        control.should_save = True
        control.should_training_stop = not self.fill(model)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        ranks.await_all()  # each has written its random state
        if self.lead:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            finish_step(folder, state.global_step, self.lead.cursor)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if self.lead and logs and "reward" in logs:
            ours = {name: logs[key] for name, key in METRICS.items() if isinstance(logs.get(key), int | float)}
            ours |= {name: ours[name] * self.blanks for name in OF_ALL_GROUPS if name in ours}
            self.lead.feed.ledger.record(state.global_step, ours | self.lead.figures)


OF_ALL_GROUPS = ("kl", "entropy", "clip_fraction", "length/mean", "length/max")
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
