"""Common ground of the graph tests: the echo world, a scripted explorer, and where the rows go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from envs.protocols import Env, Session
from graphs.runner import explore_all, validate_all
from graphs.settings import ExploreSettings, ModelSettings, ValidateSettings
from graphs.state import Evidence, ExploreJob, StepView
from store.rows import Candidate, Exploration, Row, Signal, Task, Verdict, content_id
from tests.fakes import EchoEnv, EchoSession, Fault
from tests.scripted import Roles, Script, ScriptedChatModel, calls

R = TypeVar("R")

LOOK = calls("look")
"""The explorer looks once."""
DONE = "seen enough"
FINE = {"problem": None}
CONTEXT = {"where": "the room", "failure": "says the wrong word", "vary": ["the word"]}
WORD = {"user_turns": ["say hello"], "reference": "hello"}


class Echo(EchoEnv):
    """EchoEnv whose sessions without a task can fail too: `open_faults` holds one fault (or None) a session."""

    def __init__(self, *open_faults: Fault | None) -> None:
        super().__init__()
        self.open_faults = list(open_faults)

    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        session = super().open(world, task, tools=tools)
        if task is None and self.open_faults and isinstance(session, EchoSession):
            session._fault = self.open_faults.pop(0)
        return session


def job(index: int = 0, signal: Signal | None = None, world: str = "room") -> ExploreJob:
    attempt = StepView(action="hallo", observation="", failed=True)
    evidence = [Evidence(questions=["say hello"], structure="_____", score=0.0, steps=[attempt])] if signal else []
    return ExploreJob(run="r", t=0, index=index, world=world, signal=signal, evidence=evidence)


def signal(kind: Any = "boundary") -> Signal:
    return Signal(
        id=content_id("signal", "r", 0, kind, "x"),
        run="r",
        t=0,
        kind=kind,
        task_id="x",
        pattern=["say"] if kind == "rare" else None,
        evidence=["e"],
        stats={"successes": 1, "failures": 1},
    )


def candidate(
    word: Any = "hello", *, index: int = 0, turns: Sequence[str] = ("say it",), world: str = "room"
) -> Candidate:
    return Candidate(
        id=content_id("candidate", index, world, turns, word),
        exploration_id="e",
        run="r",
        t=0,
        world=world,
        user_turns=list(turns),
        tools=[],
        reference=word,
        index=index,
    )


def explore(
    policy: Script, tmp: Path, jobs: Sequence[ExploreJob], *, env: Env | None = None, **options: Any
) -> tuple[list[Exploration], list[Row]]:
    """(explorations, all rows written) of a scripted explorer."""
    rows: list[Row] = []
    settings = options.pop("settings", ExploreSettings())
    found = asyncio.run(
        explore_all(
            jobs,
            env=env or Echo(),
            model="scripted",
            factory=lambda seed: ScriptedChatModel(policy=policy),
            seed=0,
            append=options.pop("append", rows.extend),
            checkpoints=tmp / "graphs.sqlite",
            settings=settings,
            calls=options.pop("calls", ModelSettings(attempts=1)),
            **options,
        )
    )
    return found, rows


def validate(
    policy: Script, tmp: Path, candidates: Sequence[Candidate], *, env: Env | None = None, **options: Any
) -> tuple[list[Verdict], list[Row]]:
    """(verdicts, all rows written) of a scripted validator."""
    rows: list[Row] = []
    world = env or Echo()
    verdicts = asyncio.run(
        validate_all(
            candidates,
            env=world,
            model="scripted",
            factory=lambda seed: ScriptedChatModel(policy=policy),
            seed=0,
            t=1,
            known=options.pop("known", []),
            held_out=options.pop("held_out", []),
            append=options.pop("append", rows.extend),
            checkpoints=tmp / "graphs.sqlite",
            settings=options.pop("settings", ValidateSettings()),
            calls=options.pop("calls", ModelSettings(attempts=1)),
            **options,
        )
    )
    return verdicts, rows


def of(kind: type[R], rows: Sequence[Row]) -> list[R]:
    return [row for row in rows if isinstance(row, kind)]


def explorer(**answers: Any) -> Roles:
    """A well-behaved explorer, but for the roles that are given."""
    usual: dict[str, Any] = {
        "reflect": CONTEXT,
        "act": [LOOK, DONE],
        "try": FINE,
        "abstract": {"tasks": [WORD]},
        "repair": {"task": None},
    }
    return Roles(**(usual | answers))
