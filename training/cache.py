"""Key-value caches of the `transformers` sampler: the rows that it is reading, and what it remembers of earlier ones.

    Front    a batch of rows that the model has read
    Memory   rows of finished completions: the next turn of a conversation begins with them, and reads only the rest

Columns that hold no token of a row (pads, and what a finished row was fed while others still grew) are hidden by the
mask and skipped by the positions, hence they change nothing but rounding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import DynamicCache

Ids = tuple[int, ...]
REMEMBERED = 1 << 30
"""Bytes of the rows that are remembered, the newest."""


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
        if rows == list(range(len(self.mask))):
            return
        index = torch.tensor(rows, device=self.mask.device)
        self.cache.batch_select_indices(index)
        self.mask, self.logits = self.mask[index], self.logits[index]


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


@dataclass(frozen=True, slots=True, eq=False)
class Shelf:
    """Rows that were put away together."""

    layers: list[tuple[torch.Tensor, torch.Tensor]]
    """Keys and values, each [R, G, L, D]."""
    mask: torch.Tensor
    """[R, L]"""

    @property
    def bytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)


class Memory:
    """Token sequences whose cache is at hand, for the weights that read them."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._shelves: OrderedDict[Shelf, list[Ids]] = OrderedDict()
        self._places: dict[Ids, tuple[Shelf, int]] = {}

    def clear(self) -> None:
        self._shelves.clear()
        self._places.clear()

    def keep(self, front: Front, rows: list[int], sequences: Sequence[Ids]) -> None:
        """Remember these rows of the front, as far as they hold the tokens of their sequences."""
        if not rows:
            return
        index = torch.tensor(rows, device=front.mask.device)
        lengths = torch.tensor([len(ids) for ids in sequences], device=front.mask.device)
        mask = front.mask[index]
        mask = mask * (mask.cumsum(1) <= lengths[:, None])
        width = int(mask.any(0).nonzero().max()) + 1
        layers = [
            (layer.keys[:, :, :width].index_select(0, index), layer.values[:, :, :width].index_select(0, index))
            for layer in front.cache.layers
        ]
        shelf = Shelf(layers, mask[:, :width])
        self._shelves[shelf] = list(sequences)
        self._places |= {ids: (shelf, row) for row, ids in enumerate(sequences)}
        while sum(each.bytes for each in self._shelves) > self._limit:
            old, forgotten = self._shelves.popitem(last=False)
            for ids in forgotten:
                if self._places.get(ids, (None,))[0] is old:
                    del self._places[ids]

    def find(self, prompt: Ids) -> Ids | None:
        """The longest sequence at hand with which the prompt begins, and does not end."""
        lengths = sorted({len(ids) for ids in self._places if len(ids) < len(prompt)}, reverse=True)
        return next((prompt[:length] for length in lengths if prompt[:length] in self._places), None)

    def front(self, model: Any, sequences: Sequence[Ids]) -> Front:
        """The rows of these sequences, in this order, as if the model had just read them; without logits."""
        shelves = list(dict.fromkeys(self._places[ids][0] for ids in sequences))
        width = max(shelf.mask.shape[1] for shelf in shelves)
        rows = [[row for shelf, row in map(self._places.__getitem__, sequences) if shelf is each] for each in shelves]

        def together(parts: Sequence[torch.Tensor]) -> torch.Tensor:
            """Parts [R, ..., L, D] as one, padded on the left."""
            return torch.cat(
                [pad(part[own], (0, 0, width - part.shape[-2], 0)) for part, own in zip(parts, rows, strict=True)]
            )

        cache = DynamicCache(config=model.config)
        for at in range(len(shelves[0].layers)):
            keys, values = (together([shelf.layers[at][side] for shelf in shelves]) for side in (0, 1))
            cache.update(keys, values, at)
        mask = together([shelf.mask[..., None] for shelf in shelves])[..., 0]
        front = Front(cache=cache, mask=mask, logits=torch.empty(len(mask), 0, device=mask.device))
        taken = [ids for each in shelves for ids in sequences if self._places[ids][0] is each]
        place = {ids: at for at, ids in enumerate(taken)}
        front.select([place[ids] for ids in sequences])
        return front
