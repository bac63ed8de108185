"""The roles that refine a response, and one sitting of them: each remark is asked for, put on record, and then heard.

What was on record before a kill is not asked for again: the same sitting then hears the same remarks and goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from graphs.lending import borrowed
from graphs.model import Budget, Reply, call, chat_model
from graphs.prompting import framed
from graphs.settings import ModelSettings, RefineSettings
from graphs.state import RefineState
from store.errors import CoevolveError, UsageError
from store.rows import Json, RefineRole, Remark

Prompt = Literal["positive", "critical", "cross", "advisor", "editor", "compare", "score"]
PROMPTS: tuple[Prompt, ...] = ("positive", "critical", "cross", "advisor", "editor", "compare", "score")
Place: TypeAlias = tuple[int, int, str, int]
"""(response, iteration, role, part) of a remark within its sample."""
Said: TypeAlias = Mapping[Place, Remark]

_FOLDER = Path(__file__).parent / "prompts" / "refine"
SYSTEM = (_FOLDER / "system.md").read_text("utf-8").strip()
TEXTS: dict[Prompt, str] = {name: (_FOLDER / f"{name}.md").read_text("utf-8").strip() for name in PROMPTS}
MATTER = ("system", "history", "instruction", "input", "response")
"""What every role is shown, where it is not empty."""


class Halted(CoevolveError):
    """No further call is to be made: a stop was asked for."""


class Flag(Protocol):
    def is_set(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Voice:
    """The model of a role."""

    spec: str
    model: BaseChatModel


async def _unrecorded(remark: Remark) -> None:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """What all sittings of a job share."""

    job: str
    voices: Mapping[RefineRole, Voice]
    settings: RefineSettings = field(default_factory=RefineSettings)
    calls: ModelSettings = field(default_factory=ModelSettings)
    budget: Budget = field(default_factory=Budget)
    record: Callable[[Remark], Awaitable[None]] = _unrecorded
    """Returns once the remark is durable."""
    stop: Flag | None = None
    gate: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gate", asyncio.Semaphore(self.calls.concurrency))

    async def idle(self) -> None:
        """Wait until no call is in flight; none must be asked for any more."""
        for _ in range(self.calls.concurrency):
            await self.gate.acquire()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sitting:
    """The panel on one response of one sample."""

    panel: Panel
    sample: int = 0
    response: int = 0
    said: Said = field(default_factory=dict)
    """Remarks on this sample from before a kill."""

    async def say(
        self,
        state: RefineState,
        role: RefineRole,
        part: int,
        prompt: Prompt,
        more: Mapping[str, Json] = MappingProxyType({}),
        *,
        read: Callable[[str], Json] | None = None,
        schema: Json = None,
    ) -> Remark:
        """What the role says when it is shown the matter and `more`, asked at most once in the life of the job.

        `read` makes scores of what it says, or raises ValueError; `schema` is the JSON schema that it is to keep.

        ModelUnavailable, BudgetSpent, Halted; UsageError if the endpoint refuses.
        """
        place = (self.response, state.get("iteration", 1), role, part)
        if place in self.said:
            return self.said[place]
        panel, voice = self.panel, self.panel.voices[role]
        matter: Json = {**{key: state.get(key) for key in MATTER}, **more}
        messages = framed(SYSTEM, prompt, TEXTS[prompt], {key: value for key, value in matter.items() if value})
        async with panel.gate:
            if panel.stop and panel.stop.is_set():
                raise Halted("stopped as asked")
            started = time.monotonic()
            reply = await call(voice.model, messages, settings=panel.calls, budget=panel.budget, schema=schema)
            remark = self._remark(place, voice.spec, reply, _scores(read, reply), time.monotonic() - started)
            await panel.record(remark)
        return remark

    def _remark(self, place: Place, spec: str, reply: Reply, scores: Json, seconds: float) -> Remark:
        response, iteration, role, part = place
        return Remark(
            job=self.panel.job,
            sample=self.sample,
            response=response,
            iteration=iteration,
            role=role,  # type: ignore[arg-type]
            part=part,
            model=spec,
            text=reply.text,
            cut=reply.cut,
            scores=scores,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cost=reply.cost,
            seconds=seconds,
        )


def _scores(read: Callable[[str], Json] | None, reply: Reply) -> Json:
    try:
        return read(reply.text) if read else None
    except ValueError:
        return None


def place_of(remark: Remark) -> Place:
    return remark.response, remark.iteration, remark.role, remark.part


def voices(
    specs: Mapping[RefineRole, str], calls: ModelSettings, *, seed: int, field_of: Callable[[RefineRole], str]
) -> dict[RefineRole, Voice]:
    """The models of the roles; the judge's without temperature. UsageError names `field_of` a role without a model."""
    found: dict[RefineRole, Voice] = {}
    for role, spec in specs.items():
        if not spec.startswith("litellm:"):
            raise UsageError(f"{field_of(role)}: {spec!r} is no model that can be asked; write `litellm:NAME`")
        settings = calls.model_copy(update={"temperature": 0.0}) if role == "judge" else calls
        found[role] = Voice(spec=spec, model=chat_model(spec, settings, env="", seed=seed, role=field_of(role)))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """Where the panel of a server sits: what is on record of a sample is looked up there."""

    panel: Panel
    past: Callable[[int], Awaitable[Said]]


_NAMED: dict[str, Panel] = {}


async def sitting(config: RunnableConfig) -> Sitting:
    """The runner's sitting; in Studio one of the model that `configurable` names, which is not recorded."""
    configurable = config.get("configurable", {})
    given = configurable.get("sitting")
    if isinstance(given, Sitting):
        return given
    if room := borrowed(given, Room):
        sample, response = int(configurable.get("sample") or 0), int(configurable.get("response") or 0)
        return Sitting(panel=room.panel, sample=sample, response=response, said=await room.past(sample))
    spec = str(configurable.get("model") or "")
    if spec not in _NAMED:
        _NAMED[spec] = await asyncio.to_thread(_named, spec)  # the import blocks
    return Sitting(panel=_NAMED[spec])


def _named(spec: str) -> Panel:
    roles: tuple[RefineRole, ...] = ("positive", "critical", "advisor", "editor", "judge")
    calls = ModelSettings()
    specs = dict.fromkeys(roles, spec)
    return Panel(job="", voices=voices(specs, calls, seed=0, field_of=lambda _: "model"), calls=calls)
