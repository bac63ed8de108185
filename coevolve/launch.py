"""One training on several processes: `coevolve train` starts itself under accelerate's launcher (`train.accelerate`).

coevolve train ...                      this process: the launcher, which has no part in the run
  `- coevolve train ...   rank 0        what one process does: locks, phases, store, checkpoints
  `- coevolve train ...   rank 1, 2 ..  lend their processors (training/ranks.py); they open nothing
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from coevolve import wiring
from coevolve.config import Settings
from coevolve.loop import CHILD_OF, watch_parent
from store.errors import UsageError

LAUNCHED = "COEVOLVE_LAUNCHED"
"""Environment variable of the processes that `launch` started: its PID."""


def wanted(settings: Settings) -> bool:
    """Whether this process is to be the launcher: none has started it."""
    return bool(settings.train.accelerate) and LAUNCHED not in os.environ and "LOCAL_RANK" not in os.environ


def launch(configuration: Path) -> NoReturn:
    """Run this command line again on the processes of accelerate's configuration, and end with the exit code of rank 0,
    which has said the reason."""
    if not configuration.is_file():
        raise UsageError(f"train.accelerate: there is no file {configuration}; docs/hardware.md names two to copy")
    wiring.require_training()
    from training.launch import run

    watch_parent()
    os.environ |= {LAUNCHED: str(os.getpid()), CHILD_OF: str(os.getpid())}
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "120")  # seconds to commit what is in flight at SIGTERM
    sys.exit(run(configuration, "coevolve", sys.argv[1:]))


def is_helper() -> bool:
    """Whether this process is a rank other than 0."""
    return int(os.environ.get("RANK", "0")) > 0


def help_rank_0() -> NoReturn:
    from training.ranks import work

    watch_parent()
    work()
    sys.exit(0)
