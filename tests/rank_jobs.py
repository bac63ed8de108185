"""One rank of a training on several processes: `torchrun --nproc_per_node 2 -m tests.rank_jobs DIR [CASE]`.

Leaves in DIR, of each rank: `groups-R.json`, the tasks of each step's groups; `step-S-R.pt`, the weights after step S.
Cases: `full` trains all weights, `fsdp` and `fsdp-full` let accelerate split the model; `broken`, `diverged`, `odd`
fail in the middle of an iteration, at its end and before it; `sharded` compares the weights of a model that FSDP has
split, `sharded-full` those of one without an adapter.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from tests.grpo_jobs import FULL, SETTINGS, even, run
from tests.tiny_model import write_random_model
from training import ranks
from training.config import GrpoSettings, SftSettings
from training.grpo import Loop
from training.model import load_model, merged_weights
from training.sft import with_lora

ASKED = count()


def watch(root: Path) -> None:
    """Keep what each step was given and made."""
    given: list[list[str]] = []
    fill, end = Loop.fill, Loop.on_step_end

    def watched_fill(loop: Loop, model: Any) -> bool:
        more = fill(loop, model)
        given.append([group.task for group in loop.server.groups])
        (root / f"groups-{ranks.rank()}.json").write_text(json.dumps(given))
        return more

    def watched_end(loop: Loop, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        given = ((name, weight.detach()) for name, weight in model.named_parameters() if weight.requires_grad)
        trained = {name: ranks.whole(weight).clone() for name, weight in given}
        torch.save(trained, root / f"step-{state.global_step}-{ranks.rank()}.pt")
        end(loop, args, state, control, model, **more)

    Loop.fill, Loop.on_step_end = watched_fill, watched_end  # type: ignore[method-assign]


def broken(said: str) -> float:
    """A reward that ends the leader in the second step."""
    if next(ASKED) > 20:
        raise SystemExit(3)
    return even(said)


def lead(root: Path, case: str) -> None:
    lr = 1e38 if case == "diverged" else SETTINGS.grpo.lr
    grpo = GrpoSettings(groups=3 if case == "odd" else 2, lr=lr, beta=0.05)
    settings = FULL if case.endswith("full") else SETTINGS.model_copy(update={"grpo": grpo})
    try:
        for t in (0, 1):
            run(root, t, score=broken if case == "broken" else even, settings=settings)
        ranks.dismiss()
    finally:
        ranks.leave()


def shard_on_cpus() -> None:
    """As configs/fsdp_8gpu.yaml does on GPUs. FSDP works on CPUs too, but accelerate 1.15 doesn't ask it to."""
    os.environ |= {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT"}
    os.environ |= {"FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "FSDP_RESHARD_AFTER_FORWARD": "true"}
    begin = AcceleratorState.__init__

    def begun(self: Any, *args: Any, fsdp_plugin: Any = None, **more: Any) -> None:
        begin(self, *args, fsdp_plugin=fsdp_plugin, **more)
        if fsdp_plugin:
            self.fsdp_plugin, self.distributed_type = fsdp_plugin, DistributedType.FSDP
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    AcceleratorState.__init__ = begun  # type: ignore[method-assign]


def compare_shards(root: Path, make: Callable[[Path], Any]) -> None:
    """Rank 0 has all weights of the split model, the other none."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    folder = write_random_model(root / str(ranks.rank()))
    plain = dict(merged_weights(make(folder)))
    model = make(folder)
    ranks.await_all()
    mesh = init_device_mesh("cpu", (2,))
    for layer in (module for module in model.modules() if isinstance(module, LlamaDecoderLayer)):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert ranks.sharded(model)
    kept = ranks.kept_by_rank_0(merged_weights(model))
    assert len(kept) == (0 if ranks.rank() else len(plain))
    halves = ranks.kept_by_rank_0(merged_weights(model, torch.bfloat16))
    assert all(half.equal(weight.to(torch.bfloat16)) for (_, half), (_, weight) in zip(halves, kept, strict=True))
    assert all(torch.allclose(weight, plain[name], atol=1e-6) for name, weight in kept)
    (root / f"sharded-{ranks.rank()}").touch()
    ranks.await_all()
    ranks.leave()


def an_adapted(folder: Path) -> Any:
    torch.manual_seed(3)
    model = with_lora(load_model(folder, "float32"), None, SftSettings(lora_r=4, lora_alpha=8))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.1)
    return model


def main(root: Path, case: str) -> None:
    watch(root)
    if case.startswith("fsdp"):
        shard_on_cpus()
    if case == "sharded":
        compare_shards(root, an_adapted)
    elif case == "sharded-full":
        compare_shards(root, lambda folder: load_model(folder, "float32"))
    elif ranks.rank():
        ranks.work()
    else:
        lead(root, case)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
