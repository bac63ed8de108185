"""The script behind docs/evidence.md: arms that differ in one setting, and its table."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from coevolve.config import parse_settings
from scripts.evidence import ARMS, PAIRED, Result, config, pooled, report


def test_arms_differ_from_signals_in_one_setting() -> None:
    found = {arm: parse_settings(tomllib.loads(config(arm, 3)), arm).model_dump() for arm in ARMS}
    signals = found.pop("signals")
    assert signals["seed"] == 3
    sources = {arm: settings["explore"]["source"] for arm, settings in found.items()}
    assert sources == {"none": "none", "random": "random", "sft": "signals"}
    for settings in found.values():
        source, method = settings["explore"].pop("source"), settings["train"].pop("method")
        assert (source == "signals") != (method == "grpo")
    signals["explore"].pop("source")
    signals["train"].pop("method")
    assert all(settings == signals for settings in found.values())


def result(arm: str, seed: int, last: list[float]) -> Result:
    warm, items = [0.0, 0.0, 1.0, 1.0], "abcd"
    return Result(
        arm=arm,
        seed=seed,
        seconds=10.0,
        tasks=5,
        steps=3,
        rollouts=40,
        warm=dict(zip(items, warm, strict=True)),
        last=dict(zip(items, last, strict=True)),
    )


def test_the_table_has_each_run_and_the_differences_over_shared_seeds() -> None:
    runs = [
        result("signals", 0, [1.0, 1.0, 1.0, 1.0]),
        result("none", 0, [0.0, 1.0, 1.0, 1.0]),
        result("signals", 1, [1.0, 0.0, 1.0, 1.0]),
    ]
    lines = report(runs).splitlines()
    assert sum(line.startswith(("| signals | ", "| none | ")) for line in lines) == 3
    gains = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in lines if " - " in line}
    assert {name: (cells[0], cells[1].split()[0]) for name, cells in gains.items()} == {
        "signals - warm start": ("2", "37.5"),
        "none - warm start": ("1", "25.0"),
        "signals - none": ("1", "25.0"),
    }


def test_an_item_counts_once_however_many_seeds_played_it() -> None:
    found = pooled([([0.0, 1.0], [1.0, 1.0]), ([0.0, 1.0], [0.0, 1.0])])
    assert (found.n, found.value) == (2, pytest.approx(0.25))


def test_the_page_tells_of_the_arms() -> None:
    page = (Path(__file__).parents[1] / "docs/evidence.md").read_text()
    assert all(f"| `{arm}` |" in page for arm in ARMS)
    assert set(PAIRED) <= set(ARMS)
