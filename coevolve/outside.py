"""Tasks from outside: a file of proposals that are validated like those of the explorer, by execution.

One JSON object a line: {"world": "shop", "user_turns": ["..."], "reference": "SELECT ...", "tools": []}
"""

from __future__ import annotations

import codecs
from pathlib import Path

import msgspec

from coevolve import indices
from coevolve.loop import Loop
from envs.plain import plain
from envs.protocols import Env
from store.errors import UsageError
from store.rows import Candidate, Exploration, Json, content_id

MODEL = "outside"
"""Stands where an exploration names its model."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    world: str
    user_turns: list[str]
    reference: Json
    tools: list[str] = []


def read(path: Path, env: Env) -> list[Proposal]:
    """The proposals of a file. UsageError names file, line and field of the first that is none; none is taken then."""
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise UsageError(f"outside tasks: {path}: {error.strerror}; name a file that can be read") from None
    worlds = {world.id for world in env.worlds("train")}
    found = [_proposal(path, number, line, worlds) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise UsageError(f"outside tasks: {path}: no task in it; give one JSON object a line")
    return found


def _proposal(path: Path, number: int, line: bytes, worlds: set[str]) -> Proposal:
    where = f"outside tasks: {path}, line {number}"
    try:
        found = msgspec.json.decode(line, type=Proposal)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: {error}; correct that line, nothing of the file was taken") from None
    try:
        plain(found.reference)
    except ValueError as error:
        raise UsageError(f"{where}: reference: {error}; correct that line, nothing of the file was taken") from None
    if found.world not in worlds:
        known = ", ".join(sorted(worlds))
        raise UsageError(f"{where}: world = {found.world!r} is no world to train on; use one of {known}")
    return found


def inject(loop: Loop, file: str, t: int) -> int:
    """Put the file's tasks to the candidates of iteration t; how many. The same again is harmless."""
    rows: list[Exploration | Candidate] = []
    proposals = read(Path(file), loop.env)
    for index, one in enumerate(proposals):
        exploration = _exploration(loop, t, index, one)
        candidate = content_id("candidate", exploration.id, one.world, one.user_turns, one.tools, one.reference)
        rows += [
            exploration,
            Candidate(
                id=candidate,
                exploration_id=exploration.id,
                run=loop.run.id,
                t=t,
                world=one.world,
                user_turns=one.user_turns,
                tools=one.tools,
                reference=one.reference,
                index=0,
            ),
        ]
    loop.store.append(rows)
    loop.store.ingest()
    return len(proposals)


def _exploration(loop: Loop, t: int, index: int, one: Proposal) -> Exploration:
    """A candidate's exploration says where it comes from: here nobody explored."""
    about = (one.world, one.user_turns, one.tools, one.reference)
    return Exploration(
        id=content_id("exploration", loop.run.id, MODEL, *about),
        run=loop.run.id,
        t=t,
        signal_id=None,
        index=indices.OUTSIDE + index,
        world=one.world,
        model=MODEL,
        context=None,
        trajectory_id=None,
        outcome="done",
        error=None,
        steps=0,
        tokens=0,
        cost=0.0,
        seconds=0.0,
    )
