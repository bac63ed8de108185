"""What a trained row marks as the policy's own."""

from __future__ import annotations

from collections.abc import Sequence

from store.rows import Step
from training.flatten import flatten


def assert_masks(steps: Sequence[Step]) -> None:
    """The marked tokens are those that were sampled, in order, and no others."""
    row = flatten(steps)
    marked = [id_ for id_, mine in zip(row.completion_ids, row.env_mask, strict=True) if mine]
    assert marked == [id_ for step in steps for id_ in step.completion_ids or []]
    assert [p for p, mine in zip(row.logprobs, row.env_mask, strict=True) if not mine] == [0.0] * row.env_mask.count(0)
