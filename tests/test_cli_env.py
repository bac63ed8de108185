"""`coevolve env` and `coevolve doctor` for an environment with packages of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coevolve import wiring
from coevolve.config import Settings, load_settings
from envs.bfcl.env import Bfcl
from evals.run import EvalSettings
from store.errors import UsageError
from tests.cli import coevolve


def test_install_list_and_doctor(bfcl: Bfcl) -> None:
    installed = coevolve("env", "install", "bfcl")
    assert installed.code == 0
    assert "bfcl is installed in " in installed.out
    (row,) = [row for row in json.loads(coevolve("env", "list", "--json").out) if row["name"] == "bfcl"]
    assert (row["worlds"], row["seed_tasks"], row["suites"]["multi_turn_base"]) == (100, 0, 200)
    (found,) = [each for each in json.loads(coevolve("doctor", "--json").out) if each["what"] == "env bfcl"]
    assert (found["state"], found["found"].endswith("100 worlds to train in")) == ("ok", True)


def test_what_is_not_installed_is_listed_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVOLVE_ENVS", str(tmp_path))
    assert "not installed: coevolve env install bfcl" in coevolve("env", "list", "--json").out
    (found,) = [each for each in json.loads(coevolve("doctor", "--json").out) if each["what"] == "env bfcl"]
    assert found["fix"] == "coevolve env install bfcl"


def test_an_unknown_environment_cannot_be_installed() -> None:
    refused = coevolve("env", "install", "nothing")
    assert refused.code == 2
    assert "choose from appworld, bfcl, text2sql, studio" in refused.err


def test_the_list_is_read_in_a_terminal(bfcl: Bfcl) -> None:
    listed = coevolve("env", "list").out
    (row,) = [line for line in listed.splitlines() if line.startswith("bfcl ")]
    suites = len(bfcl.suites())
    assert row.endswith(
        f"{suites}: multi_turn_base 200, multi_turn_base_train 100, multi_turn_base_test 100, ... (all: --json)"
    )
    assert max(map(len, listed.splitlines())) < 140
    assert "appworld, bfcl, studio" in listed.splitlines()[-1]


def test_a_split_is_no_folder(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('env = "bfcl:stratified"\n')
    assert load_settings(config, environment={}).env == "bfcl:stratified"


def test_it_is_worked_through_tools(bfcl: Bfcl) -> None:
    settings = Settings(env="bfcl", eval=EvalSettings(suites=[], final=""))
    with pytest.raises(UsageError, match=r"train\.collect\.tools = false"):
        wiring.check(settings, trained=False)
