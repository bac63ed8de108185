"""Several processes that train one model (`accelerate launch`): rank 0 leads, the others lend their processors.

Rank 0 is the whole of `coevolve train`: it samples, writes to the store, saves. The other ranks have neither store nor
sampler; they take part in optimiser steps, and what they need to know for that, rank 0 tells them. Each decision is
made there and told, so that no rank waits for one that has gone another way.

    rank 0    share(job)  share(groups)  step  share(groups)  step ... share([])    share(job) ... dismiss()
    others    work():  job     groups    step     groups      step ...     []            job   ... end

The words go through a gloo group of their own: a GPU that waits in NCCL is busy and has a deadline of minutes, while
sampling takes as long as it takes. When a rank dies, the launcher ends the others.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
from torch import distributed
from torch.serialization import register_package

T = TypeVar("T")
WAIT = timedelta(days=7)
"""Longer than any rollout phase or wait for a snapshot."""
PLACE = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
LAUNCH = ("GROUP_", "ROLE_", "TORCHELASTIC_", "ACCELERATE_", "FSDP_")
"""The environment variables by which a launcher tells a process its place, and how others of it begin."""


class Dismissed(Exception):
    """On ranks other than 0: the leader needs no more help."""


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def share(make: Callable[[], T]) -> T:
    """What `make` gives on rank 0, on every rank. Where it fails, its error there and `Dismissed` on the others."""
    if world() == 1:
        return make()
    found: tuple[T] | None = None
    try:
        if rank() == 0:
            found = (make(),)
    finally:
        found = _told(found)
    if found is None:
        raise Dismissed
    return found[0]


def dismiss() -> None:
    """Rank 0, at the end of its work: the others return from `work`."""
    if world() > 1:
        _told(None)
        _disband()


def leave() -> None:
    """Rank 0, however it ends: a group that is left open may abort the process, and its exit code with it."""
    if world() > 1 and distributed.is_initialized():
        # NCCL would wait for ranks that may be gone.
        _disband(_words() if "nccl" in distributed.get_backend() else None)


def work() -> None:
    """All that a rank other than 0 does: one iteration after another with rank 0, until that dismisses it."""
    from training.grpo import take_part

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 hears it too, and finishes what must be finished together
    try:
        while True:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            told = share(_only_rank_0)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            take_part(told)
    except Dismissed:
        _disband()


def mine(groups: Sequence[T]) -> list[T]:
    """This rank's part; all parts together are `groups`."""
    return list(groups[rank() :: world()])


def agreed(fine: bool) -> bool:
    """Whether it is so on all ranks."""
    if world() == 1:
        return fine
    least = torch.tensor(int(fine))
    distributed.all_reduce(least, op=distributed.ReduceOp.MIN, group=_words())
    return bool(least)


def await_all() -> None:
    """Return once every rank is here."""
    if world() > 1:
        distributed.barrier(group=_words())


def sharded(model: Any) -> bool:
    """Whether no rank has the whole model (FSDP)."""
    return world() > 1 and any(hasattr(weight, "full_tensor") for weight in model.parameters())


def shards_flat() -> bool:
    """Whether accelerate was asked for FSDP's first version, whose shards have no names."""
    return os.environ.get("ACCELERATE_USE_FSDP") == "true" and os.environ.get("FSDP_VERSION", "1") == "1"


def keep_outputs(accelerator: Any) -> None:
    """Of a model that FSDP computes in bfloat16: outputs and gradients' sums stay float32.

    By accelerate's policy log-probabilities would leave the model as bfloat16, good for two digits."""
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin and plugin.mixed_precision_policy:
        exact = {"reduce_dtype": torch.float32, "output_dtype": torch.float32}
        plugin.mixed_precision_policy = replace(plugin.mixed_precision_policy, **exact)


def whole(weight: torch.Tensor) -> torch.Tensor:
    """The weight itself, gathered from all ranks where each has a part of it; then all must ask."""
    gathered = getattr(weight, "full_tensor", None)
    return gathered() if gathered else weight


def part(weight: torch.Tensor) -> torch.Tensor:
    """What this rank has of a weight."""
    own = getattr(weight, "to_local", None)
    return own() if own else weight


def kept_by_rank_0(weights: Iterable[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """Weights that are gathered one by one: all of them in the memory of rank 0, none on the others."""
    return [(name, weight.cpu()) for name, weight in weights if rank() == 0]


def place_free(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a launcher has put there: for a program that is no part of the training."""
    return {name: value for name, value in environment.items() if name not in PLACE and not name.startswith(LAUNCH)}


@contextmanager
def alone() -> Iterator[None]:
    """Work of rank 0 in which trainers must not wait for others, such as the warm start. Before the first `share`."""
    from accelerate.state import AcceleratorState

    if world() == 1:
        yield
        return
    before = dict(os.environ)
    for name in before.keys() - place_free(before).keys():
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(before)
        AcceleratorState._reset_state(reset_partial_state=True)


def _only_rank_0() -> Any:
    raise AssertionError("other ranks are told")


def _disband(group: Any = None) -> None:
    gc.collect()  # a model that was split holds its group, and one that is still held at the end may abort the process
    distributed.destroy_process_group(group)


def _told(value: Any) -> Any:
    box = [value]
    distributed.broadcast_object_list(box, src=0, group=_words(), device=torch.device("cpu"))
    return box[0]


@cache
def _words() -> Any:
    """The group that words go through. The first call is the ranks' first meeting, and takes each to its GPU."""
    from accelerate import PartialState

    PartialState(cpu=not torch.cuda.is_available(), timeout=WAIT)
    # accelerate 1.15 calls a CPU rank's device cpu:0, a place to which torch 2.13 loads no optimiser.
    register_package(100, lambda storage: None, lambda storage, place: storage if place.startswith("cpu:") else None)
    return distributed.new_group(backend="gloo", timeout=WAIT)
