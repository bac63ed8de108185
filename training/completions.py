"""Token ids in, token ids and log-probabilities out, over vLLM's /v1/completions.

Prompts are rendered and completions parsed by training.chat: the server never sees a message, and what it sampled is
never made again from text. Everything that shapes the distribution is sent with each request, since a server's own
defaults (a model's generation settings, too) may cut it.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
from transformers import GenerationConfig, PreTrainedConfig

from envs.errors import PolicyUnavailable
from envs.protocols import Completion, Request
from store.errors import UsageError
from training.chat import assistant_message, encode
from training.model import load_tokenizer
from training.policy import stop_ids
from training.rest import words
from training.serve import Served

FULL_SUPPORT: dict[str, float] = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""No token is cut off or punished: the importance ratio of the update is that of the whole distribution."""

Failed = Callable[[bool], str]
"""Called with whether the server is gone (else: silent, or broken); gives the words for the error message."""


class Speaker:
    """Renders prompts and reads completions as a model folder's tokenizer has it."""

    def __init__(self, folder: Path, name: str, context: int) -> None:
        """`name` is the served model's. UsageError if the folder holds no model that can chat."""
        self.tokenizer = load_tokenizer(folder)
        self.stops = sorted(stop_ids(SimpleNamespace(generation_config=_generation_config(folder)), self.tokenizer))
        self.name, self.context = name, context

    def body(self, request: Request) -> dict[str, Any]:
        """The JSON of one request. PolicyUnavailable if the prompt leaves no room for a token."""
        prompt = encode(self.tokenizer, request.messages, request.tools)
        room = self.context - len(prompt)
        if room < 1:
            raise PolicyUnavailable(f"a prompt of {len(prompt)} tokens does not fit in {self.context}")
        return FULL_SUPPORT | {
            "model": self.name,
            "prompt": prompt,
            "max_tokens": min(request.max_tokens, room),
            "temperature": request.temperature,
            "seed": request.seed,
            "logprobs": 0,  # of the sampled token alone
            "return_token_ids": True,
            "stop_token_ids": self.stops,
            "ignore_eos": True,  # `stops` are all that ends a completion, the same for every engine
            "skip_special_tokens": False,
        }

    def completion(self, request: Request, body: dict[str, Any], answer: Any) -> Completion:
        """The completion in the server's answer. PolicyUnavailable if it is not whole."""
        try:
            choice = answer["choices"][0]
            ids: list[int] = choice["token_ids"]
            logprobs: list[float] = choice["logprobs"]["token_logprobs"]
            whole = choice["finish_reason"] in ("stop", "length") and len(ids) == len(logprobs) > 0
            whole = whole and all(map(math.isfinite, logprobs)) and choice["prompt_token_ids"] == body["prompt"]
        except (KeyError, IndexError, TypeError) as error:
            raise PolicyUnavailable(f"the server's answer lacks {error}; is it vLLM 0.22 or newer?") from None
        if not whole:
            raise PolicyUnavailable(f"the server's answer is not whole (finish_reason {choice['finish_reason']})")
        return Completion(
            message=assistant_message(self.tokenizer, ids, tools=bool(request.tools)),
            prompt_ids=body["prompt"],
            completion_ids=ids,
            logprobs=logprobs,
            prompt_tokens=len(body["prompt"]),
            completion_tokens=len(ids),
        )


async def complete(
    requests: Sequence[Request], speaker: Speaker, served: Served, timeout_s: float, failed: Failed
) -> list[Completion | Exception]:
    """One entry a request, in order: all are sent at once, and each fails alone. UsageError is raised."""
    # A session per call: it belongs to the running event loop, and costs little beside a completion.
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=timeout_s), connector=aiohttp.TCPConnector(limit=0)
    ) as session:

        async def one(request: Request) -> Completion:
            body = speaker.body(request)
            return speaker.completion(request, body, await _post(session, served.url, body, timeout_s, failed))

        entries = await asyncio.gather(*map(one, requests), return_exceptions=True)
    results: list[Completion | Exception] = []
    for entry in entries:
        if isinstance(entry, UsageError) or (isinstance(entry, BaseException) and not isinstance(entry, Exception)):
            raise entry
        results.append(entry)
    return results


async def _post(session: aiohttp.ClientSession, url: str, body: Any, timeout_s: float, failed: Failed) -> Any:
    try:
        async with session.post(f"{url}/v1/completions", json=body) as response:
            text = await response.text()
            if response.status == 200:
                return json.loads(text)
            told = words(text)
    except TimeoutError:
        raise PolicyUnavailable(
            f"no completion within train.engine.request_s = {timeout_s:g} s: {failed(False)}"
        ) from None
    except aiohttp.ClientError as error:
        raise PolicyUnavailable(
            f"the server at {url} is gone ({error or type(error).__name__}): {failed(True)}"
        ) from None
    if response.status >= 500:
        told = f"{told}: {failed(False)}"
    raise PolicyUnavailable(f"the server at {url} answered {response.status}: {told}")


def _generation_config(folder: Path) -> Any:
    """The model's generation settings, made from its configuration where it has no file of its own."""
    try:
        return GenerationConfig.from_pretrained(folder)
    except OSError:
        return GenerationConfig.from_model_config(PreTrainedConfig.from_pretrained(folder))
