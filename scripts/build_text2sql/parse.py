"""The questions as they are written: a question on a line of its own, its SQL indented below it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    world: str
    question: str
    sql: str
    kind: str = ""
    """Of a rewording: how it differs from the gold item that it asks for."""


def parse(questions: dict[str, str]) -> list[Item]:
    """Items in written order. ValueError names the world and line that does not fit."""
    return [item for world, text in questions.items() for item in _parse_world(world, text)]


def _parse_world(world: str, text: str) -> list[Item]:
    items: list[Item] = []
    for line in text.strip("\n").splitlines():
        if not line.startswith("    "):
            items.append(Item(world, line.strip(), ""))
        elif items:
            last = items.pop()
            items.append(Item(world, last.question, f"{last.sql} {line.strip()}".strip()))
        else:
            raise ValueError(f"{world}: SQL before the first question: {line!r}")
    for item in items:
        if not item.question or not item.sql:
            raise ValueError(f"{world}: a question without SQL or an empty line: {item.question!r}")
    return items


KINDS = ("paraphrased", "vague", "roundabout")


def reworded(questions: dict[str, str], gold: list[Item]) -> list[Item]:
    """Other ways to ask gold items: a gold question on a line of its own, below it `kind: question`. ValueError for one
    that names no gold item or no kind."""
    answers = {(item.world, item.question): item.sql for item in gold}
    found = []
    for item in parse(questions):
        kind, _, question = item.sql.partition(": ")
        if (item.world, item.question) not in answers or kind not in KINDS:
            raise ValueError(f"{item.world}: {item.question!r} is no gold question, or {kind!r} none of {KINDS}")
        found.append(Item(item.world, question, answers[item.world, item.question], kind))
    return found
