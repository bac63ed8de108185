"""Sessions of the BFCL environment: turns, hidden functions, both gradings, fork; where we deviate from the package."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import pytest

from envs.bfcl.catalog import Entry
from envs.bfcl.env import Bfcl
from store.rows import Task
from tests.bfcl_play import FILES, REPLY, draft, message, official, run, session, shown
from tests.test_bfcl_parity import official as package


def calls_of(task: Task, turn: int) -> list[tuple[str, Any]]:
    return [(call["name"], call["args"]) for call in task.reference[turn]]


def entry(env: Bfcl, world: str) -> Entry:
    return env.catalog.entry(world)


async def play(env: Bfcl, task: Task, turns: list[list[tuple[str, Any]]]) -> tuple[float | None, str]:
    """Each turn's calls in one message, then a reply."""
    opened = session(env, task.world, task)
    await opened.start()
    for calls in turns:
        if calls:
            await opened.act(message(*calls))
        await opened.act(REPLY)
    outcome = await opened.evaluate()
    await opened.close()
    return outcome.score, outcome.detail


def test_every_tool_is_valid_json_schema(bfcl: Bfcl) -> None:
    tools = [tool for each in bfcl.catalog.classes.values() for tool in each["tools"]]
    assert len(tools) == 128
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool["function"]["parameters"])
        assert tool["function"]["parameters"]["type"] == "object"
        assert tool["function"]["description"]


def test_official_calls_fit_the_schemas(bfcl: Bfcl) -> None:
    """But for the few that the package's answers themselves get wrong."""
    catalog = bfcl.catalog
    wrong = set()
    for each in catalog.entries.values():
        tools = catalog.tools(each)
        for call in (call for turn in each.reference for call in turn):
            schema = tools[call["name"]]["function"]["parameters"]
            if not jsonschema.Draft202012Validator(schema).is_valid(call["args"]):
                wrong.add(call["name"])
    assert wrong == {"close_ticket"}


@pytest.mark.parametrize("category", ["base", "miss_func", "miss_param", "long_context"])
def test_references_pass_turn_by_turn(bfcl: Bfcl, category: str) -> None:
    for task in bfcl.suites()[f"multi_turn_{category}"][::25]:
        outcome = run(bfcl.replay(task))
        assert outcome.success, (task.world, outcome)
        assert not run(bfcl.noop(task)).success


def test_a_message_without_calls_brings_the_next_turn(bfcl: Bfcl) -> None:
    task = official(bfcl, "multi_turn_base", FILES)

    async def go() -> list[Any]:
        opened = session(bfcl, FILES, task)
        return [await opened.start(), *[(await opened.act(REPLY)).messages for _ in task.user_turns]]

    said = run(go())
    assert [turn[0]["content"] for turn in said[:-1]] == task.user_turns
    assert said[-1] == []


def test_a_hidden_function_is_shown_from_its_turn_on(bfcl: Bfcl) -> None:
    world = "multi_turn_miss_func_0"
    ((name, turn), *_) = entry(bfcl, world).hidden.items()
    task = official(bfcl, "multi_turn_miss_func", world)

    async def go() -> list[bool]:
        opened = session(bfcl, world, task)
        await opened.start()
        seen = []
        for _ in task.user_turns:
            seen.append(name in {tool["function"]["name"] for tool in opened.tools})
            await opened.act(REPLY)
        return seen

    assert run(go()) == [at >= turn for at in range(len(task.user_turns))]
    assert "updated some more functions" in task.user_turns[turn]


def test_a_hidden_function_runs_officially_and_is_refused_strictly(bfcl: Bfcl) -> None:
    world = "multi_turn_miss_func_0"
    (name, *_) = entry(bfcl, world).hidden

    async def go(suite: str) -> str:
        opened = session(bfcl, world, official(bfcl, suite, world))
        await opened.start()
        return (await shown(opened, (name, {})))[0]

    assert run(go("multi_turn_miss_func_strict")) == f"Error during execution: name '{name}' is not defined"
    assert "is not defined" not in run(go("multi_turn_miss_func"))


def test_calling_a_hidden_function_fails_strictly_only_where_it_ran(bfcl: Bfcl) -> None:
    """In a turn with work to do: refused, it is an error like any other, and the turn is done all the same."""
    world = "multi_turn_miss_func_0"
    (name, *_) = entry(bfcl, world).hidden

    async def go(suite: str) -> Any:
        task = official(bfcl, suite, world)
        opened = session(bfcl, world, task)
        await opened.start()
        await opened.act(message((name, {"file_name": "nothing"})))
        for at in range(len(task.user_turns)):
            if calls := calls_of(task, at):
                await opened.act(message(*calls))
            await opened.act(REPLY)
        return (await opened.evaluate()).marks

    assert run(go("multi_turn_miss_func_strict")) == {"official": 1.0, "strict": 1.0}
    assert run(go("multi_turn_miss_func")) == {"official": 1.0, "strict": 0.0}


@pytest.mark.parametrize("category", ["miss_func", "miss_param"])
def test_a_call_in_a_turn_to_abstain_from_fails_strictly_alone(bfcl: Bfcl, category: str) -> None:
    world = f"multi_turn_{category}_0"
    scores = []
    for mark in ("", "_strict"):
        task = official(bfcl, f"multi_turn_{category}{mark}", world)
        turns = [calls_of(task, at) for at in range(len(task.user_turns))]
        right = run(play(bfcl, task, turns))
        eager = run(play(bfcl, task, [calls or [("pwd", {})] for calls in turns]))
        scores.append((right[0], eager[0]))
    assert scores == [(1.0, 1.0), (1.0, 0.0)]


def test_state_alone_is_not_enough(bfcl: Bfcl) -> None:
    """A turn that asks for something to be read changes no state; not reading it fails."""
    task = official(bfcl, "multi_turn_base", FILES)
    turns = [calls_of(task, at) for at in range(len(task.user_turns))]
    assert run(play(bfcl, task, turns))[0] == 1.0
    without = [[("pwd", {})] if {name for name, _ in calls} <= {"cd", "grep"} else calls for calls in turns]
    assert without != turns
    score, detail = run(play(bfcl, task, without))
    assert score == 0.0
    assert "responses" in detail


def test_too_many_steps_in_a_turn_end_the_episode(bfcl: Bfcl) -> None:
    task = official(bfcl, "multi_turn_base", FILES)

    async def go() -> tuple[int, float | None]:
        opened = session(bfcl, FILES, task)
        await opened.start()
        steps = 0
        done = False
        while not done:
            done = (await opened.act(message(("pwd", {})))).done
            steps += 1
        return steps, (await opened.evaluate()).score

    assert run(go()) == (21, 0.0)


@pytest.mark.parametrize(("steps", "over"), [(20, False), (21, True)])
def test_an_episode_ended_by_force_in_its_last_turn_is_graded(bfcl: Bfcl, steps: int, over: bool) -> None:
    """The package fails such an entry only where turns are missing in what it kept of the model's answers."""
    task = official(bfcl, "multi_turn_base", FILES)
    *before, last = [calls_of(task, at) for at in range(len(task.user_turns))]

    async def go() -> tuple[bool, Any]:
        opened = session(bfcl, FILES, task)
        await opened.start()
        for calls in before:
            await opened.act(message(*calls))
            await opened.act(REPLY)
        for calls in [last, *[[("pwd", {})]] * (steps - 1)]:
            done = (await opened.act(message(*calls))).done
        if not done:
            await opened.act(REPLY)
        outcome = await opened.evaluate()
        await opened.close()
        return done, outcome

    done, outcome = run(go())
    assert (done, outcome.score) == (over, 1.0)
    assert outcome.marks == {"official": 1.0, "strict": 1.0}
    assert ("too many steps" in outcome.detail) == over


def test_long_context_is_long(bfcl: Bfcl) -> None:
    async def listing(world: str) -> int:
        opened = session(bfcl, world)
        return len((await shown(opened, ("find", {"path": "."})))[0])

    assert run(listing("multi_turn_long_context_0")) > 10 * run(listing(FILES))


def test_eight_rollouts_at_once_are_the_serial_ones(bfcl: Bfcl) -> None:
    task = official(bfcl, "multi_turn_long_context", "multi_turn_long_context_5")
    turns = [calls_of(task, at) for at in range(len(task.user_turns))]

    async def one(skip: int) -> list[Any]:
        opened = session(bfcl, task.world, task)
        await opened.start()
        seen: list[Any] = []
        for at, calls in enumerate(turns):
            for call in calls if at != skip else []:
                seen += await shown(opened, call)
            await opened.act(REPLY)
        seen.append(await opened.evaluate())
        await opened.close()
        return seen

    async def together() -> list[list[Any]]:
        return await asyncio.gather(*map(one, range(8)))

    assert run(together()) == [run(one(skip)) for skip in range(8)]


def test_a_fork_shares_nothing(bfcl: Bfcl) -> None:
    async def go() -> list[str]:
        opened = session(bfcl)
        await shown(opened, ("mkdir", {"dir_name": "first"}))
        kept = await opened.fork()
        await shown(opened, ("mkdir", {"dir_name": "second"}))
        again = await kept.fork()
        await shown(again, ("mkdir", {"dir_name": "third"}))
        return [(await shown(each, ("ls", {})))[0] for each in (opened, kept, again)]

    listings = [json.loads(text)["current_directory_content"] for text in run(go())]
    assert listings == [
        ["document", "archive", "first", "second"],
        ["document", "archive", "first"],
        ["document", "archive", "first", "third"],
    ]


def test_an_allow_list_is_enforced(bfcl: Bfcl) -> None:
    task = bfcl.materialize(
        draft(("Make a folder called new.", [("mkdir", {"dir_name": "new"})]), tools=("mkdir", "ls")), "explored"
    )

    async def go() -> tuple[list[str], list[str]]:
        opened = session(bfcl, FILES, task)
        await opened.start()
        return [tool["function"]["name"] for tool in opened.tools], await shown(opened, ("pwd", {}), ("ls", {}))

    names, (refused, answered) = run(go())
    assert set(names) == {"mkdir", "ls"}
    assert refused == "Error during execution: name 'pwd' is not defined"
    assert "document" in answered


# ---- deviations from the package, each on purpose


def test_text_that_looks_like_a_call_stays_as_it_is(bfcl: Bfcl) -> None:
    """The package rewrites `sort(` inside a text to the name of an instance."""
    text = "run sort(file) now"
    calls = [("touch", {"file_name": "a"}), ("echo", {"content": text, "file_name": "a"}), ("cat", {"file_name": "a"})]

    async def go() -> str:
        return (await shown(session(bfcl), *calls))[-1]

    step = [f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})" for name, args in calls]
    base = entry(bfcl, FILES)
    (theirs,) = package([(base, [[step], *[[] for _ in base.turns[1:]]])])
    assert json.loads(run(go())) == {"file_content": text}
    assert "_instance.sort(file)" in theirs["observations"][-1]


def test_whole_numbers_are_floats_where_floats_are_asked_for_in_our_tasks_alone(bfcl: Bfcl) -> None:
    world = "multi_turn_base_15"
    assert "MathAPI" in entry(bfcl, world).classes
    official_task = official(bfcl, "multi_turn_base", world)

    async def go(task: Task | None) -> str:
        opened = session(bfcl, world, task)
        await opened.start()
        return (await shown(opened, ("add", {"a": 1, "b": 2})))[0]

    assert run(go(None)) == '{"result": 3.0}'
    assert run(go(official_task)) == '{"result": 3}'
    ours = bfcl.materialize(draft(("What is 1 plus 2?", [("add", {"a": 1, "b": 2})]), world=world), "explored")
    assert run(play(bfcl, ours, [[("add", {"a": 1.0, "b": 2})]]))[0] == 1.0


def test_a_default_is_nobody_elses(bfcl: Bfcl) -> None:
    """The package's `post_tweet` puts its own default list into the tweet, and `mention` then changes it for all."""
    log_in = {"username": "analyst_pro", "password": entry(bfcl, FILES).state["TwitterAPI"]["password"]}
    mention = ("mention", {"tweet_id": 3, "mentioned_usernames": ["@a"]})

    async def tweet() -> list[str]:
        return await shown(session(bfcl), ("authenticate_twitter", log_in), ("post_tweet", {"content": "x"}), mention)

    first, second = run(tweet()), run(tweet())
    assert first == second
    assert json.loads(second[1])["mentions"] == []
    assert "mentioned successfully" in second[2]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("tail", {"file_name": "a", "lines": 10**18}), "more than 18 digits"),
        (("cd", {"folder": [[[[[[[[[[[[[[[[[[[[[[["a"]]]]]]]]]]]]]]]]]]]]]]]}), "nested more than 20 deep"),
        (("touch", {"file_name": "x" * 100_001}), "at most 100000 are taken"),
    ],
)
def test_what_the_package_would_take_is_refused(bfcl: Bfcl, call: Any, words: str) -> None:
    async def go() -> str:
        return (await shown(session(bfcl), call))[0]

    text = run(go())
    assert text.startswith("Error during execution: ")
    assert words in text
