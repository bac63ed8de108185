"""The settings of training: how a model is run, how rollouts are collected, how weights are updated."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Dtype = Literal["auto", "bfloat16", "float32"]


class ModelSettings(BaseModel):
    """How a local model is run, for sampling and for training alike."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Dtype = "auto"
    """Of the base weights; `auto` = bfloat16 on a GPU or a CPU with AVX-512, else float32. LoRA is always float32."""
    threads: int = Field(default=0, ge=0)
    """CPU threads; 0 = all. With 1, the same seed gives the same weights bit for bit."""
    batch: int = Field(default=64, ge=1)
    """Conversations sampled at once."""


class CollectSettings(BaseModel):
    """How the rollouts of one iteration are sampled: always from the full distribution, no top-k, no top-p."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rollouts: int = Field(default=8, ge=1)
    """K: rollouts of each task."""
    temperature: float = Field(default=1.0, gt=0)
    max_tokens: int = Field(default=64, ge=1)
    """Tokens of one assistant message."""
    chunk: int = Field(default=16, ge=1)
    """Tasks that are played together and written together; a killed run repeats at most one chunk."""
    deadline_s: float = Field(default=300.0, gt=0)
    """Seconds for one episode; an episode past it is an infrastructure failure."""
    max_attempts: int = Field(default=2, ge=1)
    """Tries of one rollout before an infrastructure failure stays."""
    min_valid: float = Field(default=0.5, ge=0, le=1)
    """Share of rollouts that must be scored; under it the iteration stops instead of training on what is left."""


class SftSettings(BaseModel):
    """LoRA supervised fine-tuning on reference solutions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    warm_epochs: int = Field(default=2, ge=1)
    """Passes over the seed tasks in the warm start (version 0)."""
    epochs: int = Field(default=1, ge=1)
    """Passes over D_t in the update of iteration t."""
    lr: float = Field(default=1e-3, gt=0)
    """Of AdamW at the first step of an update, falling linearly to 0 at its last."""
    batch: int = Field(default=8, ge=1)
    """Examples per optimiser step."""
    lora_r: int = Field(default=16, ge=1)
    lora_alpha: int = Field(default=32, ge=1)


class EngineSettings(BaseModel):
    """What samples rollouts: transformers in this process, or a vLLM server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: Literal["transformers", "vllm"] = "transformers"
    url: str = ""
    """Of a running vLLM server that serves this run; empty = start one."""
    port: int = Field(default=0, ge=0, le=65535)
    """Of the server that is started, on 127.0.0.1; 0 = a free one."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that one copy of the model is split over."""
    data_parallel: int = Field(default=1, ge=1)
    """Copies of the model."""
    gpu_memory: float = Field(default=0.9, gt=0, le=1)
    """Share of each GPU's memory that vLLM may take; no meaning on a CPU."""
    max_model_len: int = Field(default=0, ge=0)
    """Tokens of a prompt and its completion together; 0 = what the model was made for."""
    sync: Literal["disk", "nccl"] = "disk"
    """How new weights reach the server: a safetensors file, or from GPU to GPU."""
    start_s: float = Field(default=600.0, gt=0)
    """Seconds for the server to come up."""
    sync_s: float = Field(default=120.0, gt=0)
    """Seconds for one weight sync."""
    request_s: float = Field(default=300.0, gt=0)
    """Seconds for one completion."""


class TrainSettings(BaseModel):
    """One iteration of training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    warm_start: bool = True
    """Fine-tune on the seed tasks before iteration 0; without it version 0 is the base model."""
    model: ModelSettings = ModelSettings()
    engine: EngineSettings = EngineSettings()
    collect: CollectSettings = CollectSettings()
    sft: SftSettings = SftSettings()
