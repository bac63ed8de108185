"""A chat model without a language model: plays an environment's procedural explorer behind LangChain's interface.

It reads the very messages that a language model would get (graphs/prompting.py), asks the environment's Explorer, and
answers as a model does: with one tool call, or with the JSON object that the prompt asks for. So every graph runs
without a key and without a GPU, through the same nodes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from pydantic import ConfigDict

from envs.protocols import Explorer
from graphs.prompting import Role, read
from store.rows import Json, content_id


class ProceduralChatModel(BaseChatModel):
    """An Explorer as a chat model. The same messages and seed always get the same answer, so a resumed run repeats."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    explorer: Any
    """An envs.protocols.Explorer; pydantic can't check a Protocol."""
    seed: int = 0

    @property
    def _llm_type(self) -> str:
        return "procedural"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """The explorer reads its tools from the view; nothing needs binding."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        role, payload = read(messages)
        rng = random.Random(content_id(self.seed, role, payload))
        message = answer(self.explorer, role, payload, rng)
        return ChatResult(generations=[ChatGeneration(message=message)])


def answer(explorer: Explorer, role: Role, payload: Json, rng: random.Random) -> AIMessage:
    """The explorer's reply to one prompt."""
    view = payload["view"]
    if role in ("act", "try"):
        call = explorer.next_call(view, rng)
        if call is not None:
            return AIMessage("", tool_calls=[{**call, "id": f"call_{len(view['log'])}"}])
        return AIMessage("done") if role == "act" else _json({"problem": _problem(view)})
    replies: dict[Role, Callable[[], Json]] = {
        "reflect": lambda: explorer.reflect(view, rng),
        "abstract": lambda: {"tasks": explorer.abstract(view, rng)[: payload.get("limit")]},
        "harden": lambda: {
            "tasks": explorer.harden(view, payload["operator"], payload["tasks"], rng)[: payload["limit"]]
        },
        "repair": lambda: {"task": explorer.repair(view, payload["draft"], payload["problem"], rng)},
    }
    return _json(replies[role]())


def _problem(view: Json) -> str | None:
    """What the last call of a try came back with, if it failed."""
    last = view["log"][-1] if view["log"] else None
    return str(last["observation"]) if last and last["failed"] else None


def _json(value: Json) -> AIMessage:
    return AIMessage(msgspec.json.encode(value).decode())
