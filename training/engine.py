"""What samples while the weights change: a policy that takes over new weights between two batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from envs.protocols import Policy
from training.config import TrainSettings
from training.model import plain_weights
from training.policy import HFPolicy


class Engine(Policy, Protocol):
    def load(self, weights: Iterable[tuple[str, Any]], *, version: int, step: int) -> float:
        """Weight sync: (name, tensor) as in the Hugging Face model, all of them. Returns seconds."""
        ...

    def close(self) -> None: ...


class Engines:
    """The engine of one process: built when it is first needed, kept for the iterations after."""

    def __init__(self, settings: TrainSettings, *, run: str, home: Path) -> None:
        """`home` is the run's folder, for the log and the scratch files of a server."""
        self._settings, self._run, self._home = settings, run, home
        self._kept: Engine | None = None

    def any(self, folder: Path, *, spec: str) -> Engine:
        """The engine, whatever weights it has: for one who loads others before anything is sampled."""
        if self._kept is None:
            self._kept = self._build(folder, (), spec, version=0, step=0)
        return self._kept

    def get(self, folder: Path, layers: Sequence[Path], *, spec: str, version: int, step: int) -> Engine:
        """The engine with the weights of base + layers. `folder` as `smollm2.resolve(spec)` gives it."""
        if self._kept is None:
            self._kept = self._build(folder, layers, spec, version=version, step=step)
        elif (self._kept.version, self._kept.step) != (version, step):
            weights = plain_weights(folder, layers, self._settings.model.dtype)
            self._kept.load(weights, version=version, step=step)
        return self._kept

    def _build(self, folder: Path, layers: Sequence[Path], spec: str, *, version: int, step: int) -> Engine:
        settings = self._settings
        if settings.engine.backend == "transformers":
            return HFPolicy(
                folder,
                spec=spec,
                layers=layers,
                version=version,
                step=step,
                settings=settings.model,
                tools=settings.collect.tools,
            )
        from training.vllm import VLLMPolicy

        return VLLMPolicy(
            folder,
            spec=spec,
            run=self._run,
            home=self._home,
            layers=layers,
            version=version,
            step=step,
            engine=settings.engine,
            settings=settings.model,
        )

    def close(self) -> None:
        if self._kept:
            self._kept.close()
            self._kept = None
