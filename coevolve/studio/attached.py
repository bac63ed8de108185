"""What the dev server loads: the four graphs, with the workspace's store behind them.

A run that a command sent (coevolve/studio/client.py) names its phase: its resources are built here of the phase's own
settings and of the store, once, and lent to all its threads. A run that a person starts gets the workspace's settings,
and the environment and model that its assistant names. What a judge or a role of `refine` says to a command is durable
before it counts, as everywhere; spans are written when a thread ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph_sdk.runtime import ServerRuntime

from coevolve import growth, judging, phases, refine_job, wiring
from coevolve.config import Settings, load_settings, parse_settings
from coevolve.embedding import embedder
from coevolve.live import stamp
from coevolve.loop import Loop, watch_parent
from coevolve.refine import field_of
from coevolve.studio.place import Folder, Phase, default_model
from coevolve.workspace import Workspace
from envs import registry
from envs.protocols import Env
from graphs.committee import Committee, Judges, Standing, named
from graphs.explore import graph as explore_graph
from graphs.judge import graph as judge_graph
from graphs.known import Known
from graphs.lending import lend
from graphs.model import Budget
from graphs.recording import Recorder
from graphs.refine import graph as refine_graph
from graphs.remote import BY, told
from graphs.resources import Resources, model_factory
from graphs.runner import exploring, judged, own_voice, validating
from graphs.sessions import SESSIONS
from graphs.sitting import Panel, Room, Said, voices
from graphs.tracing import Tracer
from graphs.validate import graph as validate_graph
from store.dedupe import Index
from store.errors import UsageError
from store.rows import RefineRole

log = logging.getLogger(__name__)

KEYS = {"explore": "resources", "validate": "resources", "judge": "committee", "refine": "sitting"}
"""{graph: what its nodes look up in `configurable`}."""
TURN_S = 0.1
"""Between two looks at whether a candidate's turn has come."""
ROLES: tuple[RefineRole, ...] = ("positive", "critical", "advisor", "editor", "judge")

watch_parent()  # the server's, if this is one


@cache
def place() -> Workspace:
    return Workspace.find(None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lent:
    """A phase whose resources are lent."""

    phase: Phase
    settings: Settings
    traces: dict[str, Tracer] = field(default_factory=dict)
    """{thread: its nodes so far}."""
    written: dict[str, int] = field(default_factory=dict)
    """{thread: spans that are in the store}."""

    def tracer(self, thread: str) -> Tracer:
        if thread not in self.traces:
            self.traces[thread] = Tracer(self.settings.model, texts=self.phase.graph != "refine")
        return self.traces[thread]

    def write(self, thread: str) -> None:
        """Append the spans of the thread's nodes that have ended since the last time."""
        phase = self.phase
        spans = self.traces[thread].spans(thread=thread, run=phase.run, t=phase.t, graph=phase.graph)
        place().store.append(spans[self.written.get(thread, 0) :])
        self.written[thread] = len(spans)


class Followed(Known):
    """What is known, by the store: the verdicts are written by the process that sent the candidates."""

    def __init__(self, loop: Loop, alike: Index) -> None:
        self._loop = loop
        tasks, order = phases.known(loop), [row.id for row in growth.undecided(loop.store, loop.run.id)]
        self._seen = {task.id for task in tasks}
        super().__init__(loop.env, tasks, phases.held_out(loop), order, alike)

    async def turn(self, candidate: str) -> None:
        """Return once the store has a verdict on the candidate before this one, and what was adopted is added."""
        before = self.before(candidate)
        looked = ""
        while before:
            if (now := await asyncio.to_thread(stamp, place())) != looked:
                if await asyncio.to_thread(self._decided_by_now, before):
                    break
                looked = now
            await asyncio.sleep(TURN_S)
        for task in await asyncio.to_thread(phases.adopted, self._loop):
            if task.id not in self._seen:
                self._seen.add(task.id)
                self.add(task)

    def _decided_by_now(self, candidate: str) -> bool:
        return bool(self._loop.store.query("select 1 from verdict where candidate_id = ?", [candidate]))


# ---- phases of commands


_building = threading.RLock()
_lent: dict[str, Lent] = {}


def lent(name: str) -> Lent:
    """The phase, its resources lent. UsageError, CoevolveError if it is none of this workspace."""
    with _building:
        if name not in _lent:
            phase = Folder(place()).phase(name)
            settings = parse_settings(phase.settings, name)
            if phase.graph == "refine":
                lend(name, _room(phase, settings))
            else:
                _lend_resources(name, phase, _loop(phase, settings))
            _lent[name] = Lent(phase=phase, settings=settings)
        return _lent[name]


@cache
def _env(spec: str) -> Env:
    return registry.get(spec)


def _loop(phase: Phase, settings: Settings) -> Loop:
    return Loop(
        workspace=place(),
        run=place().run(phase.run),
        settings=settings,
        overrides=(),
        env=_env(settings.env),
        report=lambda *_: None,
    )


def _lend_resources(name: str, phase: Phase, loop: Loop) -> None:
    settings, store = loop.settings, loop.store
    factory = wiring.explorer(settings, loop.run, phase.t)
    if phase.graph == "explore":
        lend(
            name,
            exploring(loop.env, settings.explorer, settings=settings.explore, calls=settings.model, factory=factory),
        )
        return
    known = phases.known(loop)
    given = validating(
        loop.env,
        settings.explorer,
        queue=Followed(loop, Index(settings.dedupe, embedder(settings))),
        settings=settings.validate_,
        calls=settings.model,
        factory=factory,
    )
    given = judged(
        given,
        judging.judges(settings, store, phase.run),
        Known(loop.env, known, phases.held_out(loop)),
        known,
        at=(phase.run, phase.t),
        record=Recorder(store.append),
        own=partial(own_voice, loop.env, settings.explorer, settings.model, factory, settings.seed),
    )
    if given.committee:
        lend(name, given.committee)
    lend(name, given)


def _room(phase: Phase, settings: Settings) -> Room:
    manifest = refine_job.find(place(), phase.run).manifest
    budget = Budget.of(settings.model)
    budget.tokens, budget.cost = refine_job.spent(place().store, manifest.id)
    panel = Panel(
        job=manifest.id,
        voices=voices(manifest.models, settings.model, seed=settings.seed, field_of=field_of),
        settings=settings.refine,
        calls=settings.model,
        budget=budget,
        record=Recorder(place().store.append),
    )
    past = refine_job.Past(place().store, manifest.id)
    looking = threading.Lock()

    def said(sample: int) -> Said:
        with looking:
            return past(sample)[1]

    async def look(sample: int) -> Said:
        return await asyncio.to_thread(said, sample) if manifest.attempt else {}

    return Room(panel=panel, past=look)


# ---- runs of a person


@cache
def _alone(graph: str, env: str, model: str) -> str:
    """The name under which what a graph needs is lent, for that environment and model; "" = the workspace's."""
    settings = load_settings(place().config)
    env, model, calls = env or settings.env, model or default_model(graph, settings), settings.model
    name = f"{graph} {env} {model}"
    if graph == "refine":
        speakers = voices(dict.fromkeys(ROLES, model), calls, seed=settings.seed, field_of=lambda _: "model")
        panel = Panel(job="", voices=speakers, settings=settings.refine, calls=calls, budget=Budget.of(calls))
        lend(name, Room(panel=panel, past=_nothing))
        return name
    world = _env(env)
    tasks = world.seed_tasks() if graph == "judge" else []
    known = Known(world, tasks, [task for suite in world.suites().values() for task in suite])
    if graph == "judge":
        judges = Judges(strong=named([model], calls, seed=settings.seed, field_of="model"), settings=settings.judge)
        lend(name, Committee(judges=judges, env=world, known=known, standing=Standing.of(tasks), calls=calls))
        return name
    resources = Resources(
        env=world,
        model=model_factory(model, calls, env=env),
        known=known,
        calls=calls,
        budget=Budget.of(calls),
        explore=settings.explore,
        validate=settings.validate_,
    )
    lend(name, resources)
    return name


async def _nothing(sample: int) -> Said:
    return {}


# ---- the graphs


def _served(graph: Any, name: str) -> Callable[..., Any]:
    """The factory that the server calls for every run and every look at a thread."""

    @asynccontextmanager
    async def serve(config: RunnableConfig, runtime: ServerRuntime[Any]) -> AsyncIterator[Any]:
        if runtime.execution_runtime is None:
            yield graph
            return
        configurable = config.get("configurable", {})
        try:
            if phase := configurable.get(KEYS[name]):
                async with _sent(graph, config, str(phase), str(configurable.get("subject") or "")) as bound:
                    yield bound
            else:
                chosen = (str(configurable.get(key) or "") for key in ("env", "model"))
                lent_as = await asyncio.to_thread(_alone, name, *chosen)
                yield graph.with_config(configurable={KEYS[name]: lent_as})
        except Exception as failure:
            raise told(failure) from failure

    return serve


@asynccontextmanager
async def _sent(graph: Any, config: RunnableConfig, name: str, thread: str) -> AsyncIterator[Any]:
    """The graph for a run of a phase, whose nodes become rows. UsageError where no command has sent it."""
    if config.get("metadata", {}).get("by") != BY["by"]:
        raise UsageError(f"{name}: a command's phase, whose runs become rows; leave it out of `configurable`")
    at = await asyncio.to_thread(lent, name)
    try:
        yield graph.with_config(callbacks=[at.tracer(thread)])
    except Exception:
        await asyncio.to_thread(at.write, thread)
        raise
    else:
        await asyncio.to_thread(at.write, thread)
    finally:
        await SESSIONS.drop(thread)


explore = _served(explore_graph, "explore")
validate = _served(validate_graph, "validate")
judge = _served(judge_graph, "judge")
refine = _served(refine_graph, "refine")
