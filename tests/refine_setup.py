"""A panel whose roles play a script, and samples for it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from graphs.model import Budget
from graphs.recording import Recorder
from graphs.refining import Past, no_past, refine_all
from graphs.settings import ModelSettings, RefineSettings
from graphs.sitting import Panel, Said, Voice, place_of
from store.instructions import Pair, Sample
from store.rows import Json, Refined, RefineRole, Remark, Row
from tests.scripted import ScriptedChatModel, says

ROLES: tuple[RefineRole, ...] = ("positive", "critical", "advisor", "editor", "judge")
Answer = Callable[[str, Json], Any]
"""(prompt, payload) -> text, JSON, AIMessage or Exception."""


def asked(messages: Sequence[BaseMessage]) -> tuple[str, Json]:
    """(prompt, payload) of a role's messages."""
    found = re.search(r"^```json\n(\{.*\})\n```$", str(messages[-1].content), re.MULTILINE)
    assert found
    payload = json.loads(found[1])
    return payload.pop("role"), payload


class Play:
    """A script by prompt: each has an answer, or a list of them, given one by one, the last again and again. An answer
    may be a function of the payload."""

    def __init__(self, **answers: Any) -> None:
        self._answers = {name: list(given) if isinstance(given, list) else [given] for name, given in answers.items()}
        self.seen: list[tuple[str, Json]] = []

    def __call__(self, messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        prompt, payload = asked(messages)
        self.seen.append((prompt, payload))
        left = self._answers[prompt]
        answer = left.pop(0) if len(left) > 1 else left[0]
        answer = answer(payload) if callable(answer) else answer
        if isinstance(answer, AIMessage | Exception):
            return answer
        return says(answer if isinstance(answer, str) else json.dumps(answer), tokens=10)

    def prompts(self) -> list[str]:
        return [prompt for prompt, _ in self.seen]

    def payloads(self, prompt: str) -> list[Json]:
        return [payload for seen, payload in self.seen if seen == prompt]


def by_length(payload: Json) -> Json:
    """A judge who likes length, whatever the order."""
    return {"reason": "", "first": min(10, len(payload["first"])), "second": min(10, len(payload["second"]))}


DEBATE: dict[str, Any] = {"positive": "it is right", "critical": "it is short", "cross": "true", "advisor": "1. Add it"}


def grows(payload: Json) -> str:
    return str(payload["response"]) + "+"


def alpaca(response: str = "old", index: int = 0, **changes: Any) -> Sample:
    pair: dict[str, Any] = {"instruction": "do it", "response": response} | changes
    record = {"instruction": pair["instruction"], "input": pair.get("input", ""), "output": pair["response"]}
    return Sample(index=index, name=None, record=record, pairs=[Pair(**pair)])


def talk(*pairs: tuple[str, str], system: str = "") -> Sample:
    return Sample(
        index=0, name="t", record={}, system=system, pairs=[Pair(instruction=a, response=b) for a, b in pairs]
    )


def remembered(rows: Iterable[Row]) -> Past:
    """The past that the rows tell."""
    done = {row.sample: row for row in rows if isinstance(row, Refined) and row.outcome != "failed"}
    said: dict[int, dict[Any, Remark]] = {}
    for row in rows:
        if isinstance(row, Remark):
            said.setdefault(row.sample, {})[place_of(row)] = row

    def past(sample: int) -> tuple[Refined | None, Said]:
        return done.get(sample), said.get(sample, {})

    return past


def refine(
    samples: Iterable[Sample],
    play: Any,
    *,
    rows: list[Row] | None = None,
    past: Past = no_past,
    stop: Any = None,
    budget: Budget | None = None,
    concurrency: int = 2,
    attempt: int = 0,
    **settings: Any,
) -> list[Refined]:
    """What became of the samples; the rows go into `rows`."""
    kept: list[Row] = [] if rows is None else rows

    async def run() -> list[Refined]:
        record = Recorder(kept.extend)
        voice = Voice(spec="scripted", model=ScriptedChatModel(policy=play))
        panel = Panel(
            job="j",
            voices=dict.fromkeys(ROLES, voice),
            settings=RefineSettings(**settings),
            calls=ModelSettings(concurrency=concurrency, attempts=1),
            budget=budget or Budget(),
            record=record,
            stop=stop,
        )
        return [row async for _, row in refine_all(samples, panel, attempt=attempt, record=record, past=past)]

    return asyncio.run(run())


def one(sample: Sample, play: Any, **options: Any) -> Refined:
    (row,) = refine([sample], play, **options)
    return row
