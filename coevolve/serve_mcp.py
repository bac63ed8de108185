"""`coevolve env serve-mcp`: an environment as an MCP server, in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from envs import registry
from envs.protocols import Env
from evals.suites import suite as suite_of
from store.errors import UsageError
from store.rows import Task


def serve_mcp_command(name: str, suite: str | None, task: str | None, port: int | None) -> None:
    """Serve until the client leaves, or over HTTP until SIGTERM or ctrl-C. UsageError, also without the extra."""
    try:
        from envs import mcp
    except ImportError as error:
        raise UsageError(f"env serve-mcp: {error}; run `pip install '.[mcp]'` in the clone") from error
    env = registry.get(name)
    served = mcp.server(env, tasks_of(env, suite, task))
    if port is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing else ends the thread that reads stdin
        return asyncio.run(mcp.serve_stdio(served))
    with mcp.listening(port) as at, contextlib.suppress(KeyboardInterrupt):
        sys.stderr.write(f"{name} at http://{mcp.HOST}:{at.getsockname()[1]}/mcp; ctrl-C ends it\n")
        sys.stderr.flush()
        mcp.serve_http(served, at)


def tasks_of(env: Env, suite: str | None, task: str | None) -> list[Task]:
    """What is served: seed tasks, or a held-out suite, which must be asked for by name. UsageError if there is none."""
    tasks = suite_of(env, suite) if suite is not None else env.seed_tasks()
    if not tasks and suite is None:
        known = ", ".join(env.suites())
        raise UsageError(f"--suite: {env.name} has no seed tasks; to play held-out ones choose from {known}")
    found = [each for each in tasks if task in (None, each.id)]
    if not found:
        raise UsageError(f"--task {task}: it is none of the {len(tasks)} tasks of {suite or 'the seeds'}")
    return found
