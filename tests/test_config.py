"""Settings: one TOML, the environment and --set; unknown keys are errors at every depth."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from coevolve.config import Settings, init_workspace, load_settings, parse_settings, preset
from store.errors import UsageError


def config(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def test_the_template_shows_the_defaults(tmp_path: Path) -> None:
    folder = init_workspace(str(tmp_path / "work"))
    assert load_settings(folder / "config.toml", environment={}) == Settings()


def test_the_template_names_every_setting(tmp_path: Path) -> None:
    text = (init_workspace(str(tmp_path / "work")) / "config.toml").read_text()

    def keys(model: dict[str, object]) -> set[str]:
        nested = [keys(value) for value in model.values() if isinstance(value, dict)]
        return set(model).union(*nested)

    sections = re.findall(r"^\[(.+?)\]", text, re.MULTILINE)
    named = {*re.findall(r"^(?:# )?(\w+) =", text, re.MULTILINE), *".".join(sections).split(".")}
    assert keys(Settings().model_dump(by_alias=True)) == named


def test_later_sources_win(tmp_path: Path) -> None:
    path = config(tmp_path, "seed = 1\n[train.sft]\nlr = 0.1\nbatch = 2\n[eval]\nlimit = 5")
    settings = load_settings(
        path,
        ["train.sft.lr=0.3", "policy=hf:/models/x"],
        {"COEVOLVE__TRAIN__SFT__LR": "0.2", "COEVOLVE__SEED": "7", "OTHER": "1"},
    )
    assert settings.train.sft.lr == 0.3
    assert settings.train.sft.batch == 2
    assert settings.seed == 7
    assert settings.eval.limit == 5
    assert settings.policy == "hf:/models/x"


@pytest.mark.parametrize(
    ("text", "key", "among"),
    [
        ("sed = 1", "'sed'", "seed"),
        ("[train]\nk = 8", "'train.k'", "warm_start"),
        ("[train.sft]\nlearning_rate = 1", "'train.sft.learning_rate'", "lora_r"),
        ("[validate]\ngrow = 0.2", "'validate.grow'", "growth"),
    ],
)
def test_an_unknown_key_is_an_error_that_lists_the_known_ones(tmp_path: Path, text: str, key: str, among: str) -> None:
    with pytest.raises(UsageError) as error:
        load_settings(config(tmp_path, text), environment={})
    assert f"unknown key {key}" in str(error.value)
    assert among in str(error.value)


@pytest.mark.parametrize("text", ["top_p = 0.9", "top_k = 20", "min_p = 0.1", "top_p = 1.0"])
def test_a_setting_that_cuts_the_distribution_off_is_refused_with_the_reason(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as error:
        load_settings(config(tmp_path, f"[train.collect]\n{text}"), environment={})
    assert f"train.collect.{text}: training samples from the full distribution" in str(error.value)


def test_the_nearest_key_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown key 'validate\.grow'; did you mean 'growth'\? keys here: repairs"):
        load_settings(config(tmp_path, "[validate]\ngrow = 0.2"), environment={})
    with pytest.raises(UsageError, match=r"unknown key 'zzz'; keys here: seed"):
        load_settings(config(tmp_path, "zzz = 1"), environment={})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed = 'one'", "seed = 'one'"),
        ("[train.sft]\nlr = -1", "train.sft.lr = -1: input should be greater than 0"),
        ("[validate]\ngrowth = 0.5", "validate.growth = 0.5"),
        ("seed = true", "seed = True"),
        ("seed = '5'", "seed = '5'"),
        ("[train.sft]\nlr = inf", "train.sft.lr = inf: input should be a finite number"),
        ("[model]\ndeadline_s = nan", "model.deadline_s = nan"),
        ("seed = ", "not valid TOML"),
        ("seed = 1\nseed = 2", "not valid TOML"),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        load_settings(config(tmp_path, text), environment={})


@pytest.mark.parametrize("override", ["seed", "=3", "train.sft.speed=1", "seed.x=1"])
def test_a_bad_override_is_an_error(tmp_path: Path, override: str) -> None:
    with pytest.raises(UsageError):
        load_settings(config(tmp_path, "seed = 1"), [override], {})


def test_an_unknown_key_in_the_environment_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown key 'train\.speed'"):
        load_settings(config(tmp_path, ""), (), {"COEVOLVE__TRAIN__SPEED": "1"})


def test_the_sources_of_a_problem_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.toml, COEVOLVE__SED, --set eval\.k=2: unknown key 'sed'"):
        load_settings(config(tmp_path, ""), ["eval.k=2"], {"COEVOLVE__SED": "1"})


@pytest.mark.parametrize(
    ("given", "found"),
    [("hf:m", "hf:{}/m"), ("hf:../m", "hf:{}/../m"), ("hf:/m", "hf:/m"), ("litellm:a/b", "litellm:a/b")],
)
def test_folders_are_named_from_the_config_file(tmp_path: Path, given: str, found: str) -> None:
    settings = load_settings(config(tmp_path, f"policy = '{given}'\nenv = 'text2sql:bird'"), environment={})
    kind, _, folder = found.format(tmp_path).partition(":")
    assert settings.policy == (f"{kind}:{Path(folder).resolve()}" if kind == "hf" else found)
    assert settings.env == f"text2sql:{tmp_path / 'bird'}"


def test_an_environment_brings_settings_that_those_of_set_come_before() -> None:
    overrides = (*preset("bfcl:small"), "train.collect.max_tokens=9")
    settings = load_settings(None, overrides, {})
    assert (settings.env, settings.train.collect.tools) == ("bfcl:small", True)
    assert settings.train.collect.max_tokens == 9
    assert settings.eval.final == "multi_turn_base_test"
    assert preset("text2sql") == ("env=text2sql",)


def test_the_page_shows_what_bfcl_brings() -> None:
    root = Path(__file__).parent.parent
    (shown,) = re.findall(r"^```toml\n(env = .*?)^```", (root / "docs/bfcl.md").read_text(), re.DOTALL | re.MULTILINE)
    assert load_settings(None, preset("bfcl"), {}) == parse_settings(tomllib.loads(shown), "docs/bfcl.md")
