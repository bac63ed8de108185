"""The vLLM engine: a policy that is sampled over HTTP, and whose weights can be changed while its server runs."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from envs.errors import InfraError, PolicyUnavailable
from envs.protocols import Completion, Request
from training.completions import Speaker, complete
from training.config import EngineSettings, ModelSettings
from training.model import plain_weights
from training.serve import Served, Server, attach_trainable, free_port, healthy
from training.sync import DiskReload, Nccl, SyncFailed, Weights, WeightSync

MAX_RESTARTS = 3
"""Of a server that dies, between two weight syncs."""

log = logging.getLogger(__name__)


class VLLMPolicy:
    """Samples from a vLLM server that runs as a child of this process, or from one that is attached to."""

    concurrent = True
    """The server batches by itself: ask for each completion as soon as it is needed."""

    def __init__(
        self,
        folder: Path,
        *,
        spec: str,
        run: str,
        home: Path,
        layers: Sequence[Path] = (),
        version: int = 0,
        step: int | None = None,
        engine: EngineSettings,
        settings: ModelSettings | None = None,
    ) -> None:
        """Start (or attach to) the server with `folder` + `layers`; minutes for a large model.

        `home` is the run's folder: `vllm.log`, and scratch space for one or two copies of the weights. UsageError for
        settings that cannot work, InfraError with the server's own words if it does not come up.
        """
        self.spec, self.batch = spec, (settings or ModelSettings()).batch
        self._folder, self._layers, self._engine = folder, layers, engine
        self._settings = settings or ModelSettings()
        self._scratch = _scratch(home)
        self._disk = DiskReload(folder, self._scratch, engine.sync_s)
        self._sync: WeightSync = self._disk if engine.sync == "disk" else Nccl(free_port(0), engine.sync_s)
        self._lock = threading.Lock()
        self._unusable = "no weights were loaded yet"
        self._suspect = self._closed = False
        self._restarts = 0
        self._server: Server | None = None
        try:
            if engine.url:
                self._served = attach_trainable(engine.url, run)
                self._sync.push(self._served.url, self._weights())
            else:
                start = self._disk.write(self._weights()) if layers else folder
                self._disk.folder = start
                self._server = Server(run=run, engine=engine, model=self._settings, log=home / "vllm.log")
                self._served = self._server.start(start, stop=lambda: self._closed)
            self._speaker = Speaker(folder, self._served.name, self._served.max_model_len)
        except BaseException:
            self.close()
            raise
        self.version, self.step, self._unusable = version, step, ""

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """One entry a request; each fails alone. A server that has died is started again with the weights it had."""
        try:
            self._refuse_unsynced()
            if self._suspect or (self._server and not self._server.alive):
                await asyncio.to_thread(self._revive)
                self._refuse_unsynced()
        except InfraError as error:
            return [error] * len(requests)
        entries = await complete(requests, self._speaker, self._served, self._engine.request_s, self._failed)
        if self._suspect and self._server:
            # Now, in the time of what is lost already: the next try has its own for itself.
            with suppress(InfraError):  # the next request tells
                await asyncio.to_thread(self._revive)
        return entries

    def load(self, weights: Weights, *, version: int, step: int) -> float:
        """Give the server new weights; seconds. No request may be running.

        `version` and `step` change only when it has them. SyncFailed otherwise; then nothing is sampled until a later
        `load` has succeeded.
        """
        started = time.monotonic()
        with self._lock:
            self._unusable = f"the weights of version {version} (step {step}) did not reach the server; load them again"
            self._restarts = 0
        self._revive()  # looks at the server first: one with a dead engine would hang until the deadline
        try:
            self._sync.push(self._served.url, weights)
        except SyncFailed as error:
            self._unusable = f"{self._unusable} ({error})"
            if error.touched and self._server:  # the next `load` starts it afresh
                words = self._server.last_words()
                self._server.stop()
                raise SyncFailed(f"{error}; its log ends: {words}", touched=True) from None
            raise
        self.version, self.step, self._unusable = version, step, ""
        return time.monotonic() - started

    def close(self) -> None:
        """Stop the server, if it is ours, and remove the scratch files. Safe to call twice."""
        self._closed = True
        if self._server:
            self._server.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _refuse_unsynced(self) -> None:
        if self._unusable:
            raise PolicyUnavailable(self._unusable)

    def _failed(self, gone: bool) -> str:
        """Remember to look at the server before it is asked again; what to say of it now."""
        self._suspect = True
        if self._server:
            return self._server.last_words()
        if gone:  # it may come back without our weights
            self._unusable = f"the server at {self._served.url} went away; once it is back, load the weights again"
        return "see its log"

    def _revive(self) -> None:
        """Start a dead server again. InfraError if that does not work, or was done too often."""
        with self._lock:
            if self._closed:
                raise PolicyUnavailable("the engine is closed")
            if (self._server is None or self._server.alive) and healthy(self._served.url):
                self._suspect = False
                return
            if self._server is None:
                raise PolicyUnavailable(f"the server at {self._served.url} does not answer; start it again")
            words = self._server.last_words()
            if self._restarts >= MAX_RESTARTS:
                raise PolicyUnavailable(
                    f"vLLM died {self._restarts + 1} times with the same weights, last of: {words}; "
                    f"see {self._server.log}"
                )
            self._restarts += 1
            log.warning("vLLM has died (%s); start %d of %d", words, self._restarts, MAX_RESTARTS)
            self._restart(self._server)

    def _restart(self, server: Server) -> None:
        server.stop()
        self._served = server.start(self._sync.folder or self._folder, stop=lambda: self._closed)
        self._suspect = False
        if self._sync.folder is None and not self._unusable:
            self._unusable = "vLLM was started again without its last weights, which are not on disk; load them again"

    def _weights(self) -> Weights:
        """Base + layers as plain weights."""
        return plain_weights(self._folder, self._layers, self._settings.dtype)


class ServedPolicy:
    """A model that a vLLM server has, as it is: `vllm:URL`. Evaluated, not trained."""

    concurrent = True
    step: int | None = None

    def __init__(self, served: Served, folder: Path, *, spec: str, version: int, batch: int, request_s: float) -> None:
        """`folder` has the model's tokenizer. UsageError if it cannot chat."""
        self.spec, self.version, self.batch = spec, version, batch
        self._served, self._request_s = served, request_s
        self._speaker = Speaker(folder, served.name, served.max_model_len)

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """One entry a request; each fails alone."""
        return await complete(requests, self._speaker, self._served, self._request_s, lambda gone: "see its log")


@contextmanager
def serving(
    folder: Path,
    layers: Sequence[Path],
    *,
    run: str,
    version: int,
    home: Path,
    engine: EngineSettings,
    settings: ModelSettings,
    stop: Callable[[], bool],
) -> Iterator[tuple[Server, Served]]:
    """A server of policy `version` of the run for the length of the block; its log is `home`/serve.log."""
    scratch = _scratch(home)
    server = Server(
        run=run, label=f"v{version}", engine=engine, model=settings, log=home / "serve.log", trainable=False
    )
    try:
        if layers:
            weights = plain_weights(folder, layers, settings.dtype)
            folder = DiskReload(folder, scratch, engine.sync_s).write(weights)
        yield server, server.start(folder, stop)
    finally:
        server.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def _scratch(home: Path) -> Path:
    """A folder of this process alone; those of processes that are gone are removed."""
    for rest in home.glob("engine-*-*"):
        if not _runs(rest.name.split("-")[1]):
            shutil.rmtree(rest, ignore_errors=True)
    return home / f"engine-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _runs(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True
