"""Environments behind an MCP server, played by the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from coevolve.serve_mcp import tasks_of
from envs import registry
from envs.bfcl.env import Bfcl
from envs.protocols import Env, Message, Observation, Session
from envs.text2sql.session import tool_schemas
from store.errors import UsageError
from store.rows import Task
from tests.cli import coevolve
from tests.fakes import EchoEnv, EchoSession

pytest.importorskip("mcp")

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult, TextContent, ToolListChangedNotification

from envs import mcp
from envs.mcp import Clients, server

Play = Callable[[Client], Awaitable[Any]]
SQL = registry.get("text2sql")
ROOT = Path(__file__).parent.parent
SERVE = ["-m", "coevolve", "env", "serve-mcp", "text2sql"]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def played(play: Play, env: Env = SQL, tasks: list[Task] | None = None, mode: str = "auto", **options: Any) -> Any:
    """What a client's play gives, in this process. Mode `legacy` has the handshake and JSON on a pipe."""

    async def run() -> Any:
        async with Client(server(env, tasks or env.seed_tasks(), **options), mode=mode) as client:
            return await play(client)

    return asyncio.run(run())


def text(result: CallToolResult) -> str:
    (part,) = result.content
    assert isinstance(part, TextContent)
    return part.text


def verdict(result: CallToolResult) -> tuple[str, float | None, bool | None]:
    told = json.loads(text(result))
    assert told == result.structured_content
    return told["kind"], told["score"], result.is_error


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_reference_scores_one_and_another_answer_none(mode: str) -> None:
    task = SQL.seed_tasks()[3]

    async def play(client: Client) -> list[CallToolResult]:
        begun = await client.call_tool("new_episode", {"task": task.id})
        assert task.user_turns[0] in text(begun)
        right = await client.call_tool("submit_sql", {"sql": task.reference})
        await client.call_tool("new_episode", {"task": task.id})
        return [right, await client.call_tool("submit_sql", {"sql": "SELECT 'nothing of use'"})]

    assert list(map(verdict, played(play, mode=mode))) == [("scored", 1.0, False), ("scored", 0.0, False)]


def test_tools_are_those_of_the_environment_as_they_are() -> None:
    async def play(client: Client) -> Any:
        return (await client.list_tools()).tools

    found = {tool.name: (tool.description, tool.input_schema) for tool in played(play)}
    for schema in tool_schemas():
        function = schema["function"]
        assert found.pop(function["name"]) == (function["description"], function["parameters"])
    assert set(found) == {"list_tasks", "new_episode", "finish"}


def test_the_list_of_tasks_gives_no_reference_away() -> None:
    async def play(client: Client) -> str:
        return text(await client.call_tool("list_tasks"))

    told = played(play)
    assert json.loads(told)[0] == {"task": SQL.seed_tasks()[0].id, "user": SQL.seed_tasks()[0].user_turns[0]}
    assert not any(str(task.reference) in told for task in SQL.seed_tasks())


def test_without_a_task_the_next_of_the_list_is_played() -> None:
    async def play(client: Client) -> list[str]:
        ids = [None, "", None, None]
        begun = [await client.call_tool("new_episode", {"task": b} if b == "" else {}) for b in ids]
        return [text(result).split("\n")[0] for result in begun]

    first, unknown, second, again = played(play, tasks=SQL.seed_tasks()[:2])
    assert (first, again) == (f"Task {SQL.seed_tasks()[0].id}",) * 2
    assert second == f"Task {SQL.seed_tasks()[1].id}"
    assert unknown.startswith("there is no task ''")


def test_calls_out_of_place_are_told() -> None:
    async def play(client: Client) -> list[CallToolResult]:
        calls = [
            ("run_sql", {"sql": "SELECT 1"}),
            ("finish", {}),
            ("new_episode", {}),
            ("nonsense", {}),
            ("finish", {}),
        ]
        return [await client.call_tool(name, args) for name, args in [*calls, ("run_sql", {"sql": "SELECT 1"})]]

    early, nothing, _, unknown, ended, late = played(play)
    assert [bool(result.is_error) for result in (early, nothing, unknown, ended, late)] == [True] * 3 + [False, True]
    assert text(early) == "there is no episode; call new_episode first"
    assert "there is no tool nonsense" in text(unknown)
    assert verdict(ended) == ("scored", 0.0, False)
    assert text(late).startswith("the episode is over")


@pytest.mark.parametrize("fault", ["lose", "crash", "sleep", "cancelled", "lose_start", "sleep_start", "lose_grade"])
def test_a_fault_of_the_machine_is_an_error_and_no_score(fault: Any) -> None:
    env = EchoEnv()
    task = env.seed_tasks()[0]
    env.faults[task.id] = [None, fault]  # the first session is the one that tells the tools

    async def play(client: Client) -> tuple[CallToolResult, CallToolResult]:
        await client.call_tool("new_episode", {"task": task.id})
        await client.call_tool("say", {"word": "ping"})
        lost = await client.call_tool("finish")
        await client.call_tool("new_episode", {"task": task.id})
        return lost, await client.call_tool("say", {"word": "ping"})

    lost, after = played(play, env, deadline_s=0.2)
    assert verdict(lost) == ("infra", None, True)
    assert verdict(after) == ("scored", 1.0, False)
    assert all(session.closed for session in env.sessions[len(env.seed_tasks()) :])


def test_why_a_task_is_defective_is_not_told() -> None:
    env = EchoEnv()
    env.faults[env.seed_tasks()[0].id] = [None, "invalid"]

    async def play(client: Client) -> CallToolResult:
        await client.call_tool("new_episode")
        return await client.call_tool("say", {"word": "ping"})

    result = played(play, env)
    assert verdict(result) == ("invalid", None, True)
    assert "echo" not in text(result)


@pytest.mark.parametrize(
    ("fault", "hangs"), [("sleep_start", "new_episode"), ("sleep", "say"), ("sleep_grade", "finish")]
)
def test_an_episode_whose_call_was_cancelled_is_lost(fault: Any, hangs: str) -> None:
    env = EchoEnv()
    task = env.seed_tasks()[0].id
    env.faults[task] = [None, fault]

    async def play(client: Client) -> tuple[CallToolResult, CallToolResult]:
        args = {"new_episode": {"task": task}, "say": {"word": "ping"}, "finish": {}}
        if hangs != "new_episode":
            await client.call_tool("new_episode", args["new_episode"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.call_tool(hangs, args[hangs])
        lost = await client.call_tool("finish")
        await client.call_tool("new_episode", args["new_episode"])
        return lost, await client.call_tool("say", args["say"])

    lost, after = played(play, env)
    assert verdict(lost) == ("infra", None, True)
    assert verdict(after)[1] == 1.0


def test_the_episode_of_a_client_that_is_gone_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    env = EchoEnv()

    async def run() -> None:
        clients = Clients(env, env.seed_tasks(), {}, 1.0)
        gone, here = (SimpleNamespace(request=SimpleNamespace(headers={"mcp-session-id": key})) for key in "ab")
        await (await clients.of(gone)).call("new_episode", {})  # type: ignore[arg-type]
        monkeypatch.setattr(mcp, "IDLE_S", -1.0)
        await clients.of(here)  # type: ignore[arg-type]
        assert [session.closed for session in env.sessions] == [True]

    asyncio.run(run())


def test_calls_side_by_side_are_taken_one_by_one() -> None:
    async def play(client: Client) -> list[CallToolResult]:
        await client.call_tool("new_episode")
        task = SQL.seed_tasks()[0]
        calls = [client.call_tool("run_sql", {"sql": f"SELECT {i}"}) for i in range(8)]
        shown = await asyncio.gather(*calls)
        assert [json.loads(text(result))["rows"] for result in shown] == [[[i]] for i in range(8)]
        return await asyncio.gather(*[client.call_tool("submit_sql", {"sql": task.reference}) for _ in range(2)])

    first, second = played(play)
    assert verdict(first) == ("scored", 1.0, False)
    assert (second.is_error, text(second)[:23]) == (True, "the episode is over; fi")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_names = st.sampled_from(["list_tasks", "new_episode", "finish", "run_sql", "describe_table", "submit_sql"]) | st.text()
_args = st.dictionaries(st.sampled_from(["sql", "table", "task", "text"]) | st.text(max_size=5), _json, max_size=3)


@settings(max_examples=40)
@given(calls=st.lists(st.tuples(_names, _args), max_size=6))
def test_hostile_calls_are_answered_and_the_server_goes_on(calls: list[tuple[str, dict[str, Any]]]) -> None:
    task = SQL.seed_tasks()[0]

    async def play(client: Client) -> CallToolResult:
        await client.call_tool("new_episode")
        for name, args in calls:
            (await client.call_tool(name, args)).model_dump_json()
        await client.call_tool("new_episode", {"task": task.id})
        return await client.call_tool("submit_sql", {"sql": task.reference})

    assert verdict(played(play, tasks=SQL.seed_tasks()[:1])) == ("scored", 1.0, False)


HUGE = "x" * 5_000_000
MALFORMED: list[tuple[str, dict[str, Any], str]] = [
    ("run_sql", {}, "run_sql takes the argument sql"),
    ("run_sql", {"sql": 3}, "the argument sql must be text"),
    ("run_sql", {"sql": ["SELECT 1"]}, "the argument sql must be text"),
    ("run_sql", {"sql": "SELECT 1", "more": 1}, "run_sql takes the argument sql"),
    ("run_sql", {"sql": f"SELECT '{HUGE}'"}, "the statement has more than"),
    ("submit_sql", {}, "submit_sql takes the argument sql"),
    ("new_episode", {"task": 7}, "the argument task must be text"),
    ("new_episode", {"task": HUGE}, "there is no task"),
    ("finish", {"now": True}, "finish takes no argument 'now'"),
    (HUGE, {}, "there is no tool xxx"),
]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_malformed_calls_are_errors_that_end_no_episode(mode: str) -> None:
    task = SQL.seed_tasks()[0]

    async def play(client: Client) -> tuple[list[CallToolResult], CallToolResult]:
        await client.call_tool("new_episode", {"task": task.id})
        answers = [await client.call_tool(name, args) for name, args, _ in MALFORMED]
        return answers, await client.call_tool("submit_sql", {"sql": task.reference})

    answers, last = played(play, mode=mode)
    for (_, _, words), answer in zip(MALFORMED, answers, strict=True):
        assert answer.is_error
        assert words in text(answer)
        assert len(text(answer)) < 1000
    assert verdict(last) == ("scored", 1.0, False)


def test_text_that_cannot_be_sent_is_sent_as_it_can_be() -> None:
    class Broken(EchoSession):
        async def act(self, message: Message) -> Observation:
            return Observation(messages=[{"role": "tool", "content": "\ud800!"}], done=False)

    class BrokenEnv(EchoEnv):
        def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
            return Broken(task, tools=tools, turns=1, fault=None)

    async def play(client: Client) -> str:
        await client.call_tool("new_episode")
        return text(await client.call_tool("look"))

    assert played(play, BrokenEnv(), mode="legacy") == "?!"


def test_a_user_of_several_turns_is_replied_to(bfcl: Bfcl) -> None:
    tasks = bfcl.suites()["multi_turn_base"][:80]
    task = tasks[0]
    news: list[Any] = []

    async def heard(message: Any) -> None:
        news.append(message)

    async def run() -> CallToolResult:
        async with Client(server(bfcl, tasks), mode="legacy", message_handler=heard) as client:
            before = {tool.name for tool in (await client.list_tools()).tools}
            await client.call_tool("new_episode", {"task": task.id})
            assert {tool.name for tool in (await client.list_tools()).tools} < before
            for turn, calls in enumerate(task.reference):
                for call in calls:
                    await client.call_tool(call["name"], call["args"])
                last = await client.call_tool("reply", {"text": "Done."})
                if turn + 1 < len(task.reference):
                    assert text(last) == task.user_turns[turn + 1]
            return last

    assert verdict(asyncio.run(run())) == ("scored", 1.0, False)
    assert any(isinstance(each, ToolListChangedNotification) for each in news)


def test_seed_tasks_are_served_and_suites_by_name_alone() -> None:
    env = EchoEnv()
    assert tasks_of(env, None, None) == env.seed_tasks()
    held_out = tasks_of(env, "shifted", None)
    assert held_out == env.suites()["shifted"]
    assert tasks_of(env, "shifted", held_out[1].id) == held_out[1:2]
    with pytest.raises(UsageError, match="it is none of the 2 tasks of the seeds"):
        tasks_of(env, None, held_out[1].id)


def test_an_environment_without_seed_tasks_names_its_suites() -> None:
    class Bare(EchoEnv):
        def seed_tasks(self) -> list[Task]:
            return []

    with pytest.raises(UsageError, match="--suite: echo has no seed tasks; to play held-out ones choose from shifted"):
        tasks_of(Bare(), None, None)


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "envs.mcp")
    monkeypatch.delattr(envs, "mcp")
    monkeypatch.setitem(sys.modules, "mcp.types", None)
    done = coevolve("env", "serve-mcp", "text2sql")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: env serve-mcp: ")
    assert done.err.endswith("; run `pip install '.[mcp]'` in the clone\n")


async def solve(client: Client) -> tuple[str, float | None, bool | None]:
    task = SQL.seed_tasks()[0]
    await client.call_tool("new_episode", {"task": task.id})
    return verdict(await client.call_tool("submit_sql", {"sql": task.reference}))


def test_the_command_serves_the_client_that_started_it() -> None:
    async def run() -> Any:
        async with Client(StdioServerParameters(command=sys.executable, args=SERVE, env=ENVIRON)) as client:
            return await solve(client)

    assert asyncio.run(run()) == ("scored", 1.0, False)


@pytest.fixture
def url() -> Iterator[str]:
    """Of a server of the command's own; ctrl-C ends it."""
    with subprocess.Popen(
        [sys.executable, *SERVE, "--http", "0"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRON, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        found = re.search(r"http://\S+/mcp", process.stderr.readline())
        assert found is not None
        yield found[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stdout.read() == ""


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_over_http_each_client_has_an_episode_of_its_own(url: str, mode: str) -> None:
    async def run() -> list[Any]:
        async with Client(url, mode=mode) as one, Client(url, mode=mode) as other:
            await one.call_tool("new_episode")
            nothing = text(await other.call_tool("finish"))
            return [nothing, await solve(other), verdict(await one.call_tool("finish"))]

    nothing, solved, left = asyncio.run(run())
    assert nothing == "there is no episode to finish; call new_episode first"
    assert (solved, left) == (("scored", 1.0, False), ("scored", 0.0, False))


def test_over_http_a_client_without_a_session_is_told_to_open_one(url: str) -> None:
    async def run() -> CallToolResult:
        async with Client(url, mode="2026-07-28") as client:
            return await client.call_tool("new_episode")

    result = asyncio.run(run())
    assert (result.is_error, text(result)[:27]) == (True, "an episode needs a session:")
