"""Chat templates: three models' conversations to the token, TRL's variants, and those that rewrite what was said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from envs.protocols import Message
from store.errors import UsageError
from tests.conversations import GOLDEN, KINDS, MODELS, START, tokenizer_of
from tests.tiny_model import byte_tokenizer, write_random_model
from training.chat import assistant_message, check_template, encode, ensure_template, render
from training.model import load_tokenizer
from training.policy import HFPolicy
from training.smollm2 import TEMPLATE

# isort: split
from trl import chat_template_utils as trl_templates

CHATML = TEMPLATE.read_text()
TEXT = "(message['content'] or '')"
LAST = "(message['content'] or '') if loop.last else "
LOOP = "{%- for message in rest"
PROMPT = "'<|im_start|>assistant\\n' }}"
ENDING = "'<|im_end|>\\n' }}\n{%- endfor"
WRONG = {
    "strips": (TEXT, "(message['content'] or '') | trim", "changes what the assistant wrote"),
    "strips earlier turns": (TEXT, f"({LAST}(message['content'] | trim))", "rewrites earlier turns"),
    "drops thinking": (
        TEXT,
        f"({LAST}message['content'].split('</think>') | last)",
        "rewrites earlier turns .*<think>.* became",
    ),
    "escapes": (TEXT, "message['content'] | replace('<', '&lt;')", "changes what the assistant wrote"),
    "shows the newest turns only": ("in rest %}", "in rest[-3:] %}", "rewrites earlier turns"),
    "thinks in prompts only": (PROMPT, "'<|im_start|>assistant\\n<think>' }}", "begins a turn"),
    "has no end of turn": (ENDING, "'\\n\\n' }}\n{%- endfor", "with no special token"),
    "takes one turn": (LOOP, "{{- raise_exception('one turn!') if rest[1:] }}" + LOOP, "(one turn!)"),
}
"""What is replaced in SmolLM2's template, by what, and what is said of it."""
WRONG_WITH_TOOLS = {
    "leaves calls out": ("message['tool_calls'] or []", "[]", "leaves tool calls out ('look_up')"),
    "leaves results out": ("in rest %}", "in rest if message['role'] != 'tool' %}", "leaves tool results out"),
    "takes no tools": ("{%- if tools %}", "{%- if tools %}{{- raise_exception('no tools!') }}", "(no tools!)"),
}


def with_template(old: str, new: str) -> Any:
    tokenizer = byte_tokenizer()
    assert old in CHATML
    tokenizer.chat_template = CHATML.replace(old, new)
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", MODELS)
def test_conversations_are_those_of_the_golden_files(model: str, kind: str) -> None:
    """SmolLM2's ids are its own; for Qwen the texts are, and ids are bytes' with Qwen's added tokens."""
    assert KINDS[kind](model) == (GOLDEN / f"chat_{model}_{kind}.txt").read_text()


@pytest.mark.parametrize("model", MODELS)
def test_a_conversation_in_form_is_what_the_template_shows(model: str) -> None:
    tokenizer = tokenizer_of(model)
    thought = "<think>\nOne table.\n</think>\n\n" if model == "qwen3" else ""
    talk: list[Message] = list(START)
    for text in ("SELECT 1  \n", "SELECT count(*)"):
        sampled = tokenizer(f"{thought}{text}<|im_end|>").input_ids
        talk += [assistant_message(tokenizer, sampled, tools=False), {"role": "user", "content": "Error"}]
    assert tokenizer.decode(encode(tokenizer, talk)) == render(tokenizer, talk)


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("tools", [False, True])
def test_a_template_that_rewrites_is_refused(name: str, tools: bool) -> None:
    old, new, words = WRONG[name]
    with pytest.raises(UsageError) as refused:
        check_template(with_template(old, new), tools)
    assert re.search(words if ".*" in words else re.escape(words), str(refused.value))


@pytest.mark.parametrize("name", WRONG_WITH_TOOLS)
def test_a_template_without_tools_is_refused_where_they_are_used(name: str) -> None:
    old, new, words = WRONG_WITH_TOOLS[name]
    tokenizer = with_template(old, new)
    check_template(tokenizer, False)
    with pytest.raises(UsageError, match=re.escape(words)):
        check_template(tokenizer, True)


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("name", ["qwen2_5", "qwen3_instruct_2507", "qwen3_vl"])
def test_a_template_that_grows_is_left_alone(name: str, tools: bool) -> None:
    tokenizer = byte_tokenizer()
    own = tokenizer.chat_template = getattr(trl_templates, f"{name}_chat_template")
    ensure_template(tokenizer, tools=tools)
    assert tokenizer.chat_template == own


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("name", ["qwen3", "qwen3_5_think", "qwen3_5_nothink"])
def test_a_template_that_trl_has_a_variant_of_is_replaced_by_it(name: str, tools: bool) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = getattr(trl_templates, f"{name}_chat_template")
    with pytest.raises(UsageError, match="rewrites earlier turns"):
        check_template(tokenizer, tools)
    ensure_template(tokenizer, tools=tools)
    assert tokenizer.chat_template == getattr(trl_templates, f"{name}_training_chat_template")


def test_a_variant_that_trims_is_let_pass() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<|eot_id|>"], special_tokens=True)
    tokenizer.chat_template = trl_templates.llama3_chat_template
    ensure_template(tokenizer)
    assert tokenizer.chat_template == trl_templates.llama3_training_chat_template
    tokenizer.chat_template = own = trl_templates.llama3_chat_template
    with pytest.raises(UsageError, match=r"leaves tool calls out|changes what the assistant wrote"):
        ensure_template(tokenizer, tools=True)
    assert tokenizer.chat_template == own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose template strips, except that of the turn that is being written."""
    write_random_model(tmp_path)
    old, new, _ = WRONG["strips earlier turns"]
    (tmp_path / "chat_template.jinja").write_text(CHATML.replace(old, new))
    return tmp_path


def test_such_a_model_is_refused_by_name_with_the_fix(folder: Path) -> None:
    fix = "put a chat_template.jinja into the folder that shows every turn as it was written, or use another model"
    with pytest.raises(UsageError) as refused:
        HFPolicy(folder, spec=f"hf:{folder}")
    assert str(refused.value).startswith(f"policy: the chat template of the model in {folder} rewrites earlier turns")
    assert str(refused.value).endswith(fix)


def test_the_fix_helps(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(CHATML)
    assert load_tokenizer(folder, tools=True).chat_template == CHATML


def test_a_model_folder_with_qwen3s_template_is_loaded_with_its_training_variant(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(trl_templates.qwen3_chat_template)
    tokenizer = load_tokenizer(folder, tools=True)
    assert tokenizer.chat_template == trl_templates.qwen3_training_chat_template
