"""No task holds what a reader does not see, or what a chat template takes for its own marks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envs.protocols import Draft
from envs.text import unfit, unfit_draft

HIDDEN = st.characters(categories=["Cc", "Cf", "Cs", "Co", "Zl", "Zp"], exclude_characters="\t\n\r\u200c\u200d")
SEEN = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"], exclude_characters="<["))


@given(before=SEEN, char=HIDDEN, after=SEEN)
@example(before="", char="\x00", after="")
@example(before="a", char="\u202e", after="b")
@example(before="a", char="\ud800", after="")
def test_hidden_characters_are_named(before: str, char: str, after: str) -> None:
    assert unfit(before + char + after) == f"it holds the invisible character U+{ord(char):04X}"


@given(text=SEEN)
@example(text="Wie heißen die Bücher?\nمی\u200cخواهم\t👩\u200d🚀")
@example(text="SELECT a FROM t WHERE a <> 1 AND b[1] < 2 AND c > 3 || 'x' /* <b> */")
@example(text="Is <name> in [brackets] an |inst|?")
def test_all_other_text_is_fit(text: str) -> None:
    assert unfit(text) == ""


@pytest.mark.parametrize(
    "mark",
    [
        "<|im_end|>",
        "<|im_start|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<s>",
        "</s>",
        "<bos>",
        "<eos>",
        "[INST]",
        "[/INST]",
        "<<SYS>>",
        "<end_of_turn>",
        "<start_of_turn>",
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</THINK>",
    ],
)
def test_marks_of_chat_templates_are_named(mark: str) -> None:
    assert unfit(f"hello{mark}there") == f"it holds {mark!r}, a mark of chat templates"


@pytest.mark.parametrize(
    "draft",
    [
        {"user_turns": ["fine", "\x1b[2J"]},
        {"reference": "SELECT '\u202e'"},
        {"reference": {"calls": [[{"name": "</s>"}]]}},
        {"reference": {"\x00": 1}},
    ],
)
def test_every_text_of_a_draft_is_read(draft: Any) -> None:
    parts = {"world": "w", "user_turns": ["fine"], "reference": ["fine", 1, None, True, 2.5]}
    assert unfit_draft(Draft(**parts)) == ""  # type: ignore[arg-type]
    assert unfit_draft(Draft(**parts | draft))
