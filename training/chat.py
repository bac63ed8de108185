"""Conversations as token ids, and completions as messages.

Token ids that the policy sampled are never made again from their text, since another segmentation of the same text is
another action: an assistant message of ours carries its ids (`token_ids`), and the next prompt of the conversation is
the old prompt, those ids and the new text's ids, in a row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from envs.protocols import Message
from store.rows import Json

TOKEN_IDS = "token_ids"
"""Key of an assistant message: the ids that the policy sampled for it, the stop token included."""

IGNORED = -100
"""The label of a token that bears no loss."""

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)


def encode(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Json] = ()) -> list[int]:
    """Ids of the prompt that the policy continues.

    Where the last message is the assistant's, its text is a forced beginning: the policy goes on inside it.
    """
    text = render(tokenizer, messages, tools)
    at = max((i for i, message in enumerate(messages) if message.get(TOKEN_IDS)), default=None)
    if at is not None:
        sampled: list[int] = messages[at][TOKEN_IDS]
        before = render(tokenizer, messages[:at], tools) + tokenizer.decode(sampled)
        # A template may rewrite history (drop thinking, trim text); then there is nothing to be concatenated to.
        if text.startswith(before):
            return [*encode(tokenizer, messages[:at], tools), *sampled, *_ids(tokenizer, text[len(before) :])]
    return _ids(tokenizer, text)


def render(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Json] = ()) -> str:
    """The conversation through the model's chat template, up to where the policy writes."""
    goes_on = messages[-1]["role"] == "assistant"
    text: str = tokenizer.apply_chat_template(
        [_standard(message) for message in messages],
        tools=list(tools) or None,
        tokenize=False,
        add_generation_prompt=not goes_on,
        continue_final_message=goes_on,
    )
    return text


def solution_ids(tokenizer: Any, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
    """[L] ids of a conversation and [L] labels: -100 except on what the assistant writes, its end of turn included."""
    ids: list[int] = []
    labels: list[int] = []
    seen = ""
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = render(tokenizer, messages[:at])
        answer: str = tokenizer.apply_chat_template([_standard(m) for m in messages[: at + 1]], tokenize=False)
        written, _, _ = answer[len(prompt) :].partition(tokenizer.eos_token)
        context = _ids(tokenizer, prompt[len(seen) :])
        target = [*_ids(tokenizer, written), tokenizer.eos_token_id]
        ids += context + target
        labels += [IGNORED] * len(context) + target
        seen = prompt + written + tokenizer.eos_token
    return ids, labels


def assistant_message(tokenizer: Any, ids: list[int], *, tools: bool) -> Message:
    """What was sampled, as a message: its text, its tool calls where tools were offered, its ids."""
    text: str = tokenizer.decode(ids, skip_special_tokens=True)
    message: Message = {"role": "assistant", "content": text, TOKEN_IDS: ids}
    if tools and (calls := tool_calls(text)):
        message |= {"content": text[: text.index("<tool_call>")].strip(), "tool_calls": calls}
    return message


def tool_calls(text: str) -> list[Json]:
    """The well-formed calls in a completion, `[{"id", "name", "args"}]`; what cannot be read is left out."""
    calls: list[Json] = []
    for match in _CALL.finditer(text):
        try:
            call = msgspec.json.decode(match[1].strip().encode(), type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError):
            continue
        name, args = call.get("name"), call.get("arguments", {})
        if isinstance(name, str) and isinstance(args, dict):
            calls.append({"id": f"call_{len(calls)}", "name": name, "args": args})
    return calls


def _standard(message: Message) -> Message:
    """A message in the form that chat templates read."""
    standard: Message = {key: message[key] for key in ("role", "name", "tool_call_id") if key in message}
    standard["content"] = message.get("content") or ""
    calls = [
        {"type": "function", "id": call.get("id"), "function": {"name": call["name"], "arguments": call["args"]}}
        for call in message.get("tool_calls") or ()
    ]
    return standard | {"tool_calls": calls} if calls else standard


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids
