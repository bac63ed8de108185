"""JSON that a model wrote, as far as templates, checkpoints and rows can hold it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from store.rows import Json

MAX_DEPTH = 50
"""Nesting that is read; templates, checkpoints and rows hold no more than some hundred levels."""


def shallow(value: Json) -> Json:
    """The JSON value itself: ValueError for what is nested more than `MAX_DEPTH` deep."""
    for _ in _levels(value):
        pass
    return value


def plain(value: Json) -> Json:
    """The JSON value itself, if checkpoints and rows can hold it: ValueError for integers over 64 bits too."""
    for level in _levels(value):
        if any(isinstance(item, int) and not -(2**63) <= item < 2**63 for item in level):
            raise ValueError("a whole number in it does not fit 64 bits")
    return value


def _levels(value: Json) -> Iterator[list[Json]]:
    level = [value]
    for _ in range(MAX_DEPTH):
        yield level
        level = [inner for item in level for inner in _children(item)]
        if not level:
            return
    raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


def _children(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
