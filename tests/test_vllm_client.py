"""What the vLLM engine sends, and what it makes of answers; against a fake server, no vLLM."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from envs.errors import PolicyUnavailable
from envs.protocols import Completion, Request
from store.errors import UsageError
from tests.fake_vllm import completion, fake_vllm
from tests.tiny_model import write_random_model
from training.chat import encode
from training.config import EngineSettings, ModelSettings
from training.model import load_model
from training.rest import ServerError, get, words
from training.serve import arguments, attach, attach_trainable, free_port, meaningful
from training.sync import DiskReload, SyncFailed
from training.vllm import ServedPolicy, VLLMPolicy

NAME = "coevolve/r@x"
FLOAT = ModelSettings(dtype="float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model") / "tiny", context=256)


def a_request(text: str = "ab", *, temperature: float = 0.7, tools: bool = False) -> Request:
    return Request(
        messages=[{"role": "user", "content": text}],
        seed=5,
        temperature=temperature,
        max_tokens=9,
        tools=[{"type": "function", "function": {"name": "say"}}] if tools else [],
    )


def attached(folder: Path, home: Path, url: str, **settings: Any) -> VLLMPolicy:
    engine = EngineSettings(backend="vllm", url=url, **settings)
    return VLLMPolicy(folder, spec="hf:tiny", run="r", home=home, version=4, step=7, engine=engine, settings=FLOAT)


def sample(policy: VLLMPolicy | ServedPolicy, *requests: Request) -> list[Completion | Exception]:
    return asyncio.run(policy.sample(requests))


def test_the_whole_distribution_is_asked_for(folder: Path, tmp_path: Path) -> None:
    with fake_vllm(NAME) as fake:
        policy = attached(folder, tmp_path, fake.url)
        [entry] = sample(policy, a_request(tools=True))
        [sent] = [body for path, body in fake.asked if path == "/v1/completions"]
    wanted = {"top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0}
    assert sent | wanted == sent
    assert (sent["temperature"], sent["seed"], sent["max_tokens"], sent["stop_token_ids"]) == (0.7, 5, 9, [2])
    request = a_request(tools=True)
    assert sent["prompt"] == encode(policy._speaker.tokenizer, request.messages, request.tools)
    assert isinstance(entry, Completion)
    assert (entry.completion_ids, entry.logprobs) == ([70, 71, 2], [-1.0, -2.0, -3.0])
    assert entry.message["token_ids"] == [70, 71, 2]
    assert (policy.version, policy.step, policy.concurrent) == (4, 7, True)


def test_the_servers_own_generation_settings_are_off(folder: Path) -> None:
    line = " ".join(arguments(folder, NAME, 1, EngineSettings(), FLOAT))
    assert "--generation-config vllm" in line
    assert "--logprobs-mode processed_logprobs" in line


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (500, "answered 500: status 500"),
        (400, "answered 400: status 400"),
        ({"choices": []}, "answer lacks"),
        (lambda body: completion(body, finish_reason="abort"), "not whole"),
        (lambda body: completion(body, logprobs={"token_logprobs": [-1.0]}), "not whole"),
        (lambda body: completion(body, prompt_token_ids=[1]), "not whole"),
        (None, "no completion within train.engine.request_s = 0.3 s"),
    ],
)
def test_a_failure_is_an_entry_of_its_own_request(folder: Path, tmp_path: Path, answer: Any, message: str) -> None:
    def reply(body: dict[str, Any]) -> Any:
        bad = len(body["prompt"]) > 105
        return (answer(body) if callable(answer) else answer) if bad else completion(body)

    with fake_vllm(NAME, {"/v1/completions": reply}) as fake:
        policy = attached(folder, tmp_path, fake.url, request_s=0.3)
        good, bad, long, last = sample(policy, a_request(), a_request("a" * 30), a_request("a" * 999), a_request())
        assert isinstance(bad, PolicyUnavailable)
        assert message in str(bad)
        assert "does not fit in 256" in str(long)
        assert isinstance(good, Completion)
        assert isinstance(last, Completion)
        assert isinstance(sample(policy, a_request())[0], Completion), "it goes on"


def test_a_foreign_server_is_refused(folder: Path, tmp_path: Path) -> None:
    with fake_vllm("coevolve/other@x") as fake, pytest.raises(UsageError, match="serves 'coevolve/other@x', not"):
        attached(folder, tmp_path, fake.url)
    with fake_vllm("coevolve/r2@x") as fake, pytest.raises(UsageError, match="serves 'coevolve/r2@x'"):
        attach_trainable(fake.url, "r")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_takes_no_weights_or_gives_raw_logprobs_is_refused() -> None:
    with fake_vllm(NAME, {"/server_info": 404}) as fake, pytest.raises(UsageError, match="VLLM_SERVER_DEV_MODE=1"):
        attach_trainable(fake.url, "r")
    raw = {"vllm_config": {"model_config": {"logprobs_mode": "raw_logprobs"}}}
    with fake_vllm(NAME, {"/server_info": raw}) as fake, pytest.raises(UsageError, match="--logprobs-mode processed"):
        attach_trainable(fake.url, "r")


def test_what_is_no_server_is_one_line() -> None:
    with pytest.raises(ServerError, match="cannot be reached"):
        attach(f"http://127.0.0.1:{free_port(0)}", lambda name: True, expected="x")
    with fake_vllm(NAME, {"/v1/models": {}}) as fake:
        assert attach(fake.url + "/v1/", lambda name: True, expected="x").name == NAME


def test_a_taken_port_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(UsageError, match="is taken; choose another one, or 0"):
            free_port(other.getsockname()[1])


def test_a_sync_endpoint_that_never_answers_is_an_error_in_time(folder: Path, tmp_path: Path) -> None:
    with fake_vllm(NAME, {"/collective_rpc": None}) as fake:
        started = time.monotonic()
        with pytest.raises(SyncFailed, match=r"sync_s = 0\.5.*collective_rpc gave no answer in 0\.5 s"):
            attached(folder, tmp_path, fake.url, sync_s=0.5)
        assert time.monotonic() - started < 5


def test_a_failed_sync_stops_sampling_until_the_next_one(folder: Path, tmp_path: Path) -> None:
    answers: dict[str, Any] = {"code": 200}
    with fake_vllm(NAME, {"/collective_rpc": lambda body: answers["code"]}) as fake:
        policy = attached(folder, tmp_path, fake.url)
        weights = dict(load_model(folder, "float32").state_dict())
        answers["code"] = 500
        with pytest.raises(SyncFailed, match="answered 500: status 500"):
            policy.load(weights.items(), version=5, step=8)
        assert (policy.version, policy.step) == (4, 7)
        [entry] = sample(policy, a_request())
        assert "weights of version 5 (step 8) did not reach the server" in str(entry)
        answers["code"] = 200
        assert policy.load(weights.items(), version=5, step=8) > 0
        assert (policy.version, policy.step) == (5, 8)
        assert isinstance(sample(policy, a_request())[0], Completion)
        policy.close()
    assert list(tmp_path.iterdir()) == []


def test_an_attached_server_that_goes_away_is_not_trusted_when_it_is_back(folder: Path, tmp_path: Path) -> None:
    with fake_vllm(NAME) as fake:
        policy = attached(folder, tmp_path, fake.url)
    [entry] = sample(policy, a_request())
    assert "is gone" in str(entry)
    [entry] = sample(policy, a_request())
    assert "went away; once it is back, load the weights again" in str(entry)
    with pytest.raises(PolicyUnavailable, match="does not answer; start it again"):
        policy.load([], version=5, step=8)


def test_requests_that_still_run_keep_the_cache(folder: Path, tmp_path: Path) -> None:
    busy = fake_vllm(NAME, {"/reset_prefix_cache": {"success": False}})
    with busy as fake, pytest.raises(SyncFailed, match="requests are still running"):
        attached(folder, tmp_path, fake.url)


def test_weights_that_are_not_the_models_never_reach_the_server(folder: Path, tmp_path: Path) -> None:
    weights = dict(load_model(folder, "float32").state_dict())
    disk = DiskReload(folder, tmp_path, 1.0)
    with pytest.raises(SyncFailed, match=r"missing or of another shape, for example model\.norm\.weight"):
        disk.push("http://127.0.0.1:9", {k: v for k, v in weights.items() if k != "model.norm.weight"}.items())
    with pytest.raises(SyncFailed, match="1 of the model's weights"):
        disk.push("http://127.0.0.1:9", (weights | {"model.norm.weight": torch.zeros(3)}).items())
    assert list(tmp_path.iterdir()) == []


def test_a_servers_words_are_found() -> None:
    assert words('{"error": {"message": "too  long"}}') == "too long"
    assert words('{"detail": "Missing x"}') == "Missing x"
    assert words("<html>") == "<html>"
    assert words("") == "no message"
    with fake_vllm(NAME, {"/health": 503}) as fake, pytest.raises(ServerError, match="answered 503: status 503"):
        get(f"{fake.url}/health", 5)


def test_the_last_line_that_names_a_cause() -> None:
    log = """
(EngineCore pid=1) INFO 11-29 17:13:04 [core.py:1] loading
(EngineCore pid=1) ERROR 11-29 17:13:19 [core.py:10] Traceback (most recent call last):
(EngineCore pid=1) ERROR 11-29 17:13:19 [core.py:10]     raise ValueError(
(EngineCore pid=1) ERROR 11-29 17:13:19 [core.py:10] ValueError: no room for the cache
(APIServer pid=2) RuntimeError: Engine core initialization failed. See root cause above.
(APIServer pid=2) INFO 11-29 17:13:23 [core_client.py:766] stopped
"""
    assert meaningful(log) == "ValueError: no room for the cache"
    assert meaningful("one\ntwo\n") == "two"
    assert meaningful("") == "it said nothing"
