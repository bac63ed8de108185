"""What every phase is given, and how a phase is done exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from coevolve.config import Settings
from coevolve.workspace import RunFolder, Workspace
from envs.protocols import Env, Report
from evals.suites import label
from store.db import Store
from store.errors import CoevolveError, UsageError
from store.rows import Phase, Step

CHILD_OF = "COEVOLVE_CHILD_OF"
"""Environment variable with the PID of the process that started this one."""


class Stopped(CoevolveError):
    """SIGTERM or ctrl-C: work in flight was finished and committed, the rest waits for --resume."""


@dataclass(frozen=True)
class Loop:
    workspace: Workspace
    run: RunFolder
    settings: Settings
    overrides: tuple[str, ...]
    """`KEY=VALUE` on top of the run's own settings, handed on to the processes of `spawn`."""
    env: Env
    report: Report
    announce: Callable[[int], None] = lambda version: None
    """Called with the policy version that a round has made and evaluated."""
    begin: Callable[[int, str], None] = lambda t, phase: None
    """Called with the iteration and the phase that begins."""
    stop: threading.Event = field(default_factory=threading.Event)
    studio: str | None = None
    """URL of the dev server that plays the graphs, "" for the workspace's own; None = this process does."""

    @property
    def store(self) -> Store:
        return self.workspace.store

    def finished(self, t: int, name: str) -> bool:
        return bool(self.store.rows(Phase, "run = ? and t = ? and name = ?", [self.run.id, t, name]))

    def steps(self, trajectories: Sequence[str]) -> dict[str, list[Step]]:
        """The steps of each, in order."""
        found: dict[str, list[Step]] = {}
        for step in self.store.rows(Step, "list_contains(?, trajectory_id)", [list(trajectories)], order='"index"'):
            found.setdefault(step.trajectory_id, []).append(step)
        return found

    def trained(self, t: int) -> bool:
        """Whether iteration t is finished and the version that it made is there: a checkpoint may be deleted."""
        return (self.run.checkpoints / str(t + 1)).exists() and self.finished(t, "train")


def once(loop: Loop, t: int, name: str, work: Callable[[Loop, int], dict[str, Any]]) -> None:
    """Do `work` and commit it as a Phase row; a phase that has its row is skipped."""
    loop.store.ingest()
    if loop.finished(t, name):
        return
    _raise_if_stopped(loop)
    loop.begin(t, name)
    started = time.monotonic()
    counts = work(loop, t)
    _raise_if_stopped(loop)
    seconds = time.monotonic() - started
    loop.store.append([Phase(run=loop.run.id, t=t, name=name, finished_at=time.time(), seconds=seconds, counts=counts)])
    loop.store.ingest()


def process(loop: Loop, t: int, command: str) -> None:
    """Evaluate version t in a process of its own, `coevolve eval`, which commits it itself."""
    loop.store.ingest()
    settings = loop.settings.eval
    labels = [label(name, settings.limit, settings.k) for name in settings.suites]
    if all(loop.finished(t, f"{command} {kept_as}") for kept_as in labels):
        return
    loop.begin(t, command)
    spawn(loop, command, ["--policy-version", str(t)])
    loop.store.ingest()


def spawn(loop: Loop, command: str, arguments: list[str]) -> None:
    """Run a sub-command on this run; CoevolveError if it fails, with its exit code. SIGTERM is passed on, and its end
    awaited."""
    _raise_if_stopped(loop)
    with child(loop, command, arguments) as started:
        while started.poll() is None:
            if loop.stop.wait(0.05):
                break
    _raise_if_stopped(loop)
    raise_if_failed(command, started.returncode)


@contextmanager
def child(loop: Loop, command: str, arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A sub-command at work beside this process; where the block ends before it, it is asked to drain and awaited."""
    line = [sys.executable, "-m", "coevolve", command, "--workspace", str(loop.workspace.root), "--run", loop.run.id]
    overrides = [part for override in loop.overrides for part in ("--set", override)]
    started = subprocess.Popen(
        [*line, *arguments, *overrides],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, CHILD_OF: str(os.getpid())},
    )
    try:
        yield started
        if started.poll() is None:
            started.terminate()
            started.wait()
    finally:
        if started.poll() is None:
            started.kill()
            started.wait()


def raise_if_failed(command: str, code: int) -> None:
    if code < 0:
        name = signal.Signals(-code).name
        guess = " (out of memory?)" if code == -signal.SIGKILL else ""
        raise CoevolveError(f"`coevolve {command}` was ended by {name}{guess}; what it committed is kept: --resume")
    if code:
        kind = UsageError if code == 2 else CoevolveError
        raise kind(f"`coevolve {command}` failed (exit code {code}); see its message above")


class Trainer:
    """`coevolve train --follow`: one process for all iterations, started when the first is to be trained.

    It waits for each new snapshot and keeps model, optimiser and sampling engine up meanwhile.
    """

    def __init__(self, loop: Loop, rounds: int, stack: ExitStack) -> None:
        self._loop, self._rounds, self._stack = loop, rounds, stack
        self._child: subprocess.Popen[bytes] | None = None
        self._begun: int | None = None

    def begin(self, t: int) -> None:
        """Let it train on D_t, which is frozen, unless that is done."""
        if self._loop.trained(t):
            return
        if self._begun != t:
            self._loop.begin(t, "train")
            self._begun = t
        if self._child is None:
            _raise_if_stopped(self._loop)
            arguments = ["--follow", "--rounds", str(self._rounds)]
            self._child = self._stack.enter_context(child(self._loop, "train", arguments))

    def wait(self, t: int) -> None:
        """Return once iteration t is trained. CoevolveError if the process ended before."""
        self.begin(t)
        while not self._loop.trained(t):
            if self._child and self._child.poll() is not None and not self._loop.trained(t):
                raise_if_failed("train", self._child.returncode)
                raise CoevolveError(f"`coevolve train --follow` ended before iteration {t} was trained: --resume")
            self._loop.stop.wait(0.1)
            _raise_if_stopped(self._loop)


@contextmanager
def trainer(loop: Loop, rounds: int) -> Iterator[Trainer]:
    with ExitStack() as stack:
        yield Trainer(loop, rounds, stack)


STOPPING = b"\nstopping once what is under way is finished and kept; ctrl-C again stops at once\n"


@contextmanager
def draining(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and ctrl-C set `stop` for the length of the block; a second ctrl-C interrupts at once."""

    def handle(number: int, frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not stop.is_set() and os.environ.get(CHILD_OF) is None:
            os.write(2, STOPPING)  # a handler may run in the middle of a write to sys.stderr
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stoppable(loop: Loop) -> Report:
    """The loop's report for work that has no other ear for `stop`: it raises Stopped between two committed pieces."""

    def report(label: str, done: int, total: int) -> None:
        _raise_if_stopped(loop)
        loop.report(label, done, total)

    return report


def watch_parent() -> None:
    """In a process that `child` started: end when the parent is gone, lest an orphan train on beside a resumed run.

    At once where it is gone already, which shows in a parent other than the one that set the variable."""
    parent = os.environ.get(CHILD_OF)
    if parent is None:
        return
    if str(os.getppid()) != parent:
        sys.exit(1)

    def watch() -> None:
        while str(os.getppid()) == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _raise_if_stopped(loop: Loop) -> None:
    if loop.stop.is_set():
        raise Stopped(f"run {loop.run.id} stopped as asked; everything finished is committed, go on with --resume")
