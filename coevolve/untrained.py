"""Evaluation of a model as it is, without a run: `coevolve eval --env NAME --policy SPEC`.

Its rows are in the workspace's store under an id that follows from what is measured: the same command finds them
again, and one that would measure something else has another id.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from coevolve import wiring
from coevolve.config import Settings
from coevolve.versions import versions
from coevolve.workspace import RunFolder, Workspace
from envs.protocols import Env
from evals.suites import suite
from store.rows import Json, Run, content_id


def folder(place: Workspace, settings: Settings, env: Env, suites: Sequence[str]) -> RunFolder:
    """Where the evaluation has its lock; its Run row is in the store. UsageError for what cannot be played at all."""
    wiring.check_tools(env, settings)
    for name in suites or settings.eval.suites:
        suite(env, name)
    config = settings.model_dump(mode="json", by_alias=True)
    run = place.evaluation(f"eval-{_measured(settings, env)}", config)
    if not place.store.rows(Run, "id = ?", [run.id]):
        place.store.append(
            Run(
                id=run.id,
                created_at=time.time(),
                seed=settings.seed,
                env=settings.env,
                policy=settings.policy,
                config=config,
                versions=versions(),
            )
        )
    return run


def how(settings: Settings) -> dict[str, Json]:
    """The settings that a score depends on, by name, beside model, items and seed."""
    collect, train = settings.train.collect, settings.train
    return {
        "train.collect.max_tokens": collect.max_tokens,
        "train.collect.tools": collect.tools,
        "train.model.dtype": train.model.dtype,
        "model.api_base": settings.model.api_base,
    }


def _measured(settings: Settings, env: Env) -> str:
    means = list(how(settings).values())
    return content_id("eval", settings.env, env.version, settings.policy, _weights(settings), settings.seed, means)


def _weights(settings: Settings) -> Json:
    """What tells whether a local model, or that of a vLLM server, is still the same. ServerError if it is silent."""
    if settings.policy.startswith("vllm:"):
        from training.serve import attach

        served = attach(settings.policy.removeprefix("vllm:"), lambda name: True, expected="any")
        return [served.name, served.root, _files(Path(served.root))]
    return _files(wiring.model_folder(settings)) if wiring.trainable(settings.policy) else None


def _files(folder: Path) -> Json:
    """None where it is not on this machine."""
    if not folder.is_dir():
        return None
    files = [(path, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    return [[path.name, stat.st_size, stat.st_mtime_ns] for path, stat in files]
