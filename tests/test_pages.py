"""The pages in headless Chromium: they are drawn, complain of nothing, ask for nothing, and can be clicked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coevolve import refined_page
from tests.browser import DESKTOP, PHONE, Tab, chromium
from tests.cli import coevolve
from tests.story import RUN, SEEDS, make_hostile_story

REFINED = {
    "job": "d001",
    "in": "in.jsonl",
    "out": "out.jsonl",
    "format": "alpaca",
    "samples": 6,
    "outcomes": {"improved": 4, "kept": 1, "failed": 1},
    "stops": {"limit": 3, "no_gain": 2},
    "rounds": {"1": 2, "3": 3},
    "tokens": {when: {"p10": 10.0, "p50": 20.5, "p90": 31.0, "mean": 21.2} for when in ("before", "after")},
    "first_wins": {"first": 7, "second": 5, "equal": 0, "unreadable": 1},
    "advice": [("add", "example", 3), ("remove", "sentence", 2)],
    "roles": [{"role": "judge", "prompt_tokens": 1000, "completion_tokens": 234}],
    "failed": [{"sample": 5, "name": "s5", "error": '<img src=x onerror="document.title=1">'}],
    "damaged": 0,
    "calls": 100,
    "spent_tokens": 1234,
    "cost": 0.0144,
    "cost_per_improved": None,
}
"""A summary of coevolve/refined.py."""

SPY = """
  window.seen = {};
  const proto = CanvasRenderingContext2D.prototype;
  const spied = (name, note) => {
    const own = proto[name];
    proto[name] = function (...given) { note(this, ...given); return own.apply(this, given); };
  };
  const of = (ctx) => (window.seen[ctx.canvas.dataset.chart] ??= { whiskers: [], figures: [] });
  spied("clearRect", (ctx) => { window.seen[ctx.canvas.dataset.chart] = { whiskers: [], figures: [] }; });
  spied("moveTo", (ctx, x, y) => { ctx.from = [x, y]; });
  spied("lineTo", (ctx, x, y) => {
    const whisker = { x, low: ctx.from[1], high: y };
    if (ctx.globalAlpha < 1 && ctx.from[0] === x) of(ctx).whiskers.push(whisker);
  });
  spied("fillText", (ctx, text) => { if (ctx.font.includes("system-ui")) of(ctx).figures.push(text); });
"""
"""Keeps what the last drawing of each chart has: lines that are half transparent and upright, and figures at bars."""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("profile")) as tab:
        tab.call("Page.addScriptToEvaluateOnNewDocument", source=SPY)
        yield tab


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """{what: address}; with hostile text in all of them."""
    root = tmp_path_factory.mktemp("pages")
    place = make_hostile_story(root / "work")
    made = {name: root / f"{name}.html" for name in ("report", "run", "task", "refined")}
    commands: list[list[str | Path]] = [
        ["report", "--out", made["report"]],
        ["trace", RUN, "--html", made["run"]],
        ["trace", SEEDS[1].id, "--html", made["task"]],
    ]
    for command in commands:
        assert coevolve(*command, "--workspace", place.root).code == 0
    made["refined"].write_text(refined_page.page(REFINED))
    return {name: path.as_uri() for name, path in made.items()}


@pytest.mark.parametrize(
    ("name", "title", "charts"),
    [
        ("report", f"{RUN} - coevolve report", "8"),
        ("run", f"run {RUN} - coevolve trace", None),
        ("task", f"task {SEEDS[1].id} - coevolve trace", None),
        ("refined", "d001 - coevolve refined", "7"),
    ],
)
def test_a_page_is_drawn_without_a_complaint_and_asks_for_nothing(
    tab: Tab, pages: dict[str, str], name: str, title: str, charts: str | None
) -> None:
    for size in (DESKTOP, PHONE):
        for scheme in ("light", "dark"):
            tab.open(pages[name], size, scheme)
            assert tab.value("document.title") == title
            assert tab.value("document.documentElement.dataset.drawn") == charts
            assert tab.value("document.documentElement.scrollWidth") <= size[0]
            assert (tab.complaints, tab.requests) == ([], [pages[name]])


def test_what_a_page_does_wrong_is_seen(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "wrong.html"
    page.write_text('<script>console.error("planted"); missing()</script><img src="http://127.0.0.1:9/x.png">')
    tab.open(page.as_uri())
    told = "\n".join(tab.complaints)
    assert "planted" in told
    assert "missing is not defined" in told
    assert tab.requests == [page.as_uri(), "http://127.0.0.1:9/x.png"]


def test_a_click_on_a_task_opens_its_story(tab: Tab, pages: dict[str, str]) -> None:
    tab.open(pages["report"])
    story = f"document.getElementById('task-{SEEDS[1].id}')"
    assert tab.value(f"{story}.open") is False
    tab.click(f'a[href="#task-{SEEDS[1].id}"]')
    tab.wait_for(f"{story}.open")
    top, shown = tab.value(f"{story}.getBoundingClientRect().top"), tab.value("innerHeight")
    assert -1 <= top < shown
    assert "Failing: iteration" in tab.value(f"{story}.innerText")
    assert tab.complaints == []


@pytest.mark.parametrize("name", ["run", "task"])
def test_a_click_on_a_fold_opens_it(tab: Tab, pages: dict[str, str], name: str) -> None:
    tab.open(pages[name])
    before = tab.value("document.querySelectorAll('details[open]').length")
    tab.click("details:not([open]) > summary")
    tab.wait_for(f"document.querySelectorAll('details[open]').length === {before + 1}")
    assert tab.complaints == []


CANVAS = "document.querySelector('canvas[data-chart=scores]')"


def of_many_suites(address: str) -> str:
    """The page with each of the two series of its scores four times."""
    path = Path(address.removeprefix("file://"))
    head, data, tail = re.split(r'(?<=id="charts">)(.*?)(?=</script>)', path.read_text(), maxsplit=1, flags=re.DOTALL)
    charts = json.loads(data)
    charts["scores"]["series"] *= 4
    many = path.with_name("many.html")
    many.write_text(head + json.dumps(charts) + tail)
    return many.as_uri()


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_each_score_has_a_whisker_that_is_whole(tab: Tab, pages: dict[str, str], size: tuple[int, int]) -> None:
    tab.open(of_many_suites(pages["report"]), size)
    whiskers: list[dict[str, Any]] = tab.value("seen.scores.whiskers")
    assert len(whiskers) == len({(each["x"], each["low"]) for each in whiskers}) == 8 * 4  # suites, versions
    area, width = (tab.value(f"Chart.getChart({CANVAS}).{what}") for what in ("chartArea", "width"))
    for each in whiskers:
        assert area["left"] < each["x"] < width - 1  # neither over the axis nor over the edge
        assert area["top"] <= each["high"] < each["low"] <= area["bottom"]
    assert tab.value("seen.difficulty.whiskers") == []  # a band, for one series hides nothing


def test_bars_that_stand_alone_have_their_figures(tab: Tab, pages: dict[str, str]) -> None:
    tab.open(pages["report"])
    assert tab.value("seen.funnel.figures") == ["2", "4", "4", "2", "2"]
    assert tab.value("seen.signals.figures") == []
    tab.open(pages["refined"])
    assert tab.value("seen.outcomes.figures") == ["4", "1", "1"]
    assert tab.value("seen.positions.figures") == ["7", "5", "0", "1"]
    assert tab.value("seen.roles.figures") == ["1,234"]
    assert tab.value("seen.tokens.figures") == []
