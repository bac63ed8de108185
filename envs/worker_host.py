"""Child side of envs/worker.py: runs in a benchmark's own venv, so it imports the standard library alone.

    python worker_host.py NAME PATH '{"memory_mb": 2048, "alarm_s": 120, "file_mb": 0, "processes": 0}'

NAME is the dotted name of a module of ours and PATH its file, or its folder for a package; packages above it are
empty here, so it can import none of ours but its own parts. It has `HANDLERS: {verb: function}`; a request
`{"verb": "act", ...}` calls the verb's function with the other keys. The process says one line by itself when it is
ready. Then one JSON object a line comes in on fd 0 and goes out on fd 1; both are moved away before the module is
loaded, so that nothing it prints can be taken for an answer: fd 0 is then empty, fd 1 is stderr.

An answer is {"ok": ...}, with "rss_mb" for the verb `open`, or {"error": "..."} where the function raised: a fault of
ours, never of the actor's, whose errors are results. {"died": "..."} where it raised ProcessLookupError: the session's
own process, which some modules start, is gone. Out of memory, the process ends: it may be anybody's doing, which the
parent finds out on a fresh one.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

OUT_OF_MEMORY = 77
"""Exit code."""
_STATM = os.open("/proc/self/statm", os.O_RDONLY)


def main(name: str, path: str, limits: dict[str, float]) -> None:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    handlers = _load(name, Path(path))
    _limit(limits)
    answers.write(b'{"ok": null}\n')
    answers.flush()
    for line in requests:
        # The kernel ends a request that the parent, which may be gone, has long given up; no lock of ours can hold it.
        signal.setitimer(signal.ITIMER_REAL, limits["alarm_s"])
        answer = _answer(handlers, line)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(answer)
        answers.flush()


def _load(name: str, path: Path) -> dict[str, Callable[..., Any]]:
    parts = name.split(".")
    for above in (".".join(parts[:end]) for end in range(1, len(parts))):
        sys.modules[above] = ModuleType(above)
        sys.modules[above].__path__ = []
    places = [str(path)] if path.is_dir() else None
    spec = spec_from_file_location(name, path / "__init__.py" if places else path, submodule_search_locations=places)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    handlers: dict[str, Callable[..., Any]] = module.HANDLERS
    return handlers


def _limit(limits: dict[str, float]) -> None:
    """No core dump, so much address space, files and processes. Some hold for root too, some do not."""
    for kind, most in (
        (resource.RLIMIT_AS, int(limits["memory_mb"]) << 20),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, int(limits.get("file_mb", 0)) << 20),
        (resource.RLIMIT_NPROC, int(limits.get("processes", 0))),
    ):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _answer(handlers: dict[str, Callable[..., Any]], line: bytes) -> bytes:
    try:
        request = json.loads(line)
        verb = request.pop("verb")
        answer: dict[str, Any] = {"ok": handlers[verb](**request)}
        if verb == "open":
            answer["rss_mb"] = _rss_mb()
        return json.dumps(answer).encode() + b"\n"
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except ProcessLookupError as gone:
        return json.dumps({"died": str(gone)}).encode() + b"\n"
    except Exception as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n"


def _rss_mb() -> int:
    """Megabytes in memory now."""
    return int(os.pread(_STATM, 100, 0).split()[1]) * resource.getpagesize() >> 20


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
