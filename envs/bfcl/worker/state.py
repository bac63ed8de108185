"""What two sets of instances are compared by: their public attributes, however deep, shared or cyclic."""

from __future__ import annotations

from typing import Any


def flat(value: Any) -> list[Any]:
    """A value as a flat list of its parts, each object once: takes cycles and depth as they come."""
    numbers: dict[int, int] = {}
    parts: list[Any] = []
    todo = [value]
    while todo:
        here = todo.pop()
        if isinstance(here, set):
            here = sorted(here, key=repr)
        inner = here if isinstance(here, dict | list | tuple) else public(here) if hasattr(here, "__dict__") else None
        if inner is None:
            parts.append([type(here).__name__, repr(here)])
        elif id(here) in numbers:
            parts.append(["again", numbers[id(here)]])
        else:
            numbers[id(here)] = len(numbers)
            pairs = sorted(inner.items(), key=repr) if isinstance(inner, dict) else enumerate(inner)
            keys, values = zip(*pairs, strict=True) if inner else ((), ())
            parts.append([type(here).__name__, list(map(repr, keys))])
            todo.extend(reversed(values))
    return parts


def public(instance: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(instance).items() if not name.startswith("_")}


def differs(mine: Any, reference: Any) -> bool:
    try:
        return bool(mine != reference)
    except RecursionError:  # a directory in itself, or a very deep one
        return flat(mine) != flat(reference)
