"""Supervised fine-tuning on the reference solutions of tasks, by TRL's SFTTrainer."""

from __future__ import annotations

import logging
import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# First: it sets the environment of transformers.
from training.model import (
    autocast,
    device,
    finite,
    fresh_lora,
    load_four_bit,
    load_model,
    load_tokenizer,
    master_dtype,
    prepare,
    with_adapter,
)

# isort: split
from datasets import Dataset
from peft import get_peft_model
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, PrinterCallback, TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from envs.errors import InfraError
from envs.protocols import Env, Message, Report
from store.errors import UsageError
from store.rows import Json, Task
from training.chat import IGNORED, solution_ids
from training.config import ModelSettings, SftSettings, TrainedWeights

log = logging.getLogger(__name__)

AT_ONCE = 4096
"""Tokens, padding included, of one forward pass: 8 rows of 2,000 took 10 GB for a model of 135M."""
SHORT = 512
"""Tokens up to which plain matrix products beat the fused attention's backward pass on a CPU (a fifth of a step)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    messages: Sequence[Message]
    tools: Sequence[Json] = ()
    """The tools that the prompt offers."""


async def solutions(env: Env, tasks: Sequence[Task], *, tools: bool = False) -> list[Solution]:
    """The references in the policy's action format. Each is replayed first; one that fails teaches nothing."""
    return [solution(env, task, tools) for task in tasks if (await env.replay(task)).success]


def solution(env: Env, task: Task, tools: bool) -> Solution:
    """The reference, not replayed."""
    offered = env.open(task.world, task, tools=True).tools if tools else ()
    return Solution(messages=env.solution(task, tools=tools), tools=offered)


def first_of_each(tasks: Sequence[Task]) -> list[Task]:
    """One of each structure, then a second of each, and so on: GRPO hardly finds what the warm start never shows."""
    seen: Counter[str] = Counter()
    turns: list[tuple[int, Task]] = []
    for task in tasks:
        turns.append((seen[task.structure], task))
        seen[task.structure] += 1
    return [task for _, task in sorted(turns, key=lambda turn: turn[0])]


def fine_tune(
    folder: Path,
    layer: Path | None,
    conversations: Sequence[Solution],
    *,
    epochs: int,
    seed: int,
    settings: SftSettings,
    model_settings: ModelSettings,
    weights: TrainedWeights = "lora",
    report: Report,
) -> tuple[Any, dict[str, Json]]:
    """The model with `layer` trained further (None: from the base on), and what it took. Loss on completions only."""
    prepare(model_settings, seed)
    tokenizer = load_tokenizer(folder, tools=any(each.tools for each in conversations))
    made = [solution_ids(tokenizer, each.messages, each.tools) for each in conversations]
    limit = context(folder)
    rows = [row for row in made if len(row[0]) <= limit]
    if not rows:
        raise UsageError(f"train: none of {len(made)} references fits the {limit} tokens that the model reads")
    if too_long := len(made) - len(rows):
        log.warning(
            "%d of %d references are longer than the %d tokens that the model reads", too_long, len(made), limit
        )
    longest = max(len(ids) for ids, _ in rows)
    short = device() == "cpu" and longest <= SHORT
    dtype, attention = master_dtype(weights, model_settings.dtype), "eager" if short else "sdpa"
    if settings.qlora:
        model = load_four_bit(folder, attention=attention)
    else:
        model = load_model(folder, dtype, attention=attention, weights=layer if weights == "full" else None)
    if weights == "lora":
        model = with_lora(model, layer, settings)
    steps = epochs * math.ceil(len(rows) / settings.batch)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = CompletionTrainer(
            model=model,
            processing_class=tokenizer,
            train_dataset=Dataset.from_list([{"input_ids": ids, "labels": labels} for ids, labels in rows]),
            args=arguments(
                Path(scratch),
                epochs=epochs,
                seed=seed,
                settings=settings,
                passes=passes(settings.batch, longest),
                bf16=autocast(weights, model_settings.dtype),
            ),
            callbacks=[Progress(report, steps)],
        )
        trainer.remove_callback(PrinterCallback)  # it prints to stdout, which belongs to the command's own output
        loss = trainer.train().training_loss
    if not (math.isfinite(loss) and finite(model)):
        raise InfraError(f"the update diverged (loss {loss}); lower train.sft.lr, now {settings.lr:g}")
    return model, {"examples": len(rows), "too_long": too_long, "steps": trainer.state.global_step, "loss": loss}


def context(folder: Path) -> int:
    """Tokens that the model can read: a longer row teaches nothing, and its attention may not fit the memory."""
    return int(getattr(AutoConfig.from_pretrained(folder), "max_position_embeddings", 2**31))


def with_lora(model: Any, adapter: Path | None, settings: SftSettings) -> Any:
    """The model with a trainable adapter; a fresh one is drawn from torch's generator, which `prepare` seeded."""
    if adapter:
        return with_adapter(model, adapter, trainable=True)
    return get_peft_model(model, fresh_lora(settings))


def passes(batch: int, longest: int) -> int:
    """Forward passes that a step's batch is read in; their gradients add up to the whole batch's."""
    fitting = (parts for parts in range(1, batch) if batch % parts == 0 and batch // parts * longest <= AT_ONCE)
    return next(fitting, batch)


def arguments(scratch: Path, *, epochs: int, seed: int, settings: SftSettings, passes: int, bf16: bool) -> SFTConfig:
    on_cpu = device() == "cpu"
    return SFTConfig(
        output_dir=str(scratch),
        num_train_epochs=epochs,
        per_device_train_batch_size=settings.batch // passes,
        gradient_accumulation_steps=passes,
        learning_rate=settings.lr,
        lr_scheduler_type="linear",
        seed=seed % 2**32,
        data_seed=seed % 2**32,
        use_cpu=on_cpu,
        bf16=bf16,
        dataloader_pin_memory=not on_cpu,
        gradient_checkpointing=False,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},  # ids and labels are ours, exact to the token
        logging_strategy="no",
        logging_nan_inf_filter=False,  # a loss that is no number must be seen
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


class CompletionTrainer(SFTTrainer):  # type: ignore[misc]  # TRL is not typed
    """TRL's trainer with the loss of completion tokens and nothing else.

    TRL 1.16 computes vocabulary log-probabilities, their entropy and the frozen head's gradient for all tokens, prompts
    included: more than half of a step of a small model. Here the head reads only the columns that bear a label.
    """

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Summed negative log-likelihood over `num_items_in_batch` labelled tokens, for inputs of [B, L]."""
        labels = inputs.pop("labels")[:, 1:]
        columns = (labels != IGNORED).any(0).nonzero().squeeze(1)
        outputs = model(**inputs, use_cache=False, logits_to_keep=columns)
        targets = labels[:, columns].flatten()
        count = (targets != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        logits = outputs.logits.float().flatten(0, 1)
        loss = cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum") / count
        return (loss, outputs) if return_outputs else loss


class Progress(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Passes optimiser steps on to a `Report`."""

    def __init__(self, report: Report, steps: int) -> None:
        self.report = report
        self.steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.report("update", state.global_step, self.steps)
