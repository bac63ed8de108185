"""Batched sampling with token ids and log-probabilities, from the full distribution.

Prompts of one batch share most of their tokens: K rollouts have the same prompt, tasks of one world the same system
message. The key-value cache is therefore grown in three widths, each token being read once:

    stems     one row per family of prompts: the tokens that they all begin with
    prompts   one row per distinct prompt: its own rest, on a copy of its stem's cache
    draws     one row per completion, on a copy of its prompt's cache

Where a prompt goes on from a completion of before (the next turn of a conversation), the cache of that is taken up
instead (training/cache.py). Rows are padded on the left of each part, so a draw's cache reads [pad stem pad rest
completion]; the attention mask hides the pads and the position ids skip them, hence the gaps change nothing but
rounding.

The randomness of a draw is a row of uniform numbers made from its own seed, one for each token: its completion depends
on the seed, never on its neighbours' (but their number changes rounding, so equal batches give equal results).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache

from training.cache import Front, Ids, Memory, read

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


@torch.inference_mode()
def generate(model: Any, draws: Sequence[Draw], stops: frozenset[int], memory: Memory | None = None) -> list[Drawn]:
    """Sample all draws as one batch; a completion ends at a stop token or at its max_tokens.

    With a `memory`, prompts that go on from what is remembered are a batch of their own, and all are remembered.
    """
    known = {at: memory.find(draw.prompt) if memory else None for at, draw in enumerate(draws)}
    results: dict[int, Drawn] = {}
    for part in ([at for at in known if not known[at]], [at for at in known if known[at]]):
        if part:
            prompts = [draws[at].prompt for at in part]
            begun = {draws[at].prompt: found for at in part if (found := known[at])}
            front = resumed(model, prompts, begun, memory) if memory and begun else prefill(model, prompts)
            results |= zip(part, grow(model, front, [draws[at] for at in part], stops, memory), strict=True)
    return [results[at] for at in range(len(draws))]


def grow(
    model: Any, front: Front, draws: Sequence[Draw], stops: frozenset[int], memory: Memory | None = None
) -> list[Drawn]:
    """Completions of the draws whose prompts the front has read, one row each."""
    device = front.mask.device
    noise = torch.stack([uniforms(draw.seed, max(d.max_tokens for d in draws)) for draw in draws]).to(device)
    temperature = torch.tensor([draw.temperature for draw in draws], device=device)
    drawn = [Drawn() for _ in draws]
    rows = list(range(len(draws)))
    """The draw in each row of the cache."""
    growing = set(rows)

    def leave(kept: Sequence[int]) -> None:
        """Remember the rows that are not kept; the last token of each is sampled, not read."""
        if memory:
            left = sorted(set(range(len(rows))) - set(kept))
            memory.keep(front, left, [(*draws[rows[at]].prompt, *drawn[rows[at]].ids[:-1]) for at in left])

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
            leave(kept)
            front.select(kept)
            rows, tokens = [rows[at] for at in kept], tokens[kept]
        read(model, front, tokens[:, None], torch.ones_like(tokens[:, None]))
    leave([])
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


def resumed(model: Any, prompts: list[Ids], begun: Mapping[Ids, Ids], memory: Memory) -> Front:
    """As `prefill`, where the model has read the beginning of each prompt before."""
    distinct = list(begun)
    front = memory.front(model, [begun[prompt] for prompt in distinct])
    read(model, front, *padded([prompt[len(begun[prompt]) :] for prompt in distinct], model))
    place = {prompt: row for row, prompt in enumerate(distinct)}
    front.select([place[prompt] for prompt in prompts])
    return front


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
