"""`--polish` in a workspace: what starts, what is asked of an endpoint; what `why`, SQL, `review`, pages tell."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from coevolve import phases, protected
from coevolve.commands import opened, start_run
from coevolve.figures import stories
from coevolve.workspace import LOOP, RunFolder, Workspace, read_json
from store.rows import Json, Task, Verdict, Vote
from tests.cli import coevolve
from tests.fake_openai import FakeServer, answer, serve

PROCEDURAL = "validate.polish = true: the explorer is the editor, and explorer = 'procedural' can't write; name a chat"
MODEL = ("explorer=litellm:hosted_vllm/m", "validate.polish=true", "model.attempts=1")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def workspace(root: Path) -> Workspace:
    assert coevolve("init", root).code == 0
    return Workspace.find(str(root))


@pytest.mark.parametrize("command", ["seed", "evolve"])
def test_a_procedural_explorer_is_no_editor(tmp_path: Path, command: str) -> None:
    place = workspace(tmp_path / "work")
    done = coevolve(command, "--workspace", place.root, "--polish", "--set", "policy=litellm:none")
    assert done.code == 2
    assert PROCEDURAL in done.err
    assert place.run_ids() == []


def test_neither_is_that_of_a_run_that_goes_on(tmp_path: Path) -> None:
    place = workspace(tmp_path / "work")
    start_run(place, ("policy=litellm:none",), 0)
    done = coevolve("validate", "--workspace", place.root, "--polish")
    assert (done.code, PROCEDURAL in done.err) == (2, True)


def test_the_flag_is_the_setting(tmp_path: Path) -> None:
    place = workspace(tmp_path / "work")
    small = [f"--set={one}" for one in ("policy=litellm:none", "seed_set.unguided=1", "model.attempts=1")]
    done = coevolve(
        "seed", "--workspace", place.root, "--polish", "--explorer", "litellm:hosted_vllm/m", *small,
        "--set", "model.api_base=http://127.0.0.1:9",
    )  # fmt: skip
    assert done.code == 1, "nobody answers there"
    assert read_json(place.run(None).path / "config.json")["validate"]["polish"] is True


def play(request: Json) -> str:
    """A validator that finds nothing wrong, an editor that is polite, a judge who likes that."""
    found = [re.search(r"^```json\n(\{.*\})\n```$", str(one["content"]), re.MULTILINE) for one in request["messages"]]
    asked = json.loads(next(one for one in reversed(found) if one)[1])
    if asked["role"] == "editor":
        return json.dumps({"user_turns": [f"Please answer this: {asked['user_turns'][0]}"]})
    if asked["role"] == "compare":
        return json.dumps({place: 8 if "Please" in asked[place][0] else 4 for place in ("first", "second")})
    return '{"problem": null}'


def role(request: Json) -> str:
    found = re.search(r"ROLE: (\w+)", json.dumps(request["messages"]))
    assert found
    return found[1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, RunFolder, FakeServer]:
    """A run whose candidates were polished, in two goes: the first ends for want of tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "none")
        place = workspace(tmp_path_factory.mktemp("polish") / "work")
        run = start_run(place, ("policy=litellm:none",), 0)
        with opened(place, run, (), LOOP) as loop:
            phases._explore(loop, phases._unguided_jobs(loop, 0, 0, 2, []))
        with serve(answer(play)) as server:
            told = (*MODEL, f"model.api_base={server.url}", "model.concurrency=1")
            with opened(place, run, (*told, "model.token_budget=400"), LOOP) as loop:
                stopped = phases._validate(loop, 0)
            assert server.requests
            with opened(place, run, told, LOOP) as loop:
                rest = phases._validate(loop, 0)
        assert (len(stopped), bool(rest)) == (len(place.store.rows(Verdict)) - len(rest), True)
    return place, run, server


def test_a_run_polishes_and_asks_nobody_twice(made: tuple[Workspace, RunFolder, FakeServer]) -> None:
    place, _, server = made
    verdicts = place.store.rows(Verdict, "edit is not null")
    votes = place.store.rows(Vote)
    tasks = place.store.rows(Task)
    assert verdicts
    assert {row.edit["outcome"] for row in verdicts} == {"accepted"}
    assert {row.edit["editor"] for row in verdicts} == {"litellm:hosted_vllm/m"}
    assert {(row.stage, row.model, row.passes) for row in votes} == {("polish", "litellm:hosted_vllm/m", True)}
    assert all(task.user_turns[0].startswith("Please answer this: ") for task in tasks)
    asked = Counter(role(request) for request in server.requests)
    assert (asked["editor"], asked["compare"]) == (len(verdicts), 2 * len(votes))
    compare = [request for request in server.requests if role(request) == "compare"]
    assert {(one["temperature"], one["response_format"]["type"]) for one in compare} == {(0.0, "json_schema")}
    assert {task.origin for task in tasks} == {"refined"}


def test_why_and_the_lineage_view_show_the_edit(made: tuple[Workspace, RunFolder, FakeServer]) -> None:
    place, _, _ = made
    (task, *_) = place.store.rows(Task)
    (verdict,) = place.store.rows(Verdict, "task_id = ?", [task.id])
    told = coevolve("why", "--workspace", place.root, task.id).out
    assert "edit         by litellm:hosted_vllm/m\n" in told
    assert f"  before     {verdict.edit['before'][0]}" in told
    assert f"  after      {task.user_turns[0]}" in told
    assert '  vote       litellm:hosted_vllm/m for  {"new": 8.0, "old": 4.0}' in told
    (link,) = json.loads(coevolve("why", "--workspace", place.root, task.id, "--json").out)["lineage"]
    assert (link["votes"], link["edit"]["votes"][0]["scores"]) == ([], {"old": 4.0, "new": 8.0})
    query = "select edit ->> '$.outcome', edit ->> '$.before[0]' from v_lineage where task_id = ?"
    assert place.store.query(query, [task.id]) == [("accepted", verdict.edit["before"][0])]


def test_votes_on_words_are_no_verdict_of_a_committee(made: tuple[Workspace, RunFolder, FakeServer]) -> None:
    place, _, _ = made
    assert place.store.query("from v_committee") == []
    assert json.loads(coevolve("review", "--workspace", place.root, "--json").out)["judged"] == 0


def test_a_sheet_shows_the_words_that_were_taken(made: tuple[Workspace, RunFolder, FakeServer], tmp_path: Path) -> None:
    place, _, _ = made
    assert coevolve("review", "--workspace", place.root, "--sample", "9", "--out", tmp_path / "s.csv").code == 0
    assert (tmp_path / "s.csv").read_text().count("Please answer this: ") == len(place.store.rows(Task))


def test_a_page_shows_the_edit_and_leaves_protected_words_out(made: tuple[Workspace, RunFolder, FakeServer]) -> None:
    place, run, _ = made
    (task, *_) = place.store.rows(Task)
    (story,) = stories(place.store, run.id, [task.id])
    (link,) = story["links"]
    before = link["verdict"].edit["before"][0]
    html = coevolve("trace", "--workspace", place.root, task.id, "--html", place.root / "t.html")
    assert html.code == 0
    assert "<b>Edit</b> of its words by litellm:hosted_vllm/m: accepted" in (place.root / "t.html").read_text()
    (bare,) = protected.story(story)["links"]
    assert before not in json.dumps(bare["verdict"].edit)
    assert bare["verdict"].edit["outcome"] == "accepted"
