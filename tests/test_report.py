"""The report: what is on the page, that nothing on it can act, and what bad input is told."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from coevolve.doctor import _workspace
from coevolve.live import Server
from coevolve.workspace import Workspace
from tests.cli import coevolve
from tests.store_rows import trajectory
from tests.story import RUN, SEEDS, make_hostile_story, make_story


class Page(HTMLParser):
    """What a browser would find: ids, links, scripts with their text, everything that is loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.scripts: list[str] = []
        self.handlers: list[str] = []
        self.images = 0
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found["href"] or ""] if tag == "a" else []
        self.loaded += [found[name] or "" for name in ("src", "srcset", "data") if name in found]
        self.loaded += [found["href"] or ""] if tag == "link" else []
        self.handlers += [name for name in found if name.startswith("on")]
        self.images += tag == "img"
        self._in_script = tag == "script"
        self.scripts += [""] if tag == "script" else []

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_hostile_story(tmp_path_factory.mktemp("report") / "work")


@pytest.fixture(scope="module")
def report(place: Workspace) -> Path:
    done = coevolve("report", "--workspace", place.root)
    assert done.code == 0
    return place.root / "runs" / RUN / "report.html"


def test_it_tells_the_story(report: Path) -> None:
    text = report.read_text()
    charts = json.loads(re.findall(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)[0])
    assert [series["name"] for series in charts["scores"]["series"]] == ["gold", "shifted"]
    assert charts["scores"]["series"][0]["values"] == pytest.approx([20, 30, 40, 50])
    assert charts["funnel"]["series"][0]["values"] == [2, 4, 4, 2, 2]
    assert charts["reasons"]["labels"] == ["duplicate"]
    assert "1 &rarr; 0" in text  # forgotten
    assert "<th>held out, %</th>" in text
    assert '<div class="whole">gold 50.0</div>' in text
    assert "Failing: iteration" in text
    assert "Passing: iteration" in text


def test_its_links_lead_to_something_on_the_page(report: Path) -> None:
    page = Page(report.read_text())
    assert page.links
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_it_loads_nothing(report: Path) -> None:
    assert Page(report.read_text()).loaded == ["data:,"]


def test_what_a_policy_wrote_stays_inert(report: Path) -> None:
    text = report.read_text()
    page = Page(text)
    assert "owned" in text
    assert (page.handlers, page.images) == ([], 0)
    assert len(page.scripts) == 4
    assert not any("owned" in script for script in page.scripts)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "1000000 characters in all" in text
    assert len(text) < 1_000_000


def test_a_damaged_line_of_the_journal_is_told(tmp_path: Path) -> None:
    place = make_story(tmp_path / "work")
    place.store.journal.close()
    (segment,) = (tmp_path / "work/store/journal").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes().replace(b'"origin":"explored"', b'"origin":"exploded"', 1))
    for _ in range(2):  # the first reads it, all others know of it from the store
        assert coevolve("report", "--workspace", place.root).code == 0
        assert "1 line of the journal is damaged" in (place.root / "runs/r001/report.html").read_text()


def test_a_damaged_line_of_the_journal_is_told_by_all_that_tell_figures(tmp_path: Path) -> None:
    place = make_story(tmp_path / "work")
    place.store.journal.close()
    (segment,) = (tmp_path / "work/store/journal").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes().replace(b'"origin":"explored"', b'"origin":"exploded"'))
    commands: list[list[str | Path]] = [
        ["status"],
        ["why", SEEDS[1].id],
        ["trace", RUN],
        ["trace", RUN, "--html", tmp_path / "t.html"],
        ["export", tmp_path / "out"],
    ]
    place.store.ingest()  # whoever comes later knows of it from the store
    for command in commands:
        told = coevolve(*command, "--workspace", place.root).out
        assert "2 lines of the journal are damaged, and what stood there is missing here" in told
    for page in ("t.html", "out/README.md"):
        assert "2 lines of the journal are damaged" in (tmp_path / page).read_text()
    assert json.loads(coevolve("status", "--json", "--workspace", place.root).out)["damaged"] == 2


def test_a_whole_journal_is_no_news(place: Workspace) -> None:
    for command in ("status", f"why {SEEDS[1].id}", f"trace {RUN}"):
        assert "damaged" not in coevolve(*command.split(), "--workspace", place.root).out


def test_a_run_without_rows_is_told(tmp_path: Path) -> None:
    place = make_story(tmp_path / "work")
    place.create_run({}).update(created_at=2000.0, rounds=3)
    assert coevolve("report", "r002", "--workspace", place.root).code == 0
    assert "There is no rollout in this run yet." in (place.root / "runs/r002/report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "r009"], "no run 'r009'; there are r001"),
        (["report", "--out", "."], "is a folder; name a file"),
        (["report", "--live", "--out", "x"], "give one of them"),
        (["trace", "zz"], "no run and no task begins so"),
        (["sql"], "give one question"),
        (["sql", "--file", "nowhere.sql"], "--file nowhere.sql"),
        (["sql", "select tokns from step"], '"tokens"'),
        (["export", "."], "exists already"),
    ],
)
def test_bad_input_is_one_line(place: Workspace, arguments: list[str], words: str) -> None:
    done = coevolve(*arguments, "--workspace", place.root)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1


def test_an_empty_workspace_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    done = coevolve("report", "--workspace", tmp_path)
    assert (done.code, "has no run yet" in done.err) == (2, True)


def test_a_store_of_a_newer_version_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make_story(tmp_path / "work")
    with place.store.reading() as connection:
        connection.execute("INSERT INTO migration VALUES (99, 'm099_future')")
    done = coevolve("report", "--workspace", place.root)
    assert (done.code, "upgrade coevolve" in done.err) == (1, True)
    with monkeypatch.context() as patched:
        patched.setattr(Server, "serve_forever", lambda self: pytest.fail("it serves"))
        assert coevolve("report", "--live", "--port", "0", "--workspace", place.root) == done
    *rest, store = _workspace(place)
    assert [finding["what"] for finding in rest] == ["config", "policy"]
    assert (store["state"], store["what"], store["fix"]) == ("fail", "store", "upgrade coevolve")


def test_a_question_in_a_file(place: Workspace, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("-- how many?\nselect count(*) as n from task\n")
    done = coevolve("sql", "--file", tmp_path / "q.sql", "--json", "--workspace", place.root)
    assert json.loads(done.out) == [{"n": 6}]


# ---- live


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    place = make_story(tmp_path / "work")
    with Server(place, place.run(), 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def get(server: Server, path: str, **headers: Any) -> str:
    with urllib.request.urlopen(urllib.request.Request(server.url + path, headers=headers)) as answer:
        return str(answer.read().decode())


def test_the_live_page_has_what_was_appended_since(server: Server) -> None:
    before, mark = get(server, ""), get(server, "stamp")
    assert f'data-stamp="{mark}"' in before
    server.place.store.append(trajectory(SEEDS[0].id, 5, run=RUN, t=2, score=1.0))
    assert get(server, "stamp") != mark
    assert get(server, "") != before


def test_another_name_than_this_machines_is_refused(server: Server) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(server, "", Host="evil.example")
