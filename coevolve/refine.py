"""`coevolve refine`: an instruction data set in, a better one out, in order, by streaming."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import msgspec

from coevolve import refine_job
from coevolve.config import Settings, load_settings
from coevolve.dataset import surveyed
from coevolve.loop import Stopped, draining
from coevolve.progress import progress
from coevolve.refine_job import Job, Manifest, Past
from coevolve.refined import summary
from coevolve.workspace import Workspace
from envs.protocols import Report
from graphs.model import Budget, BudgetSpent
from graphs.recording import Recorder
from graphs.refining import no_past, refine_all
from graphs.remote import Remote
from graphs.settings import RefineSettings
from graphs.sitting import Halted, Panel, Voice, voices
from store import instructions
from store.datafile import Put, check_pair, writing
from store.errors import CoevolveError, UsageError
from store.instructions import Format, Sample
from store.rows import Json, Refined, RefineRole

ROLES: tuple[RefineRole, ...] = ("positive", "critical", "advisor", "editor", "judge")


def refine_command(
    *,
    source: str,
    out: str,
    form: Format,
    model: str,
    judge_model: str | None,
    provenance: bool,
    resume: bool,
    workspace: str | None,
    overrides: tuple[str, ...],
    studio: str | None = None,
    **_: Any,
) -> tuple[Any, Any]:
    """Refine `source` into `out`; what it came to, and the same for a person."""
    place = Workspace.find(workspace)
    settings = load_settings(place.config, overrides)
    paths = Path(source).resolve(), Path(out).resolve()
    found = _target(place, *paths, resume)
    wanted = _wanted(*paths, form, models(settings.refine, model, judge_model), settings.refine)
    speakers = voices(wanted.models, settings.model, seed=settings.seed, field_of=field_of)
    job = found or refine_job.create(place, wanted)
    with job.locked():
        manifest = _begun(place, job, wanted) if found else job.manifest
        if manifest is not None:
            _play(place, job, manifest, speakers, settings, provenance, studio)
    return summary(place, job.manifest)


def models(settings: RefineSettings, model: str, judge_model: str | None) -> dict[RefineRole, str]:
    """{role: spec}: `refine.models` wins over --judge-model, and that over --model."""
    given: dict[RefineRole, str] = dict.fromkeys(ROLES, model)
    if judge_model:
        given["judge"] = judge_model
    return {role: _spec(name) for role, name in (given | settings.models).items()}


def _spec(name: str) -> str:
    """A bare name is one of litellm's: no other kind of model can be asked here."""
    kinds = ("litellm:", "hf:", "vllm:", "procedural", "smollm2")
    return name if name.startswith(kinds) else f"litellm:{name}"


def field_of(role: RefineRole) -> str:
    return "--judge-model" if role == "judge" else "--model"


def _target(place: Workspace, source: Path, target: Path, resume: bool) -> Job | None:
    """The job to go on with, None for a new one. UsageError if the output can't be written there."""
    check_pair(source, target)
    job = refine_job.writing_to(place, target)
    finished = job is not None and job.manifest.finished
    if resume and job is None:
        raise UsageError(f"--resume: no job of {place.root} writes to {target}; run without --resume")
    if target.exists() and not (resume and finished):
        way = ", or go on with --resume" if job and not resume else ""
        raise UsageError(f"--out: {target} exists; name another file{way}")
    if not target.parent.is_dir():
        raise UsageError(f"--out: there is no folder {target.parent}; make it first")
    if job and not resume and not finished:
        sys.stderr.write(f"note: this is a new job; {job.path.name} writes there too and is unfinished: --resume\n")
    return job if resume else None


def _wanted(
    source: Path, target: Path, form: Format, specs: dict[RefineRole, str], settings: RefineSettings
) -> Manifest:
    """What a job of these arguments is. UsageError as of `surveyed`."""
    found = surveyed("IN", source, form)
    return Manifest(
        id="",
        created_at=0.0,
        source=str(source),
        sha256=found.sha256,
        form=form,
        target=str(target),
        samples=found.samples,
        models=specs,
        settings=settings.model_dump(mode="json", exclude={"models"}),
    )


def _begun(place: Workspace, job: Job, wanted: Manifest) -> Manifest | None:
    """The manifest of a job that is gone on with; None if nothing is left of it. UsageError if it was another."""
    old = job.manifest
    if words := refine_job.differing(old, wanted):
        raise UsageError(f"--resume: {job.path.name} was begun with other input; {words}; leave it, or start a new job")
    place.store.ingest()
    failed = "select count(*) from v_refined where job = ? and outcome = 'failed' and starts_with(error, 'infra: ')"
    if old.finished and Path(old.target).exists() and place.store.query(failed, [old.id]) == [(0,)]:
        sys.stderr.write(f"job {old.id} is finished: nothing was left to do\n")
        return None
    return job.write(msgspec.structs.replace(old, attempt=old.attempt + 1))


def _play(
    place: Workspace,
    job: Job,
    manifest: Manifest,
    speakers: dict[RefineRole, Voice],
    settings: Settings,
    provenance: bool,
    studio: str | None,
) -> None:
    """Refine what is left, and write the output. Stopped, CoevolveError: all that was said is kept for --resume."""
    budget, stop, counts = Budget.of(settings.model), Event(), Counter[str]()
    past = Past(place.store, manifest.id) if manifest.attempt else no_past
    if manifest.attempt:
        budget.tokens, budget.cost = refine_job.spent(place.store, manifest.id)
    record = Recorder(place.store.append)
    panel = Panel(
        job=manifest.id,
        voices=speakers,
        settings=settings.refine,
        calls=settings.model,
        budget=budget,
        record=record,
        stop=stop,
    )
    source, target = Path(manifest.source), Path(manifest.target)
    samples = instructions.samples(source, manifest.form)
    draft = target.with_name(f".{target.name}.{manifest.id}.part")
    more = list(_columns(manifest.id, None).items()) if provenance else []
    with (
        _explained(manifest),
        writing(target, draft, like=source, more=more) as put,
        progress(lambda: _note(counts, budget)) as report,
        draining(stop),
    ):
        remote = _remote(place, studio, manifest, settings)
        results = refine_all(samples, panel, attempt=manifest.attempt, record=record, past=past, remote=remote)
        asyncio.run(_write(results, manifest, put, provenance, counts, report))
        job.write(msgspec.structs.replace(manifest, finished=True))  # from now on a file of that name is the job's own
    place.store.ingest()


def _remote(place: Workspace, studio: str | None, manifest: Manifest, settings: Settings) -> Remote | None:
    if studio is None:
        return None
    from coevolve.studio.client import remote

    born = manifest.created_at
    return remote(place, studio, "refine", run=manifest.id, t=0, created_at=born, settings=settings)


async def _write(
    results: AsyncGenerator[tuple[Sample, Refined]],
    manifest: Manifest,
    put: Put,
    provenance: bool,
    counts: Counter[str],
    report: Report,
) -> None:
    async with aclosing(results):
        async for sample, refined in results:
            improved = refined.outcome == "improved"
            record = (
                instructions.with_responses(sample, manifest.form, refined.responses) if improved else sample.record
            )
            put(record | _columns(manifest.id, refined) if provenance else record)
            counts[refined.outcome] += 1
            report("refine", counts.total(), manifest.samples)


def _columns(job: str, refined: Refined | None) -> dict[str, Json]:
    """The provenance of a sample in the output."""
    return {
        "refine_job": job,
        "refine_outcome": refined.outcome if refined else "",
        "refine_accepted": sum(refined.accepted) if refined else 0,
        "refine_error": (refined.error or "") if refined else "",
    }


def _note(counts: Counter[str], budget: Budget) -> str:
    return f"{counts['improved']} improved, {counts['failed']} failed, {budget.tokens:,} tokens, ${budget.cost:.4f}"


@contextmanager
def _explained(manifest: Manifest) -> Iterator[None]:
    """Early ends say how to go on."""
    on = f"job {manifest.id}: what was said is kept; the same command with --resume goes on"
    try:
        yield
    except Halted:
        raise Stopped(f"stopped as asked; {on}") from None
    except BudgetSpent as error:
        raise BudgetSpent(f"{error}; {on}") from None
    except UsageError:
        raise
    except (CoevolveError, OSError) as error:
        raise CoevolveError(f"{error}; {on}") from error
