"""Conversations as token ids, and completions as messages.

Token ids that the policy sampled are never made again from their text, since another segmentation of the same text is
another action: an assistant message of ours carries its ids (`token_ids`), and the next prompt of the conversation is
the old prompt, those ids and the new text's ids, in a row. The chat template is asked for the new text only, with a
stand-in where the policy wrote.

A template that shows earlier turns otherwise than they were written (trims them, drops their thinking) would make other
conversations than those trained on: `ensure_template` takes TRL's training variant of it, or refuses the model.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from jinja2 import TemplateError

from envs.plain import shallow
from envs.protocols import Message
from store.errors import UsageError
from store.rows import Json

TOKEN_IDS = "token_ids"
"""Key of an assistant message: the ids that the policy sampled for it, the stop token included."""

IGNORED = -100
"""The label of a token that bears no loss."""

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)

_STAND_IN = "STAND-IN"
"""The text of a sampled message where a template is asked what comes after it."""

log = logging.getLogger(__name__)


def encode(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Json] = ()) -> list[int]:
    """Ids of the prompt that the policy continues.

    Where the last message is the assistant's, its text is a forced beginning: the policy goes on inside it.
    """
    at = max((i for i, message in enumerate(messages) if message.get(TOKEN_IDS) is not None), default=None)
    if at is None:
        return _ids(tokenizer, render(tokenizer, messages, tools))
    before = encode(tokenizer, messages[:at], tools)
    return [*before, *messages[at][TOKEN_IDS], *_following(tokenizer, messages, at, tools)]


def _following(tokenizer: Any, messages: Sequence[Message], at: int, tools: Sequence[Json]) -> list[int]:
    """Ids from the sampled message `at` to where the policy writes next: its end of turn, unless that was sampled too,
    and the messages after it."""
    if at + 1 == len(messages):
        return []
    shown = [_stand_in(message) for message in messages]
    closed = _closed(tokenizer, shown[: at + 1], tools)
    text = render(tokenizer, shown, tools)
    if not text.startswith(closed):  # no probe of check_template met it
        raise _refusal(tokenizer, f"rewrites earlier turns once others follow ({_difference(closed, text)})")
    ids = _ids(tokenizer, _ending(tokenizer, shown[:at], tools) + text[len(closed) :])
    end = _first_special(tokenizer, ids)
    return ids[ids.index(end) + 1 :] if messages[at][TOKEN_IDS][-1:] == [end] else ids


def _stand_in(message: Message) -> Message:
    """A message whose text and arguments, if the policy sampled them, can have no effect on what follows."""
    if message.get(TOKEN_IDS) is None:
        return message
    calls = [{"id": call.get("id"), "name": call["name"], "args": {}} for call in message.get("tool_calls") or ()]
    return {"role": message["role"], "content": _STAND_IN, "tool_calls": calls}


def _ending(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Json]) -> str:
    """What the template writes after the text of an assistant message that follows `messages`."""
    answer = {"role": "assistant", "content": _STAND_IN}
    return _closed(tokenizer, [*messages, answer], tools).rpartition(_STAND_IN)[2]


def _first_special(tokenizer: Any, ids: Sequence[int]) -> int:
    """The end-of-turn token, where `ids` begin with the end of a turn; -1 if there is none."""
    special = {id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
    return next((id_ for id_ in ids if id_ in special), -1)


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


def _closed(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Json] = ()) -> str:
    """The conversation through the model's chat template, the last turn ended."""
    standard = [_standard(message) for message in messages]
    text: str = tokenizer.apply_chat_template(standard, tools=list(tools) or None, tokenize=False)
    return text


_TEXTS = (
    "SELECT 1",
    "SELECT 1  ",
    "  SELECT\t1\n\n",
    "<think>\nOne row, I think.\n</think>\n\nSELECT 1",
    "<|im_end|></s> <tool_call> [/INST] {{ SELECT 1 }} {% raw %}",
)
"""What the probes' assistant says. None begins with a line break and none thinks out of form: Qwen3's templates put
such text in order even in the turn that they are writing, and what was sampled is concatenated anyway."""

_USER: Message = {"role": "user", "content": "How many singers?"}
_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a key up.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}
_CALLS = [{"id": f"call_{at}", "name": "look_up", "args": {"key": f"key {at}"}} for at in range(2)]
_RESULTS: list[Message] = [
    {"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": f"found {call['id']}"}
    for call in _CALLS
]


def ensure_template(tokenizer: Any, *, tools: bool = False) -> None:
    """Leave the tokenizer with a template that passes `check_template`: its own, or else TRL's training variant of it.

    UsageError if there is neither. TRL knows a template by its exact text. Its variants keep their prefix, but some
    trim the ends of a turn (Llama 3, Qwen3.5): that is let pass, for those that many models have.
    """
    try:
        return check_template(tokenizer, tools)
    except UsageError:
        own, variant = tokenizer.chat_template, _trl_variant(tokenizer)
        if variant is None:
            raise
        tokenizer.chat_template = variant
        try:
            check_template(tokenizer, tools, may_trim=True)
        except UsageError:
            tokenizer.chat_template = own
            raise
    log.info("%s: TRL's training variant of its chat template is used", tokenizer.name_or_path)


def _trl_variant(tokenizer: Any) -> str | None:
    from trl.chat_template_utils import get_training_chat_template

    try:
        variant: str | None = get_training_chat_template(tokenizer)
    except (ValueError, TypeError, TemplateError):  # no template that it knows
        return None
    return variant


def check_template(tokenizer: Any, tools: bool, *, may_trim: bool = False) -> None:
    """UsageError unless conversations only grow: the next prompt is the old one, what was written, and new text.

    With `tools`, conversations with tool calls and results too.
    """
    try:
        fault = _first_fault(tokenizer, tools, may_trim)
    except (TemplateError, TypeError, ValueError) as error:
        fault = f"cannot show a conversation of several turns{' with tools' if tools else ''} ({error})"
    if fault:
        raise _refusal(tokenizer, fault)


def _first_fault(tokenizer: Any, tools: bool, may_trim: bool) -> str | None:
    thinks = "</think>" not in render(tokenizer, [_USER])  # a prompt that ends thinking leaves none to be written
    talks = _probes([text for text in _TEXTS if thinks or "<think>" not in text], tools)
    faults = (_fault(tokenizer, talk, offered, may_trim) for talk, offered in talks)
    return next((fault for fault in faults if fault), None)


def _probes(texts: Sequence[str], tools: bool) -> Iterator[tuple[list[Message], list[Json]]]:
    for text in texts:
        answer = {"role": "assistant", "content": text}
        yield [_USER, answer, _USER, answer, _USER], []
        if tools:
            both = {"role": "assistant", "content": "", "tool_calls": _CALLS}
            one = answer | {"tool_calls": _CALLS[:1]}
            yield [_USER, both, *_RESULTS, one, _RESULTS[0], answer, _USER, both, *_RESULTS], [_TOOL]


def _fault(tokenizer: Any, talk: list[Message], tools: list[Json], may_trim: bool) -> str | None:
    """What the template does wrong in this conversation, in words that follow "the chat template"."""
    shown = ""  # all before the turn `at`
    for at in [i for i, message in enumerate(talk) if message["role"] == "assistant"]:
        prompt, closed = render(tokenizer, talk[:at], tools), _closed(tokenizer, talk[: at + 1], tools)
        for text in (prompt, closed):
            if not text.startswith(shown):
                return f"rewrites earlier turns once others follow ({_difference(shown, text)})"
        if not closed.startswith(prompt):
            return f"begins a turn in another way than it asks for one ({_difference(prompt, closed)})"
        if fault := _turn_fault(tokenizer, talk[: at + 1], tools, closed, may_trim):
            return fault
        shown = closed
    text = render(tokenizer, talk, tools)
    if not text.startswith(shown):
        return f"rewrites earlier turns once others follow ({_difference(shown, text)})"
    lost = [message["content"] for message in talk if message["role"] == "tool" and message["content"] not in text]
    return f"leaves tool results out ({lost[0]!r})" if lost else None


def _turn_fault(tokenizer: Any, talk: list[Message], tools: list[Json], closed: str, may_trim: bool) -> str | None:
    """The same of the last turn alone, for a conversation that the template shows as `closed`."""
    *before, message = talk
    ending = _ending(tokenizer, before, tools)
    calls = message.get("tool_calls", ())
    if _first_special(tokenizer, _ids(tokenizer, ending)) == -1:
        return f"ends a turn with no special token ({ending!r})"
    if not closed.endswith(ending):
        return f"does not end each turn with {ending!r} ({closed[-60:]!r})"
    wrote = message["content"]
    kept = {wrote, wrote.strip()} if may_trim else {wrote}
    if not any(text in closed if calls else closed.endswith(text + ending) for text in kept):
        return f"changes what the assistant wrote ({wrote!r}; the turn ends in {closed[-60:]!r})"
    shown = closed[len(render(tokenizer, before, tools)) :]
    lost = [word for call in calls for word in (call["name"], *call["args"].values()) if word not in shown]
    return f"leaves tool calls out ({lost[0]!r})" if lost else None


def _difference(one: str, other: str) -> str:
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    at = max(0, same - 20)
    return f"{one[at : at + 60]!r} became {other[at : at + 60]!r}"


def _refusal(tokenizer: Any, fault: str) -> UsageError:
    return UsageError(
        f"policy: the chat template of the model in {tokenizer.name_or_path} {fault}; conversations that are trained "
        "on may only grow: put a chat_template.jinja into the folder that shows every turn as it was written, or use "
        "another model"
    )


def solution_ids(
    tokenizer: Any, messages: Sequence[Message], tools: Sequence[Json] = ()
) -> tuple[list[int], list[int]]:
    """[L] ids of a conversation and [L] labels: -100 except on what the assistant writes, its end of turn included."""
    ids: list[int] = []
    labels: list[int] = []
    seen = ""
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = render(tokenizer, messages[:at], tools)
        answer: str = tokenizer.apply_chat_template(
            [_standard(m) for m in messages[: at + 1]], tools=list(tools) or None, tokenize=False
        )
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
            call = shallow(msgspec.json.decode(match[1].strip().encode(), type=dict[str, Any]))
        except (ValueError, RecursionError):
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
