"""A task's reference in the place of a failed rollout.

Rewards teach nothing where all rollouts of a task fail, however often it is sampled: what the policy never writes can't
be rewarded. Its reference is known, and passed on replay before the task was admitted, so it stands for one failed
member of the group, with the score 1 (an off-policy member in a group of on-policy ones, as in LUFFY, arXiv
2504.14945). Where all failed, the others count in the baseline and are not trained on, which is supervised learning on
what is still too hard. Nobody sampled the reference: its ratio is taken to the trainer's own probabilities, which makes
it 1 at the step it is used in.
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
