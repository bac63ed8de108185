"""The pictures of docs/concepts.md: what is drawn as a signal is one, by the query and its defaults, and no more is."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from store.db import Store
from store.rows import Row
from store.signals import SignalSettings, detect
from tests.store_rows import step, trajectory

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = sorted((DOCS / "pictures").glob("*.svg"))
MARK = "mark"


def drawn(name: str, attribute: str) -> list[ElementTree.Element]:
    return [part for part in ElementTree.parse(DOCS / "pictures" / name).iter() if f"data-{attribute}" in part.attrib]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_what_is_drawn_as_forgotten_is(store: Store) -> None:
    points = drawn("forgetting.svg", "score")
    store.append(trajectory("x", t=int(p.attrib["data-t"]), score=float(p.attrib["data-score"])) for p in points)
    for t, point in enumerate(points):
        found = [signal for signal in detect(store, "r", t) if signal.kind == "forgetting"]
        assert bool(found) == (point.attrib["class"] == MARK)
    text = (DOCS / "pictures/forgetting.svg").read_text()
    assert f"W = {SignalSettings().window} " in text
    assert f"best before: {found[0].stats['best']}" in text


def test_what_is_drawn_on_the_boundary_is(store: Store) -> None:
    tasks = drawn("boundary.svg", "rollouts")
    for task in tasks:
        for k, end in enumerate(task.attrib["data-rollouts"]):
            outcome = "infra" if end == "I" else "scored"
            store.append(trajectory(task.attrib["data-task"], k, outcome=outcome, score=float(end == "S")))
    found = {signal.task_id for signal in detect(store, "r", 0) if signal.kind == "boundary"}
    assert found == {task.attrib["data-task"] for task in tasks if "data-signal" in task.attrib}


def test_what_is_drawn_as_rare_is(store: Store) -> None:
    bars = drawn("rare.svg", "count")
    text = (DOCS / "pictures/rare.svg").read_text()
    (rollouts,) = map(int, re.findall(r"N = (\d+)", text))
    patterns = [bar.attrib["data-pattern"].split() for bar in bars]
    rows: list[Row] = []
    for t, bar in enumerate(bars):  # an iteration a bar
        for number in range(rollouts):
            one = trajectory(f"task{number}", t=t)
            rows += [one, step(one, patterns[t] if number < int(bar.attrib["data-count"]) else ["other"])]
    store.append(rows)
    for t, bar in enumerate(bars):
        found = [signal.pattern for signal in detect(store, "r", t) if signal.kind == "rare"]
        assert (patterns[t] in found) == (bar.attrib["class"] == MARK)
    assert f"theta = {SignalSettings().theta:g} % of {rollouts}" in text


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_small_readable_on_dark_and_loads_nothing(picture: Path) -> None:
    text = picture.read_text()
    assert ElementTree.fromstring(text).find("{http://www.w3.org/2000/svg}title") is not None
    assert len(text) < 8_000
    assert "prefers-color-scheme:dark" in text
    assert not re.search(r"href|url\(|<script|@import", text)
    assert any(f"pictures/{picture.name})" in page.read_text() for page in DOCS.glob("*.md"))
