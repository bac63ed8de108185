"""Log-probabilities of the completions of one group, whose members have the same prompt.

GRPO scores K completions of one prompt, and a trainer that reads K padded copies reads mostly prompts and padding: of
8 x (130 + 30) tokens only 370 are different. Here the prompt and all completions stand in one row, each token once; the
attention mask shows a completion the prompt and itself, and its positions go on from the prompt's end.
"""

from __future__ import annotations

from typing import Any

import torch

from training.sample import shares

LONGEST = 4096
"""Tokens of a row up to which its square of attention scores is small beside the rest of the model's work."""


def one_row(model: Any, prompts: torch.Tensor, mask: torch.Tensor) -> bool:
    """Whether [K, P] prompts without padding and completions with this [K, C] mask are to be read as one row."""
    same = bool((prompts == prompts[:1]).all())
    return same and prompts.shape[1] + int(mask.sum()) <= LONGEST and shares(model)


def shared_prompt_logps(
    model: Any, prompt: torch.Tensor, completions: torch.Tensor, mask: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """[K, C] log-probabilities and [K, C] entropies (nats, no gradient) of completions of one prompt; 0 on padding.

    prompt [1, P] ids without padding; completions [K, C] ids and mask [K, C] padded on the right.
    """
    real = mask.bool()
    start, counts = prompt.shape[1], real.sum(1)
    targets = completions[real]  # [N], one completion after the other
    first = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])  # [K] where each begins among them
    owner = torch.arange(len(counts), device=real.device).repeat_interleave(counts)
    place = torch.arange(len(targets), device=real.device) - first[owner]  # within its completion
    logits = model(
        input_ids=torch.cat([prompt[0], targets])[None],
        attention_mask=_visible(start, owner, model.dtype),
        position_ids=torch.cat([torch.arange(start, device=real.device), start + place])[None],
        use_cache=False,
        # Each token is predicted by the one before it: the first of a completion by the end of the prompt.
        logits_to_keep=torch.where(place == 0, start - 1, start + torch.arange(len(targets), device=real.device) - 1),
    ).logits[0]
    scores = torch.log_softmax(logits.float() / temperature, dim=-1)  # [N, V]
    with torch.no_grad():
        entropy = -(scores.exp() * scores).sum(-1)
    chosen = scores.gather(-1, targets[:, None]).squeeze(-1)
    blank = scores.new_zeros(real.shape)
    return blank.masked_scatter(real, chosen), blank.masked_scatter(real, entropy)


def _visible(start: int, owner: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """[1, 1, L, L] additive mask of `start` prompt tokens and completion tokens with these owners."""
    owners = torch.cat([owner.new_full((start,), -1), owner])
    seen = (owners[:, None] == owners) | (owners == -1)
    hidden = ~seen.tril()
    return torch.zeros(hidden.shape, dtype=dtype, device=owner.device).masked_fill(hidden, torch.finfo(dtype).min)[
        None, None
    ]
