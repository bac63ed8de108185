"""An event loop in a thread of its own, for callers that are not async: notebooks, trainers that call plain functions.

One a process, so that what a session left behind there still ends (envs/waiting.py), and so that a caller which is in a
running event loop itself, as a notebook is, can wait for it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives, or its error. Not to be called from a coroutine that it runs itself."""
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="coevolve-environments", daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_loop.cache_clear)  # the thread stays behind
