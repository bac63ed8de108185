"""Any ids that a policy samples reach the trainer as they are, marked as its own, and nothing else is marked."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.protocols import Message
from tests.conversations import START, TOOL, step, steps_of, tokenizer_of, tool_results
from training.chat import encode
from training.flatten import flatten

EOS = 2
CALL = '<tool_call>\n{"name":"run_sql",  "arguments":{"sql":"\\u0053EL"}}</tool_call>'


@st.composite
def turns(draw: st.DrawFn) -> tuple[Any, list[list[int]], list[str], bool]:
    """A tokenizer, what is sampled in 1 to 4 turns, what the environment answers, and whether there are tools.

    Ids are any of the vocabulary: bytes that are no UTF-8, special tokens, one text cut in several ways, none at all.
    """
    tokenizer = tokenizer_of(draw(st.sampled_from(["bytes", "qwen2_5", "qwen3"])))
    # Long enough for the letters to meet: S, E, L and their merges are drawn often.
    letters = [tokenizer.convert_tokens_to_ids(token) for token in ("S", "E", "L", "SE", "EL", "SEL", "LE")]
    ids = st.lists(st.sampled_from(letters) | st.integers(0, len(tokenizer) - 1), max_size=12)
    call = st.just(tokenizer(CALL).input_ids)
    turn = st.tuples(ids, st.just([]) | call, st.sampled_from([[], [EOS]])).map(lambda parts: [*chain(*parts)])
    sampled = draw(st.lists(turn, min_size=1, max_size=4))
    said = st.text(max_size=8) | st.sampled_from(["<|im_end|>", " \n", "SEL", "</think>"])
    answers = draw(st.lists(said, min_size=len(sampled), max_size=len(sampled)))
    return tokenizer, sampled, answers, draw(st.booleans())


@given(turns())
def test_sampled_ids_survive_and_they_alone_are_marked(drawn: tuple[Any, list[list[int]], list[str], bool]) -> None:
    tokenizer, sampled, answers, tools = drawn
    answer = iter(answers)

    def says(message: Message) -> list[Message]:
        text = next(answer)
        return [reply | {"content": text} for reply in tool_results(message)]

    steps = steps_of(tokenizer, START, sampled, says, [TOOL] if tools else [])
    for one, other in pairwise(steps):
        assert one.prompt_ids is not None
        assert one.completion_ids is not None
        assert other.prompt_ids is not None
        so_far = one.prompt_ids + one.completion_ids
        assert other.prompt_ids[: len(so_far)] == so_far
        between = tokenizer.decode(other.prompt_ids[len(so_far) :])
        assert between.startswith("<|im_end|>\n<|im_start|>") != (one.completion_ids[-1:] == [EOS])
        assert between.endswith("<|im_end|>\n<|im_start|>assistant\n")
    row = flatten(steps)
    assert row.prompt_ids == encode(tokenizer, START, [TOOL] if tools else [])
    marked = [at for at, mine in enumerate(row.env_mask) if mine]
    assert [row.completion_ids[at] for at in marked] == [*chain(*sampled)]
    assert [row.logprobs[at] for at in marked] == [-1.0 - at for turn in sampled for at in range(len(turn))]
    assert {row.logprobs[at] for at, mine in enumerate(row.env_mask) if not mine} <= {0.0}
    assert len(row.completion_ids) == len(row.env_mask) == len(row.logprobs)
    assert row.completion_ids[-len(sampled[-1]) or len(row.completion_ids) :] == sampled[-1]


def test_the_layout_of_three_turns() -> None:
    row = flatten([step(0, [1, 2], [3, 4]), step(1, [1, 2, 3, 4, 5, 6], []), step(2, [1, 2, 3, 4, 5, 6, 7], [8])])
    assert row.prompt_ids == [1, 2]
    assert row.completion_ids == [3, 4, 5, 6, 7, 8]
    assert row.env_mask == [1, 1, 0, 0, 0, 1]
    assert row.logprobs == [-1.0, -2.0, 0.0, 0.0, 0.0, -1.0]


def test_one_turn_is_all_its_own() -> None:
    row = flatten([step(0, [1], [2, 3])])
    assert (row.prompt_ids, row.completion_ids, row.env_mask) == ([1], [2, 3], [1, 1])


def test_a_rollout_that_wrote_nothing_has_an_empty_completion() -> None:
    row = flatten([step(0, [1, 2], [])])
    assert (row.prompt_ids, row.completion_ids, row.env_mask, row.logprobs) == ([1, 2], [], [], [])


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([], "without steps"),
        ([step(0, [1], [2]), step(1, [1, 3, 2], [4])], "step 1 of trajectory a trajectory: its prompt does not start"),
        ([step(0, [1], [2]), step(1, [1], [4])], "its prompt does not start with the turns before it"),
        ([step(0, [1], [2, 3], [0.0])], "2 tokens, 1 log-probabilities"),
    ],
)
def test_what_is_no_conversation_is_an_error(steps: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        flatten(steps)


def test_rollouts_without_ids_are_an_error() -> None:
    with pytest.raises(ValueError, match="gave no token ids"):
        flatten([replace(step(0, [1], [2]), completion_ids=None)])
