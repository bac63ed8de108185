"""An iteration of GRPO whose world or server fails: no score, advantage or signal comes of it, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from store.db import Store
from store.rows import Metric, Row, Step, Trajectory
from store.signals import detect
from tests.fake_vllm import completion, fake_vllm
from tests.fakes import Fault
from tests.grpo_jobs import SETTINGS, Ran, ScoredEnv, run, run_stored
from training.config import CollectSettings, EngineSettings
from training.grpo import GroupTrainer
from training.sync import SyncFailed

FAULTS: list[Fault] = ["lose", "crash", "lose_start", "lose_grade", "cancelled"]
K = SETTINGS.collect.rollouts


def lossy(*more: Fault) -> ScoredEnv:
    """Every second session that is opened on a task at first is lost, in one way after another."""
    env, faults = ScoredEnv(), chain(more, cycle(FAULTS))
    for task in env.seed_tasks():
        env.faults[task.id] = [next(faults) if k % 2 else None for k in range(K)]
    return env


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(tmp_path_factory.mktemp("clean"), 0)


def scored(rows: Sequence[Row]) -> dict[tuple[str | None, int], Any]:
    """{(task, k): score and sampled tokens}."""
    steps: dict[str, list[Any]] = {}
    for row in rows:
        if isinstance(row, Step):
            steps.setdefault(row.trajectory_id, []).append((row.prompt_ids, row.completion_ids))
    played = [row for row in rows if isinstance(row, Trajectory) and row.outcome == "scored"]
    return {(row.task_id, row.k): (row.score, row.policy_step, steps[row.id]) for row in played}


def signals(folder: Path, rows: Sequence[Row]) -> list[Any]:
    store = Store(folder)
    store.append([row for row in rows if isinstance(row, Trajectory | Step)])
    return [(signal.kind, signal.task_id, signal.pattern, signal.stats) for signal in detect(store, "r", 0)]


def test_half_of_all_rollouts_lost_and_tried_again_train_the_same_weights(clean: Ran, tmp_path: Path) -> None:
    ran = run(tmp_path / "lossy", 0, env=lossy())
    lost = [row for row in ran.rows if isinstance(row, Trajectory) and row.outcome == "infra"]
    assert len(lost) == 12 * K / 2
    assert scored(ran.rows) == scored(clean.rows)
    assert len(scored(ran.rows)) == 12 * K
    assert signals(tmp_path / "a", ran.rows) == signals(tmp_path / "b", clean.rows) != []
    figures = [
        {(row.step, row.name): row.value for row in one.rows if isinstance(row, Metric) and "seconds" not in row.name}
        for one in (ran, clean)
    ]
    assert figures[0] == pytest.approx(figures[1], rel=1e-4, abs=1e-6)
    mine, theirs = (load_file(one.root / "checkpoints/1/adapter_model.safetensors") for one in (ran, clean))
    for name, weight in mine.items():
        torch.testing.assert_close(weight, theirs[name], atol=1e-6, rtol=1e-4)


def test_what_is_lost_for_good_has_no_advantage_and_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that hangs is among them."""
    seen: list[tuple[float, int]] = []
    real = GroupTrainer._generate_and_score_completions

    def watched(self: GroupTrainer, inputs: Any) -> Any:
        output = real(self, inputs)
        tokens = (output["completion_mask"] * output["tool_mask"]).sum(1)
        seen.extend(zip(output["advantages"].tolist(), tokens.tolist(), strict=True))
        return output

    monkeypatch.setattr(GroupTrainer, "_generate_and_score_completions", watched)
    collect = CollectSettings(rollouts=K, max_tokens=6, max_attempts=1, deadline_s=5, min_valid=0.5)
    ran = run(tmp_path / "run", 0, env=lossy("sleep"), settings=SETTINGS.model_copy(update={"collect": collect}))
    assert (ran.counts[0]["infra"], ran.counts[0]["scored"]) == (24, 24)
    errors = [row.error for row in ran.rows if isinstance(row, Trajectory) and row.outcome == "infra"]
    assert "InfraError: the episode took over 5 s" in errors
    informative = ran.counts[0]["groups"]["informative"]
    assert informative > 2
    assert sum(not tokens for _, tokens in seen) >= informative * K / 2
    assert all((advantage == 0) == (tokens == 0) for advantage, tokens in seen)
    kept = {row.id for row in ran.rows if isinstance(row, Trajectory) and row.outcome == "scored"}
    left = [
        row
        for row in ran.rows
        if (row.id if isinstance(row, Trajectory) else getattr(row, "trajectory_id", "")) in kept
    ]
    assert signals(tmp_path / "all", ran.rows) == signals(tmp_path / "kept", left)


def odd_or_even(body: dict[str, Any]) -> dict[str, Any]:
    """A completion of one or two letters, by the seed."""
    ids = [70] * (1 + body["seed"] % 2) + [2]
    return completion(body, token_ids=ids, logprobs={"token_logprobs": [-5.0] * len(ids)})


def test_a_sync_that_is_never_answered_ends_the_iteration_in_time_and_loses_no_rollout(tmp_path: Path) -> None:
    pushes = iter([200, 200, 200, None])
    hanging = {"/v1/completions": odd_or_even, "/collective_rpc": lambda body: next(pushes)}

    def settings(url: str) -> Any:
        engine = EngineSettings(backend="vllm", url=url, sync_s=0.5)
        return SETTINGS.model_copy(update={"engine": engine})

    with fake_vllm("coevolve/r@x", hanging) as fake:
        started = time.monotonic()
        with pytest.raises(SyncFailed, match=r"sync_s = 0\.5.*collective_rpc gave no answer in 0\.5 s"):
            run_stored(tmp_path, 0, settings=settings(fake.url))
        assert time.monotonic() - started < 60
    store = Store(tmp_path / "store")
    kept = store.query("select id, task_id, k from trajectory order by all")
    assert 0 < len(kept) < 12 * K
    with fake_vllm("coevolve/r@x", {"/v1/completions": odd_or_even}) as fake:
        run_stored(tmp_path, 0, settings=settings(fake.url))
        asked = sum(path == "/v1/completions" for path, _ in fake.asked)
    played = store.query("select id, task_id, k from trajectory order by all")
    assert len({row[1:] for row in played}) == len(played) == 12 * K, "each rollout once"
    assert set(kept) <= set(played)
    steps = store.query(
        "select count(*) from step where not list_contains(?, trajectory_id)", [[row[0] for row in kept]]
    )
    assert asked == steps[0][0], "those that were there are not sampled again"
