"""What each node of a graph run did, as Span rows: LangChain's callbacks, buffered, written with the run's own rows.

Nothing is written while the graph runs, so tracing adds no sync of the disk. Of a run that was stopped and resumed, the
nodes of the process that finished it are there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from graphs.model import in_short, normalise
from graphs.settings import ModelSettings
from store.rows import Json, Span

GraphName = Literal["explore", "validate", "refine"]

TEXT = 4000
"""Characters of one message that are kept."""


@dataclass(kw_only=True, slots=True)
class _Open:
    node: str
    started_at: float
    began: float
    """Monotonic seconds."""
    seconds: float = 0.0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    error: str | None = None
    messages: list[Json] = field(default_factory=list)


class Tracer(BaseCallbackHandler):
    """The nodes of one thread. `raise_error` stays False: a fault of it never ends a graph."""

    run_inline = True
    """In the event loop: a hop to a thread for each event would cost more than the event."""

    def __init__(self, settings: ModelSettings, *, texts: bool = True) -> None:
        self._settings = settings
        self._texts = texts
        self._nodes: dict[UUID, _Open] = {}
        self._told: set[int] = set()
        """Hashes of the messages that are kept already: each prompt repeats those before."""

    def spans(self, *, thread: str, run: str, t: int, graph: GraphName) -> list[Span]:
        """The rows, in the order in which the nodes began."""
        return [
            Span(
                thread=thread,
                index=index,
                run=run,
                t=t,
                graph=graph,
                node=one.node,
                started_at=one.started_at,
                seconds=one.seconds,
                calls=one.calls,
                prompt_tokens=one.prompt_tokens,
                completion_tokens=one.completion_tokens,
                cost=one.cost,
                error=one.error,
                messages=one.messages,
            )
            for index, one in enumerate(self._nodes.values())
        ]

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, metadata: dict[str, Any] | None = None, **rest: Any
    ) -> None:
        """A node begins. The chains within it, which choose the next node, have other names."""
        node = (metadata or {}).get("langgraph_node")
        if node and node == rest.get("name") and not node.startswith("__"):
            self._nodes[run_id] = _Open(node=node, started_at=time.time(), began=time.monotonic())

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **rest: Any) -> None:
        self._close(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **rest: Any) -> None:
        self._close(run_id, error)

    def _close(self, run_id: UUID, error: BaseException | None = None) -> None:
        if one := self._nodes.get(run_id):
            one.seconds = time.monotonic() - one.began
            if error is not None:
                one.error = in_short(error) if isinstance(error, Exception) else type(error).__name__

    def on_chat_model_start(
        self, serialized: Any, messages: list[list[BaseMessage]], *, parent_run_id: UUID | None = None, **rest: Any
    ) -> None:
        if not self._texts or (one := self._nodes.get(parent_run_id)) is None:  # type: ignore[arg-type]
            return
        for message in (each for batch in messages for each in batch):
            if message.type != "system":  # the same for all
                self._keep(one, message.type, str(message.text), message)

    def on_llm_end(self, response: LLMResult, *, parent_run_id: UUID | None = None, **rest: Any) -> None:
        if (one := self._nodes.get(parent_run_id)) is None:  # type: ignore[arg-type]
            return
        for generation in (each for batch in response.generations for each in batch):
            if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
                self._answered(one, generation.message)

    def _answered(self, one: _Open, message: AIMessage) -> None:
        reply = normalise(message, self._settings)
        one.calls += 1
        one.prompt_tokens += reply.prompt_tokens
        one.completion_tokens += reply.completion_tokens
        one.cost += reply.cost
        if self._texts:
            self._keep(one, "ai", reply.text, message)

    def _keep(self, one: _Open, role: str, text: str, message: BaseMessage) -> None:
        """Once in a thread. What a model calls is told beside its words."""
        calls = [(call["name"], call["args"]) for call in message.tool_calls] if isinstance(message, AIMessage) else []
        if calls:
            text = "\n".join([*([text] if text else []), *(f"{name}({args})" for name, args in calls)])
        mark = hash((role, text))
        if text and mark not in self._told:
            self._told.add(mark)
            more = f" ... ({len(text)} characters in all)" if len(text) > TEXT else ""
            one.messages.append({"role": role, "text": text[:TEXT] + more})
