"""A local model as a policy: one entry a request, failures as entries, adapters applied."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from envs.errors import PolicyUnavailable
from envs.protocols import Completion, Request
from store.errors import UsageError
from tests.tiny_model import byte_tokenizer, write_random_model
from training.chat import encode
from training.config import ModelSettings, SftSettings
from training.model import load_model, merged
from training.policy import HFPolicy
from training.sft import with_lora

FLOAT = ModelSettings(dtype="float32", batch=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model") / "tiny-random-llama", context=256)


@pytest.fixture(scope="module")
def policy(folder: Path) -> HFPolicy:
    return HFPolicy(folder, spec=f"hf:{folder}", version=3, settings=FLOAT)


def a_request(word: str, *, seed: int = 1, temperature: float = 1.0, tools: bool = False) -> Request:
    return Request(
        messages=[{"role": "system", "content": "Say it back."}, {"role": "user", "content": word}],
        seed=seed,
        temperature=temperature,
        max_tokens=12,
        tools=[{"type": "function", "function": {"name": "say"}}] if tools else [],
    )


def sample(policy: HFPolicy, requests: list[Request]) -> list[Completion | Exception]:
    return asyncio.run(policy.sample(requests))


def test_completions_carry_ids_and_logprobs(policy: HFPolicy) -> None:
    requests = [a_request(word, seed=seed) for seed, word in enumerate(["ab", "abc", "ab", "x", "y"])]
    entries = sample(policy, requests)
    assert len(entries) == 5, "more than one batch"
    for request, entry in zip(requests, entries, strict=True):
        assert isinstance(entry, Completion)
        assert entry.prompt_ids == encode(policy.tokenizer, request.messages)
        assert entry.completion_ids is not None
        assert entry.logprobs is not None
        assert 1 <= len(entry.completion_ids) == len(entry.logprobs) == entry.completion_tokens <= 12
        assert entry.prompt_tokens == len(entry.prompt_ids or [])
        assert entry.message["role"] == "assistant"
        assert entry.message["content"] == policy.tokenizer.decode(entry.completion_ids, skip_special_tokens=True)


def test_equal_batches_give_equal_completions(policy: HFPolicy) -> None:
    requests = [a_request(word) for word in ("a", "b", "c")]
    assert sample(policy, requests) == sample(policy, requests)


def test_a_prompt_that_does_not_fit_fails_alone(policy: HFPolicy) -> None:
    good, bad, last = sample(policy, [a_request("ab"), a_request("long" * 100), a_request("x" * 180)])
    assert isinstance(good, Completion)
    assert isinstance(bad, PolicyUnavailable)
    assert "does not fit in 256" in str(bad)
    assert isinstance(last, Completion)
    assert len([*(last.prompt_ids or []), *(last.completion_ids or [])]) <= 256


def test_no_memory_is_an_entry_for_each_request(policy: HFPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: Any) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("training.policy.generate", out_of_memory)
    entries = sample(policy, [a_request("ab"), a_request("long" * 100), a_request("c")])
    assert all(isinstance(entry, PolicyUnavailable) for entry in entries)
    assert "allocate memory" in str(entries[0])
    assert "does not fit" in str(entries[1])


def test_no_requests_no_entries(policy: HFPolicy) -> None:
    assert sample(policy, []) == []


def test_tools_are_shown(policy: HFPolicy) -> None:
    [entry] = sample(policy, [a_request("ab", tools=True)])
    assert isinstance(entry, Completion)
    assert '{"type": "function", "function": {"name": "say"}}' in byte_tokenizer().decode(entry.prompt_ids or [])


def test_an_adapter_changes_the_policy_as_it_changes_the_model(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = with_lora(load_model(folder, "float32"), None, SftSettings(lora_r=4, lora_alpha=8))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    model.save_pretrained(tmp_path)
    ids = torch.arange(10, 40)[None]
    with torch.inference_mode():
        adapted, base = model(ids).logits, load_model(folder, "float32")(ids).logits
        torch.testing.assert_close(merged(folder, [tmp_path], "float32")(ids).logits, adapted, atol=1e-4, rtol=1e-4)
    assert (adapted - base).abs().max() > 0.1


def test_a_fresh_adapter_is_seeded(folder: Path) -> None:
    def weights(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        model = with_lora(load_model(folder, "float32"), None, SftSettings())
        return [weight for name, weight in model.named_parameters() if "lora_A" in name]

    assert all(map(torch.equal, weights(1), weights(1)))
    assert not any(map(torch.equal, weights(1), weights(2)))


def test_a_folder_without_weights_or_chat_template_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(UsageError, match="policy: cannot load"):
        HFPolicy(tmp_path, spec="hf:x", settings=FLOAT)
    plain = byte_tokenizer()
    plain.chat_template = None
    plain.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="no chat template"):
        HFPolicy(tmp_path, spec="hf:x", settings=FLOAT)


def test_sampling_settings_have_no_way_to_cut_the_distribution() -> None:
    from pydantic import ValidationError

    from training.config import CollectSettings

    for forbidden in ("top_p", "top_k", "min_p"):
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            CollectSettings.model_validate({forbidden: 0.9})
    with pytest.raises(ValidationError, match="greater than 0"):
        CollectSettings(temperature=0)


def test_an_adapter_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    with_lora(load_model(folder, "float32"), None, SftSettings(lora_r=2)).save_pretrained(tmp_path / "adapter")
    wider = LlamaForCausalLM(LlamaConfig(vocab_size=99, hidden_size=64, num_hidden_layers=2, num_attention_heads=4))
    wider.save_pretrained(tmp_path / "wider")
    with pytest.raises(UsageError, match=r"adapter .*adapter does not fit the model in .*wider"):
        merged(tmp_path / "wider", [tmp_path / "adapter"], "float32")


def test_new_weights_remember_nothing_of_the_old_ones(folder: Path, tmp_path: Path) -> None:
    policy = HFPolicy(folder, spec="x", settings=FLOAT)
    (first,) = sample(policy, [a_request("ab")])
    assert isinstance(first, Completion)
    other = write_random_model(tmp_path / "other", context=256, seed=7)
    policy.load(load_model(other, "float32").state_dict().items(), version=1, step=1)
    following = a_request("ab")
    following.messages.extend([first.message, {"role": "user", "content": "again"}])
    assert sample(policy, [following]) == sample(HFPolicy(other, spec="x", settings=FLOAT), [following])
