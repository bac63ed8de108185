"""A real vLLM server on this CPU with a tiny random model: its numbers are the model's, its deaths are survived."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from envs.errors import InfraError, PolicyUnavailable
from envs.protocols import Completion, Request
from store.errors import UsageError
from tests.tiny_model import write_random_model
from training.completions import complete
from training.config import EngineSettings, ModelSettings, SftSettings
from training.guard import members
from training.model import load_model
from training.policy import HFPolicy
from training.serve import Server, attach, healthy
from training.sft import with_lora
from training.sync import SyncFailed
from training.vllm import ServedPolicy, VLLMPolicy

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")]

FLOAT = ModelSettings(dtype="float32", batch=8)
ENGINE = EngineSettings(backend="vllm", start_s=180, sync_s=30, request_s=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model") / "tiny", head_dim=32)


@pytest.fixture(scope="module")
def adapter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = with_lora(load_model(folder, "float32"), None, SftSettings(lora_r=4, lora_alpha=8))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    path = tmp_path_factory.mktemp("adapter")
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def engine(folder: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMPolicy]:
    policy = VLLMPolicy(
        folder,
        spec=f"hf:{folder}",
        run="r001",
        home=tmp_path_factory.mktemp("run"),
        layers=[] if adapter is None else [adapter],
        version=3,
        step=9,
        engine=ENGINE,
        settings=FLOAT,
    )
    yield policy
    policy.close()


def guard(policy: VLLMPolicy) -> int:
    assert policy._server is not None
    assert policy._server._guard is not None
    return policy._server._guard.pid


def kill_the_engine(group: int) -> None:
    [core] = [pid for pid in members(group) if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(core, signal.SIGKILL)


def a_request(text: str, seed: int = 1, *, temperature: float = 1.0, tokens: int = 12, tools: bool = False) -> Request:
    return Request(
        messages=[{"role": "system", "content": "Say it back."}, {"role": "user", "content": text}],
        seed=seed,
        temperature=temperature,
        max_tokens=tokens,
        tools=[{"type": "function", "function": {"name": "say"}}] if tools else [],
    )


REQUESTS = [
    a_request("ab", 1),
    a_request("hello" * 500, 2),  # longer than vLLM reads in one step by default
    a_request("abc", 3, temperature=0.0),
    a_request("q", 4, temperature=0.6),
    a_request("x", 5, tools=True),
]


def sample(policy: VLLMPolicy | HFPolicy | ServedPolicy, requests: list[Request]) -> list[Completion]:
    entries = asyncio.run(policy.sample(requests))
    assert all(isinstance(entry, Completion) for entry in entries), entries
    return [entry for entry in entries if isinstance(entry, Completion)]


def difference(model: Any, requests: list[Request], completions: list[Completion]) -> float:
    """The greatest difference between the sampler's log-probabilities and the model's."""
    worst = 0.0
    for request, entry in zip(requests, completions, strict=True):
        assert entry.prompt_ids is not None
        assert entry.completion_ids is not None
        assert entry.logprobs is not None
        with torch.inference_mode():
            logits = model(torch.tensor([entry.prompt_ids + entry.completion_ids])).logits[0].float()
        scores = (logits[len(entry.prompt_ids) - 1 : -1] / (request.temperature or 1.0)).log_softmax(-1)
        found = scores.gather(1, torch.tensor(entry.completion_ids)[:, None]).squeeze(1)
        worst = max(worst, (found - torch.tensor(entry.logprobs)).abs().max().item())
    return worst


def changed(model: Any, seed: int) -> Any:
    """The model with every weight moved, the embeddings too."""
    with torch.no_grad():
        torch.manual_seed(seed)
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def test_ids_and_logprobs_are_the_models(engine: VLLMPolicy, folder: Path, adapter: Path) -> None:
    ours = HFPolicy(folder, spec="hf:x", layers=[adapter], settings=FLOAT)
    entries = sample(engine, REQUESTS)
    assert difference(ours.model, REQUESTS, entries) < 1e-4
    greedy = [a_request(text, temperature=0.0) for text in ("ab", "hello", "zz")]
    for mine, theirs in zip(sample(engine, greedy), sample(ours, greedy), strict=True):
        assert mine.prompt_ids == theirs.prompt_ids
        assert mine.completion_ids == theirs.completion_ids
        assert mine.message == theirs.message
    assert (engine.version, engine.step) == (3, 9)


def test_a_seed_decides_and_the_neighbours_do_not(engine: VLLMPolicy) -> None:
    alone = [sample(engine, [request])[0].completion_ids for request in REQUESTS]
    assert [entry.completion_ids for entry in sample(engine, REQUESTS)] == alone
    assert sample(engine, [a_request("ab", 99)])[0].completion_ids != alone[0]


def test_a_stop_token_ends_and_is_kept(engine: VLLMPolicy) -> None:
    entries = sample(engine, [a_request("ab", seed, tokens=400) for seed in range(8)])
    ended = [entry.completion_ids for entry in entries if len(entry.completion_ids or []) < 400]
    assert ended
    assert all(ids and ids[-1] == 2 and 2 not in ids[:-1] for ids in ended)


def test_many_at_once_and_one_too_long(engine: VLLMPolicy) -> None:
    requests = [*(a_request("w" * 150, seed) for seed in range(40)), a_request("long" * 2000)]
    entries = asyncio.run(engine.sample(requests))
    assert all(isinstance(entry, Completion) for entry in entries[:-1])
    assert isinstance(entries[-1], PolicyUnavailable)
    assert "does not fit in 4096" in str(entries[-1])


def test_loaded_weights_are_sampled_from(engine: VLLMPolicy, folder: Path) -> None:
    model = changed(load_model(folder, "float32"), seed=1)
    assert engine.load(model.named_parameters(), version=4, step=10) < 10
    assert (engine.version, engine.step) == (4, 10)
    assert difference(model, REQUESTS, sample(engine, REQUESTS)) < 1e-4


def test_another_runs_server_is_refused_and_its_own_can_be_attached(engine: VLLMPolicy, folder: Path) -> None:
    settings = ENGINE.model_copy(update={"url": engine._served.url})
    home = folder.parent
    with pytest.raises(UsageError, match=r"serves 'coevolve/r001@.*', not 'coevolve/r002@"):
        VLLMPolicy(folder, spec="hf:x", run="r002", home=home, engine=settings, settings=FLOAT)
    second = VLLMPolicy(folder, spec="hf:x", run="r001", home=home, version=1, engine=settings, settings=FLOAT)
    assert difference(load_model(folder, "float32"), REQUESTS, sample(second, REQUESTS)) < 1e-4
    second.close()
    assert engine._server is not None
    assert engine._server.alive, "closing what was attached stops no server"
    served = ServedPolicy(
        attach(engine._served.url, lambda name: True, expected=""),
        folder,
        spec=f"vllm:{engine._served.url}",
        version=0,
        batch=8,
        request_s=30,
    )
    assert len(sample(served, REQUESTS)) == len(REQUESTS)


def test_a_killed_engine_is_started_again_with_the_last_weights(
    engine: VLLMPolicy, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = changed(load_model(folder, "float32"), seed=2)
    engine.load(model.named_parameters(), version=5, step=11)
    group = guard(engine)

    async def killed(*arguments: Any) -> list[Completion | Exception]:
        kill_the_engine(group)  # after the look whether it is alive
        return await complete(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("training.vllm.complete", killed)
        entries = asyncio.run(engine.sample([a_request("k", seed) for seed in range(12)]))
    assert all(isinstance(entry, InfraError) for entry in entries)
    assert healthy(engine._served.url), "who tries again need not wait"
    assert difference(model, REQUESTS, sample(engine, REQUESTS)) < 1e-4
    assert (engine.version, engine.step) == (5, 11)
    assert members(group) == [], "nothing of the dead server is left"


def test_a_sync_that_breaks_the_server_ends_it(
    engine: VLLMPolicy, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test with this engine. The next `load` would start it again, as a killed one is."""
    broken = dict(load_model(folder, "float32").state_dict()) | {"model.norm.weight": torch.zeros(5)}
    group = guard(engine)
    monkeypatch.setattr("training.sync._check", lambda *_: None)
    with pytest.raises(SyncFailed, match=r"answered 500.*its log ends:"):
        engine.load(broken.items(), version=6, step=12)
    assert members(group) == []
    [entry] = asyncio.run(engine.sample([a_request("ab")]))
    assert "weights of version 6 (step 12) did not reach the server" in str(entry)
    assert (engine.version, engine.step) == (5, 11)


def test_a_server_that_cannot_start_says_why(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/config.json").write_text("{}")
    server = Server(run="r", engine=ENGINE, model=FLOAT, log=tmp_path / "vllm.log")
    with pytest.raises(InfraError, match=r"vLLM did not start: .*model_type.*; see .*vllm\.log"):
        server.start(tmp_path / "empty")
    assert not server.alive
