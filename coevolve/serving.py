"""`coevolve serve`: one policy version behind an OpenAI-compatible server, in the foreground."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from coevolve import wiring
from coevolve.commands import run_settings
from coevolve.loop import draining
from coevolve.workspace import Workspace
from envs.errors import InfraError
from store.errors import CoevolveError, UsageError

POLL_S = 0.5


def serve_command(
    *,
    workspace: str | None,
    run_id: str | None,
    overrides: tuple[str, ...],
    policy_version: int | None,
    port: int | None,
    announce: Callable[[dict[str, Any], str], None],
    **_: Any,
) -> None:
    """Serve until SIGTERM or ctrl-C; `announce` is called once it answers, with the data and its one-line form.

    UsageError for a version that does not exist, CoevolveError with the server's own words if it ends by itself.
    """
    run = Workspace.find(workspace).run(run_id)
    settings = run_settings(run, overrides)
    folder = wiring.model_folder(settings)
    from training.checkpoint import layers, newest
    from training.vllm import serving

    version = newest(run.checkpoints) if policy_version is None else policy_version
    if version is None:
        raise UsageError(f"run {run.id}: no policy version yet; run `coevolve train` first")
    engine = settings.train.engine
    stop = threading.Event()
    try:
        with (
            draining(stop),
            serving(
                folder,
                layers(run.checkpoints, version),
                run=run.id,
                version=version,
                home=run.path,
                engine=engine if port is None else engine.model_copy(update={"port": port}),
                settings=settings.train.model,
                stop=stop.is_set,
            ) as (server, served),
        ):
            data = {"run": run.id, "version": version, "url": served.url, "model": served.name}
            announce(data, f"{served.url}/v1 serves {served.name}; ctrl-C or SIGTERM ends it")
            while not stop.wait(POLL_S):
                if not server.alive:
                    raise CoevolveError(f"vLLM has ended: {server.last_words()}; see {server.log}")
    except InfraError:
        if not stop.is_set():  # else it was told to end while it was coming up
            raise
