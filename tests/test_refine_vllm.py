"""A data set refined by a real small model behind vLLM: the protocol holds and verdicts keep their schema."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from coevolve.workspace import Workspace
from graphs.replies import verdict_schema
from store.rows import Remark
from tests.cli import coevolve
from tests.refine_server import workspace
from tests.small_server import small_server

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")]

ASKED = ["Name the capital of France.", "Translate to French: good morning", "Write one sentence about rain."]


def test_small_model_through_vllm(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    records = [{"id": at, "instruction": text, "output": "I do not know."} for at, text in enumerate(ASKED)]
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    with small_server(tmp_path) as served:
        work = workspace(
            tmp_path / "work", f"{served.url}/v1", concurrency=6, max_tokens=160, timeout_s=240, deadline_s=240
        )
        done = coevolve(
            *["refine", source, "--out", tmp_path / "out.jsonl", "--format", "alpaca"],
            *["--model", f"hosted_vllm/{served.name}", "--set", "refine.iterations=1", "--workspace", work],
        )
    assert done.code == 0, done.err
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["id"], row["instruction"]) for row in written] == list(enumerate(ASKED))
    said = Workspace.find(str(work)).store.rows(Remark)
    assert {row.role for row in said} >= {"positive", "critical", "advisor", "editor", "judge"}
    assert all(row.prompt_tokens > 100 and row.completion_tokens > 0 for row in said)
    judged = [row for row in said if row.role == "judge" and not row.cut]
    assert judged, "at least one verdict was not cut off"
    for row in judged:
        assert set(row.scores) == {"old", "new"}
        assert list(msgspec.json.decode(row.text)) == verdict_schema("first", "second")["required"]
