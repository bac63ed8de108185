"""The canonical difference of two states of all databases: what an episode changed, however it got there.

Ids of new rows are left out, and references to new rows are replaced by these rows, so the same doings in another
order are equal. What only tells when or how often something was done is left out too.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from appworld.apps import get_all_apps
from appworld.apps.model_lib import ModelHashHandler
from appworld.collections.models import ModelCollection, ModelCollectionPair
from appworld.common.utils import answer_to_text

Json = Any
VOLATILE = re.compile(r"(_code|_code_expiry|last_logged_in|download_count)$")
IGNORED = ("supervisor.Task", "admin.PaymentCard")
"""As the engine's own comparison has it; what became of the task is told apart."""
DEPTH = 3
"""References followed from one new row."""


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
    _compare_records(pair, start, memories)
    changes = _Changes(pair, end).canonical()
    task = end.supervisor.Task.first()
    return {"changes": changes, "status": task.status, "answer": _answer(task.answer)}


def _log(folder: str, app: str) -> bytes:
    """A saved state is the start's log of SQL and what came after: an app whose log is the start's was not changed."""
    path = os.path.join(folder, f"{app}.jsonl")
    if not os.path.exists(path):
        return b""
    with open(path, "rb") as file:
        return file.read()


def _compare_records(pair: Any, start: Any, memories: list[str]) -> None:
    """The engine skips models whose counters of writes are equal, which two loaded states' may be by chance."""
    for app in pair.app_names:
        for name in start[app].SQLModel.model_names():
            for count, memory in enumerate(memories):
                ModelHashHandler.data[memory][app][name] = count


def _answer(text: Any) -> str | None:
    """As the engine compares answers; None where none was given."""
    if not isinstance(text, str) or text == "<<NOT_GIVEN>>":
        return None
    try:
        answer = json.loads(text)
        return None if answer is None else str(answer_to_text(answer))
    except (ValueError, TypeError):
        return text


class _Changes:
    def __init__(self, pair: Any, end: Any) -> None:
        self._found: dict[str, tuple[list[Json], list[tuple[int, Json]], list[int], Any]] = {}
        for name in sorted(set(pair.changed_model_names()) - set(IGNORED)):
            app, kind = name.split(".")
            added, updated, removed = pair.changed_records(name)
            fields = {row.id: pair.changed_field_names(name, row.id) or () for row in updated}
            changed = [(row.id, {key: getattr(row, key) for key in fields[row.id]}) for row in updated]
            rows = [row.to_dict() for row in added]
            self._found[name] = (rows, changed, [row.id for row in removed], end[app][kind])
        self._new = {name: {row["id"]: row for row in found[0]} for name, found in self._found.items()}

    def canonical(self) -> Json:
        changes = {}
        for name, (added, updated, removed, _) in self._found.items():
            kept = ((number, self._row(name, row)) for number, row in updated)
            change = {
                "added": sorted((self._row(name, row) for row in added), key=_text),
                "updated": sorted(([number, row] for number, row in kept if row), key=_text),
                "removed": sorted(removed),
            }
            if any(change.values()):
                changes[name] = change
        return changes

    def _row(self, name: str, row: Json, depth: int = 0) -> Json:
        kept = {
            key: self._value(name, key, value, depth)
            for key, value in row.items()
            if key not in ("id", "updated_at", "record_hash") and not VOLATILE.search(key)
        }
        return json.loads(json.dumps(kept, default=str, sort_keys=True))

    def _value(self, name: str, key: str, value: Json, depth: int) -> Json:
        if depth >= DEPTH or value is None or not key.endswith(("_id", "_ids")):
            return value
        target = self._target(name, key)
        if isinstance(value, list):
            return [self._resolved(target, item, depth) for item in value]
        return self._resolved(target, value, depth)

    def _resolved(self, target: str, number: Json, depth: int) -> Json:
        new = self._new.get(target, {})
        known = isinstance(number, int) and number in new
        return {"new": self._row(target, new[number], depth + 1)} if known else number

    def _target(self, name: str, key: str) -> str:
        app = name.split(".")[0]
        field = self._found[name][3].field_mapping().get(key, key)
        return f"{app}." + "".join(word.title() for word in re.sub(r"_ids?$", "", field).split("_"))


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True)
