"""The assertions of a task of ours: what an episode changed, canonically, is what the reference changed.

Ids of new rows are left out, and references to new rows are replaced by these rows, so the same doings in another
order are equal. What only tells when or how often something was done is left out too.

Also, as it stands, the `evaluation.py` of each native task (envs/appworld/native.py): no import but the standard
library and the engine.
"""

from __future__ import annotations

import json
import re
from typing import Any

from appworld.apps.model_lib import ModelHashHandler
from appworld.common.utils import answer_to_text

Json = Any
VOLATILE = re.compile(r"(_code|_code_expiry|last_logged_in|download_count)$")
IGNORED = ("supervisor.Task", "admin.PaymentCard")
"""As the engine's own comparison has it; what became of the task is told apart."""
NOT_GIVEN = "<<NOT_GIVEN>>"
"""The engine's mark of a task that is not done."""
DEPTH = 3
"""References followed from one new row."""


def evaluate(
    test: Any, public_data: Json, private_data: Json, main_user: Json, models: Any, ground_truth_answer: Json
) -> None:
    """What the engine calls to grade a native task; the requirements are those of its test_data.json."""
    found, wanted = changes(models), json.loads(json.dumps(private_data["changes"]))
    with test("assert the task is marked as done."):
        test.case(models.end.supervisor.Task.first().status, "==", "success")
    with test("assert the answer is that of the reference."):
        test.case(answer(models.end.supervisor.Task.first().answer), "==", ground_truth_answer)
    with test("assert the models that changed are those of the reference."):
        test.case(sorted(found), "==", sorted(wanted))
    with test("assert the rows changed as those of the reference."):
        test.case(found, "==", wanted)


def changes(pair: Any) -> Json:
    """{app.Model: {"added", "updated", "removed"}} of the engine's pair of states."""
    _compare_records(pair)
    return _Changes(pair).canonical()


def _compare_records(pair: Any) -> None:
    """The engine skips models whose counters of writes are equal, which two loaded states' may be by chance."""
    start, end = (ModelHashHandler.data[side.to_db_home_path] for side in (pair.start, pair.end))
    for app in pair.app_names:
        for name in pair.start[app].SQLModel.model_names():
            end[app][name] += start[app][name] == end[app][name]


def answer(text: Any) -> str | None:
    """As the engine compares answers; None where none was given."""
    if not isinstance(text, str):
        return None
    try:
        found = json.loads(text)
        return None if found in (None, NOT_GIVEN) else str(answer_to_text(found))
    except (ValueError, TypeError):
        return text


class _Changes:
    def __init__(self, pair: Any) -> None:
        self._found: dict[str, tuple[list[Json], list[tuple[int, Json]], list[int], Any]] = {}
        for name in sorted(set(pair.changed_model_names()) - set(IGNORED)):
            app, kind = name.split(".")
            added, updated, removed = pair.changed_records(name)
            fields = {row.id: pair.changed_field_names(name, row.id) or () for row in updated}
            changed = [(row.id, {key: getattr(row, key) for key in fields[row.id]}) for row in updated]
            rows = [row.to_dict() for row in added]
            self._found[name] = (rows, changed, [row.id for row in removed], pair.end[app][kind])
        self._new = {name: {row["id"]: row for row in found[0]} for name, found in self._found.items()}

    def canonical(self) -> Json:
        found = {}
        for name, (added, updated, removed, _) in self._found.items():
            kept = ((number, self._row(name, row)) for number, row in updated)
            change = {
                "added": sorted((self._row(name, row) for row in added), key=_text),
                "updated": sorted(([number, row] for number, row in kept if row), key=_text),
                "removed": sorted(removed),
            }
            if any(change.values()):
                found[name] = change
        return found

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
