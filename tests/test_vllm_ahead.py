"""GRPO with a real vLLM server on this CPU that samples the next step's groups while TRL trains."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from store.rows import Metric, Trajectory
from tests.grpo_jobs import ahead, coin, run
from tests.test_grpo_ahead import figures, lags
from tests.tiny_model import write_random_model

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")]


def test_a_server_samples_one_step_ahead_while_the_trainer_is_at_work(tmp_path: Path) -> None:
    write_random_model(tmp_path / "model", head_dim=32)
    ran = run(tmp_path, 0, score=coin, settings=ahead(1))
    found = lags(ran.rows, 0, 0)
    assert len(found) >= 2
    assert found[1] == {0}
    assert set.union(*found.values()) == {0, 1}, "none is older, and at least one group was sampled ahead"
    assert figures(ran.rows, "staleness/max") == {step: max(lag) for step, lag in found.items()}
    assert {row.outcome for row in ran.rows if isinstance(row, Trajectory)} == {"scored"}
    assert len([row for row in ran.rows if isinstance(row, Trajectory)]) == 12 * 4
    waited = [row.value for row in ran.rows if isinstance(row, Metric) and row.name == "seconds/wait"]
    assert len(waited) == len(found)
