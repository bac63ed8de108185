"""Any chat model that litellm reaches, as a policy that is played and evaluated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from langchain_core.messages import convert_to_messages

from envs.errors import PolicyUnavailable
from envs.protocols import Completion, Message, Request
from graphs.model import Budget, Reply, call, chat_model
from graphs.settings import ModelSettings
from store.errors import UsageError


class ChatPolicy:
    """Policy over `litellm:NAME`; requests of one batch run side by side."""

    batch = 16
    concurrent = True
    step: int | None = None

    def __init__(self, spec: str, version: int, *, env: str, settings: ModelSettings) -> None:
        self.spec = spec
        self.version = version
        self._env = env
        self._settings = settings
        self._budget = Budget.of(settings)

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """One entry a request; an endpoint that gives no answer makes that entry PolicyUnavailable."""
        return list(await asyncio.gather(*(self._one(request) for request in requests)))

    async def _one(self, request: Request) -> Completion | Exception:
        settings = self._settings.model_copy(
            update={"temperature": request.temperature, "max_tokens": request.max_tokens}
        )
        model = chat_model(self.spec, settings, env=self._env, seed=request.seed, role="policy")
        try:
            reply = await call(
                model,
                convert_to_messages([_openai(message) for message in request.messages]),
                settings=settings,
                budget=self._budget,
                tools=request.tools,
            )
        except UsageError:
            raise
        except Exception as error:
            return PolicyUnavailable(str(error))
        return Completion(
            message=_message(reply, len(request.messages)),
            cost=reply.cost,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )


def _openai(message: Message) -> Message:
    """Our message with tool calls as LangChain reads them."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [{"id": c["id"], "name": c["name"], "args": c["args"]} for c in calls]}


def _message(reply: Reply, at: int) -> Message:
    """`at`: the message's number. Ids are told apart over the whole conversation, which some endpoints insist on."""
    calls = [
        {"id": f"call_{at}_{i}", "name": item["name"], "args": item["args"]}
        for i, item in enumerate(reply.calls)
        if item["error"] is None
    ]
    return {"role": "assistant", "content": reply.text, **({"tool_calls": calls} if calls else {})}
