"""Hostile calls: each gets an observation in the package's words or a clear refusal, and the rollout goes on."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.bfcl.catalog import pool
from envs.bfcl.env import Bfcl
from envs.worker import Limits
from tests.bfcl_play import FILES, doubled, draft, message, run, session, shown

MATH = "multi_turn_base_15"
CODE = [
    "__import__('os').system('touch HACKED')",
    "().__class__.__base__.__subclasses__()",
    "open('HACKED', 'w').write('x')",
    "execution_results.extend(['forged'])",
    "[c for c in ().__class__.__mro__]",
    'exec(\'import subprocess; subprocess.run(["touch", "HACKED"])\')',
    "ls() or __import__('os').fork()",
    "lambda: 0",
    "ls\n__import__('os').system('touch HACKED')",
    "globals()['x']",
]
NAMES: list[Any] = [
    *CODE,
    *("__init__", "__class__", "__dict__", "__reduce__", "_load_scenario", "_current_dir", "root", "_api_description"),
    *(
        "eval",
        "exec",
        "open",
        "getattr",
        "print",
        "kill",
        "exit",
        "os.system",
        "GorillaFileSystem.ls",
        "ls()",
        "ls ",
        " ls",
    ),
    *("", "x" * 10_000, "\x00", "\ud800", "ls\u200b", None, 3, True, [], {}, ["ls"], {"name": "ls"}),
]
KEYS = [*CODE, "self", "__class__", "a=1, b", "", "\x00", "\ud800"]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


VALUES: list[tuple[str, Any]] = [
    *(("echo", {"content": text, "file_name": "f.txt"}) for text in CODE),
    ("mkdir", {"dir_name": "../../etc"}),
    ("cat", {"file_name": "/etc/passwd"}),
    ("cd", {"folder": nested(10)}),
    ("cd", {"folder": nested(500)}),
    ("cd", {"folder": None}),
    ("cd", {"folder": 3.5}),
    ("cd", {"folder": {"a": {"b": []}}}),
    ("cd", []),
    ("cd", "no JSON {"),
    ("cd", '{"folder": '),
    ("cd", 7),
    ("tail", {"file_name": "x", "lines": 10**30}),
    ("tail", {"file_name": "x", "lines": float("nan")}),
    ("tail", {"file_name": "x", "lines": float("inf")}),
    ("ls", {"a": [0] * 10**7}),
    ("touch", {"file_name": "x" * 2_000_000}),
    ("mkdir", {"dir_name": "\ud800\x00"}),
    ("ls", {"a": 10**4299}),
]
SUMS: list[tuple[str, Any]] = [
    ("logarithm", {"value": 2, "base": 10, "precision": 10**9}),
    ("logarithm", {"value": 2, "base": 10, "precision": 100_000.0}),
    ("square_root", {"number": 2, "precision": 10**8}),
    ("square_root", {"number": 2, "precision": -5}),
    ("power", {"base": 10, "exponent": 10**9}),
    ("power", {"base": 10**17, "exponent": 999}),
    ("power", {"base": 10.0**300, "exponent": 1000}),
    ("power", {"base": 9**99, "exponent": 2}),
    ("round_number", {"number": 1, "decimal_places": -(10**9)}),
    ("mean", {"numbers": ["1", None, {}]}),
    ("mean", {"numbers": 10**17}),
    ("sum_values", {"numbers": "12"}),
]


@pytest.fixture(scope="module")
def env(bfcl: Bfcl) -> Iterator[Bfcl]:
    """With a pool of its own, so that what dies here is nobody else's worker."""
    made = Bfcl(pool(Limits(request_s=1.5, memory_mb=600)))
    yield made
    made.close()


ALLOWED = [
    *VALUES[: len(CODE)],  # a text may say anything
    ("mkdir", {"dir_name": "\ud800\x00"}),
]


def refused(text: str) -> bool:
    return text.startswith(("Error during execution: ", '{"error"'))


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_the_corpus_is_large() -> None:
    assert len(NAMES) + len(KEYS) + len(VALUES) + len(SUMS) >= 60


@pytest.mark.parametrize(
    ("world", "calls"),
    [
        (FILES, [(name, {}) for name in NAMES]),
        (FILES, [("ls", {key: 1}) for key in KEYS]),
        (FILES, VALUES),
        (MATH, SUMS),
    ],
    ids=["names", "keys", "values", "numbers"],
)
def test_each_is_observed_and_nothing_happens(env: Bfcl, world: str, calls: list[Any]) -> None:
    async def play() -> list[str]:
        opened = session(env, world)
        await opened.start()
        found = []
        for call in calls:
            (text,) = await shown(opened, call)
            found.append(text)
        honest = await shown(opened, ("pwd", {}) if world == FILES else ("add", {"a": 1, "b": 2}))
        await opened.close()
        return [*found, *honest]

    here = set(os.listdir())  # noqa: PTH208
    *found, honest = run(play())
    for call, text in zip(calls, found, strict=True):
        assert refused(text) or call in ALLOWED, (call, text[:200])
        assert len(text) < 41_000
    assert honest in ('{"current_working_directory": "/workspace"}', '{"result": 3.0}')
    assert set(os.listdir()) == here  # noqa: PTH208
    assert all(children(pid) == [] for pid in env.pool.pids)
    assert env.pool.pids


def test_an_unknown_name_reads_as_the_package_puts_it(env: Bfcl) -> None:
    async def play() -> list[str]:
        opened = session(env)
        return await shown(opened, ("nothing", {}), ("cd", {}), ("cd", {"dir": "x"}))

    assert run(play()) == [
        "Error during execution: name 'nothing' is not defined",
        "Error during execution: GorillaFileSystem.cd() missing 1 required positional argument: 'folder'",
        "Error during execution: GorillaFileSystem.cd() got an unexpected keyword argument 'dir'",
    ]


@pytest.mark.parametrize("calls", ["ls", {"name": "ls"}, 7, None, []])
def test_what_is_no_list_of_calls_ends_the_turn(env: Bfcl, calls: Any) -> None:
    task = env.materialize(draft(("Make a folder called new.", [("mkdir", {"dir_name": "new"})])), "explored")

    async def play() -> bool:
        opened = session(env, task=task)
        await opened.start()
        return (await opened.act({"role": "assistant", "content": '<tool_call>{"name": ', "tool_calls": calls})).done

    assert run(play())


@pytest.mark.parametrize("call", ["ls", None, 3, [], {}, {"args": {}}, {"function": {"name": "ls"}}])
def test_what_is_no_call_is_observed(env: Bfcl, call: Any) -> None:
    async def play() -> Any:
        return await session(env).act({"role": "assistant", "content": "", "tool_calls": [call]})

    observation = run(play())
    assert observation.failed
    assert observation.messages[0]["content"].startswith("Error during execution: ")


def test_a_thousand_calls_in_a_message(env: Bfcl) -> None:
    async def play() -> list[str]:
        return await shown(session(env), *[("ls", {})] * 1000)

    found = run(play())
    assert len(found) == 1000
    assert set(found[128:]) == {"Error during execution: at most 128 calls a message are carried out"}


def test_a_directory_in_itself(env: Bfcl) -> None:
    """`cp(a, a)` makes a cycle: it is walked without end by the package, and compared, forked and replayed by us."""
    loop = ("cp", {"source": "document", "destination": "document"})
    task = env.materialize(draft(("Copy document into document.", [loop])), "explored")

    async def play() -> tuple[list[str], float | None, float | None]:
        opened = session(env, task=task)
        await opened.start()
        texts = await shown(opened, loop)
        forked = await opened.fork()
        texts += await shown(opened, ("find", {"path": "."}))
        await opened.act({"role": "assistant", "content": "Done."})
        await forked.act({"role": "assistant", "content": "Done."})
        return texts, (await opened.evaluate()).score, (await forked.evaluate()).score

    texts, score, forked = run(play())
    assert texts[0] == "{\"result\": \"'document' copied to 'document/document'\"}"
    assert "recursion" in texts[1]
    assert (score, forked) == (1.0, 1.0)
    assert run(env.replay(task)).success


def test_copies_of_copies_are_the_policys_own_fault(env: Bfcl) -> None:
    """Each copy doubles what `find` walks. It is cut off on two workers, observed as an error, and the rollout is
    scored."""
    task = env.materialize(draft(("Make a folder called new.", [("mkdir", {"dir_name": "new"})])), "explored")

    async def play() -> tuple[str, list[str], Any]:
        opened = session(env, task=task)
        await opened.start()
        await opened.act(message(*doubled(40)))
        started = time.monotonic()
        (text,) = await shown(opened, ("find", {"path": "."}))
        assert time.monotonic() - started < 30
        after = await shown(opened, ("mkdir", {"dir_name": "new"}), ("find", {"path": "."}), ("pwd", {}))
        await opened.act({"role": "assistant", "content": "Done."})
        outcome = await opened.evaluate()
        await opened.close()
        return text, after, outcome

    text, after, outcome = run(play())
    assert text.startswith("Error during execution: ")
    assert "no answer within" in text or "the process was" in text
    assert after[0] == "None"
    assert after[1].startswith("Error during execution: ")
    assert "current_working_directory" in after[2]
    assert (outcome.kind, outcome.score) == ("scored", 0.0)


def test_long_output_is_cut(env: Bfcl) -> None:
    async def play() -> list[str]:
        opened = session(env)
        await shown(opened, ("touch", {"file_name": "long.txt"}))
        await shown(opened, ("echo", {"content": "x" * 90_000, "file_name": "long.txt"}))
        return await shown(opened, ("cat", {"file_name": "long.txt"}))

    (text,) = run(play())
    assert text.endswith("characters cut]")
    assert len(text) < 41_000


def test_many_hostile_rollouts_beside_an_honest_one(env: Bfcl) -> None:
    task = env.materialize(draft(("Make a folder called new.", [("mkdir", {"dir_name": "new"})])), "explored")

    async def honest() -> float | None:
        opened = session(env, task=task)
        await opened.start()
        for message_ in env.solution(task):
            if message_["role"] == "assistant":
                await asyncio.sleep(0.3)
                await opened.act(message_)
        outcome = await opened.evaluate()
        await opened.close()
        return outcome.score

    async def hostile() -> str:
        opened = session(env)
        await opened.start()
        for _ in range(24):
            for at in ("a", "b"):
                await shown(opened, ("cp", {"source": "document", "destination": f"archive{at}"}))
            await shown(opened, ("mv", {"source": "archivea", "destination": "document"}))
            await shown(opened, ("mv", {"source": "archiveb", "destination": "document"}))
        (text,) = await shown(opened, ("find", {"path": "."}))
        await opened.close()
        return text

    async def play() -> list[Any]:
        return await asyncio.gather(honest(), hostile(), hostile())

    score, *_ = run(play())
    assert score == 1.0
