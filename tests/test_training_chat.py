"""Conversations as token ids: what was sampled is never cut into other tokens, labels cover the assistant alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.protocols import Message
from store.errors import UsageError
from tests.tiny_model import byte_tokenizer
from training.chat import TOKEN_IDS, assistant_message, check_template, encode, render, solution_ids, tool_calls

TOKENIZER = byte_tokenizer()
VOCABULARY = len(TOKENIZER)
EOS = TOKENIZER.eos_token_id
START: list[Message] = [{"role": "system", "content": "ab(c)"}, {"role": "user", "content": "SELECT what?"}]
TOOL = {"type": "function", "function": {"name": "run_sql", "parameters": {}}}


def test_a_prompt_is_the_chat_template_up_to_the_assistant() -> None:
    assert TOKENIZER.decode(encode(TOKENIZER, START)) == (
        "<|im_start|>system\nab(c)<|im_end|>\n<|im_start|>user\nSELECT what?<|im_end|>\n<|im_start|>assistant\n"
    )


@given(st.lists(st.integers(3, VOCABULARY - 1), max_size=20), st.booleans())
def test_the_next_prompt_is_the_old_one_the_sampled_ids_and_the_rest(ids: list[int], ended: bool) -> None:
    sampled = [*ids, EOS] if ended or not ids else ids
    first = encode(TOKENIZER, START)
    messages = [*START, assistant_message(TOKENIZER, sampled, tools=False), {"role": "user", "content": "ab"}]
    second = encode(TOKENIZER, messages)
    assert second[: len(first) + len(sampled)] == first + sampled
    rest = "\n<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"
    assert TOKENIZER.decode(second[len(first) + len(sampled) :]) == (rest if sampled[-1] == EOS else EOS_TEXT + rest)


EOS_TEXT = "<|im_end|>"


def test_ids_hold_over_many_turns() -> None:
    messages, prompt = list(START), encode(TOKENIZER, START)
    one_way = TOKENIZER("S").input_ids + TOKENIZER("EL").input_ids + [EOS]
    assert one_way[:-1] != TOKENIZER("SEL").input_ids, "the text alone would be cut differently"
    for _ in range(3):
        messages += [assistant_message(TOKENIZER, one_way, tools=False), {"role": "user", "content": "again"}]
        longer = encode(TOKENIZER, messages)
        assert longer[: len(prompt) + len(one_way)] == prompt + one_way
        prompt = longer


def test_what_was_sampled_wins_over_its_text() -> None:
    sampled = [*TOKENIZER("SEL").input_ids, EOS]
    message = assistant_message(TOKENIZER, sampled, tools=False)
    other = encode(TOKENIZER, [*START, message | {"content": "other"}, {"role": "user", "content": "x"}])
    assert other == encode(TOKENIZER, [*START, message, {"role": "user", "content": "x"}])


def test_an_earlier_turn_without_ids_is_text() -> None:
    talk = [*START, {"role": "assistant", "content": "SEL"}, {"role": "user", "content": "x"}]
    assert TOKENIZER.decode(encode(TOKENIZER, talk)) == render(TOKENIZER, talk)


def test_a_beginning_can_be_forced_in_a_later_turn() -> None:
    sampled = [*TOKENIZER("S").input_ids, *TOKENIZER("EL").input_ids, EOS]
    talk = [*START, assistant_message(TOKENIZER, sampled, tools=False), {"role": "user", "content": "x"}]
    forced = encode(TOKENIZER, [*talk, {"role": "assistant", "content": "abc"}])
    assert forced == encode(TOKENIZER, talk) + TOKENIZER("abc").input_ids


def test_sampled_ids_can_be_continued() -> None:
    message = assistant_message(TOKENIZER, TOKENIZER("SE").input_ids, tools=False)
    assert encode(TOKENIZER, [*START, message]) == encode(TOKENIZER, START) + TOKENIZER("SE").input_ids


def test_a_template_that_no_probe_found_out_stops_the_run() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "{%- for message in rest %}",
        "{{- '[long]' if messages | length > 13 else '' }}{%- for message in rest %}",
    )
    check_template(tokenizer, True)
    turn = [assistant_message(tokenizer, [EOS], tools=False), {"role": "user", "content": "x"}]
    with pytest.raises(UsageError, match="rewrites earlier turns"):
        encode(tokenizer, [*START, *turn * 5, *turn])


def test_a_conversation_that_ends_with_the_assistant_is_continued() -> None:
    forced = [*START, {"role": "assistant", "content": "SELECT "}]
    assert render(TOKENIZER, forced).endswith("<|im_start|>assistant\nSELECT ")


def test_labels_cover_what_the_assistant_writes_and_its_end() -> None:
    talk = [
        *START,
        {"role": "assistant", "content": "SELECT 1"},
        {"role": "user", "content": "no"},
        {"role": "assistant", "content": "SELECT 2"},
    ]
    ids, labels = solution_ids(TOKENIZER, talk)
    assert TOKENIZER.decode(ids) == render(TOKENIZER, talk[:4]) + "SELECT 2<|im_end|>"
    assert TOKENIZER.decode([label for label in labels if label != -100]) == "SELECT 1<|im_end|>SELECT 2<|im_end|>"
    assert all(label in (-100, id_) for id_, label in zip(ids, labels, strict=True))


def test_a_solution_starts_with_the_prompt_that_the_policy_is_given() -> None:
    prompt = encode(TOKENIZER, START)
    ids, labels = solution_ids(TOKENIZER, [*START, {"role": "assistant", "content": "SELECT 1"}])
    assert ids[: len(prompt)] == prompt
    assert set(labels[: len(prompt)]) == {-100}


def test_tools_and_calls_are_rendered_and_read_back() -> None:
    call = {"id": "call_0", "name": "run_sql", "args": {"sql": 'SELECT "a"\n'}}
    talk = [*START, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "1"}]
    text = render(TOKENIZER, talk, [TOOL])
    assert '"run_sql"' in text
    written = text.split("<|im_start|>assistant\n")[1].split(EOS_TEXT)[0]
    message = assistant_message(TOKENIZER, TOKENIZER(written).input_ids, tools=True)
    assert message["tool_calls"] == [call]
    assert message["content"] == ""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('<tool_call>{"name": "a", "arguments": {}}</tool_call><tool_call>{"name": "b"}</tool_call>', ["a", "b"]),
        ('<tool_call>{"name": "a", "arguments": {"x": 1}}', ["a"]),
        ('<tool_call>{"name": "a", "arguments": "{}"}</tool_call>', []),
        ('<tool_call>{"name": "a", "arguments": {</tool_call>', []),
        ('<tool_call>["a"]</tool_call> <tool_call>{"name": "b", "arguments": {}}</tool_call>', ["b"]),
        ('<tool_call>{"name": 3}</tool_call>', []),
        ("<tool_call></tool_call>", []),
        ("\ud800<tool_call>\ud800</tool_call>", []),
        ("", []),
    ],
)
def test_malformed_calls_are_left_out(text: str, names: list[str]) -> None:
    assert [call["name"] for call in tool_calls(text)] == names


@given(st.text())
def test_any_text_can_be_read_for_calls(text: str) -> None:
    assert tool_calls(text) == [] or "<tool_call>" in text


def test_no_calls_are_read_where_no_tools_were_offered() -> None:
    ids = TOKENIZER('<tool_call>{"name": "a"}</tool_call>').input_ids
    message = assistant_message(TOKENIZER, ids, tools=False)
    assert "tool_calls" not in message
    assert message[TOKEN_IDS] == ids


@pytest.mark.parametrize("depth", [51, 900, 3000, 100_000])
def test_a_call_nested_beyond_reading_is_left_out(depth: int) -> None:
    """Whatever the template or a row would do with it: what one rollout says must not raise for its whole batch."""
    call = '<tool_call>{"name": "ls", "arguments": {"a": ' + "[" * depth + "]" * depth + "}}</tool_call>"
    good = '<tool_call>{"name": "pwd", "arguments": {}}</tool_call>'
    assert [each["name"] for each in tool_calls(call + good)] == ["pwd"]
