"""A small but real AppWorld: base databases, documents, splits and tasks, made with the engine's own models and APIs.

For machines that have the engine but not the official data. Runs under envs/worker_host.py in the engine's venv, root
by $APPWORLD_ROOT. Its output holds documents derived from AppWorld's protected part: never commit or share it.
"""

from __future__ import annotations

import os
from typing import Any

from appworld import update_root

ROOT = os.environ["APPWORLD_ROOT"]
update_root(ROOT)  # before anything asks for a path, which is cached

from envs.appworld.mini.base import build_base  # noqa: E402
from envs.appworld.mini.tasks import build_tasks  # noqa: E402


def build() -> Any:
    """Makes $APPWORLD_ROOT/data: {"docs": number of API documents, "splits": {name: number of tasks}}."""
    docs = build_base(os.path.join(ROOT, "data"))
    return {"docs": docs, "splits": build_tasks(os.path.join(ROOT, "data"))}


HANDLERS = {"build": build}
