"""What samples while the weights change: a policy that takes over new weights between two batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from envs.protocols import Policy
from training.config import ModelSettings
from training.policy import HFPolicy


class Engine(Policy, Protocol):
    step: int
    """Optimiser steps of the run that the loaded weights have seen."""

    def load(self, weights: Iterable[tuple[str, Any]], *, version: int, step: int) -> float:
        """Weight sync: (name, tensor) as in the Hugging Face model, all of them. Returns seconds."""
        ...

    def close(self) -> None: ...


def build(
    folder: Path, adapters: Sequence[Path], *, spec: str, version: int, step: int, settings: ModelSettings
) -> Engine:
    """The engine with the weights of a policy version. `folder` as `smollm2.resolve(spec)` gives it."""
    return HFPolicy(folder, spec=spec, adapters=adapters, version=version, step=step, settings=settings)
