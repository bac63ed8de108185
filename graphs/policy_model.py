"""The policy as a chat model: what is being trained explores, and reviews what it wrote elsewhere, in every graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from pydantic import ConfigDict

from envs.protocols import Completion, Message, Request
from graphs.settings import ModelSettings


class PolicyChatModel(BaseChatModel):
    """A Policy behind LangChain's interface. A prompt that the policy can't take is answered by its exception."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    policy: Any
    """An envs.protocols.Policy; pydantic can't check a Protocol."""
    settings: ModelSettings = ModelSettings()
    seed: int = 0

    @property
    def _llm_type(self) -> str:
        return "policy"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=list(tools))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError("a policy samples in the event loop: use ainvoke")

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = Request(
            messages=[_plain(message) for message in messages],
            seed=self.seed + len(messages),
            temperature=self.settings.temperature,
            max_tokens=self.settings.max_tokens,
            tools=kwargs.get("tools", []),
        )
        (answer,) = await self.policy.sample([request])
        if isinstance(answer, Exception):
            raise answer
        return ChatResult(generations=[ChatGeneration(message=_message(answer))])


def _plain(message: BaseMessage) -> Message:
    text = str(message.text)
    if isinstance(message, SystemMessage):
        return {"role": "system", "content": text}
    if isinstance(message, HumanMessage):
        return {"role": "user", "content": text}
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "name": message.name, "content": text}
    calls = [{"id": c["id"], "name": c["name"], "args": c["args"]} for c in getattr(message, "tool_calls", [])]
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def _message(answer: Completion) -> AIMessage:
    given = answer.message
    usage = {
        "input_tokens": answer.prompt_tokens,
        "output_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }
    calls = [{"id": c["id"], "name": c["name"], "args": c["args"]} for c in given.get("tool_calls") or []]
    return AIMessage(
        str(given.get("content") or ""),
        tool_calls=calls,
        usage_metadata=usage,
        response_metadata={"response_cost": answer.cost},
    )
