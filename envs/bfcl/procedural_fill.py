"""Arguments for a function: typed values that the explorer has been shown, chosen by what a parameter is called."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from envs.bfcl.procedural_files import Files
from envs.bfcl.procedural_scene import Function, Scene, is_number, words_of
from store.rows import Json

OPTIONAL = 0.3
"""Share of optional parameters that are given."""
EXACT = frozenset(
    ["airport", "card", "client", "code", "date", "expiration", "id", "secret", "stock", "symbol", "token", "zipcode"]
)
"""Words of parameters for which any text will not do."""
WRITTEN = frozenset(["comment", "content", "description", "message", "resolution", "title"])
"""Words of parameters that take a text."""
_OPTIONS = re.compile(r"(?:\[Enum\]:?|[Oo]ptions (?:are|here):?|options:)\s*(.+)$")
_EITHER = re.compile(r"\((\w+)/(\w+)\)")
_RANGE = re.compile(r"(?:from|between) (\d+)(?: \([^)]*\))? (?:to|and) (\d+)")
_QUOTED = re.compile(r"'([^']{1,30})'")


def fill(function: Function, scene: Scene, place: Files, rng: random.Random) -> dict[str, Any] | None:
    """Arguments for all required parameters and some others; None where one cannot be had."""
    args: dict[str, Any] = {}
    for name, schema in function.parameters.items():
        if name not in function.required and rng.random() > OPTIONAL:
            continue
        value = _value(function, name, schema, scene, place, rng)
        if value is not None:
            args[name] = value
        elif name in function.required:
            return None
    return None if len(args) > 1 and _repeats(list(args.values())) else args


def _repeats(values: list[Any]) -> bool:
    """`mv a a`, or the distance from a place to itself."""
    strings = [value for value in values if isinstance(value, str)]
    return len(set(strings)) < len(strings)


def _value(function: Function, name: str, schema: Json, scene: Scene, place: Files, rng: random.Random) -> Any:
    if (function.name, name) in FILES:
        return _pick(FILES[function.name, name](place, scene), rng)
    kind = schema.get("type")
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        return _array(function, name, schema, scene, place, rng)
    if kind == "object":
        return _object(function, schema, scene, place, rng)
    if options := _options(schema):
        return rng.choice(options) if kind == "string" else None
    return _number(name, schema, scene, rng) if kind in ("number", "integer") else _string(name, schema, scene, rng)


def _array(function: Function, name: str, schema: Json, scene: Scene, place: Files, rng: random.Random) -> Any:
    item = {"description": schema.get("description", ""), **schema.get("items", {})}
    drawn = [_value(function, name, item, scene, place, rng) for _ in range(rng.choice((2, 2, 3)))]
    return list(dict.fromkeys(value for value in drawn if value is not None)) or None


def _object(function: Function, schema: Json, scene: Scene, place: Files, rng: random.Random) -> Any:
    inner = schema.get("properties") or {}
    for name in rng.sample(sorted(inner), len(inner)):
        value = _value(function, name, inner[name], scene, place, rng)
        if value is not None:
            return {name: value}
    return None


def _options(schema: Json) -> list[str]:
    """The words that a parameter takes, where its document lists them."""
    if schema.get("enum"):
        return [str(word) for word in schema["enum"]]
    text = str(schema.get("description", ""))
    found = _OPTIONS.search(text)
    if found is None and (either := _EITHER.search(text)):
        return list(either.groups())
    if found is None:
        return _QUOTED.findall(text) if "e.g." in text or "Mode" in text else []
    return [word for part in found[1].split(",") if (word := part.strip(" []\"'.")) and len(word) <= 40]


def _number(name: str, schema: Json, scene: Scene, rng: random.Random) -> Any:
    whole = schema["type"] == "integer"
    if limits := _RANGE.search(str(schema.get("description", ""))):
        low, high = map(int, limits.groups())
        inside = [number for number in scene.numbers if low <= number <= high and (number == int(number) or not whole)]
        return rng.choice([low, high, *([int(n) if whole else n for n in inside])])
    known = [value for value in _matching(name, scene) if _as_number(value, whole) is not None]
    if known:
        return _as_number(_late(known, rng), whole)
    if EXACT & words_of(name):
        return None
    return _pick(scene.small if whole else scene.numbers, rng)


def _as_number(value: Any, whole: bool) -> Any:
    if isinstance(value, str) and value.isdecimal() and len(value) < 16:
        value = int(value)
    if not is_number(value) or (whole and value != int(value)):
        return None
    return int(value) if whole else value


def _string(name: str, schema: Json, scene: Scene, rng: random.Random) -> Any:
    words = words_of(name)
    if WRITTEN & words:
        return _pick(scene.texts, rng) or _pick(scene.words, rng)
    known = [value for value in _matching(name, scene) if isinstance(value, str) and 0 < len(value) <= 60]
    if known and (EXACT & words or rng.random() < 0.9):
        return _late(known, rng)
    return None if EXACT & words else _pick(scene.words, rng)


def _matching(name: str, scene: Scene) -> list[Any]:
    """Facts whose keys share the most words with the parameter, at least one that is not only `id` or `name`."""
    words = words_of(name)
    telling = words - {"id", "name"} or words
    scored = [(len(words & fact.keys), fact.value) for fact in scene.facts if telling & fact.keys]
    best = max((score for score, _ in scored), default=0)
    return list(dict.fromkeys(value for score, value in scored if score == best))


def _late(values: Sequence[Any], rng: random.Random) -> Any:
    """One of them, the newest half of the time: what was just observed leads on."""
    return values[-1] if rng.random() < 0.5 else rng.choice(values)


def _pick(values: Sequence[Any], rng: random.Random) -> Any:
    return rng.choice(values) if values else None


def _new(place: Files, scene: Scene) -> list[str]:
    return [word for word in scene.words if word not in place.here]


def _patterns(place: Files, scene: Scene) -> list[str]:
    texts = [place.contents[name] for name in place.files if name in place.contents]
    return list(dict.fromkeys(re.findall(r"\b\w{3,15}\b", " ".join(texts))))


def _up_or_down(place: Files, scene: Scene) -> list[str]:
    return [*place.folders, *place.folders, *([".."] if len(place.path) > 1 else [])]


def _files(place: Files, scene: Scene) -> list[str]:
    return place.files


def _entries(place: Files, scene: Scene) -> list[str]:
    return list(place.here)


FILES: dict[tuple[str, str], Callable[[Files, Scene], Sequence[Any]]] = {
    **{(name, "file_name"): _files for name in ("cat", "sort", "tail", "wc", "grep")},
    ("diff", "file_name1"): _files,
    ("diff", "file_name2"): _files,
    ("cp", "source"): _files,
    ("mv", "source"): _files,
    ("rm", "file_name"): _entries,
    ("cp", "destination"): lambda place, scene: [*place.folders, *place.folders, *_new(place, scene)[:1]],
    ("mv", "destination"): lambda place, scene: [*place.folders, *place.folders, *_new(place, scene)[:1]],
    ("cd", "folder"): _up_or_down,
    ("rmdir", "dir_name"): lambda place, scene: place.empty,
    ("mkdir", "dir_name"): _new,
    ("touch", "file_name"): _new,
    ("echo", "file_name"): lambda place, scene: [*place.files, *_new(place, scene)[:2]],
    ("grep", "pattern"): _patterns,
    ("find", "path"): lambda place, scene: ["."],
    ("find", "name"): _entries,
    ("wc", "mode"): lambda place, scene: ["l", "w", "c"],
}
"""Parameters that name something in the file system."""
