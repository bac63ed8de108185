"""The settings of training: how a model is run, how rollouts are collected, how weights are updated."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

CUT_OFFS = {"top_p", "top_k", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"}
"""Names that have no setting here: sampling that cuts the distribution off biases the importance ratio."""
Dtype = Literal["auto", "bfloat16", "float32"]
TrainedWeights = Literal["lora", "full"]


class ModelSettings(BaseModel):
    """How a local model is run, for sampling and for training alike."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Dtype = "auto"
    """Of the base weights; `auto` = bfloat16 on a GPU or a CPU with AVX-512, else float32. What is trained (LoRA or
    all weights) is always kept in float32."""
    threads: int = Field(default=0, ge=0)
    """CPU threads; 0 = all. With 1, the same seed gives the same weights bit for bit."""
    batch: int = Field(default=64, ge=1)
    """Conversations sampled at once."""


class CollectSettings(BaseModel):
    """How the rollouts of one iteration are sampled: always from the full distribution, no top-k, no top-p."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tasks: int = Field(default=0, ge=0)
    """Tasks of D_t that one iteration samples, those within the policy's reach first; 0 = all."""
    rollouts: int = Field(default=8, ge=1)
    """K: rollouts of each task."""
    tools: bool = False
    """The policy works through the environment's tools; False = it answers in the environment's direct format."""
    temperature: float = Field(default=1.0, gt=0)
    max_tokens: int = Field(default=64, ge=1)
    """Tokens of one assistant message."""
    chunk: int = Field(default=16, ge=1)
    """Tasks that are played together and written together; a killed run repeats at most one chunk."""
    deadline_s: float = Field(default=300.0, gt=0)
    """Seconds for one episode; an episode past it is an infrastructure failure."""
    quorum: float = Field(default=1.0, gt=0, le=1)
    """Once this share of a task's K rollouts has ended, the others get `grace_s` more seconds, begun or not; with 1
    all are waited for."""
    grace_s: float = Field(default=30.0, ge=0)
    """What has not ended then is late: lost as by an infrastructure failure, and not tried again."""
    max_attempts: int = Field(default=2, ge=1)
    """Tries of one rollout before an infrastructure failure stays."""
    min_valid: float = Field(default=0.5, ge=0, le=1)
    """Share of rollouts that must be scored; under it the iteration stops instead of training on what is left."""


class SftSettings(BaseModel):
    """Supervised fine-tuning on reference solutions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    warm_epochs: int = Field(default=2, ge=1)
    """Passes over the seed tasks in the warm start (version 0)."""
    warm_tasks: int = Field(default=0, ge=0)
    """Seed tasks that the warm start is shown, of as many structures as that allows; 0 = all. The others are left to
    the rewards."""
    epochs: int = Field(default=1, ge=1)
    """Passes over D_t in the update of iteration t."""
    lr: float = Field(default=1e-3, gt=0)
    """Of AdamW at the first step of an update, falling linearly to 0 at its last."""
    batch: int = Field(default=8, ge=1)
    """Examples per optimiser step."""
    lora_r: int = Field(default=16, ge=1)
    lora_alpha: int = Field(default=32, ge=1)
    qlora: bool = False
    """Keep the base model in 4 bits while an adapter is trained on it (QLoRA, arXiv 2305.14314): on a CUDA GPU, with
    bitsandbytes."""


class GrpoSettings(BaseModel):
    """Group-relative policy optimisation: one pass over D_t in every iteration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: int = Field(default=4, ge=1)
    """Tasks per optimiser step, each with K rollouts of which not all scored the same."""
    lr: float = Field(default=1e-4, gt=0)
    """Of AdamW, constant within an iteration."""
    decay: float = Field(default=1.0, gt=0, le=1)
    """Factor on `lr` from one version to the next; 1 = constant."""
    beta: float = Field(default=0.01, ge=0)
    """Weight of the KL divergence to version 0, the fixed reference; 0 = none, and no second forward pass."""
    epsilon: float = Field(default=0.2, gt=0)
    """Clipping range of the ratio between the new and the sampling probabilities."""
    demonstrate: bool = False
    """A task's reference takes the place of one failed rollout, unless it is the only one: forms that the policy never
    samples are learnt too, which rewards alone can't do. The paper's objective has no such thing."""
    staleness: int = Field(default=0, ge=0)
    """Optimiser steps that the weights which sample may be behind those that are trained; 0 = on-policy. With more, a
    server samples the groups of so many later steps while the trainer is at work, and the sampler in this process those
    of staleness + 1 steps as one batch."""


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
    method: Literal["grpo", "sft"] = "grpo"
    """How the weights are updated: by the rewards of the rollouts, or by the tasks' references."""
    start: Literal["base", "last"] = "last"
    """What the next version is trained from: the last one, or version 0 (the base model, with its warm start)."""
    weights: TrainedWeights = "lora"
    """What is trained, by the warm start too: an adapter on all linear layers, or all weights of the model."""
    accelerate: str = ""
    """File of accelerate that says on which processes GRPO trains, named from the workspace; empty = this one alone."""
    report_to: Literal["auto", "none", "tensorboard", "trackio", "wandb"] = "auto"
    """What shows the figures of optimiser steps beside the store; `auto` = whichever of the three is installed."""
    model: ModelSettings = ModelSettings()
    engine: EngineSettings = EngineSettings()
    collect: CollectSettings = CollectSettings()
    sft: SftSettings = SftSettings()
    """The warm start, the adapter's size, and the update where `method` is `sft`."""
    grpo: GrpoSettings = GrpoSettings()

    @model_validator(mode="after")
    def _fits_the_method(self) -> TrainSettings:
        if self.method == "grpo" and self.collect.rollouts < 2:
            raise ValueError(
                "collect.rollouts = 1: a group needs at least 2 rollouts to compare; or set method = 'sft'"
            )
        if self.sft.qlora and self.weights == "full":
            raise ValueError("sft.qlora: all weights are trained (weights = 'full'), and 4 bits can't be; remove one")
        if self.method == "sft" and self.accelerate:
            raise ValueError("accelerate: method = 'sft' trains in one process; remove it, or set method = 'grpo'")
        return self
