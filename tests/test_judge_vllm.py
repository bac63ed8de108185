"""A committee of a real small model behind vLLM: the protocol holds and verdicts keep their schema."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from graphs.committee import Judges, named
from graphs.replies import GRADES, opinion_schema
from graphs.settings import JudgeSettings
from graphs.settings import ModelSettings as CallSettings
from store.rows import Vote
from tests.graph_setup import candidate, of
from tests.judge_setup import judged
from tests.small_server import small_server

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")]


def test_small_model_through_vllm(tmp_path: Path) -> None:
    with small_server(tmp_path) as served:
        calls = CallSettings(api_base=f"{served.url}/v1", max_tokens=160, timeout_s=240, deadline_s=240)
        spec = f"litellm:hosted_vllm/{served.name}"
        court = Judges(strong=named([spec, spec], calls, seed=0), settings=JudgeSettings(models=[spec, spec]))
        verdicts, rows = judged(
            tmp_path, [candidate("hello", index=0), candidate("goodbye", index=1)], court, calls=calls
        )
    votes = of(Vote, rows)
    assert [(vote.stage, vote.judge) for vote in votes].count(("strong", 0)) == 2
    assert len(votes) == 4
    assert {verdict.reason for verdict in verdicts} <= {"valid", "outvoted"}
    assert all(vote.prompt_tokens > 100 and vote.completion_tokens > 0 for vote in votes)
    read = [vote for vote in votes if vote.adopt is not None]
    assert read, "at least one verdict was not cut off"
    for vote in read:
        assert set(vote.scores) == set(GRADES)
        assert list(msgspec.json.decode(vote.text)) == opinion_schema()["required"]
