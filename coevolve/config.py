"""One TOML file, the environment and --set become one frozen `Settings`; an unknown key is an error at any depth.

Order: defaults, config.toml, environment variables `COEVOLVE__TRAIN__SFT__LR=1e-3`, then `--set train.sft.lr=1e-3`.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from envs.registry import takes_folder
from evals.run import EvalSettings
from graphs.settings import ExploreSettings, JudgeSettings, ModelSettings, RefineSettings, ValidateSettings
from store.dedupe import DedupeSettings
from store.errors import UsageError
from store.mix import MixSettings
from store.signals import SignalSettings
from training.config import CUT_OFFS, TrainSettings

ENV_PREFIX = "COEVOLVE__"


class SeedSetSettings(BaseModel):
    """What D_0 is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seeds: int = Field(default=-1, ge=-1)
    """Seed tasks of the environment, evenly over worlds; -1 = all."""
    unguided: int = Field(default=40, ge=0)
    """Validated tasks of unguided exploration."""

    @model_validator(mode="after")
    def _not_empty(self) -> SeedSetSettings:
        if self.seeds == self.unguided == 0:
            raise ValueError("D_0 is empty; set seed_set.seeds or seed_set.unguided above 0")
        return self


class GuardSettings(BaseModel):
    """What happens when a held-out suite falls (coevolve/guard.py)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    on_drop: Literal["rollback", "pause", "continue"] = "rollback"


class StopSettings(BaseModel):
    """When a run ends before its rounds are done (coevolve/stop.py). Looked at after each round."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(default=3, ge=2)
    """Rounds that plateau, saturation, overfitting and cost look back over."""
    gain: float = Field(default=0.5, ge=0)
    """Points of the first suite; a plateau gains fewer over all these rounds together, and its interval contains 0."""
    saturation: float = Field(default=1.0, ge=0)
    """Per cent; D is saturated when neither difficulty nor diversity has grown by so much over the rounds."""
    seconds: float | None = Field(default=None, gt=0)
    """Of all phases together; None = no limit, as for the next three."""
    tokens: int | None = Field(default=None, gt=0)
    """Of all rollouts, explorations and validations."""
    dollars: float | None = Field(default=None, gt=0)
    dollars_per_point: float | None = Field(default=None, gt=0)
    """Most that a point of the first suite may cost over the rounds."""
    inject: str = ""
    """File of outside tasks, named from the workspace, that are tried when the run stagnates; empty = none."""


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Everything random is derived from it."""
    env: str = "text2sql"
    policy: str = "smollm2"
    """`smollm2`, `hf:DIR`; `litellm:NAME` or `vllm:URL` (evaluated, not trained)."""
    explorer: str = "procedural"
    """Model of the explorer and the validator: `procedural`, `litellm:NAME`, or `policy`, the policy itself."""
    seed_set: SeedSetSettings = SeedSetSettings()
    train: TrainSettings = TrainSettings()
    signals: SignalSettings = SignalSettings()
    model: ModelSettings = ModelSettings()
    """How chat models behind litellm are called."""
    explore: ExploreSettings = ExploreSettings()
    validate_: ValidateSettings = Field(default=ValidateSettings(), alias="validate")
    judge: JudgeSettings = JudgeSettings()
    dedupe: DedupeSettings = DedupeSettings()
    mix: MixSettings = MixSettings()
    eval: EvalSettings = EvalSettings()
    guard: GuardSettings = GuardSettings()
    stop: StopSettings = StopSettings()
    refine: RefineSettings = RefineSettings()
    """Of `coevolve refine`; no run reads it."""

    def overridden(self, overrides: Iterable[str]) -> Settings:
        """These settings with `KEY=VALUE` overrides."""
        raw = self.model_dump(mode="json", by_alias=True)
        _override(raw, overrides)
        return parse_settings(raw, "--set")


def preset(env: str) -> tuple[str, ...]:
    """What `--env` stands for, as overrides that go before those of --set: the environment, and the settings that suit
    it, where it has some (templates/env/<name>.toml)."""
    own = files("coevolve") / "templates" / "env" / f"{env.partition(':')[0]}.toml"
    return (*(_flat(tomllib.loads(own.read_text("utf-8"))) if own.is_file() else ()), f"env={env}")


def _flat(raw: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}={json.dumps(value)}"


def load_settings(
    path: Path | None, overrides: Iterable[str] = (), environment: Mapping[str, str] = os.environ
) -> Settings:
    """The resolved settings. UsageError names the key, its value and what is allowed."""
    overrides = list(overrides)
    raw: dict[str, Any] = _read_toml(path) if path else {}
    variables = sorted(name for name in environment if name.startswith(ENV_PREFIX))
    for name in variables:
        _put(raw, name.removeprefix(ENV_PREFIX).lower().split("__"), _value(environment[name]), name)
    _override(raw, overrides)
    sources = [str(path or "settings"), *variables, *(f"--set {override}" for override in overrides)]
    settings = parse_settings(raw, ", ".join(sources))
    return _anchored(settings, path.parent) if path else settings


def _anchored(settings: Settings, root: Path) -> Settings:
    """The folders of `hf:DIR` and `text2sql:DIR` and the files that settings name made absolute: they are named from
    the workspace, wherever the command runs, and a run keeps what it was started with."""
    found = {"policy": settings.policy, "env": settings.env}
    for key, spec in found.items():
        kind, colon, folder = spec.partition(":")
        if colon and folder and (kind not in ("litellm", "vllm") if key == "policy" else takes_folder(kind)):
            found[key] = f"{kind}:{(root / Path(folder).expanduser()).resolve()}"
    if settings.stop.inject:
        file = str((root / Path(settings.stop.inject).expanduser()).resolve())
        settings = settings.model_copy(update={"stop": settings.stop.model_copy(update={"inject": file})})
    if settings.train.accelerate:
        file = str((root / Path(settings.train.accelerate).expanduser()).resolve())
        return settings.model_copy(update=found | {"train": settings.train.model_copy(update={"accelerate": file})})
    return settings.model_copy(update=found)


def _override(raw: dict[str, Any], overrides: Iterable[str]) -> None:
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set: {override!r} is not KEY=VALUE; write for example --set train.sft.lr=1e-3")
        _put(raw, key.strip().split("."), _value(text), f"--set {override}")


def parse_settings(raw: Any, source: str) -> Settings:
    """Settings from a plain document. Types are taken at their word: `true` is no number, "5" neither."""
    for key, value in _not_finite(raw):
        raise UsageError(f"{source}: {key} = {value}: input should be a finite number")
    try:
        settings = Settings.model_validate(raw, strict=True)
    except ValidationError as error:
        raise UsageError(f"{source}: " + "; ".join(_problem(item) for item in error.errors())) from None
    if settings.validate_.polish and settings.explorer == "procedural":
        raise UsageError(
            f"{source}: validate.polish = true: the explorer is the editor, and explorer = 'procedural' can't write; "
            'name a chat model, say explorer = "litellm:openai/gpt-4o-mini", or leave polish out'
        )
    return settings


def _not_finite(raw: Any, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(raw, dict):
        for name, value in raw.items():
            yield from _not_finite(value, f"{key}.{name}" if key else str(name))
    elif isinstance(raw, float) and not math.isfinite(raw):
        yield key, raw


def _problem(item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        if item["loc"][0] == "train" and item["loc"][-1] in CUT_OFFS:
            return (
                f"{key} = {item['input']!r}: training samples from the full distribution, since the update divides by "
                "its probabilities; remove the key"
            )
        names = _siblings(item["loc"])
        near = get_close_matches(str(item["loc"][-1]), names, 1)
        return f"unknown key {key!r}; {f'did you mean {near[0]!r}? ' if near else ''}keys here: {', '.join(names)}"
    return f"{key} = {item['input']!r}: {item['msg'][:1].lower()}{item['msg'][1:]}"


def _siblings(location: tuple[Any, ...]) -> list[str]:
    """The keys that exist where an unknown one was found."""
    model: type[BaseModel] = Settings
    for part in location[:-1]:
        field = next(f for name, f in model.model_fields.items() if part in (name, f.alias))
        assert isinstance(field.annotation, type)
        model = field.annotation
    return [field.alias or name for name, field in model.model_fields.items()]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; make a workspace with `coevolve init DIR`") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def _value(text: str) -> Any:
    """A TOML value where `text` is one, else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _put(raw: dict[str, Any], keys: list[str], value: Any, source: str) -> None:
    for key in keys[:-1]:
        raw = raw.setdefault(key, {})
        if not isinstance(raw, dict):
            raise UsageError(f"{source}: {key!r} is a value, not a table of settings")
    raw[keys[-1]] = value


def init_workspace(directory: str, template: str = "config.toml") -> Path:
    """Make the folder and its commented config.toml. UsageError if it already is a workspace."""
    if not directory.strip():
        raise UsageError("DIR: '' is no folder; name one, or `.` for this one")
    path = Path(directory) / "config.toml"
    if path.exists():
        raise UsageError(f"DIR: {directory} is a workspace already; choose another folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((files("coevolve") / "templates" / template).read_text("utf-8"), "utf-8")
    except OSError as error:
        raise UsageError(f"DIR: cannot write {path}: {error.strerror}; choose another folder") from None
    return path.parent
