"""`coevolve refine` and `coevolve refined` against an endpoint of this machine: files, faults, kills, figures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coevolve import refine
from coevolve.refined import verbs_and_objects
from coevolve.workspace import Workspace
from graphs import model
from store.rows import Json, Refined, Remark
from tests.cli import Ran, coevolve
from tests.fake_openai import Behaviour, FakeServer, answer, cut, garbage, reply, serve, status, tarpit
from tests.loops import start
from tests.refine_server import role_answer, roles, workspace, write_alpaca


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(model, "BACKOFF_S", 0.01)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serve(roles()) as fake:
        yield fake


@pytest.fixture
def work(tmp_path: Path, server: FakeServer) -> Path:
    return workspace(tmp_path / "work", server.url, concurrency=8)


def run(
    work: Path, source: Path, *more: Any, out: str = "out.jsonl", form: str = "alpaca", name: str = "openai/m"
) -> Ran:
    target = ["refine", source, "--out", source.parent / out]
    return coevolve(*target, "--format", form, "--model", name, "--workspace", work, *more)


def told(work: Path, *job: str) -> Any:
    return json.loads(coevolve("refined", *job, "--workspace", work, "--json").out)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def mode(name: str, *more: str) -> list[str]:
    return ["--set", f"refine.mode={name}", *(part for each in more for part in ("--set", each))]


# ---- files


def test_alpaca_in_alpaca_out(work: Path, tmp_path: Path, server: FakeServer) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 5)
    done = run(work, source)
    assert done.code == 0, done.err
    records = lines(source)
    assert lines(tmp_path / "out.jsonl") == [{**record, "output": f"{record['output']}!!!"} for record in records]
    assert len(server.requests) == 5 * 24
    assert done.out.splitlines()[0] == "job d001: 5 samples, 5 improved, 0 kept, 0 failed"


def test_a_job_as_a_page_with_charts(work: Path, tmp_path: Path) -> None:
    run(work, write_alpaca(tmp_path / "in.jsonl", 3))
    page = tmp_path / "job.html"
    assert coevolve("refined", "--html", page, "--workspace", work).code == 0
    text = page.read_text()
    charts = json.loads(re.findall(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)[0])
    figures = told(work)
    assert charts["outcomes"] == {
        **{"kind": "bars", "labels": list(figures["outcomes"]), "axis": "", "unit": "samples", "lying": False},
        "series": [{"name": "samples", "values": list(figures["outcomes"].values())}],
    }
    assert charts["positions"]["labels"] == ["first", "second", "equal", "unreadable"]
    assert {name for name in charts if f'data-chart="{name}"' in text} == {n for n in charts if charts[n]["series"]}


def test_a_damaged_line_of_the_journal_is_told(work: Path, tmp_path: Path) -> None:
    run(work, write_alpaca(tmp_path / "in.jsonl", 2))
    for segment in (work / "store/journal").glob("*.jsonl"):
        segment.write_bytes(segment.read_bytes().replace(b'"outcome":"improved"', b'"outcome":"improvad"', 1))
    (work / "store/index.duckdb").unlink()  # it is made again from the journal
    shown = coevolve("refined", "--html", tmp_path / "job.html", "--workspace", work)
    assert shown.code == 0, shown.err
    words = "1 line of the journal is damaged, and what stood there is missing here"
    assert words in (tmp_path / "job.html").read_text()
    assert words in coevolve("refined", "--workspace", work).out
    assert told(work)["damaged"] == 1


def test_a_page_cannot_take_the_place_of_a_folder(work: Path, tmp_path: Path) -> None:
    run(work, write_alpaca(tmp_path / "in.jsonl", 1))
    refused = coevolve("refined", "--html", tmp_path, "--workspace", work)
    assert refused.code == 2
    assert "name a file" in refused.err


def test_sharegpt_from_an_array_to_an_array(work: Path, tmp_path: Path) -> None:
    talk = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "A"}] * 2
    source = tmp_path / "in.json"
    source.write_text(json.dumps([{"id": "x", "conversations": talk, "lang": "en"}], indent=1))
    assert run(work, source, *mode("edit"), out="out.json", form="sharegpt").code == 0
    (record,) = json.loads((tmp_path / "out.json").read_text())
    assert [one["value"] for one in record["conversations"]] == ["a", "A!", "a", "A!"]
    assert (record["id"], record["lang"]) == ("x", "en")


def test_parquet_with_provenance(work: Path, tmp_path: Path) -> None:
    rows = [{"instruction": "a", "output": "b", "tags": ["t"]}, {"instruction": "a", "output": "", "tags": []}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    assert run(work, tmp_path / "in.parquet", *mode("edit"), "--provenance", out="out.parquet").code == 0
    first, second = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert first == {
        **rows[0],
        "output": "b!",
        "refine_job": "d001",
        "refine_outcome": "improved",
        "refine_accepted": 1,
        "refine_error": "",
    }
    assert (second["output"], second["refine_outcome"]) == ("", "failed")
    assert second["refine_error"] == "empty: response 1 of the sample is empty"


def test_what_was_refined_with_provenance_is_refined_again(work: Path, tmp_path: Path) -> None:
    """Its columns were in the new file twice, which Parquet refused once all calls were made."""
    pq.write_table(pa.table({"instruction": ["a"], "output": ["b"]}), tmp_path / "in.parquet")
    assert run(work, tmp_path / "in.parquet", *mode("edit"), "--provenance", out="once.parquet").code == 0
    done = run(work, tmp_path / "once.parquet", *mode("edit"), "--provenance", out="twice.parquet")
    assert done.code == 0, done.err
    (row,) = pq.read_table(tmp_path / "twice.parquet").to_pylist()
    assert (row["output"], row["refine_job"]) == ("b!!", "d002")


def test_samples_that_failed_are_unchanged_and_listed(work: Path, tmp_path: Path) -> None:
    records = [{"instruction": "a", "output": text} for text in ("x", "", "y" * 800_000)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    done = run(work, source, *mode("edit"))
    assert (done.code, lines(tmp_path / "out.jsonl")) == (0, [{"instruction": "a", "output": "x!"}, *records[1:]])
    assert "failed, and in the output as they were:" in done.out
    assert [(row["sample"], row["error"].split(":")[0]) for row in told(work)["failed"]] == [
        (1, "empty"),
        (2, "too_long"),
    ]


# ---- bad input: nothing is called, nothing is written


def test_every_malformed_line_is_told_before_any_call(work: Path, tmp_path: Path, server: FakeServer) -> None:
    source = tmp_path / "in.jsonl"
    good = b'{"instruction": "a", "output": "b", "id": 1}\n'
    source.write_bytes(good + b'{"instruction": "a"}\n{oops\n{"instruction": 3, "output": ""}\n"\xff"\n' + good)
    done = run(work, source)
    assert (done.code, done.out, server.requests) == (2, "", [])
    *faults, last = done.err.splitlines()
    assert [line.split(": ")[:2] for line in faults] == [
        ["line 2", "output"],
        ["line 3", "not JSON"],
        ["line 4", "instruction"],
        ["line 5", "not UTF-8"],
        ["line 6", "id"],
    ]
    assert last == f"error: IN: {source} has 5 records that are not alpaca, listed above; mend or remove them"
    assert not list((work / "refine").glob("*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"out": "there.jsonl"}, "there.jsonl exists; name another file"),
        ({"out": "out.parquet"}, "a .jsonl file can't become a .parquet"),
        ({"out": "out.txt"}, "end it in .json, .jsonl or .parquet"),
        ({"out": "no/folder/out.jsonl"}, "there is no folder"),
        ({"out": "in.jsonl"}, "in.jsonl exists"),
        ({"more": ["--resume"]}, "--resume: no job of"),
        ({"form": "sharegpt"}, "records that are not sharegpt"),
        ({"name": "procedural"}, "--model: 'procedural' is no model that can be asked; write `litellm:NAME`"),
        ({"name": "hf:DIR"}, "--model: 'hf:DIR' is no model that can be asked"),
        ({"more": ["--judge-model", "vllm:http://x"]}, "--judge-model: 'vllm:http://x' is no model"),
        ({"more": ["--set", "refine.iterations=4"]}, "refine.iterations = 4"),
        ({"more": ["--set", "refine.mode=all"]}, "refine.mode = 'all'"),
        ({"more": ["--set", 'refine.models={"editr"="x"}']}, "refine.models.editr"),
        ({"more": ["--set", "refine.roles=1"]}, "unknown key 'refine.roles'"),
    ],
)
def test_refused_with_a_reason(work: Path, tmp_path: Path, server: FakeServer, change: Any, words: str) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 2)
    (tmp_path / "there.jsonl").write_text("mine")
    before = source.read_bytes()
    done = run(work, source, *change.pop("more", []), **change)
    assert (done.code, done.out, server.requests) == (2, "", [])
    assert words in done.err
    assert (source.read_bytes(), (tmp_path / "there.jsonl").read_text()) == (before, "mine")
    assert not list((work / "refine").glob("*"))


@pytest.mark.parametrize(("text", "words"), [("", "holds no record"), (None, "name a file that can be read")])
def test_a_file_without_records_is_refused(work: Path, tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "in.jsonl").write_text(text)
    done = run(work, tmp_path / "in.jsonl")
    assert done.code == 2
    assert words in done.err


def test_a_missing_key_is_told_before_a_job_begins(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    (work / "config.toml").write_text("")
    done = run(work, write_alpaca(tmp_path / "in.jsonl", 1))
    assert done.code == 2
    assert "--model: 'litellm:openai/m' needs OPENAI_API_KEY" in done.err
    assert not list((work / "refine").glob("*"))


# ---- models and modes


def test_roles_may_have_models_of_their_own(work: Path, tmp_path: Path, server: FakeServer) -> None:
    more = ["--judge-model", "openai/j", "--set", 'refine.models={editor="litellm:openai/e"}']
    assert run(work, write_alpaca(tmp_path / "in.jsonl", 1), *more, "--set", "refine.iterations=1").code == 0
    asked = {request["model"]: request for request in server.requests}
    assert set(asked) == {"m", "j", "e"}
    assert {row["role"]: row["model"] for row in told(work)["roles"]} == {
        "positive": "litellm:openai/m",
        "critical": "litellm:openai/m",
        "advisor": "litellm:openai/m",
        "editor": "litellm:openai/e",
        "judge": "litellm:openai/j",
    }
    assert (asked["j"]["temperature"], asked["m"]["temperature"]) == (0.0, 0.7)


def test_a_judge_that_keeps_a_schema_is_given_one(work: Path, tmp_path: Path, server: FakeServer) -> None:
    done = run(
        work, write_alpaca(tmp_path / "in.jsonl", 1), "--judge-model", "hosted_vllm/j", "--set", "refine.iterations=1"
    )
    assert done.code == 0, done.err
    formats = {request["model"]: request.get("response_format") for request in server.requests}
    assert formats["m"] is None
    schema = formats["j"]["json_schema"]["schema"]
    assert schema["required"] == ["reason", "first", "second"]


# ---- an endpoint in trouble


@pytest.mark.parametrize("trouble", [status(429, "0"), status(503), cut(), tarpit(6.0)])
def test_passing_trouble_changes_nothing(tmp_path: Path, trouble: Behaviour) -> None:
    with serve(trouble, roles(), trouble, trouble, roles()) as fake:
        work = workspace(tmp_path / "work", fake.url, concurrency=2, timeout_s=4.0)
        source = write_alpaca(tmp_path / "in.jsonl", 4)
        done = run(work, source, *mode("advise"))
        assert done.code == 0, done.err
        assert told(work)["outcomes"] == {"improved": 4}
        assert len(fake.requests) == 8 + 3
    assert [record["output"] for record in lines(tmp_path / "out.jsonl")] == [f"r{at}!" for at in range(4)]


def test_trouble_that_stays_ends_the_job_and_resume_tries_again(tmp_path: Path) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 12)
    with serve(status(503)) as fake:
        work = workspace(tmp_path / "work", fake.url, attempts=2)
        done = run(work, source, *mode("edit"))
    assert done.code == 1
    assert "8 of 8 failed" in done.err
    assert "job d001: what was said is kept; the same command with --resume goes on" in done.err
    assert not (tmp_path / "out.jsonl").exists()
    with serve(roles()) as fake:
        config = work / "config.toml"
        config.write_text(f'[model]\napi_base = "{fake.url}"\n')
        done = run(work, source, *mode("edit"), "--resume")
    assert (done.code, told(work)["outcomes"]) == (0, {"improved": 12})


def test_a_finished_job_tries_again_what_failed_and_nothing_else(tmp_path: Path) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 5)

    def flaky(request: Json) -> str:
        if "Say 3." in request["messages"][-1]["content"]:
            raise ConnectionError
        return role_answer(request)

    with serve(answer(flaky)) as fake:
        work = workspace(tmp_path / "work", fake.url, attempts=1)
        assert run(work, source, *mode("edit")).code == 0
        assert lines(tmp_path / "out.jsonl")[3]["output"] == "r3"
    with serve(roles()) as fake:
        (work / "config.toml").write_text(f'[model]\napi_base = "{fake.url}"\n')
        assert run(work, source, *mode("edit"), "--resume").code == 0
        assert len(fake.requests) == 1
        assert [record["output"] for record in lines(tmp_path / "out.jsonl")] == [f"r{at}!" for at in range(5)]
        again = run(work, source, *mode("edit"), "--resume")
        assert (again.code, "nothing was left to do" in again.err, len(fake.requests)) == (0, True, 1)


def test_an_output_that_is_gone_is_made_again_from_the_store(work: Path, tmp_path: Path, server: FakeServer) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 5)
    assert run(work, source, *mode("edit")).code == 0
    first = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").unlink()
    assert run(work, source, *mode("edit"), "--resume").code == 0
    assert ((tmp_path / "out.jsonl").read_bytes(), len(server.requests)) == (first, 5)


@pytest.mark.parametrize("babble", [garbage(), reply(""), reply("I am a poet.")])
def test_a_model_that_babbles_or_says_nothing_improves_nothing(tmp_path: Path, babble: Behaviour) -> None:
    with serve(babble) as fake:
        work = workspace(tmp_path / "work", fake.url, attempts=1)
        source = write_alpaca(tmp_path / "in.jsonl", 3)
        assert run(work, source).code == 0
    assert lines(tmp_path / "out.jsonl") == lines(source)


def test_a_judge_that_always_prefers_the_first_improves_nothing_and_is_seen(tmp_path: Path) -> None:
    def biased(request: Json) -> str:
        return '{"reason": "", "first": 9, "second": 2}' if "ROLE: compare" in str(request) else role_answer(request)

    with serve(answer(biased)) as fake:
        work = workspace(tmp_path / "work", fake.url)
        source = write_alpaca(tmp_path / "in.jsonl", 3)
        done = run(work, source)
    assert "judge: first 6, second 0, equal 0, unreadable 0" in done.out
    assert told(work)["outcomes"] == {"kept": 3}
    assert lines(tmp_path / "out.jsonl") == lines(source)


# ---- budgets, kills, resume


def test_a_budget_counts_over_all_runs_of_a_job(work: Path, tmp_path: Path, server: FakeServer) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 6)
    done = run(work, source, *mode("edit", "model.token_budget=300", "model.concurrency=1"))
    assert (done.code, len(server.requests)) == (1, 3)
    assert "model.token_budget: 330 of 300 tokens are spent; raise it; job d001: what was said is kept" in done.err
    done = run(work, source, *mode("edit", "model.token_budget=300"), "--resume")
    assert (done.code, len(server.requests)) == (1, 3)
    assert run(work, source, *mode("edit"), "--resume").code == 0
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "openai/other"}, "models: it was "),
        ({"more": mode("advise")}, "[refine]: it was {'mode': 'edit'}, now it is {'mode': 'advise'}"),
        ({"edit": True}, "IN (its SHA-256): it was "),
    ],
)
def test_a_job_goes_on_with_what_it_was_begun_with(work: Path, tmp_path: Path, change: Any, words: str) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 6)
    run(work, source, *mode("edit", "model.token_budget=300", "model.concurrency=1"))
    if change.pop("edit", False):
        write_alpaca(source, 7)
    done = run(work, source, *change.pop("more", mode("edit")), "--resume", **change)
    assert done.code == 2
    assert words in done.err


def test_a_new_job_for_the_same_file_says_that_another_is_unfinished(work: Path, tmp_path: Path) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 6)
    run(work, source, *mode("edit", "model.token_budget=300", "model.concurrency=1"))
    done = run(work, source, *mode("edit"))
    assert (done.code, "note: this is a new job; d001 writes there too and is unfinished" in done.err) == (0, True)
    assert [told(work, job)["out"] is None for job in ("d001", "d002")] == [True, False]


def killable(work: Path, source: Path, *more: str) -> subprocess.Popen[str]:
    given = ["refine", str(source), "--out", str(source.with_name("out.jsonl")), "--format", "alpaca"]
    return start(work, *given, "--model", "openai/m", *more, OPENAI_API_KEY="none")


def slowly(request: Json) -> str:
    time.sleep(0.03)
    return role_answer(request)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=300)
    return process.returncode, err


def when(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 180  # a process imports litellm first, and the machine may be busy
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.slow
def test_killed_and_resumed_it_repeats_at_most_what_was_in_flight(tmp_path: Path) -> None:
    count, width = 12, 4
    source = write_alpaca(tmp_path / "in.jsonl", count)
    with serve(answer(slowly)) as fake:
        work = workspace(tmp_path / "work", fake.url, concurrency=width)
        kills = 0
        for at in (30, 90, 150, 151):
            process = killable(work, source, *(["--resume"] if kills else []))
            when(lambda at=at: len(fake.requests) >= at)  # type: ignore[misc]
            process.kill()
            assert finish(process)[0] == -9
            kills += 1
            assert not (tmp_path / "out.jsonl").exists()
        code, err = finish(killable(work, source, "--resume"))
        assert code == 0, err
        assert count * 24 <= len(fake.requests) <= count * 24 + kills * width
    assert [record["output"] for record in lines(tmp_path / "out.jsonl")] == [f"r{at}!!!" for at in range(count)]
    store = Workspace.find(str(work)).store
    assert len(store.rows(Remark)) == count * 24
    assert [row.sample for row in store.rows(Refined, order="sample")] == list(range(count))
    assert coevolve("db", "check", "--workspace", work).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl", "work"]


@pytest.mark.slow
def test_a_terminated_job_ends_what_is_in_flight_and_says_how_to_go_on(tmp_path: Path) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 12)
    with serve(answer(slowly)) as fake:
        work = workspace(tmp_path / "work", fake.url, concurrency=4)
        process = killable(work, source)
        when(lambda: len(fake.requests) >= 40)
        process.terminate()
        code, err = finish(process)
        assert code == 1
        assert "error: stopped as asked; job d001: what was said is kept; the same command with --resume goes on" in err
        assert len(Workspace.find(str(work)).store.rows(Remark)) == len(fake.requests), "no answer was lost"
        assert finish(killable(work, source, "--resume"))[0] == 0
        assert len(fake.requests) == 12 * 24


@pytest.mark.slow
def test_two_processes_on_one_job_are_one_too_many(tmp_path: Path) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 12)
    with serve(answer(slowly)) as fake:
        work = workspace(tmp_path / "work", fake.url, concurrency=2)
        process = killable(work, source)
        when(lambda: len(fake.requests) >= 4)
        done = run(work, source, "--resume")
        assert done.code == 1
        assert f"another process is at work on it (PID {process.pid})" in done.err
        process.kill()
        finish(process)


# ---- what it tells


def test_the_summary_has_the_figures_of_the_store(work: Path, tmp_path: Path) -> None:
    source = write_alpaca(tmp_path / "in.jsonl", 4)
    run(work, source)
    data = told(work)
    assert (data["outcomes"], data["stops"], data["rounds"], data["accepted"]) == (
        {"improved": 4},
        {"limit": 4},
        {"3": 4},
        {"3": 4},
    )
    assert (data["calls"], data["spent_tokens"]) == (96, 96 * 110)
    assert data["cost"] == pytest.approx(96 * 100 / 1e6)
    assert data["cost_per_improved"] == pytest.approx(data["cost"] / 4)
    assert (data["tokens"]["before"]["mean"], data["tokens"]["after"]["mean"]) == (1, 4)
    assert data["first_wins"] == {"first": 12, "second": 12, "equal": 0, "unreadable": 0}
    assert data["advice"] == [["add", "example", 12], ["remove", "sentence", 12]]
    asked = "select sample, calls, tokens from v_refined order by sample limit 1"
    assert json.loads(coevolve("sql", "--workspace", work, asked, "--json").out) == [
        {"sample": 0, "calls": 24, "tokens": 2640}
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1. Add a concrete example of the loop.", [("add", "example")]),
        ("- **Explain** why it fails\n* Remove the third, needless sentence", [("explain", ""), ("remove", "third")]),
        ("2) Keep the response.\nThat is all.", [("keep", "response")]),
        ("1. Use `max()` in place of a loop", [("use", "max")]),
        ("no list", []),
        ("1. ", []),
        ("1. ...", [(".", "")]),
        ("1. 添加一个例子。", [("添加一个例子", "")]),
    ],
)
def test_verbs_and_objects_by_the_stated_rule(text: str, found: list[tuple[str, str]]) -> None:
    assert verbs_and_objects(text) == found


def test_refined_without_a_job_says_so(work: Path, tmp_path: Path) -> None:
    assert "has refined no data set yet" in coevolve("refined", "--workspace", work).err
    run(work, write_alpaca(tmp_path / "in.jsonl", 1), *mode("edit"))
    done = coevolve("refined", "d9", "--workspace", work)
    assert (done.code, "no job 'd9'; there are d001" in done.err) == (2, True)


def test_the_part_file_of_a_failure_is_gone(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(refine, "_columns", full)
    source = write_alpaca(tmp_path / "in.jsonl", 2)
    done = run(work, source, *mode("edit"), "--provenance")
    assert done.code == 1
    assert "No space left on device" in done.err
    assert not list(tmp_path.glob(".out*"))


def test_importing_the_command_line_stays_light() -> None:
    code = "import sys, coevolve.cli; sys.exit(any(m in sys.modules for m in ('pyarrow', 'langgraph', 'litellm')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parent.parent).returncode == 0
