"""Looking through a data set before anything is done with it."""

from __future__ import annotations

import sys
from pathlib import Path

from store import instructions
from store.datafile import Fault
from store.errors import UsageError
from store.instructions import Format, Survey


def surveyed(field: str, path: Path, form: Format) -> Survey:
    """What the file holds. UsageError if it holds nothing or has faults, after each was told on stderr."""
    found = instructions.survey(path, form, _tell)
    if found.faults:
        raise UsageError(
            f"{field}: {path} has {found.faults} records that are not {form}, listed above; mend or remove them"
        )
    if not found.samples:
        raise UsageError(f"{field}: {path} holds no record")
    return found


def _tell(fault: Fault) -> None:
    sys.stderr.write(f"{fault}\n")
