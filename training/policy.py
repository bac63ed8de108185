"""A local model as a policy: a Hugging Face folder, with or without one of our checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from envs.errors import PolicyUnavailable
from envs.protocols import Completion, Request
from training.cache import Memory
from training.chat import assistant_message, encode
from training.config import ModelSettings
from training.model import load_tokenizer, merged, prepare, put_weights
from training.sample import Draw, Drawn, generate, shares

log = logging.getLogger(__name__)


class HFPolicy:
    """The `transformers` engine: samples from base + layers.

    Equal batches of requests, after equal ones since the weights were loaded, give equal completions."""

    concurrent = False

    def __init__(
        self,
        folder: Path,
        *,
        spec: str,
        layers: Sequence[Path] = (),
        version: int = 0,
        step: int | None = None,
        settings: ModelSettings | None = None,
        tools: bool = False,
    ) -> None:
        """`folder` as `smollm2.resolve(spec)` gives it. UsageError if it holds no model that can chat (with
        `tools`: one that can use them)."""
        settings = settings or ModelSettings()
        prepare(settings, seed=0)
        self.spec = spec
        self.version = version
        self.step: int | None = step
        self.batch = settings.batch
        self.tokenizer = load_tokenizer(folder, tools=tools)
        self.model = merged(folder, layers, settings.dtype)
        self.stops = stop_ids(self.model, self.tokenizer)
        self._memory = Memory() if shares(self.model) else None
        self.context: int = getattr(self.model.config, "max_position_embeddings", 1 << 30)

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """One entry a request. The event loop waits: nothing else can use the processor meanwhile."""
        return [
            entry
            for start in range(0, len(requests), self.batch)
            for entry in self._batch(requests[start : start + self.batch])
        ]

    def load(self, weights: Iterable[tuple[str, Any]], *, version: int, step: int) -> float:
        """Take over new weights of the plain model. Returns seconds."""
        started = time.monotonic()
        put_weights(self.model, weights)
        if self._memory:
            self._memory.clear()
        self.version, self.step = version, step
        return time.monotonic() - started

    def close(self) -> None:
        """Nothing is held outside this object."""

    def _batch(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        entries: dict[int, Completion | Exception] = {}
        draws: dict[int, Draw] = {}
        for at, request in enumerate(requests):
            draw = self._draw(request)
            if isinstance(draw, Draw):
                draws[at] = draw
            else:
                entries[at] = draw
        start = time.perf_counter()
        try:
            results = generate(self.model, list(draws.values()), self.stops, self._memory) if draws else []
        except (RuntimeError, MemoryError) as error:  # what torch raises when the machine runs out of memory
            log.warning("Sampling %d requests failed: %s", len(draws), error)
            failure = PolicyUnavailable(f"the model failed: {error}")
            return [entries.get(at, failure) for at in range(len(requests))]
        log.debug("Sampled %d completions in %.2f s", len(draws), time.perf_counter() - start)
        for (at, draw), drawn in zip(draws.items(), results, strict=True):
            entries[at] = self._completion(draw, drawn, tools=bool(requests[at].tools))
        return [entries[at] for at in range(len(requests))]

    def _draw(self, request: Request) -> Draw | Exception:
        prompt = tuple(encode(self.tokenizer, request.messages, request.tools))
        room = self.context - len(prompt)
        if room < 1:
            return PolicyUnavailable(f"a prompt of {len(prompt)} tokens does not fit in {self.context}")
        return Draw(
            prompt=prompt,
            seed=request.seed,
            temperature=request.temperature,
            max_tokens=min(request.max_tokens, room),
        )

    def _completion(self, draw: Draw, drawn: Drawn, *, tools: bool) -> Completion:
        return Completion(
            message=assistant_message(self.tokenizer, drawn.ids, tools=tools),
            prompt_ids=list(draw.prompt),
            completion_ids=drawn.ids,
            logprobs=drawn.logprobs,
            prompt_tokens=len(draw.prompt),
            completion_tokens=len(drawn.ids),
        )


def stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a completion: the tokenizer's and those of the model's generation settings."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    listed = configured if isinstance(configured, list) else [configured]
    return frozenset(id_ for id_ in [tokenizer.eos_token_id, *listed] if id_ is not None)
