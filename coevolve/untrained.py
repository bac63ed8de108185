"""Evaluation of a model as it is, without a run: `coevolve eval --env NAME --policy SPEC`.

Its rows are in the workspace's store under an id that follows from what is measured: the same command finds them
again, and one that would measure something else has another id.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

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


def _measured(settings: Settings, env: Env) -> str:
    collect, model = settings.train.collect, settings.train.model
    how = [collect.max_tokens, collect.tools, model.dtype, settings.model.api_base]
    return content_id("eval", settings.env, env.version, settings.policy, _weights(settings), settings.seed, how)


def _weights(settings: Settings) -> Json:
    """What tells whether the files of a local model are still the same."""
    if not wiring.trainable(settings.policy):
        return None
    files = [(path, path.stat()) for path in sorted(wiring.model_folder(settings).iterdir()) if path.is_file()]
    return [[path.name, stat.st_size, stat.st_mtime_ns] for path, stat in files]
