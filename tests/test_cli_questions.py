"""status, sql, why, db, doctor, env: what they print for people and for programs."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from coevolve.cli import main
from coevolve.show import inert
from coevolve.workspace import Workspace
from store.rows import Snapshot
from tests.cli import coevolve
from tests.loops import make_workspace
from tests.store_rows import task
from tests.tiny_model import write_random_model


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("questions")
    workspace = make_workspace(root / "work", write_random_model(root / "model"))
    assert coevolve("seed", "--workspace", workspace).code == 0
    return workspace


def test_sql_as_table_json_and_csv(work: Path) -> None:
    query = "select origin, count(*) as n from task group by origin order by origin"
    assert json.loads(coevolve("sql", "--workspace", work, "--json", query).out)[1] == {"origin": "seed", "n": 6}
    rows = list(csv.reader(io.StringIO(coevolve("sql", "--workspace", work, "--csv", query).out)))
    assert (rows[0], rows[2]) == (["origin", "n"], ["seed", "6"])
    assert "origin" in coevolve("sql", "--workspace", work, query).out


def test_why_tells_the_lineage_of_an_explored_task(work: Path) -> None:
    query = "select task_id from verdict where adopt and task_id in (select unnest(task_ids) from snapshot) limit 1"
    found = json.loads(coevolve("sql", "--workspace", work, "--json", query).out)[0]["task_id"]
    told = coevolve("why", "--workspace", work, found[:10]).out
    for words in (
        found,
        "signal       none: unguided",
        "exploration",
        "step",
        "verdict      valid",
        "snapshots    D_0",
    ):
        assert words in told
    data = json.loads(coevolve("why", "--workspace", work, found, "--json").out)
    assert data["lineage"][0]["exploration"]["steps"]


def test_why_names_the_run_that_has_the_task(work: Path, tmp_path: Path) -> None:
    workspace = Path(shutil.copytree(work, tmp_path / "work"))
    query = "select task_id from verdict where adopt limit 1"
    task = json.loads(coevolve("sql", "--workspace", workspace, "--json", query).out)[0]["task_id"]
    Workspace.find(str(workspace)).create_run({}).update(created_at=time.time(), rounds=0)
    done = coevolve("why", "--workspace", workspace, task)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: TASK: {task} is not in run r002; it is in r001: add --run r001\n"
    told = coevolve("why", "--workspace", workspace, task, "--run", "r001")
    assert told.out.startswith(f"task {task} in run r001  (explored")


def test_the_number_of_a_run_whose_folder_was_deleted_is_not_given_again(work: Path, tmp_path: Path) -> None:
    workspace = Path(shutil.copytree(work, tmp_path / "work"))
    shutil.rmtree(workspace / "runs" / "r001")
    assert Workspace.find(str(workspace)).create_run({}).id == "r002"  # its rows are in the store yet


def test_why_of_a_seed_task(work: Path) -> None:
    query = "select id from task where origin = 'seed' limit 1"
    found = json.loads(coevolve("sql", "--workspace", work, "--json", query).out)[0]["id"]
    assert "seed tasks" in coevolve("why", "--workspace", work, found).out


def test_why_sends_no_control_characters(work: Path, tmp_path: Path) -> None:
    work = Path(shutil.copytree(work, tmp_path / "work"))
    hostile = task(1, user_turns=["\x1b[2J\x00\u202egotcha\n"], reference="SELECT '\x1b[31m'")
    frozen = Snapshot(id="s", run="r001", t=1, task_ids=[hostile.id], created_at=0.0)
    Workspace.find(str(work)).store.append([hostile, frozen])
    told = coevolve("why", "--workspace", work, hostile.id).out
    assert r"\x1b[2J\x00\u202egotcha\n" in told
    assert all(line.isprintable() for line in told.splitlines())


def test_status_before_and_after_the_first_run(work: Path, tmp_path: Path) -> None:
    data = json.loads(coevolve("status", "--workspace", work, "--json").out)
    assert (data["run"], data["last_phase"]) == ("r001", "seed of iteration 0")
    coevolve("init", tmp_path / "empty")
    assert "no run yet" in coevolve("status", "--workspace", tmp_path / "empty").out


def test_the_index_is_made_again(work: Path) -> None:
    assert coevolve("db", "check", "--workspace", work).code == 0
    rows = json.loads(coevolve("db", "rebuild", "--workspace", work, "--json").out)["rows"]
    assert rows > 100
    assert coevolve("db", "check", "--workspace", work).code == 0


def test_doctor_has_a_fix_for_every_finding(work: Path) -> None:
    findings = json.loads(coevolve("doctor", "--workspace", work, "--json").out)
    assert {"python", "config", "policy", "store"} <= {finding["what"] for finding in findings}
    assert all(finding["fix"] for finding in findings if finding["state"] != "ok")


def test_doctor_tells_of_a_missing_api_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    coevolve("init", tmp_path / "work")
    (tmp_path / "work/config.toml").write_text('policy = "litellm:gpt-4o-mini"\nexplorer = "litellm:ollama/x"\n')
    done = coevolve("doctor", "--workspace", tmp_path / "work", "--json")
    found = {finding["what"]: finding for finding in json.loads(done.out)}
    assert (done.code, found["explorer"]["state"]) == (1, "ok")
    assert found["policy"] == {
        "state": "fail",
        "what": "policy",
        "found": "'litellm:gpt-4o-mini' needs OPENAI_API_KEY",
        "fix": "set it, or use `smollm2` or `hf:DIR`",
    }


def test_environments_are_listed(work: Path) -> None:
    (row,) = [row for row in json.loads(coevolve("env", "list", "--json").out) if row["name"] == "text2sql"]
    assert row["seed_tasks"] >= 80
    assert row["suites"]["gold"] >= 150
    assert coevolve("env", "install", "text2sql").code == 0
    assert coevolve("env", "install", "chess").code == 2


def test_control_characters_are_shown_not_sent() -> None:
    assert inert("\x1b[31mred\x00 tab\t") == "\\x1b[31mred\\x00 tab\\t"


def test_the_flags_are_the_ones_we_mean_to_have() -> None:
    """A new flag is a promise: add it here on purpose."""
    assert flags(main) == {
        "init": [],
        "seed": ["--env", "--explorer", "--json", "--polish", "--resume", "--run", "--set", "--workspace"],
        "evolve": [
            *["--env", "--explorer", "--json", "--on-drop", "--overlap", "--polish", "--resume", "--rounds", "--run"],
            *["--set", "--workspace"],
        ],
        "train": [
            *["--follow", "--from", "--json", "--out", "--resume", "--rounds", "--run", "--set", "--sft", "--snapshot"],
            "--workspace",
        ],
        "signals": ["--json", "--run", "--set", "--workspace"],
        "explore": ["--explorer", "--focus", "--json", "--run", "--set", "--signals", "--studio", "--workspace"],
        "validate": ["--explorer", "--json", "--polish", "--run", "--set", "--studio", "--workspace"],
        "review": ["--json", "--out", "--rater", "--read", "--run", "--sample", "--set", "--workspace"],
        "inject": ["--json", "--run", "--set", "--workspace"],
        "eval": [
            *["--env", "--json", "--limit", "--policy", "--policy-version", "--rescore", "--run", "--samples", "--set"],
            *["--suite", "--workspace"],
        ],
        "serve": ["--json", "--policy-version", "--port", "--run", "--set", "--workspace"],
        "refine": [
            *["--format", "--json", "--judge-model", "--model", "--out", "--provenance", "--resume", "--set"],
            *["--studio", "--workspace"],
        ],
        "refined": ["--html", "--json", "--workspace"],
        "status": ["--json", "--long", "--run", "--workspace"],
        "sql": ["--csv", "--file", "--json", "--workspace"],
        "report": ["--include-protected", "--json", "--live", "--out", "--port", "--workspace"],
        "trace": ["--html", "--include-protected", "--json", "--otlp", "--run", "--workspace"],
        "export": ["--include-protected", "--json", "--native", "--run", "--workspace"],
        "studio": ["--json", "--port", "--workspace"],
        "completion": [],
        "why": ["--json", "--run", "--workspace"],
        "doctor": ["--json", "--workspace"],
        "db check": ["--json", "--workspace"],
        "db rebuild": ["--json", "--workspace"],
        "env list": ["--json"],
        "env install": ["--data", "--root"],
        "env serve-mcp": ["--http", "--suite", "--task"],
    }


def test_help_fits_80_columns_and_follows_the_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = coevolve("--help").out.splitlines()
    listed = lines[lines.index("Commands:") + 1 :]
    assert [line for line in listed if line.endswith("...")] == []
    names = [line.split()[0] for line in listed]
    later = ["trace", "export", "studio", "completion", "doctor", "db", "env"]
    steps = ["seed", "train", "signals", "explore", "validate", "review", "inject", "eval", "serve"]
    assert names == ["init", "evolve", *steps, "refine", "refined", "status", "why", "report", "sql", *later]


@pytest.mark.parametrize(("command", "words"), [("train", "the newest]"), ("seed", "a new run]")])
def test_the_help_of_run_is_that_of_the_command(command: str, words: str) -> None:
    (line,) = [line for line in coevolve(command, "--help").out.splitlines() if "--run ID" in line]
    assert line.endswith(f"[default: {words}")


def test_an_unknown_sub_command_is_answered_with_the_known_ones() -> None:
    assert "No such command 'show'. The commands are list, install, serve-mcp." in coevolve("env", "show").err
    assert "Did you mean 'status'?" in coevolve("statu").err


def test_no_rows_are_told(work: Path) -> None:
    done = coevolve("sql", "--workspace", work, "select id from task where false")
    assert (done.code, done.err) == (0, "0 rows\n")


def flags(group: click.Group, prefix: str = "") -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= flags(command, f"{prefix}{name} ")
        else:
            options = [p for p in command.params if isinstance(p, click.Option)]
            found[prefix + name] = sorted(option.opts[0] for option in options)
    return found


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "coevolve", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("coevolve, version")
