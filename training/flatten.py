"""A multi-turn trajectory as one row for the trainer: prompt, then everything after it, with the policy's own tokens
marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.rows import Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    prompt_ids: list[int]
    """[P] what the sampler was given in the first turn."""
    completion_ids: list[int]
    """[C] the first turn's sampled tokens, the environment's up to the second prompt's end, the second turn's, ..."""
    env_mask: list[int]
    """[C] 1 = the policy sampled it, 0 = the environment or the chat template wrote it (TRL's convention)."""
    logprobs: list[float]
    """[C] of sampled tokens under the sampling distribution, 0.0 elsewhere."""


def flatten(steps: Sequence[Step]) -> Row:
    """One rollout's steps, in order. ValueError if they are no conversation that grew from turn to turn.

    What the environment said after the last turn is in no prompt and in no row.
    """
    if not steps:
        raise ValueError("a trajectory without steps has nothing to train on")
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for step in steps:
        prompt, sampled, sampled_logprobs = _given(step)
        if prompt[: len(ids)] != ids:
            raise ValueError(f"{_name(step)}: its prompt does not start with the turns before it")
        shown = prompt[len(ids) :]
        ids += shown + sampled
        mask += [0] * len(shown) + [1] * len(sampled)
        logprobs += [0.0] * len(shown) + sampled_logprobs
    start = len(steps[0].prompt_ids or ())
    return Row(prompt_ids=ids[:start], completion_ids=ids[start:], env_mask=mask[start:], logprobs=logprobs[start:])


def _given(step: Step) -> tuple[list[int], list[int], list[float]]:
    if step.prompt_ids is None or step.completion_ids is None or step.logprobs is None:
        raise ValueError(
            f"{_name(step)}: its sampler gave no token ids; only a local model's rollouts can be trained on"
        )
    if len(step.completion_ids) != len(step.logprobs):
        raise ValueError(f"{_name(step)}: {len(step.completion_ids)} tokens, {len(step.logprobs)} log-probabilities")
    return step.prompt_ids, step.completion_ids, step.logprobs


def _name(step: Step) -> str:
    return f"step {step.index} of trajectory {step.trajectory_id}"
