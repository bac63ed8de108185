"""Five GRPO steps of a random-weight 0.5B model on text2sql: tokens a second, seconds by part, peak memory.

`scripts/gpu_check.sh` runs it on a machine without a network. Random weights write no SQL, so the reward is a coin (an
even number of bytes said): the figures are those of the machine, the model learns nothing of use.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from envs import registry
from envs.protocols import Env, Outcome, Session
from store.rows import Row, Step, Task, Trajectory
from store.snapshot import freeze
from training.config import CollectSettings, GrpoSettings, ModelSettings, TrainSettings
from training.engine import Engines
from training.groups import Ledger
from training.model import device, torch_dtype
from training.smollm2 import TEMPLATE
from training.train import TrainJob, train

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_05B = {"vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
QWEN_05B |= {"num_attention_heads": 14, "num_key_value_heads": 2}
TINY = {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
TINY |= {"num_attention_heads": 4, "num_key_value_heads": 2}
PARTS = ("sample", "environment", "sync", "train")


@dataclass
class Kept:
    """What the training left, in memory: no store is needed."""

    rows: list[Row] = field(default_factory=list)
    steps: dict[int, dict[str, float]] = field(default_factory=dict)

    def append(self, rows: Iterable[Row]) -> None:
        self.rows += rows

    def record(self, step: int, figures: Mapping[str, float]) -> None:
        self.steps[step] = dict(figures)


class Coin:
    """The environment with a reward that a random model meets every second time."""

    def __init__(self, env: Env) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def open(self, world: str, task: Task | None = None, **options: Any) -> Session:
        session: Any = self._env.open(world, task, **options)
        act, evaluate, said = session.act, session.evaluate, []

        async def heard(message: Any) -> Any:
            said.append(str(message.get("content")))
            return await act(message)

        async def tossed() -> Outcome:
            outcome = await evaluate()
            even = len("".join(said).encode()) % 2 == 0
            return Outcome(kind="scored", score=float(even)) if outcome.kind == "scored" else outcome

        session.act, session.evaluate = heard, tossed
        found: Session = session
        return found


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_model(root / "model", tiny=options.tiny)
        report = measured(root, options)
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a model of 40,000 parameters, for a CPU")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--groups", type=int, default=4, help="groups a step")
    parser.add_argument("--rollouts", type=int, default=8, help="K")
    parser.add_argument("--weights", choices=("lora", "full"), default="lora", help="what is trained")
    parser.add_argument("--tokens", type=int, default=64, help="of a completion, at most")
    found = parser.parse_args()
    if found.tiny:
        found.groups, found.rollouts, found.tokens = 2, 4, 8
    return found


def write_model(folder: Path, *, tiny: bool) -> None:
    """A Qwen2 of random weights and a tokenizer of bytes, whose other tokens are words without merges."""
    shape = TINY if tiny else QWEN_05B
    torch.manual_seed(0)
    config = Qwen2Config(
        **shape, max_position_embeddings=32768, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=2
    )
    Qwen2ForCausalLM(config).to(torch_dtype("auto")).save_pretrained(folder)
    tokenizer(shape["vocab_size"]).save_pretrained(folder)


def tokenizer(size: int) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    known = [*SPECIAL, *alphabet]
    tokens = [*known, *(f"w{i}" for i in range(size - len(known)))]
    bpe = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        chat_template=TEMPLATE.read_text(),
    )


def measured(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a training of `options.steps` steps."""
    settings = TrainSettings(
        warm_start=False,
        weights=options.weights,
        model=ModelSettings(),
        collect=CollectSettings(rollouts=options.rollouts, max_tokens=options.tokens),
        grpo=GrpoSettings(groups=options.groups),
    )
    env = registry.get("text2sql")
    tasks = env.seed_tasks()[: options.steps * options.groups]
    frozen = freeze(root / "snapshots", "check", 0, tasks)
    kept, engines = Kept(), Engines(settings, run="check", home=root)
    started = time.monotonic()
    job = TrainJob(
        run="check",
        t=0,
        seed=0,
        env=Coin(env),
        policy=f"hf:{root / 'model'}",
        snapshot=root / "snapshots" / f"0-{frozen.id}",
        checkpoints=root / "checkpoints",
        settings=settings,
    )
    ledger = Ledger(done=[], recall=lambda ids: {}, append=kept.append, record=kept.record)
    counts = train(job, engines, ledger, lambda *_: None)
    engines.close()
    return figures(kept, counts, time.monotonic() - started, options)


def figures(kept: Kept, counts: dict[str, Any], wall: float, options: argparse.Namespace) -> dict[str, Any]:
    rollouts = [row for row in kept.rows if isinstance(row, Trajectory)]
    sampled = sum(row.completion_tokens for row in rollouts)
    last = {row.trajectory_id: row for row in kept.rows if isinstance(row, Step)}  # its prompt holds the turns before
    read = sum(len(row.prompt_ids or []) + len(row.completion_ids or []) for row in last.values())
    seconds = {part: [round(step.get(f"seconds/{part}", 0.0), 3) for step in kept.steps.values()] for part in PARTS}
    return {
        "device": torch.cuda.get_device_name() if device() == "cuda" else f"cpu, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "model": "tiny" if options.tiny else "0.5B",
        "weights": options.weights,
        "steps": len(kept.steps),
        "groups": counts["groups"],
        "rollouts": len(rollouts),
        "tokens": {"sampled": sampled, "trained": read},
        "tokens_per_s": {
            "sample": round(sampled / max(1e-9, counts["sample_seconds"]), 1),
            "train": round(read / max(1e-9, sum(seconds["train"])), 1),
        },
        "seconds": seconds,
        "wall_s": round(wall, 1),
        "is_ratio_max": [round(step["is_ratio/max"], 3) for step in kept.steps.values()],
        "peak_memory_gib": round(peak_bytes() / 2**30, 2),
    }


def peak_bytes() -> int:
    """Of tensors on the GPU, or of this process where there is none."""
    if device() == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def table(report: dict[str, Any]) -> str:
    head = f"{'step':>6}" + "".join(f"{part:>13}" for part in PARTS)
    rows = [
        f"{at + 1:>6}" + "".join(f"{report['seconds'][part][at]:>11.2f} s" for part in PARTS)
        for at in range(report["steps"])
    ]
    speed = report["tokens_per_s"]
    return "\n".join(
        [
            f"{report['model']} ({report['weights']}) on {report['device']}, torch {report['torch']}",
            head,
            *rows,
            f"sampled {speed['sample']} tokens/s, trained {speed['train']} tokens/s, "
            f"peak memory {report['peak_memory_gib']} GiB, {report['wall_s']} s in all",
        ]
    )


if __name__ == "__main__":
    main()
