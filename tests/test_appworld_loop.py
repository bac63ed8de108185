"""`coevolve eval` and `coevolve evolve` on AppWorld: real engine, small world, a server or a random model as policy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs import registry
from envs.appworld.env import AppWorld
from store.db import Store
from store.rows import Task, Trajectory
from tests.appworld_play import LOGIN
from tests.cli import Ran, coevolve
from tests.fake_openai import FakeServer, answering, serve
from tests.loops import command
from tests.tiny_model import write_random_model

LIMIT = 2
MESSAGE = re.compile(r'friend (\w+) a text message that says "(.*)"')
SEND = (
    LOGIN
    + """token = apis.phone.login(username=me["phone_number"], password=passwords["phone"])["access_token"]
friend = apis.phone.search_contacts(access_token=token, query="{}")[0]
apis.phone.send_text_message(access_token=token, phone_number=friend["phone_number"], message="{}")
apis.supervisor.complete_task()
"""
)


@pytest.fixture
def spec(appworld: AppWorld) -> Iterator[str]:
    spec = f"appworld:{appworld.place.root}"
    yield spec
    env = registry.get(spec)
    assert isinstance(env, AppWorld)
    env.close()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """Does what is asked in two blocks; of what is asked first, only the half."""
    first: list[str] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked = next(message["content"] for message in request["messages"] if message["role"] == "user")
        first.append(asked)
        found = MESSAGE.search(asked)
        assert found
        at = sum(message["role"] == "assistant" for message in request["messages"])
        if asked == first[0]:
            return {"content": ("```python\nprint(1)\n```", "Done.", "Done.")[at]}
        lines = SEND.replace("{}", found[1], 1).replace("{}", found[2], 1).splitlines()
        return {"content": "```python\n" + "\n".join(lines[:3] if at == 0 else lines[3:]) + "\n```"}

    with serve(answering(answer)) as fake:
        yield fake


def evaluate(work: Path, spec: str, server: FakeServer, *more: str) -> Ran:
    return coevolve(
        *["eval", "--workspace", work, "--env", spec, "--policy", "litellm:openai/some", "--split", "dev"],
        *["--limit", str(LIMIT), "--json", "--set", f"model.api_base={server.url}", *more],
    )


def test_a_server_is_evaluated_and_rescored_alike(
    tmp_path: Path, spec: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "config.toml").write_text("")
    done = evaluate(tmp_path, spec, server)
    assert done.code == 0, done.err
    whole = {row["metric"]: row for row in json.loads(done.out) if row["slice"] == "all"}
    assert (whole["accuracy"]["n"], whole["accuracy"]["value"]) == (LIMIT, 0.5)
    assert (whole["sgc"]["n"], whole["sgc"]["value"]) == (1, 0.0)
    asked = len(server.requests)
    again = evaluate(tmp_path, spec, server, "--rescore")
    assert again.code == 0, again.err
    assert json.loads(again.out) == json.loads(done.out)
    assert len(server.requests) == asked, "nothing is asked again"


SETTINGS = {
    "train.warm_start": "false",
    "train.model.threads": 1,
    "train.model.dtype": "float32",
    "train.collect.rollouts": 2,
    "train.collect.tasks": 2,
    "train.collect.max_tokens": 40,
    "seed_set.unguided": 2,
    "signals.per_round": 2,
    "explore.per_signal": 1,
    "eval.limit": 1,
    "eval.final": "",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_loop_turns_once(tmp_path: Path, spec: str) -> None:
    model = write_random_model(tmp_path / "model")
    (tmp_path / "config.toml").write_text(f'policy = "hf:{model}"\n')
    overrides = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    done = command(tmp_path, "evolve", "--env", spec, "--rounds", "1", "--json", *overrides)
    assert done.returncode == 0, done.stderr
    rounds = json.loads(done.stdout)["rounds"]
    assert [row["round"] for row in rounds] == [0, 1]
    assert all("dev[1]" in row["scores"] for row in rounds)
    store = Store(tmp_path / "store")
    tasks = store.rows(Task, "origin = 'explored'")
    assert len(tasks) >= 2
    assert not any(task.redistributable for task in tasks)
    played = store.rows(Trajectory, "purpose = 'train'")
    assert {row.outcome for row in played} == {"scored"}
