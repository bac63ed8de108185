"""A Python module on several processes, by accelerate's launcher, in the process that calls it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from subprocess import CalledProcessError

from accelerate.commands.launch import launch_command, launch_command_parser
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError


def run(configuration: Path, module: str, arguments: Sequence[str]) -> int:
    """`python -m module arguments` on the processes of accelerate's configuration; the exit code of rank 0, 1 where
    another rank or a signal ended it."""
    line = ["--config_file", str(configuration), "-m", module, *arguments]
    try:
        launch_command(launch_command_parser().parse_args(line))
    except ChildFailedError as error:
        leader = error.failures.get(0)
        return leader.exitcode if leader and leader.exitcode > 0 else 1
    except CalledProcessError as error:  # of a configuration for one process
        return error.returncode if error.returncode > 0 else 1
    except SignalException:
        return 1
    return 0
