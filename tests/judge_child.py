"""What the kill test of judging runs in a process of its own: a phase with an editor and a committee of three.

Whoever is asked writes that down first, so that what was asked, and of whom, outlives the process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from graphs.committee import Judges
from graphs.runner import validate_all
from graphs.settings import ModelSettings
from graphs.sitting import Voice
from store.rows import Json, Verdict, Vote
from tests.graph_child import Append, CountingEcho, Fuse, read_rows
from tests.graph_setup import candidate
from tests.judge_setup import BAD, GOOD
from tests.polish_setup import POLISH
from tests.refine_setup import asked
from tests.scripted import ScriptedChatModel, calls, says

ASKED = "asked.jsonl"
CONCURRENCY = 3
JUDGES = ("judge0", "judge1", "judge2")
ANSWER_S = {"judge0": 0.0, "judge1": 0.02, "judge2": 0.04}
"""Seconds until a judge answers: some votes are on record while others of the same candidate are in flight."""
CANDIDATES = [candidate(f"word{at}", index=at, turns=[f"say word{at}"]) for at in range(5)]


def player(fuse: Fuse, folder: Path, name: str) -> ScriptedChatModel:
    """Editor and validator, or a judge; what it answers depends on the request alone."""

    def play(messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        role, payload = asked([message for message in messages if "```json" in str(message.content)])
        line = json.dumps([name, role, about(role, payload)]).encode() + b"\n"
        file = os.open(folder / ASKED, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line)
        os.close(file)
        fuse.event()
        time.sleep(ANSWER_S.get(name, 0.0))
        return answer(name, role, payload, messages)

    return ScriptedChatModel(policy=play)


def about(role: str, payload: Json) -> list[str]:
    """[reference of the task, what else tells the request from others]"""
    if role == "try":
        return [payload["view"]["draft"]["reference"]]
    task = payload.get("task", payload)
    return [task["reference"], *(payload["first"] if role == "compare" else [])]


def answer(name: str, role: str, payload: Json, messages: Sequence[BaseMessage]) -> AIMessage:
    """One judge of three likes short words; word3 and its edit no judge likes."""
    if role == "try":
        looked = any(message.type == "tool" for message in messages)
        return says('{"problem": null}') if looked else calls("look")
    if role == "editor":
        return said({"user_turns": [f"Please {payload['user_turns'][0]}."]})
    if role == "compare":
        sizes = {place: len(payload[place][0]) / 10 + 1 for place in ("first", "second")}
        liked = name == "judge2" or payload["reference"] == "word3"
        return said({place: 10 - size for place, size in sizes.items()} if liked else sizes)
    return said(BAD if payload["task"]["reference"] in ("word1", "word3") else GOOD)


def said(value: Json) -> AIMessage:
    return says(json.dumps(value), tokens=10)


async def judging(fuse: Fuse, path: Path, checkpoints: Path, append: Append) -> None:
    """One `validate` phase, on what an earlier one has left."""
    rows = read_rows(path)
    decided = {row.candidate_id for row in rows if isinstance(row, Verdict)}
    past: Any = {(row.candidate_id, row.stage, row.judge): row for row in rows if isinstance(row, Vote)}
    voices = [Voice(spec=name, model=player(fuse, path.parent, name)) for name in JUDGES]
    editor = player(fuse, path.parent, "editor")
    await validate_all(
        [one for one in CANDIDATES if one.id not in decided],
        env=CountingEcho(fuse),
        model="scripted",
        factory=lambda seed: editor,
        seed=0,
        t=0,
        known=[],
        held_out=[],
        append=append,
        checkpoints=checkpoints,
        settings=POLISH,
        calls=ModelSettings(concurrency=CONCURRENCY, attempts=1),
        judges=Judges(strong=voices, past=past),
    )
