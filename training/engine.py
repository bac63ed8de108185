"""What samples while the weights change: a policy that takes over new weights between two batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from envs.protocols import Policy
from training.config import TrainSettings
from training.policy import HFPolicy


class Engine(Policy, Protocol):
    def load(self, weights: Iterable[tuple[str, Any]], *, version: int, step: int) -> float:
        """Weight sync: (name, tensor) as in the Hugging Face model, all of them. Returns seconds."""
        ...

    def close(self) -> None: ...


class Engines:
    """The engine of one process: built when it is first needed, kept for the iterations after."""

    def __init__(self, settings: TrainSettings) -> None:
        self._settings = settings
        self._kept: Engine | None = None

    def get(self, folder: Path, adapters: Sequence[Path], *, spec: str, version: int, step: int) -> Engine:
        """The engine for this base model; what it has loaded is for the caller to set (`Engine.load`)."""
        if self._kept is None:
            self._kept = HFPolicy(
                folder, spec=spec, adapters=adapters, version=version, step=step, settings=self._settings.model
            )
        return self._kept

    def close(self) -> None:
        if self._kept:
            self._kept.close()
