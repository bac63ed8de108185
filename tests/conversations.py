"""Conversations of a policy that writes given token ids, and the tokenizers they are held with.

`python -m tests.conversations` writes `tests/golden/chat_*.txt` anew; look at the difference before you commit it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

# First: it sets the environment of transformers.
import training.model  # noqa: F401

# isort: split
from gguf import GGUFReader
from trl import chat_template_utils as trl_templates

from envs.protocols import Message
from store.rows import Json, Step
from tests.tiny_model import byte_tokenizer
from training import smollm2
from training.chat import assistant_message, encode, ensure_template
from training.flatten import Row, flatten

GOLDEN = Path(__file__).parent / "golden"
TOOL: Json = {
    "type": "function",
    "function": {"name": "run_sql", "parameters": {"type": "object", "properties": {"sql": {"type": "string"}}}},
}
START: list[Message] = [
    {"role": "system", "content": "Answer with SQL.\nsinger(name, age)"},
    {"role": "user", "content": "How many singers?"},
]
Answer = Callable[[Message], list[Message]]
"""What the environment says to an assistant message."""


def steps_of(
    tokenizer: Any, start: Sequence[Message], turns: Sequence[list[int]], answer: Answer, tools: Sequence[Json] = ()
) -> list[Step]:
    """The steps of an episode in which the policy samples `turns`; the j-th token's log-probability is -1 - j."""
    messages, steps = list(start), []
    for index, sampled in enumerate(turns):
        message = assistant_message(tokenizer, sampled, tools=bool(tools))
        steps.append(step(index, encode(tokenizer, messages, tools), sampled))
        messages += [message, *answer(message)]
    return steps


def step(index: int, prompt: list[int], sampled: list[int], logprobs: list[float] | None = None) -> Step:
    return Step(
        trajectory_id="a trajectory",
        index=index,
        action="",
        observation="",
        tokens=[],
        failed=False,
        prompt_ids=prompt,
        completion_ids=sampled,
        logprobs=[-1.0 - at for at in range(len(sampled))] if logprobs is None else logprobs,
        seconds=0.0,
    )


@cache
def tokenizer_of(model: str) -> Any:
    """SmolLM2's own. Qwen's are not at hand without a network: bytes stand in for them, with Qwen's added tokens and
    its chat templates as TRL ships them."""
    if model == "smollm2":
        return smollm2.tokenizer(GGUFReader(smollm2.gguf_file()).fields)
    tokenizer = byte_tokenizer()
    if model != "bytes":
        tokenizer.add_tokens(["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"])
        tokenizer.add_tokens(["<think>", "</think>"] if model == "qwen3" else [])
        tokenizer.chat_template = getattr(trl_templates, f"{model}_chat_template")
        ensure_template(tokenizer, tools=True)
    return tokenizer


def layout(tokenizer: Any, row: Row) -> str:
    """A row as text: what was given, what was sampled and what came from outside, each with its number of tokens."""
    ids = iter(row.completion_ids)
    parts = [("prompt", row.prompt_ids)]
    for sampled, group in groupby(row.env_mask):
        parts.append(("sampled" if sampled else "environment", [next(ids) for _ in group]))
    return "".join(f"=== {name}: {len(part)} ids\n{tokenizer.decode(part)}\n" for name, part in parts)


def direct(model: str) -> str:
    """Two turns, the second after an error; the first has text that a template might put in order."""
    tokenizer = tokenizer_of(model)
    thought = "<think>\nOne table.\n</think>\n\n" if model == "qwen3" else ""
    turns = [tokenizer(f"{thought}{text}<|im_end|>").input_ids for text in ("SELECT 1  \n", "SELECT count(*)")]
    error = {"role": "user", "content": "Error: no such column. Correct the SQL."}
    return layout(tokenizer, flatten(steps_of(tokenizer, START, turns, lambda _: [error])))


def with_tools(model: str) -> str:
    """Two calls at once in a format of the policy's own, a turn cut off by max_tokens, an answer."""
    tokenizer = tokenizer_of(model)
    call = '<tool_call>{"arguments":{"sql":"SELECT 1"},  "name":"run_sql"}</tool_call>'
    turns = [
        tokenizer(text).input_ids for text in (f"I look.{call}{call}<|im_end|>", "I th", "SELECT count(*)<|im_end|>")
    ]
    return layout(tokenizer, flatten(steps_of(tokenizer, START, turns, tool_results, [TOOL])))


def tool_results(message: Message) -> list[Message]:
    if not (calls := message.get("tool_calls")):
        return [{"role": "user", "content": "Call one of the tools: run_sql."}]
    return [
        {"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": f"[{at}]\n"}
        for at, call in enumerate(calls)
    ]


KINDS = {"direct": direct, "tools": with_tools}
MODELS = ["smollm2", "qwen2_5", "qwen3"]

if __name__ == "__main__":
    for model in MODELS:
        for kind, make in KINDS.items():
            (GOLDEN / f"chat_{model}_{kind}.txt").write_text(make(model))
