"""Refines the samples of a data set: calls bounded, results in order, every remark durable before the next call.

At most `concurrency` calls are in flight, until their answers are durable, and twice as many samples at work, so that
there is always one with a call to make. Finished samples wait for slower ones before them, at most `AHEAD` times as
many: that bounds the memory.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Protocol, cast

from langgraph.errors import GraphDrained

from envs.errors import InfraError
from graphs.bench import Ended, Floor, ServerGone, disk_refuses, in_order
from graphs.model import BudgetSpent, in_short
from graphs.recording import Recorder
from graphs.refine import graph
from graphs.remote import Remote, RemoteBench, remote_bench
from graphs.sitting import Halted, Panel, Said, Sitting
from graphs.state import PairJson, RefineState
from graphs.tracing import Tracer
from store.errors import StoreError, UsageError
from store.instructions import Pair, Sample
from store.rows import Refined, Row, Span

AHEAD = 16

log = logging.getLogger(__name__)

_TOKEN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\w\s]")


def count_tokens(texts: Iterable[str]) -> int:
    """Words, single CJK characters and punctuation marks: a measure of length that no model's tokenizer decides."""
    return sum(len(_TOKEN.findall(text)) for text in texts)


class Past(Protocol):
    """What is on record of a sample: its end, if it was finished, else what was said of it."""

    def __call__(self, sample: int) -> tuple[Refined | None, Said]: ...


def no_past(sample: int) -> tuple[Refined | None, Said]:
    return None, {}


async def refine_all(
    samples: Iterable[Sample],
    panel: Panel,
    *,
    attempt: int,
    record: Recorder,
    past: Past = no_past,
    remote: Remote | None = None,
) -> AsyncGenerator[tuple[Sample, Refined]]:
    """Each sample with what became of it, in order. `remote`: the graphs run there, and remarks are recorded there.

    BudgetSpent, Halted: what was in flight is on record, and a later call with the `past` goes on from there.
    InfraError when most samples fail for our own faults; UsageError, StoreError as of the model and the store.
    """
    room = asyncio.Semaphore(2 * panel.calls.concurrency)
    floor = Floor()

    async def work(item: tuple[Sample, tuple[Refined | None, Said]]) -> Refined | BudgetSpent | Halted:
        sample, (done, said) = item
        if done:
            return done
        async with room:
            spans: list[Span] = []
            try:
                refined = await _refined(sample, panel, said, attempt, spans, at)
            except (BudgetSpent, Halted) as early:
                return early
            rows: list[Row] = [*spans, refined]
            await asyncio.gather(*(record(row) for row in rows))  # one write
            return refined

    items = ((sample, past(sample.index)) for sample in samples)
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(remote_bench("refine", remote, panel.stop)) if remote else None
        results = await stack.enter_async_context(aclosing(in_order(items, work, AHEAD * panel.calls.concurrency)))
        async for (sample, _), refined in results:
            if not isinstance(refined, Refined):
                await panel.idle()
                raise refined
            floor.note(Ended(state=None, error=refined.error if _ours(refined) else None))
            yield sample, refined


def _ours(refined: Refined) -> bool:
    return (refined.error or "").startswith("infra: ")


async def _refined(
    sample: Sample, panel: Panel, said: Said, attempt: int, spans: list[Span], bench: RemoteBench | None
) -> Refined:
    """What becomes of the sample; its nodes are added to `spans`. A failure that is its own, or the endpoint's, is part
    of that."""
    if error := unfit_sample(sample, panel.settings.max_chars):
        return _row(sample, panel, attempt, [], error)
    states: list[RefineState] = []
    try:
        for at, pair in enumerate(sample.pairs):
            thread = "/".join(map(str, (panel.job, sample.index, at, *([attempt] if attempt else []))))
            given = _input(sample, at, pair, states, panel)
            if bench:
                states.append(await _remotely(bench, thread, sample.index, at, given))
                continue
            seat = Sitting(panel=panel, sample=sample.index, response=at, said=said)
            states.append(await _here(seat, thread, given, spans))
    except (BudgetSpent, Halted, UsageError, StoreError, ServerGone):
        raise
    except Exception as failure:
        if disk_refuses(failure):
            raise
        words = str(failure) if isinstance(failure, InfraError) else in_short(failure)
        log.warning("sample %d: %s", sample.index, words)
        log.debug("traceback of sample %d", sample.index, exc_info=failure)
        return _row(sample, panel, attempt, [], f"infra: {words}")
    return _row(sample, panel, attempt, states, None)


async def _here(seat: Sitting, thread: str, given: RefineState, spans: list[Span]) -> RefineState:
    """The graph's last state; its nodes are added to `spans`."""
    trace = Tracer(seat.panel.calls, texts=False)
    try:
        return cast(RefineState, await graph.ainvoke(given, {"configurable": {"sitting": seat}, "callbacks": [trace]}))
    finally:
        spans += trace.spans(thread=thread, run=seat.panel.job, t=0, graph="refine")


async def _remotely(bench: RemoteBench, thread: str, sample: int, response: int, given: RefineState) -> RefineState:
    """The graph's last state on the server, which writes the spans itself. Halted if stopped."""
    bench.given[thread] = {"sample": sample, "response": response}
    try:
        return cast(RefineState, await bench.invoke(thread, given, None))
    except GraphDrained:
        raise Halted("stopped as asked") from None


def unfit_sample(sample: Sample, max_chars: int) -> str | None:
    """Why there is nothing to refine, or too much; None if there is something."""
    for at, pair in enumerate(sample.pairs, 1):
        for field, text in (("instruction", pair.instruction), ("response", pair.response)):
            if not text.strip():
                return f"empty: {field} {at} of the sample is empty"
        size = len(sample.system) + _size(pair)
        if size > max_chars:
            return f"too_long: turn {at} has {size} characters, refine.max_chars = {max_chars}"
    return None


def _size(pair: Pair) -> int:
    return len(pair.instruction) + len(pair.input) + len(pair.response)


def _input(sample: Sample, at: int, pair: Pair, states: Sequence[RefineState], panel: Panel) -> RefineState:
    before = [
        Pair(instruction=old.instruction, input=old.input, response=state.get("response", ""))
        for old, state in zip(sample.pairs, states, strict=False)
    ]
    history: list[PairJson] = []
    left = panel.settings.max_chars - len(sample.system) - _size(pair)
    for old in reversed(before[len(before) - min(len(before), panel.settings.window) :]):
        left -= _size(old)
        if left < 0:
            break
        history.insert(0, PairJson(instruction=old.instruction, input=old.input, response=old.response))
    return RefineState(
        system=sample.system,
        history=history,
        instruction=pair.instruction,
        input=pair.input,
        response=pair.response,
        iteration=1,
    )


def _row(sample: Sample, panel: Panel, attempt: int, states: Sequence[RefineState], error: str | None) -> Refined:
    accepted = [state.get("accepted", 0) for state in states]
    before = [pair.response for pair in sample.pairs]
    after = [state.get("response", "") for state in states] if any(accepted) else []
    return Refined(
        job=panel.job,
        sample=sample.index,
        attempt=attempt,
        name=sample.name,
        outcome="failed" if error else "improved" if after else "kept",
        stops=[state.get("stop") or "" for state in states],
        iterations=[state.get("iteration", 1) for state in states],
        accepted=accepted,
        responses=after,
        tokens_before=count_tokens(before),
        tokens_after=count_tokens(after or before),
        error=error,
    )
