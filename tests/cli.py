"""The command line in this process: exit code, stdout, stderr."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from coevolve.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def coevolve(*arguments: str | Path) -> Ran:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
    return Ran(done.exit_code, done.stdout, done.stderr)
