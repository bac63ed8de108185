"""Batched sampling with token ids and log-probabilities, from the full distribution.

Prompts of one batch share most of their tokens: K rollouts have the same prompt, tasks of one world the same system
message. The key-value cache is therefore grown in three widths, each token being read once:

    stems     one row per family of prompts: the tokens that they all begin with
    prompts   one row per distinct prompt: its own rest, on a copy of its stem's cache
    draws     one row per completion, on a copy of its prompt's cache

Rows are padded on the left of each part, so a draw's cache reads [pad stem pad rest completion]; the attention mask
hides the pads and the position ids skip them, hence the gaps change nothing but rounding.

The randomness of a draw is a row of uniform numbers made from its own seed, one for each token: its completion depends
on the seed, never on its neighbours' (but their number changes rounding, so equal batches give equal results).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache

Ids = tuple[int, ...]

COMPACT = 0.875
"""Finished rows leave the cache when at most this share of its rows is still growing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """One completion to be sampled."""

    prompt: Ids
    seed: int
    temperature: float
    """0 = greedy."""
    max_tokens: int


@dataclass(kw_only=True, slots=True)
class Drawn:
    """[C] ids, the stop token included where it was reached, and their log-probabilities."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Under the distribution that was sampled from; for greedy draws under the plain softmax."""


@dataclass(kw_only=True, slots=True)
class Front:
    """A batch of token rows that the model has read."""

    cache: DynamicCache
    mask: torch.Tensor
    """[B, L] 1 on real tokens."""
    logits: torch.Tensor
    """[B, V] float32, of the next token."""

    def select(self, rows: list[int]) -> None:
        """Keep these rows, in this order; a row may be named more than once."""
        index = torch.tensor(rows, device=self.mask.device)
        self.cache.batch_select_indices(index)
        self.mask, self.logits = self.mask[index], self.logits[index]


@torch.inference_mode()
def generate(model: Any, draws: Sequence[Draw], stops: frozenset[int]) -> list[Drawn]:
    """Sample all draws as one batch; a completion ends at a stop token or at its max_tokens."""
    front = prefill(model, [draw.prompt for draw in draws])
    device = front.mask.device
    noise = torch.stack([uniforms(draw.seed, max(d.max_tokens for d in draws)) for draw in draws]).to(device)
    temperature = torch.tensor([draw.temperature for draw in draws], device=device)
    drawn = [Drawn() for _ in draws]
    rows = list(range(len(draws)))
    """The draw in each row of the cache."""
    growing = set(rows)
    for position in range(noise.shape[1]):
        tokens, logprobs = choose(front.logits, temperature[rows], noise[rows, position])
        for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
            if row in growing:
                drawn[row].ids.append(token)
                drawn[row].logprobs.append(logprob)
                if token in stops or len(drawn[row].ids) == draws[row].max_tokens:
                    growing.remove(row)
        if not growing:
            break
        if len(growing) <= COMPACT * len(rows):
            kept = [at for at, row in enumerate(rows) if row in growing]
            front.select(kept)
            rows, tokens = [rows[at] for at in kept], tokens[kept]
        read(model, front, tokens[:, None], torch.ones_like(tokens[:, None]))
    return drawn


def uniforms(seed: int, count: int) -> torch.Tensor:
    """[count] float64 in [0, 1): all the randomness of one draw."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def choose(logits: torch.Tensor, temperature: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[B] tokens and [B] log-probabilities: greedy where the temperature is 0, else by the inverse of the CDF at u."""
    greedy = temperature == 0
    scores = torch.log_softmax(logits / torch.where(greedy, 1.0, temperature)[:, None], dim=-1)
    cdf = scores.exp().cumsum(-1, dtype=torch.float64)
    # u < 1, but u * total may round up to the total, where searchsorted points past the end.
    inverse = torch.searchsorted(cdf, u[:, None] * cdf[:, -1:], right=True).squeeze(1).clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logits.argmax(-1), inverse)
    return tokens, scores.gather(1, tokens[:, None]).squeeze(1)


def prefill(model: Any, prompts: list[Ids]) -> Front:
    """Read all prompts, shared tokens once; one row a prompt, in their order."""
    distinct = sorted(set(prompts))
    families = stems(distinct) if shares(model) else []
    front = Front(
        cache=DynamicCache(config=model.config),
        mask=torch.empty(len(families) or len(distinct), 0, dtype=torch.long, device=model.device),
        logits=torch.empty(len(families) or len(distinct), 0, device=model.device),
    )
    if families:
        read(model, front, *padded([stem for stem, _ in families], model))
        front.select([at for at, (_, members) in enumerate(families) for _ in members])
        rests = [prompt[len(stem) :] for stem, members in families for prompt in members]
    else:
        rests = distinct
    read(model, front, *padded(rests, model))
    place = {prompt: row for row, prompt in enumerate(distinct)}
    front.select([place[prompt] for prompt in prompts])
    return front


def read(model: Any, front: Front, ids: torch.Tensor, mask: torch.Tensor) -> None:
    """Let the model read [B, L] further tokens, padded on the left where the mask is 0."""
    if not ids.shape[1]:
        return
    front.mask = torch.cat([front.mask, mask], dim=1)
    positions = (front.mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
    output = model(
        input_ids=ids,
        attention_mask=front.mask,
        position_ids=positions,
        past_key_values=front.cache,
        use_cache=True,
        # an index, not a count: a slice of [B, L, H] is strided, and for each row torch would copy the whole head
        logits_to_keep=torch.tensor([ids.shape[1] - 1], device=ids.device),
    )
    front.logits = output.logits[:, -1].float()


def stems(prompts: list[Ids]) -> list[tuple[Ids, list[Ids]]]:
    """Sorted distinct prompts as families (stem, members) that share at least half of their shortest member.

    A stem is shorter than each member, so that every member has a token of its own to read.
    """
    families: list[tuple[Ids, list[Ids]]] = []
    for prompt in prompts:
        if families:
            stem, members = families[-1]
            common = common_prefix(stem, prompt[:-1])
            if 2 * len(common) >= min(len(prompt), *map(len, members)):
                families[-1] = (common, [*members, prompt])
                continue
        families.append((prompt[:-1], [prompt]))
    return families


def common_prefix(one: Ids, other: Ids) -> Ids:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return one[:at]
    return min(one, other, key=len)


def shares(model: Any) -> bool:
    """Whether the model attends by mask and position alone, so that pads between tokens are harmless."""
    layers = DynamicCache(config=model.config).layers
    return all(not getattr(layer, "is_sliding", False) for layer in layers)


def padded(rows: Sequence[Ids], model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, L] ids padded on the left by 0, and [B, L] mask."""
    width = max(map(len, rows))
    ids = [[0] * (width - len(row)) + list(row) for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    long = {"dtype": torch.long, "device": model.device}
    return torch.tensor(ids, **long), torch.tensor(mask, **long)
