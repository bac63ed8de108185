"""A task's reference in the place of a rollout, where a whole group of rollouts fails.

Rewards teach nothing there, however often the task is sampled: what the policy never writes can't be rewarded. Its
reference is known, and passed on replay before the task was admitted, so it stands for one member of the group and gets
the group's only reward; the rollouts that failed count in the baseline and are not trained on. That is supervised
learning on what is still too hard and RL on the rest, in one step (as in ReLIFT, arXiv 2506.07527). Nobody sampled the
reference: its ratio is taken to the trainer's own probabilities, which makes it 1 at the step it is used in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.protocols import Env
from store.rows import Task
from training.chat import IGNORED, solution_ids
from training.flatten import Row
from training.model import load_tokenizer
from training.sft import context, solution

NOT_SAMPLED = math.nan
"""In the place of a sampler's log-probability."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demonstrations:
    """References as the trainer reads rollouts."""

    env: Env
    tokenizer: Any
    tools: bool
    """As tool calls."""
    limit: int
    """Tokens that the model reads."""

    def __call__(self, task: Task) -> Row | None:
        """None where the reference is too long."""
        shown = solution(self.env, task, self.tools)
        ids, labels = solution_ids(self.tokenizer, shown.messages, shown.tools)
        if len(ids) > self.limit:
            return None
        start = next(at for at, label in enumerate(labels) if label != IGNORED)
        mask = [int(label != IGNORED) for label in labels[start:]]
        logprobs = [NOT_SAMPLED if own else 0.0 for own in mask]
        return Row(prompt_ids=ids[:start], completion_ids=ids[start:], env_mask=mask, logprobs=logprobs)


def demonstrations(env: Env, folder: Path, *, tools: bool) -> Demonstrations:
    """For the model in this folder."""
    return Demonstrations(env=env, tokenizer=load_tokenizer(folder, tools=tools), tools=tools, limit=context(folder))
