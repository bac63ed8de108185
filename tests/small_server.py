"""SmolLM2 behind a real vLLM server on this machine, for whoever asks it over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.config import EngineSettings, ModelSettings
from training.serve import Served
from training.smollm2 import smollm2
from training.vllm import serving


@contextmanager
def small_server(home: Path) -> Iterator[Served]:
    engine = EngineSettings(backend="vllm", start_s=240, max_model_len=2048)
    with serving(
        smollm2(), [], run="r", version=0, home=home, engine=engine, settings=ModelSettings(), stop=lambda: False
    ) as (_, served):
        yield served
