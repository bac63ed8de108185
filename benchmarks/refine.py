"""What `refine` holds and what it adds: calls in flight, overhead a call, memory.

    python -m benchmarks.refine [--concurrency 64] [--latency 1.0] [--samples 384] [--calls 3000] [--many 20000]

held      an endpoint that takes `latency` for each answer: the mean number of calls that it had in flight, from the
          first to the last, of the `concurrency` asked for; by a bare loop of ChatLiteLLM.ainvoke, and by `refine`
overhead  the same prompts to an endpoint that answers at once, through `refine` with its store, and through a bare loop
          of ChatLiteLLM.ainvoke with as many workers; the difference in wall and in CPU time a call
memory    resident memory while `many` samples pass, with a model in this process
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from graphs.model import Budget
from graphs.recording import Recorder
from graphs.refining import refine_all
from graphs.settings import ModelSettings, RefineSettings
from graphs.sitting import Panel, Voice, voices
from store import instructions
from store.datafile import writing
from store.db import Store
from store.rows import RefineRole
from tests.refine_server import role_answer, write_alpaca
from tests.refine_setup import ROLES
from tests.scripted import ScriptedChatModel, says

SPEC = "litellm:openai/m"


class Endpoint:
    """An OpenAI-compatible server on asyncio that keeps count of the calls in flight."""

    def __init__(self, latency: float, says: str | None) -> None:
        self.latency = latency
        self.says = says
        """Its only answer; None = what the role that is asked would say."""
        self.flying = 0
        self.area = 0.0
        self.first = self.last = 0.0
        self.calls = 0

    def _step(self, by: int) -> None:
        now = time.monotonic()
        self.first = self.first or now
        self.area += self.flying * (now - (self.last or now))
        self.flying, self.last = self.flying + by, now

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(length[0]) if length else b""
                writer.write(self._response(await self._answer(body) if body else self._stats()))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _stats(self) -> Any:
        return {"calls": self.calls, "mean": self.area / max(self.last - self.first, 1e-9)}

    async def _answer(self, body: bytes) -> Any:
        self._step(1)
        self.calls += 1
        await asyncio.sleep(self.latency)
        text = role_answer(json.loads(body)) if self.says is None else self.says
        self._step(-1)
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}

    def _response(self, value: Any) -> bytes:
        data = json.dumps(value).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)


def _child(latency: float, says: str | None, port: Any) -> None:
    async def run() -> None:
        server = await asyncio.start_server(Endpoint(latency, says).serve, "127.0.0.1", 0, limit=1 << 24)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def endpoint(latency: float, says: str | None = None) -> Any:
    """Its URL; it is a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(latency, says, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()


def stats(url: str) -> Any:
    from urllib.request import urlopen

    with urlopen(f"{url}/stats") as answer:
        return json.load(answer)


@asynccontextmanager
async def job(
    folder: Path, source: Path, speakers: dict[RefineRole, Voice], calls: ModelSettings, mode: Any
) -> AsyncIterator[Any]:
    """The samples as they end, with the store and the output file of `coevolve refine`."""
    store = Store(folder / "store")
    record = Recorder(store.append)
    panel = Panel(
        job="b",
        voices=speakers,
        settings=RefineSettings(mode=mode, iterations=1),
        calls=calls,
        budget=Budget(),
        record=record,
    )
    samples = instructions.samples(source, "alpaca")
    with writing(folder / "out.jsonl", folder / "out.part", like=source) as put:
        async with aclosing(refine_all(samples, panel, attempt=0, record=record)) as results:
            yield results, put


async def refined(folder: Path, source: Path, speakers: Any, calls: ModelSettings, mode: Any = "full") -> None:
    async with job(folder, source, speakers, calls, mode) as (results, put):
        async for sample, row in results:
            assert row.outcome == "improved"
            put(instructions.with_responses(sample, "alpaca", row.responses))


class Clock:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


def held(folder: Path, samples: int, concurrency: int, latency: float) -> None:
    source = write_alpaca(folder / "held.jsonl", samples)
    calls = ModelSettings(concurrency=concurrency)
    prompts = prompts_of(folder / "held", source, calls)

    def theirs(speakers: Any, calls: ModelSettings) -> Any:
        return bare(speakers["editor"].model, prompts, concurrency)

    def ours(speakers: Any, calls: ModelSettings) -> Any:
        return refined(folder / "held", source, speakers, calls)

    shares = []
    for name, work in (("bare loop", theirs), ("refine", ours)):
        with endpoint(latency) as url:
            there = calls.model_copy(update={"api_base": f"{url}/v1"})
            clock = Clock()
            asyncio.run(work(speaking(there), there))
            (wall, _), seen = clock.read(), stats(url)
        shares.append(seen["mean"] / concurrency)
        print(f"held by {name}: {seen['mean']:.1f} of {concurrency} calls in flight ({shares[-1]:.1%}); ", end="")
        print(f"{seen['calls']} calls of {latency:g} s in {wall:.1f} s")
    print(f"refine / bare loop: {shares[1] / shares[0]:.2f} (goal: 90 % held)")


def overhead(folder: Path, count: int, concurrency: int) -> None:
    per_sample = 8
    source = write_alpaca(folder / "overhead.jsonl", count // per_sample)
    calls = ModelSettings(concurrency=concurrency)
    prompts = prompts_of(folder / "noted", source, calls)
    ours, theirs = [], []
    with endpoint(0.0) as url:
        there = calls.model_copy(update={"api_base": f"{url}/v1"})
        speakers = speaking(there)
        for turn in range(3):
            theirs.append(timed(bare(speakers["editor"].model, prompts, concurrency)))
            ours.append(timed(refined(folder / f"ours{turn}", source, speakers, there)))
    (wall, cpu), (bare_wall, bare_cpu) = (tuple(map(min, zip(*each, strict=True))) for each in (ours, theirs))
    made = len(prompts)
    print(f"overhead of {made} calls, best of 3: bare loop {1e3 * bare_wall / made:.2f} ms a call ", end="")
    print(f"({1e3 * bare_cpu / made:.2f} cpu-ms), refine {1e3 * wall / made:.2f} ms ", end="")
    print(f"({1e3 * cpu / made:.2f} cpu-ms): {1e3 * (wall - bare_wall) / made:+.2f} ms ", end="")
    print(f"({1e3 * (cpu - bare_cpu) / made:+.2f} cpu-ms; goal 3)")


def speaking(calls: ModelSettings) -> dict[RefineRole, Voice]:
    return voices(dict.fromkeys(ROLES, SPEC), calls, seed=0, field_of=lambda role: role)


def prompts_of(folder: Path, source: Path, calls: ModelSettings) -> list[list[BaseMessage]]:
    """All prompts of the job, from a run with a model of this process."""
    kept: list[list[BaseMessage]] = []

    def answer(messages: Sequence[BaseMessage], tools: Any) -> AIMessage:
        kept.append(list(messages))
        return says(role_answer({"messages": [{"content": messages[-1].content}]}))

    voice = Voice(spec=SPEC, model=ScriptedChatModel(policy=answer))
    asyncio.run(refined(folder, source, dict.fromkeys(ROLES, voice), calls))
    return kept


def timed(work: Any) -> tuple[float, float]:
    clock = Clock()
    asyncio.run(work)
    return clock.read()


async def bare(model: Any, prompts: Sequence[list[BaseMessage]], workers: int) -> None:
    left = iter(prompts)

    async def work() -> None:
        for prompt in left:
            assert (await model.ainvoke(prompt)).text

    await asyncio.gather(*(work() for _ in range(workers)))


def memory(folder: Path, count: int, concurrency: int) -> None:
    source = write_alpaca(folder / "many.jsonl", count)

    def answer(messages: Sequence[BaseMessage], tools: Any) -> AIMessage:
        return says(role_answer({"messages": [{"content": messages[-1].content}]}) + "x" * 500)

    speakers: dict[RefineRole, Voice] = dict.fromkeys(ROLES, Voice(spec="s", model=ScriptedChatModel(policy=answer)))
    calls, marks = ModelSettings(concurrency=concurrency), list[float]()

    async def run() -> None:
        async with job(folder / "many", source, speakers, calls, "advise") as (results, put):
            async for sample, row in results:
                put(instructions.with_responses(sample, "alpaca", row.responses))
                if (sample.index + 1) % (count // 5) == 0:
                    marks.append(resident())

    clock = Clock()
    asyncio.run(run())
    shown = ", ".join(f"{mark:.0f}" for mark in marks)
    size = sum(path.stat().st_size for path in (folder / "many/store/journal").iterdir()) / 2**20
    print(f"memory at each fifth of {count} samples: {shown} MiB (journal {size:.0f} MiB, {clock.read()[0]:.0f} s)")
    print(f"most: {most():.0f} MiB; ", end="")
    Store(folder / "many/store").ingest()
    print(f"with the ingest of the journal into the index at the end: {most():.0f} MiB")


def most() -> float:
    """MiB of this process at its largest."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident() -> float:
    """MiB of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--samples", type=int, default=384)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--many", type=int, default=20_000)
    options = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "none")
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        for name in ("held", "many", "noted", *(f"ours{turn}" for turn in range(3))):
            (folder / name).mkdir()
        memory(folder, options.many, options.concurrency)
        overhead(folder, options.calls, options.concurrency)
        held(folder, options.samples, options.concurrency, options.latency)


if __name__ == "__main__":
    main()
