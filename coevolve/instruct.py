"""`coevolve train --sft FILE --out DIR`: the policy's base model fine-tuned on conversations, beside any run."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from coevolve import wiring
from coevolve.config import load_settings
from coevolve.dataset import surveyed
from coevolve.progress import progress
from coevolve.workspace import Workspace
from store.errors import UsageError
from store.instructions import format_of

OF_A_RUN = {
    "--run": ("run_id", None),
    "--snapshot": ("snapshot", "latest"),
    "--resume": ("resume", False),
    "--follow": ("follow", False),
    "--rounds": ("rounds", None),
    "--from": ("start", None),
}
"""{flag: (option, default)} of those that have no meaning here."""


def instruct_command(
    *, sft: str | None, out: str | None, workspace: str | None, overrides: tuple[str, ...], **others: Any
) -> tuple[Any, Any]:
    """Fine-tune and write; what it took, and the same for a person."""
    if not sft or not out:
        raise UsageError("--sft FILE and --out DIR go together: conversations in, a model folder out")
    for flag, (name, default) in OF_A_RUN.items():
        if others[name] != default:
            raise UsageError(f"{flag}: --sft trains beside the runs; leave it out")
    settings = load_settings(Workspace.find(workspace).config, overrides)
    file, target = Path(sft).resolve(), Path(out).resolve()
    if target.exists():
        raise UsageError(f"--out: {target} exists; name another folder")
    if not target.parent.is_dir():
        raise UsageError(f"--out: there is no folder {target.parent}; make it first")
    form = format_of(file)
    surveyed("--sft", file, form)
    folder = wiring.model_folder(settings)
    from training.instruct import instruct

    with progress() as report, redirect_stdout(sys.stderr):  # libraries print
        counts = instruct(folder, file, form, target, seed=settings.seed, settings=settings.train, report=report)
    words = f"{counts['examples']} conversations, {counts['steps']} steps, loss {counts['loss']:.3f}"
    return {"out": str(target), **counts}, f'{target}: {words}; use it as policy = "hf:{target}"'
