"""The figures of optimiser steps in TensorBoard, Trackio or Weights & Biases, through accelerate's trackers.

The store has them all; a tracker shows them. Each works in a thread of its own, so that one which waits for a server
holds nobody up, and one that fails is told of once and left out. None gets a step twice.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from store.errors import UsageError

PACKAGES = {"tensorboard": ("tensorboardX", "tensorboard"), "trackio": ("trackio",), "wandb": ("wandb",)}
"""{tracker: distributions of which one has to be installed, the lightest first}."""
PROJECT = "coevolve"
"""What runs are grouped under in Trackio and W&B."""
CLOSE_S = 60.0
"""Seconds that one tracker has at the end to write what it was told."""
ONLINE_S = 20.0
"""Seconds that the server of W&B has to answer, at the start and at the end."""

log = logging.getLogger(__name__)


def chosen(report_to: str) -> list[str]:
    """The trackers of `train.report_to`. UsageError for one that is not installed."""
    installed = [name for name, packages in PACKAGES.items() if any(map(_installed, packages))]
    if report_to in ("auto", "none"):
        return installed if report_to == "auto" else []
    if report_to not in installed:
        raise UsageError(
            f"train.report_to = {report_to!r}: it is not installed; run `pip install {PACKAGES[report_to][0]}`, or "
            "set 'auto' or 'none'"
        )
    return [report_to]


class Trackers:
    """The trackers of one run in one process, each started with its first figures."""

    def __init__(self, names: Sequence[str], *, run: str, home: Path, after: int) -> None:
        """`run` names the run in all of them, and no other run; `home` is its folder, for their files.

        Steps up to `after` are known from earlier processes of the run.
        """
        self._after = after
        self._threads = [_Thread(name, partial(_START[name], run, home)) for name in names]

    def record(self, step: int, figures: Mapping[str, float]) -> None:
        """Hand on the figures of an optimiser step; returns at once and raises nothing."""
        if step > self._after:
            self._after = step
            for thread in self._threads:
                thread.tell(step, dict(figures))

    def close(self) -> None:
        """Let them finish, for `CLOSE_S` seconds at most each."""
        for thread in self._threads:
            thread.end()


class _Thread:
    def __init__(self, name: str, start: Callable[[], Any]) -> None:
        self._name, self._start = name, start
        self._told: SimpleQueue[tuple[int, dict[str, float]] | None] = SimpleQueue()
        # A daemon: one that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"tracker {name}")

    def tell(self, step: int, figures: dict[str, float]) -> None:
        if self._thread.ident is None:
            self._thread.start()
        if self._thread.is_alive():
            self._told.put((step, figures))

    def end(self) -> None:
        if self._thread.ident is None:
            return
        self._told.put(None)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._warn(f"it did not end within {CLOSE_S:g} s")

    def _work(self) -> None:
        try:
            tracker = self._start()
            while told := self._told.get():
                step, figures = told
                tracker.log(figures, step=step)
            tracker.finish()
        except Exception as error:
            self._warn(f"{type(error).__name__}: {error}")

    def _warn(self, reason: str) -> None:
        log.warning("train.report_to: %s is left out from here on (%s); the store has all figures", self._name, reason)


def _tensorboard(run: str, home: Path) -> Any:
    # Files are named by the second: one of another process must not be written over.
    return _started("TensorBoardTracker", "tensorboard", home, filename_suffix=f".{uuid.uuid4().hex[:8]}")


def _trackio(run: str, home: Path) -> Any:
    os.environ.setdefault("TRACKIO_DIR", str(home / "trackio"))
    return _started("TrackioTracker", PROJECT, name=run, resume="allow", embed=False)


def _wandb(run: str, home: Path) -> Any:
    """Where W&B has no key it would ask for one, and where it has one but no network it would give up."""
    wandb: Any = import_module("wandb")

    limits = {"console": "off", "init_timeout": ONLINE_S, "finish_timeout": ONLINE_S}
    known = getattr(wandb.Settings, "model_fields", {})
    options: dict[str, Any] = {
        "name": run,
        "id": run,
        "dir": str(home),
        "settings": {name: value for name, value in limits.items() if name in known},
    }
    mode = os.environ.get("WANDB_MODE") or ("online" if _has_key(wandb) else "offline")
    if mode == "online":
        try:
            return _started("WandBTracker", PROJECT, mode=mode, resume="allow", **options)
        except Exception as error:
            log.warning("train.report_to: W&B goes on offline, `wandb sync` uploads it later (%r)", error)
            wandb.teardown()  # it would still hold the run
            mode = "offline"
    return _started("WandBTracker", PROJECT, mode=mode, **options)


_START: dict[str, Callable[[str, Path], Any]] = {"tensorboard": _tensorboard, "trackio": _trackio, "wandb": _wandb}


def _started(kind: str, *arguments: Any, **options: Any) -> Any:
    from accelerate import PartialState, tracking

    PartialState()  # accelerate's loggers want it; trainers have made it already
    tracker = getattr(tracking, kind)(*arguments, **options)
    tracker.main_process_only = False  # rank 0 alone has trackers, so none need look for its rank
    tracker.start()
    return tracker


def _has_key(wandb: Any) -> bool:
    try:
        return bool(os.environ.get("WANDB_API_KEY") or wandb.login(prompt=False))
    except TypeError:
        return False  # older than 0.31: its `login` would ask


def _installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
