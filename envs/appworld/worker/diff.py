"""The canonical difference of two states of all databases: what an episode changed, however it got there."""

from __future__ import annotations

import os
from typing import Any

from appworld.apps import get_all_apps
from appworld.collections.models import ModelCollection, ModelCollectionPair

from envs.appworld.worker.evaluation import answer, changes

Json = Any


def canonical_diff(start_folder: str, end_folder: str) -> Json:
    """{"changes": {app.Model: {"added", "updated", "removed"}}, "status", "answer"}; `answer` as a text."""
    apps = sorted({app for app in get_all_apps() if _log(start_folder, app) != _log(end_folder, app)} | {"supervisor"})
    places = {":memory:canonical-start": start_folder, ":memory:canonical-end": end_folder}
    start, end = (
        ModelCollection.load(to_db_home_path=memory, from_db_home_path=folder, load_apps=list(apps))
        for memory, folder in places.items()
    )
    memories = list(places)
    pair = ModelCollectionPair(
        start_db_home_path=memories[0],
        start_model_collection=start,
        end_db_home_path=memories[1],
        end_model_collection=end,
    )
    found = changes(pair)
    task = pair.end.supervisor.Task.first()
    return {"changes": found, "status": task.status, "answer": answer(task.answer)}


def _log(folder: str, app: str) -> bytes:
    """A saved state is the start's log of SQL and what came after: an app whose log is the start's was not changed."""
    path = os.path.join(folder, f"{app}.jsonl")
    if not os.path.exists(path):
        return b""
    with open(path, "rb") as file:
        return file.read()
