"""One rank of a training on several processes: `torchrun --nproc_per_node 2 -m tests.rank_jobs DIR [fail|diverge]`.

Leaves in DIR, of each rank: `groups-R.json`, the tasks of each step's groups; `step-S-R.pt`, the weights after step S.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from tests.grpo_jobs import SETTINGS, even, run
from training import ranks
from training.config import GrpoSettings
from training.grpo import Loop


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
        trained = {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}
        torch.save(trained, root / f"step-{state.global_step}-{ranks.rank()}.pt")
        end(loop, args, state, control, model, **more)

    Loop.fill, Loop.on_step_end = watched_fill, watched_end  # type: ignore[method-assign]


def broken(said: str) -> float:
    """A reward that fails when it is asked for the 61st time, in the middle of the iteration."""
    broken.asked = getattr(broken, "asked", 0) + 1  # type: ignore[attr-defined]
    if broken.asked > 30:  # type: ignore[attr-defined]
        raise KeyError("the reward broke")
    return even(said)


def main(root: Path, fault: str) -> None:
    watch(root)
    if ranks.rank():
        ranks.work()
        return
    lr = 1e38 if fault == "diverge" else SETTINGS.grpo.lr
    groups = 3 if fault == "odd" else 2
    settings = SETTINGS.model_copy(update={"grpo": GrpoSettings(groups=groups, lr=lr, beta=0.05)})
    for t in (0, 1):
        run(root, t, score=broken if fault == "fail" else even, settings=settings)
    ranks.dismiss()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
