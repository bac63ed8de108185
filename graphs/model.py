"""The explorer's chat model: factory, the one retry layer, budget, normalised replies.

Every call of every model goes through `call`. litellm is imported only when a `litellm:` spec is built (7-9 s).
"""

from __future__ import annotations

import asyncio
import email.utils
import functools
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall
from langchain_core.runnables import Runnable

from envs import registry
from envs.errors import InfraError
from envs.plain import plain
from graphs.settings import ModelSettings
from graphs.state import Call
from store.errors import CoevolveError, UsageError
from store.rows import Json

log = logging.getLogger(__name__)

BACKOFF_S = 1.0
"""Seconds before the second attempt; doubles with each further one unless the server names a time."""
MAX_TEXT = 20_000
"""Characters of a reply's text, or of one call's arguments, that are kept."""
KEYS = {
    f"{vendor}_API_KEY" for vendor in ("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE", "DEEPSEEK", "GROQ", "MISTRAL", "XAI")
}
"""Variables without which their providers refuse. Others have ways that litellm's check does not know of: profiles of
a cloud, a token under another name, a server on this machine."""
NO_KEY = re.compile(r"missing credentials|(missing|invalid|incorrect|no) (\w+ )?api[ _-]?key|AuthenticationError", re.I)
"""What litellm says of a key, whatever status it gives: it raises a missing one as 500."""
MAX_ERROR = 500
"""Characters of an error that are told and stored."""
MAX_COUNT = 10**8
"""Tokens, or US dollars, of one call: a server that says more, or less than nothing, is not believed."""


class ModelUnavailable(InfraError):
    """The explorer's model gave no answer: retries used up, deadline passed, or the request was refused."""


class BudgetSpent(CoevolveError):
    """The phase's budget of tokens or money is used up; nothing is lost, a higher budget goes on from here."""


class ModelFactory(Protocol):
    """Builds the model of one episode; equal seeds build models that answer alike where the model can."""

    def __call__(self, seed: int) -> BaseChatModel: ...


def chat_model(spec: str, settings: ModelSettings, *, env: str, seed: int, role: str = "explorer") -> BaseChatModel:
    """The model that `spec` names: `procedural` or `litellm:NAME`. UsageError for any other, and for a missing key.

    `role` is the setting that has the spec, for messages.
    """
    if spec == "procedural":
        from graphs.procedural import ProceduralChatModel

        return ProceduralChatModel(explorer=registry.explorer(env), seed=seed)
    kind, _, name = spec.partition(":")
    if kind == "litellm" and name:
        return _litellm(name, settings, seed, role)
    raise UsageError(f"model: {spec!r} is no explorer model; use `procedural` or `litellm:NAME`")


def _litellm(name: str, settings: ModelSettings, seed: int, role: str) -> BaseChatModel:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import goes to the network
    import litellm
    from langchain_litellm import ChatLiteLLM

    litellm.suppress_debug_info = True  # it prints to stdout, where --json goes
    missing = _missing_keys(litellm.validate_environment(name)["missing_keys"])
    if missing and not (settings.api_base or _has(missing, "API_BASE", "BASE_URL")):
        other = {"policy": ", or use `smollm2` or `hf:DIR`", "explorer": ", or use `procedural`"}.get(role, "")
        raise UsageError(f"{role}: 'litellm:{name}' needs {' or '.join(missing)}; set it{other}")
    return ChatLiteLLM(
        model=name,
        api_base=settings.api_base,
        api_key="none" if missing else None,  # a server of the user's own asks for none, the client library does
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        request_timeout=settings.timeout_s,
        max_retries=0,  # LangChain's retries ...
        model_kwargs={"seed": seed, "drop_params": True, "max_retries": 0},  # ... and the client's: only `call` retries
    )


def _missing_keys(names: list[str]) -> list[str]:
    """Of the variables that litellm misses those that are sure to be needed; [] if the provider has another secret."""
    return names if names and set(names) <= KEYS and not _has(names, "KEY", "TOKEN") else []


def _has(keys: list[str], *endings: str) -> bool:
    """Whether the environment has a variable of a provider of these keys with one of the endings."""
    vendors = {key.partition("_")[0] for key in keys}
    return any(name.partition("_")[0] in vendors and name.endswith(endings) for name in os.environ)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What a model answered, reduced to plain data."""

    text: str
    calls: list[Call]
    prompt_tokens: int
    completion_tokens: int
    cost: float
    """US dollars."""
    cut: bool = False
    """It ended for want of tokens, or was longer than is kept."""


@dataclass(kw_only=True, slots=True)
class Budget:
    """Tokens and money of one phase, counted from each reply's usage."""

    max_tokens: int | None = None
    max_cost: float | None = None
    tokens: int = 0
    cost: float = 0.0

    @classmethod
    def of(cls, settings: ModelSettings) -> Budget:
        return cls(max_tokens=settings.token_budget, max_cost=settings.cost_budget)

    def check(self) -> None:
        """BudgetSpent if nothing is left."""
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            raise BudgetSpent(f"model.token_budget: {self.tokens} of {self.max_tokens} tokens are spent; raise it")
        if self.max_cost is not None and self.cost >= self.max_cost:
            raise BudgetSpent(f"model.cost_budget: ${self.cost:.4f} of ${self.max_cost:.4f} are spent; raise it")

    def spend(self, reply: Reply) -> None:
        self.tokens += reply.prompt_tokens + reply.completion_tokens
        self.cost += reply.cost


async def call(
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    *,
    settings: ModelSettings,
    budget: Budget,
    tools: Sequence[Json] = (),
    schema: Json = None,
) -> Reply:
    """One answer of `model`. ModelUnavailable, BudgetSpent; UsageError if the endpoint refuses key or model name.

    `schema` is a JSON schema for the answer; an endpoint that is not known to keep one is not told of it.
    """
    budget.check()
    runnable: Runnable[Any, Any] = model.bind_tools(list(tools)) if tools else model
    if schema and _keeps_schema(str(getattr(model, "model", ""))):
        wanted = {"name": "answer", "strict": True, "schema": schema}
        runnable = runnable.bind(response_format={"type": "json_schema", "json_schema": wanted})
    message = await _retried(lambda: runnable.ainvoke(list(messages)), settings)
    if not isinstance(message, AIMessage):
        raise ModelUnavailable(f"the model answered with {type(message).__name__}, not with a message of its own")
    reply = normalise(message, settings)
    budget.spend(reply)
    return reply


@functools.cache
def _keeps_schema(name: str) -> bool:
    """Whether a model of litellm answers by a JSON schema, as far as litellm knows; vLLM does with any model."""
    if not (litellm := sys.modules.get("litellm")):
        return False
    return name.startswith("hosted_vllm/") or bool(litellm.supports_response_schema(name))


async def _retried(send: Callable[[], Awaitable[Any]], settings: ModelSettings) -> Any:
    end = time.monotonic() + settings.deadline_s
    for attempt in range(1, settings.attempts + 1):
        try:
            async with asyncio.timeout(min(settings.timeout_s, end - time.monotonic())):
                return await send()
        except Exception as error:
            if why := _unreadable(error):
                bad = InvalidToolCall(type="invalid_tool_call", id=None, name=None, args=None, error=why)
                return AIMessage("", invalid_tool_calls=[bad])
            if not _passing(error):
                raise _refusal(error) from error
            pause = _retry_after(error) or BACKOFF_S * 2 ** (attempt - 1)
            if attempt == settings.attempts or time.monotonic() + pause >= end:
                raise ModelUnavailable(_words(error, attempt, settings, pause)) from error
            _warn(f"model call failed ({in_short(error)}), attempt {attempt + 1} follows in {pause:.1f} s", pause)
            await asyncio.sleep(pause)
    raise AssertionError("unreachable")


_said: dict[str, float] = {}
"""{warning: monotonic seconds until which it is not repeated}."""


def _warn(text: str, pause: float) -> None:
    """Log the warning once for all calls of concurrent jobs that wait out the same trouble."""
    now = time.monotonic()
    for old in [each for each, until in _said.items() if until < now]:
        del _said[old]
    if text not in _said:
        _said[text] = now + pause
        log.warning("%s", text)


def _unreadable(error: BaseException | None) -> str | None:
    """How Python's JSON reader failed over arguments that the model wrote: litellm takes that for a server's fault, and
    it is the model's own. None: it is something else."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # one that is raised again while it is handled is in a circle
        seen.add(id(error))
        words = str(error)
        deep = isinstance(error, RecursionError) and "decoding a JSON" in words
        if deep or (type(error) is ValueError and words.startswith("Exceeds the limit")):
            return words
        error = error.__cause__ or error.__context__
    return None


def _passing(error: Exception) -> bool:
    """Whether the same request may succeed later: throttling, server fault, timeout, lost connection."""
    status = getattr(error, "status_code", None)
    if NO_KEY.search(str(error)):
        return False
    if isinstance(status, int):
        return status in (408, 429) or status >= 500
    return isinstance(error, (TimeoutError, ConnectionError)) or type(error).__module__.startswith("httpx")


def _refusal(error: Exception) -> CoevolveError:
    status = getattr(error, "status_code", None)
    if isinstance(error, CoevolveError):
        return error
    if status in (401, 403, 404) or NO_KEY.search(str(error)):
        return UsageError(f"model: the endpoint refuses with {status} ({in_short(error)}); check model name and key")
    return ModelUnavailable(f"the model call failed and is not retried: {in_short(error)}")


def _retry_after(error: Exception) -> float | None:
    """Seconds that the server asks to wait, from its Retry-After header (seconds or a date)."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _words(error: Exception, attempt: int, settings: ModelSettings, pause: float) -> str:
    if attempt == settings.attempts:
        return f"no answer in {attempt} attempts: {in_short(error)}"
    return f"no answer within {settings.deadline_s:g} s ({attempt} attempts, next in {pause:g} s): {in_short(error)}"


def in_short(error: Exception) -> str:
    """The error in one line. A client library may have put a whole traceback, or the server's page, into its words."""
    text = " ".join(printable(str(error)).split("Traceback (most recent call last)")[0].split())
    return f"{type(error).__name__}: {text[:MAX_ERROR]}" if text else type(error).__name__


def normalise(message: AIMessage, settings: ModelSettings) -> Reply:
    """The message as plain data. Calls that can't be read become calls with an `error`, in the order given."""
    usage = message.usage_metadata
    prompt, completion = (int(_believed(usage[key])) if usage else 0 for key in ("input_tokens", "output_tokens"))
    whole = printable(str(message.text))
    text = whole[:MAX_TEXT]
    good = [_call(call["name"], call["args"]) for call in message.tool_calls]
    bad = [_bad_call(call.get("name"), call.get("args"), call.get("error")) for call in message.invalid_tool_calls]
    calls = good + bad
    if calls:
        calls[0]["text"] = text
    cost = _cost(message, prompt, completion, settings)
    cut = text != whole or message.response_metadata.get("finish_reason") in ("length", "max_tokens")
    return Reply(text=text, calls=calls, prompt_tokens=prompt, completion_tokens=completion, cost=cost, cut=cut)


def _call(name: str, args: Json) -> Call:
    try:
        encoded = msgspec.json.encode(plain(args))
        kept = msgspec.json.decode(encoded)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        return _bad_call(name, None, f"the arguments are no plain JSON: {error}")
    if not isinstance(kept, dict) or len(encoded) > MAX_TEXT:
        return _bad_call(name, None, f"the arguments must be one JSON object of at most {MAX_TEXT} bytes")
    return Call(name=printable(name)[:100], args=kept, text="", error=None)


def _bad_call(name: str | None, args: str | None, error: str | None) -> Call:
    what = printable(error or "the arguments are no valid JSON")[:500]
    shown = f" You wrote: {printable(args)[:500]}" if args else ""
    return Call(
        name=printable(name or "unknown")[:100],
        args={},
        text="",
        error=f"error: this tool call could not be read, {what}.{shown}",
    )


def _cost(message: AIMessage, prompt: int, completion: int, settings: ModelSettings) -> float:
    if settings.input_price is not None or settings.output_price is not None:
        return (prompt * (settings.input_price or 0) + completion * (settings.output_price or 0)) / 1e6
    return float(_believed(message.response_metadata.get("response_cost")))


def _believed(figure: object) -> float:
    """What a server says of its own use, 0 where that can't be true."""
    return figure if isinstance(figure, int | float) and 0 <= figure <= MAX_COUNT else 0


def printable(text: str) -> str:
    """`text` without what UTF-8 can't carry (lone surrogates)."""
    return text.encode("utf-8", "replace").decode("utf-8")
