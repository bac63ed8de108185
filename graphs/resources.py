"""What the nodes work with, from `config["configurable"]`.

The runner passes one `resources` object, or the name of one that is lent (graphs/lending.py). Without it (`langgraph
dev`, a plain `graph.ainvoke`) the names `env` and `model` are read, with defaults, so every graph runs alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from envs import registry
from envs.protocols import Env
from graphs.committee import Committee
from graphs.known import Known
from graphs.lending import borrowed
from graphs.model import Budget, ModelFactory, chat_model
from graphs.settings import ExploreSettings, ModelSettings, ValidateSettings
from graphs.state import DEFAULT_ENV

DEFAULT_MODEL = "procedural"


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    env: Env
    model: ModelFactory
    known: Known
    calls: ModelSettings = field(default_factory=ModelSettings)
    budget: Budget = field(default_factory=Budget)
    explore: ExploreSettings = field(default_factory=ExploreSettings)
    validate: ValidateSettings = field(default_factory=ValidateSettings)
    committee: Committee | None = None
    """Who may veto; None = nobody."""
    preference: Committee | None = None
    """Who compares the words of an edited task with those of before; None = there is no editor."""


def model_factory(spec: str, settings: ModelSettings, *, env: str) -> ModelFactory:
    """Models of `spec` by seed; imports what it needs at once. UsageError if there is no such model."""
    chat_model(spec, settings, env=env, seed=0)

    def build(seed: int) -> BaseChatModel:
        return chat_model(spec, settings, env=env, seed=seed)

    return build


_NAMED: dict[tuple[str, str], Resources] = {}


async def resources(config: RunnableConfig) -> Resources:
    """The runner's resources, or those that the configurable names `env` and `model` stand for."""
    configurable = config.get("configurable", {})
    if given := borrowed(configurable.get("resources"), Resources):
        return given
    names = (configurable.get("env") or DEFAULT_ENV, configurable.get("model") or DEFAULT_MODEL)
    if names not in _NAMED:
        _NAMED[names] = await asyncio.to_thread(_named, *names)  # imports and data files block
    return _NAMED[names]


def _named(env_name: str, spec: str) -> Resources:
    env = registry.get(env_name)
    held_out = [task for suite in env.suites().values() for task in suite]
    settings = ModelSettings()
    return Resources(env=env, model=model_factory(spec, settings, env=env_name), known=Known(env, (), held_out))
