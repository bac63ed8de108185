"""Prompts as messages, and back.

Every prompt is a system message and one human message:

    ROLE: act

    <the text of prompts/act.md>

    ```json
    {"role": "act", "view": {...}, ...}
    ```

The JSON is one line. In the roles `act` and `try`, the calls made so far follow as pairs of an AI message with one
tool call and a tool message (status `error` where the call failed). `read` turns messages back into (role, payload);
it is all that a model without a language model (graphs/procedural.py) needs to take part.

    role      payload besides `role` and `view`     the answer that is expected
    reflect   -                                     {"where": str, "failure": str, "vary": [str, ...], ...}
    act       -                                     one tool call; no call = done
    try       view["draft"]                         one tool call; at the end {"problem": null or str}
    abstract  "limit": int                          {"tasks": [{"user_turns": [str, ...], "reference": ...}, ...]}
    harden    "operator": str, "tasks": [...], "limit"  as of abstract
    repair    "draft": {...}, "problem": str        {"task": {"user_turns": [...], "reference": ...} or null}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import msgspec
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from graphs.state import Entry, View
from store.rows import Json

Role = Literal["reflect", "act", "try", "abstract", "harden", "repair"]
ROLES: tuple[Role, ...] = ("reflect", "act", "try", "abstract", "harden", "repair")

_FOLDER = Path(__file__).parent / "prompts"
SYSTEM = (_FOLDER / "system.md").read_text("utf-8").strip()
TEXTS: dict[Role, str] = {role: (_FOLDER / f"{role}.md").read_text("utf-8").strip() for role in ROLES}
_BLOCK = re.compile(r"^```json\n(\{.*\})\n```$", re.MULTILINE)


def render(role: Role, view: View, history: Sequence[Entry] = (), **extra: Json) -> list[BaseMessage]:
    """The messages of one model call. `history` is the call log that the model itself made in this role."""
    messages = framed(SYSTEM, role, TEXTS[role], {"view": view, **extra})
    for index, entry in enumerate(history):
        messages.extend(_turn(f"call_{index}", entry))
    return messages


def framed(system: str, role: str, text: str, payload: Json) -> list[BaseMessage]:
    """The two messages of a prompt: what is asked, and below it the data in a block of its own."""
    block = msgspec.json.encode({"role": role, **payload}).decode()
    return [SystemMessage(system), HumanMessage(f"ROLE: {role}\n\n{text}\n\n```json\n{block}\n```")]


def _turn(call_id: str, entry: Entry) -> list[BaseMessage]:
    call = {"name": entry["name"], "args": entry["args"], "id": call_id}
    status: Literal["error", "success"] = "error" if entry["failed"] else "success"
    return [
        AIMessage(entry["text"], tool_calls=[call]),
        ToolMessage(entry["observation"], tool_call_id=call_id, name=entry["name"], status=status),
    ]


def read(messages: Sequence[BaseMessage]) -> tuple[Role, Json]:
    """(role, payload) of rendered messages; tool calls that follow are appended to `payload["view"]["log"]`.

    ValueError if no human message carries a block.
    """
    for position in range(len(messages) - 1, -1, -1):
        found = _BLOCK.search(messages[position].text) if isinstance(messages[position], HumanMessage) else None
        if found:
            payload = msgspec.json.decode(found[1])
            calls = _answered(messages[position + 1 :])
            payload["view"]["log"] = [*payload["view"]["log"], *calls]
            payload["view"]["steps_left"] -= len(calls)
            return cast(Role, payload["role"]), payload
    raise ValueError("no human message carries a ```json block")


def _answered(messages: Sequence[BaseMessage]) -> list[Json]:
    answers = {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}
    return [
        {
            "name": call["name"],
            "args": call["args"],
            "observation": str(answers[call["id"]].text),
            "failed": answers[call["id"]].status == "error",
        }
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["id"] in answers
    ]
