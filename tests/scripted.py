"""A chat model that plays a script: the policy is a function (messages, tools) -> AIMessage | Exception."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable

from graphs.prompting import read
from store.rows import Json

Script = Callable[[Sequence[BaseMessage], Sequence[Json]], AIMessage | Exception]


class ScriptedChatModel(BaseChatModel):
    """Answers as its policy says; an Exception is raised, as an endpoint's failure would be."""

    policy: Script

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=list(tools))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = self.policy(messages, kwargs.get("tools", []))
        if isinstance(message, Exception):
            raise message
        return ChatResult(generations=[ChatGeneration(message=message)])


def says(text: str, *, tokens: int = 0) -> AIMessage:
    usage = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
    return AIMessage(text, usage_metadata=usage)


def calls(name: str, tokens: int = 0, text: str = "", **args: Any) -> AIMessage:
    usage = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
    return AIMessage(text, tool_calls=[{"name": name, "args": args, "id": "x"}], usage_metadata=usage)


class Roles:
    """A policy by role: each role has a list of answers, given one by one, the last again and again.

    An answer is an AIMessage, an Exception, plain text, or a JSON value.
    """

    def __init__(self, **answers: Any) -> None:
        self._answers = {role: list(given) if isinstance(given, list) else [given] for role, given in answers.items()}
        self.seen: list[tuple[str, Json]] = []

    def __call__(self, messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        role, payload = read(messages)
        self.seen.append((role, payload))
        left = self._answers[role]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, AIMessage | Exception):
            return answer
        return says(answer if isinstance(answer, str) else json.dumps(answer))

    def payloads(self, role: str) -> list[Json]:
        return [payload for seen, payload in self.seen if seen == role]
