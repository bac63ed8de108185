"""LangGraph Studio's view of the graphs: every export loads as a second module, has no checkpointer, and runs alone."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from store.errors import UsageError
from tests.fake_openai import serve
from tests.refine_server import roles

ROOT = Path(__file__).parent.parent
EXPORTS: dict[str, str] = json.loads((ROOT / "langgraph.json").read_text())["graphs"]


def load(name: str) -> Any:
    """The graph, loaded from its file under another module name, as the dev server does."""
    path, attribute = EXPORTS[name].split(":")
    spec = importlib.util.spec_from_file_location(f"studio_{name}", ROOT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, attribute)


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_have_no_checkpointer(name: str) -> None:
    graph = load(name)
    assert graph.checkpointer is None
    assert graph.get_input_jsonschema()["type"] == "object"


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("explore", {"harden", "reflect", "context", "act", "tools", "collect"}),
        (
            "validate",
            {
                "abstract",
                "check",
                "attempt",
                "tools",
                "finding",
                "repair",
                "replay",
                "noop",
                "judge",
                "twins",
                "decide",
            },
        ),
        ("judge", {"check", "screen", "panel", "decide"}),
        ("refine", {"positions", "cross", "advise", "edit", "judge"}),
    ],
)
def test_the_drawing_shows_the_steps(name: str, nodes: set[str]) -> None:
    assert set(load(name).get_graph().nodes) == nodes | {"__start__", "__end__"}


def test_explore_and_validate_run_alone_on_an_empty_input() -> None:
    async def run() -> tuple[Any, Any]:
        config: Any = {"configurable": {"thread_id": "alone"}}
        explored = await load("explore").ainvoke({}, config)
        drafts = explored["drafts"]
        given = {"world": explored["world"]} if "world" in explored else {}
        validated = await load("validate").ainvoke({**given, "draft": drafts[0]}, config)
        return explored, validated

    explored, validated = asyncio.run(run())
    assert explored["log"]
    assert explored["drafts"]
    assert set(validated["verdict"]) == {"adopt", "reason", "detail"}


def test_validate_abstracts_from_triplets_where_no_draft_is_given() -> None:
    async def run() -> Any:
        config: Any = {"configurable": {"thread_id": "triplets", "env": "text2sql", "model": "procedural"}}
        explored = await load("explore").ainvoke({"seed": 1}, config)
        return await load("validate").ainvoke({"triplets": explored["log"]}, config)

    assert asyncio.run(run())["draft"]["user_turns"]


def test_validate_without_anything_says_so() -> None:
    verdict = asyncio.run(load("validate").ainvoke({}, {"configurable": {"thread_id": "nothing"}}))["verdict"]
    assert (verdict["adopt"], verdict["reason"]) == (False, "nothing_abstracted")


def test_refine_runs_alone_with_the_model_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    given = {"instruction": "a", "response": "b"}
    with pytest.raises(UsageError, match="model: '' is no model that can be asked; write `litellm:NAME`"):
        asyncio.run(load("refine").ainvoke(given, {"configurable": {}}))
    with serve(roles()) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        ended = asyncio.run(load("refine").ainvoke(given, {"configurable": {"model": "litellm:openai/studio"}}))
    assert (ended["response"], ended["accepted"], ended["stop"]) == ("b!!!", 3, "limit")
