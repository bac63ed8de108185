"""Plain supervised fine-tuning on a conversation file, into a model folder of its own (`hf:DIR`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from envs.protocols import Report
from store import instructions
from store.instructions import Format, Sample
from store.rows import Json, content_id
from training.config import TrainSettings
from training.folders import MANIFEST, building, fingerprints
from training.model import load_tokenizer
from training.sft import Solution, fine_tune


def instruct(
    folder: Path, file: Path, form: Format, target: Path, *, seed: int, settings: TrainSettings, report: Report
) -> dict[str, Json]:
    """Fine-tune the model in `folder` on the file for `sft.epochs` passes and write it whole to `target`.

    Returns what it took. Loss on what the assistant writes alone; a conversation with an empty response teaches
    nothing and is left out. UsageError if none is left, or none fits the model.
    """
    samples = list(instructions.samples(file, form))
    talks = [Solution(messages=instructions.messages(sample)) for sample in samples if _teaches(sample)]
    model, figures = fine_tune(
        folder,
        None,
        talks,
        epochs=settings.sft.epochs,
        seed=int(content_id("instruct", seed), 16),
        settings=settings.sft,
        model_settings=settings.model,
        report=report,
    )
    counts = {**figures, "empty": len(samples) - len(talks)}
    plain: Any = model.merge_and_unload()
    with building(target) as work:
        plain.save_pretrained(work)
        load_tokenizer(folder).save_pretrained(work)
        made = {"base": str(folder), "file": str(file), "counts": counts, "files": fingerprints(work)}
        (work / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(made)))
    return counts


def _teaches(sample: Sample) -> bool:
    return all(pair.response.strip() for pair in sample.pairs)
