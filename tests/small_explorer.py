"""The real small model as explorer: every free string of an answer is the model's, its form is forced.

A model of 135M parameters can't keep to a tool protocol by itself. So the tool is chosen by turns and the JSON around
the strings is written into the model's mouth (forced tool choice, structured output); the model fills in the strings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable

from graphs.prompting import read
from training.chat import encode
from training.config import ModelSettings
from training.model import load_tokenizer, merged, prepare
from training.sample import Draw, generate

STRING_TOKENS = 24
"""Longest string that the model may write."""


class SmallExplorer(BaseChatModel):
    """Plays all roles of both graphs with a model folder."""

    model: Any
    tokenizer: Any
    quotes: frozenset[int]
    """Tokens that end a string."""
    seed: int

    @property
    def _llm_type(self) -> str:
        return "small"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=list(tools))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        role, payload = read(messages)
        pen = Pen(self, messages)
        message = self._act(payload, pen) if role in ("act", "try") else AIMessage(self._answer(role, pen))
        usage = {"input_tokens": pen.read, "output_tokens": pen.written, "total_tokens": pen.read + pen.written}
        message.usage_metadata = usage  # type: ignore[assignment]
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _act(self, payload: Any, pen: Pen) -> AIMessage:
        calls = len(payload["view"]["log"])
        if payload["view"]["steps_left"] <= 0 or (payload["role"] == "try" and calls):
            return AIMessage('{"problem": null}' if payload["role"] == "try" else "done")
        if calls == 0 and payload["role"] == "act":
            return AIMessage("", tool_calls=[{"name": "list_tables", "args": {}, "id": "forced"}])
        args = {"sql": pen.string('{"name": "run_sql", "arguments": {"sql": "SELECT ', "SELECT ")}
        return AIMessage("", tool_calls=[{"name": "run_sql", "args": args, "id": "forced"}])

    def _answer(self, role: str, pen: Pen) -> str:
        if role == "reflect":
            where, failure = pen.string('{"where": "'), pen.string('{"failure": "')
            return json.dumps({"where": where, "failure": failure, "vary": [pen.string('{"vary": ["')]})
        draft = {
            "user_turns": [pen.string('{"user_turns": ["')],
            "reference": pen.string('"reference": "SELECT ', "SELECT "),
        }
        return json.dumps({"tasks": [draft]} if role == "abstract" else {"task": draft})


class Pen:
    """Lets the model write one JSON string after a forced beginning."""

    def __init__(self, explorer: SmallExplorer, messages: Sequence[BaseMessage]) -> None:
        self.explorer = explorer
        chat: Any = convert_to_openai_messages(list(messages))
        plain = [{"role": "user" if m["role"] == "tool" else m["role"], "content": m["content"] or "-"} for m in chat]
        self.prompt = encode(explorer.tokenizer, plain)
        self.read = self.written = 0

    def string(self, forced: str, kept: str = "") -> str:
        """What the model writes up to the closing quote, after `kept`; never empty."""
        tokenizer = self.explorer.tokenizer
        ids = [*self.prompt, *tokenizer(forced, add_special_tokens=False).input_ids]
        draw = Draw(
            prompt=tuple(ids), seed=self.explorer.seed + self.written, temperature=1.0, max_tokens=STRING_TOKENS
        )
        (drawn,) = generate(self.explorer.model, [draw], quotes(tokenizer))
        self.read, self.written = self.read + len(ids), self.written + len(drawn.ids)
        return kept + tokenizer.decode(drawn.ids, skip_special_tokens=True).split('"')[0].split("\\")[0] + " "


def quotes(tokenizer: Any) -> frozenset[int]:
    """Every token that holds a double quote, and the end of the message."""
    return frozenset(i for i in range(len(tokenizer)) if '"' in tokenizer.decode([i])) | {tokenizer.eos_token_id}


def small_explorers(folder: Path) -> Any:
    """A factory for the graphs: (seed) -> SmallExplorer, on weights that are loaded once."""
    prepare(ModelSettings(), seed=0)
    model, tokenizer = merged(folder, [], "auto"), load_tokenizer(folder)
    ends = quotes(tokenizer)
    return lambda seed: SmallExplorer(model=model, tokenizer=tokenizer, quotes=ends, seed=seed)
