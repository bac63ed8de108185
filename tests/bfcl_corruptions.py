"""Seeded corruptions of official answers: what policies get wrong, one to three things at a time."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from typing import Any

from envs.bfcl.catalog import Calls, Entry

Turns = list[list[Calls]]
"""Per turn steps, per step calls; a step is what one message holds."""
KINDS = ("drop", "value", "add", "add_getter", "reorder", "repeat", "bad_name", "bad_keyword", "bad_type", "other_turn")
GETTERS = (
    "ls",
    "pwd",
    "get_account_info",
    "displayCarStatus",
    "get_watchlist",
    "list_all_airports",
    "view_messages_sent",
)


class Corruptor:
    def __init__(self, entries: dict[str, Entry], seed: int) -> None:
        self._entries = list(entries.values())
        self._rng = random.Random(seed)
        self._pool: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for entry in self._entries:
            self._pool["+".join(sorted(entry.classes))] += [call for turn in entry.reference for call in turn]

    def one(self) -> tuple[Entry, Turns]:
        while True:
            entry = self._rng.choice(self._entries)
            turns = self._steps(entry)
            for _ in range(self._rng.choice([1, 1, 1, 2, 3])):
                self._corrupt(entry, turns)
            turns = [[step for step in turn if step] for turn in turns]
            if max(map(len, turns)) <= 20:
                return entry, turns

    def _steps(self, entry: Entry) -> Turns:
        grouped = self._rng.random() < 0.5
        return [
            ([copy.deepcopy(turn)] if turn else []) if grouped else [[copy.deepcopy(call)] for call in turn]
            for turn in entry.reference
        ]

    def _corrupt(self, entry: Entry, turns: Turns) -> None:
        places = [(t, s, c) for t, turn in enumerate(turns) for s, step in enumerate(turn) for c in range(len(step))]
        if not places:
            return
        rng = self._rng
        t, s, c = rng.choice(places)
        step = turns[t][s]
        call = step[c]
        name = rng.choice(list(call["args"])) if call["args"] else None
        match rng.choice(KINDS):
            case "drop":
                step.pop(c)
            case "value" if name:
                call["args"][name] = self._near(call["args"][name])
            case "add":
                self._insert(turns, copy.deepcopy(rng.choice(self._pool["+".join(sorted(entry.classes))])))
            case "add_getter":
                self._insert(turns, {"name": rng.choice(GETTERS), "args": {}})
            case "reorder":
                rng.shuffle(step if len(step) > 1 else turns[t])
            case "repeat":
                turns[t].insert(s, copy.deepcopy(step))
            case "bad_name":
                call["name"] += "z"
            case "bad_keyword" if name:
                call["args"][name + "_"] = call["args"].pop(name)
            case "bad_type" if name:
                call["args"][name] = rng.choice([None, [], {}, 3.5, "3", [1, "a"]])
            case "other_turn" if len(turns) > 1:
                turns[(t + 1) % len(turns)].insert(0, turns[t].pop(s))

    def _insert(self, turns: Turns, call: dict[str, Any]) -> None:
        turn = self._rng.choice(turns)
        turn.insert(self._rng.randrange(len(turn) + 1), [call])

    def _near(self, value: Any) -> Any:
        rng = self._rng
        match value:
            case bool():
                return not value
            case int():
                return rng.choice([value + 1, value - 1, 0, value * 10, -value, str(value)])
            case float():
                return rng.choice([value * 1.1, value + 1, -value, int(value)])
            case str():
                return rng.choice([value + "x", value[:-1], value.upper(), "", "..", "/", "a'b\"c"])
            case list():
                return rng.choice([[], value[:-1], value + value[:1], value[::-1]])
        return None


def text(call: dict[str, Any]) -> str:
    """The call as the package takes it."""
    return f"{call['name']}({', '.join(f'{name}={value!r}' for name, value in call['args'].items())})"
