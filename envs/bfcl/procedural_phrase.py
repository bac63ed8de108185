"""What a user would say for calls: the words of the functions' documents, every value written out."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from envs.bfcl.procedural_scene import WORD, Function, Scene, parsed, stems, words_of
from store.rows import Json

OPENINGS = ("Please {}.", "Could you {}?", "I need you to {}.", "{}.", "Now {}.", "I'd like you to {}.")
RESULT = "result"
"""What every calculation calls what it gives."""
NEXT = ("Then {}.", "After that, {}.", "Next, {}.", "Also {}.")


def phrase(calls: Sequence[Json], known: Mapping[tuple[str, str], str], scene: Scene, rng: random.Random) -> str:
    """One user turn. `known`: {(call's JSON, parameter): how an earlier answer names the value}, which is then left
    unsaid."""
    said = [_call(scene.functions[call["name"]], call, known) for call in calls]
    first, *others = said
    forms = [rng.choice(OPENINGS).format(first), *(rng.choice(NEXT).format(other) for other in others)]
    return " ".join(form[0].upper() + form[1:] for form in forms)


def key(call: Json) -> str:
    return json.dumps([call["name"], call["args"]], sort_keys=True)


def _call(function: Function, call: Json, known: Mapping[tuple[str, str], str]) -> str:
    does = function.does[0].lower() + function.does[1:]
    parts = []
    for name, value in call["args"].items():
        source = known.get((key(call), name))
        parts.append(f"{_label(name, function)} {f'the {source} that you got' if source else _said(value)}")
    if not parts:
        return does
    *before, last = parts
    return f"{does}, with {', '.join(before)}{' and ' if before else ''}{last}"


def _label(name: str, function: Function) -> str:
    """The parameter's name as words; of one letter, what its document says it is."""
    if len(name) == 1:
        described = str(function.parameters.get(name, {}).get("description", name)).partition(".")[0]
        return described[0].lower() + described[1:]
    return " ".join(word.lower() for word in WORD.findall(name))


def _said(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return " and ".join(map(_said, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_said(inner)}" for name, inner in value.items())
    return json.dumps(value)


def source_of(name: str, value: Any, observation: str) -> str | None:
    """What an observation calls the value of a parameter: by a name of its own, which is akin to the parameter's."""
    found = parsed(observation)
    if not isinstance(found, dict) or isinstance(value, bool):
        return None
    names = [key for key, inner in found.items() if type(inner) is type(value) and inner == value]
    if len(names) != 1 or not (names[0] == RESULT or words_of(name) & stems(names[0])):
        return None
    return " ".join(word.lower() for word in WORD.findall(names[0]))
