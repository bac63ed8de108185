"""What the procedural explorer knows: read from the view that an LLM explorer is shown, and from nothing else.

Function   a tool: its parameters, the service that it belongs to, what it does in words
Fact       a value that the state or an observation showed, and the words of the keys that lead to it
Scene      functions, facts, words and texts, and what was called so far
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from store.rows import Json

_BELONGS = "Tool description:"
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
READS = {
    "add", "calculate", "check", "compare", "compute", "convert", "count", "display", "divide", "estimate", "find",
    "get", "list", "multiply", "raise", "retrieve", "return", "round", "search", "show", "sort", "subtract", "view",
}  # fmt: skip
"""Verbs of functions that change nothing. `add` as in numbers: others of that verb have their object after it."""
SAME = {
    "symbol": "stock",
    "receiver": "user",
    "contact": "user",
    "from": "airport",
    "to": "airport",
    "citya": "zipcode",
    "cityb": "zipcode",
    "location": "city",
}
"""Words of parameters for which what is shown has another one."""
TEXT_CHARS = 80
"""Of a text that is written somewhere."""


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    service: str
    does: str
    """First sentence of its description, in the imperative, without a full stop."""
    parameters: Mapping[str, Json]
    required: frozenset[str]

    @property
    def reads(self) -> bool:
        verb, _, rest = self.does.lower().partition(" ")
        return verb in READS and not (verb == "add" and rest.split()[0] != "two")

    @property
    def logs_in(self) -> bool:
        return ("login" in self.name and "status" not in self.name) or self.name.startswith("authenticate")


@dataclass(frozen=True, slots=True)
class Fact:
    keys: frozenset[str]
    """Stems of the words of its own key and the one above."""
    value: Any


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the log that was answered without an error."""

    at: int
    name: str
    args: Mapping[str, Any]
    observation: str


@dataclass(frozen=True)
class Scene:
    functions: Mapping[str, Function]
    state: Json
    log: Sequence[Json]
    told: str
    """The world's description, less the state."""

    @cached_property
    def given(self) -> str:
        """The state as text."""
        return json.dumps(self.state, ensure_ascii=False)

    @cached_property
    def calls(self) -> list[Call]:
        return [
            Call(at=at, name=entry["name"], args=entry["args"], observation=str(entry["observation"]))
            for at, entry in enumerate(self.log)
            if not entry["failed"] and entry["name"] in self.functions
        ]

    @cached_property
    def facts(self) -> list[Fact]:
        """Of the state, then of what was observed; the newest come last."""
        found = list(_facts(self.state, ("", "")))
        for call in self.calls:
            found += _facts(parsed(call.observation), (call.name, ""))
        return found

    @cached_property
    def texts(self) -> list[str]:
        """Sentences that were read somewhere."""
        strings = [fact.value for fact in self.facts if isinstance(fact.value, str)]
        sentences = [part.strip() for text in strings for part in _SENTENCE.split(text)]
        return [text for text in dict.fromkeys(sentences) if text.count(" ") >= 2 and len(text) <= TEXT_CHARS]

    @cached_property
    def words(self) -> list[str]:
        """Plain words: of the state where it has some, else of the services' descriptions."""
        own = [word for text in self.texts for word in re.findall(r"\b[A-Za-z]{4,12}\b", text)]
        return list(dict.fromkeys(own or re.findall(r"\b[a-z]{5,12}\b", self.told)))

    @cached_property
    def numbers(self) -> list[float]:
        found = [fact.value for fact in self.facts if is_number(fact.value)]
        documented = [float(n) if "." in n else int(n) for n in re.findall(r"\b\d{1,4}(?:\.\d+)?\b", self._documents)]
        return list(dict.fromkeys(found or documented))

    @cached_property
    def small(self) -> list[int]:
        """Whole numbers that can count something."""
        found = [number for number in self.numbers if 1 <= number <= 20 and number == int(number)]
        documented = [int(number) for number in re.findall(r"\b\d{1,2}\b", self._documents)]
        return list(dict.fromkeys([*map(int, found), *(n for n in documented if n)]))

    @property
    def _documents(self) -> str:
        """Descriptions of parameters, whose numbers are defaults and limits."""
        return " ".join(str(p.get("description")) for f in self.functions.values() for p in f.parameters.values())


def read(view: Json) -> Scene:
    told = str(view.get("world") or "")
    functions = {tool["function"]["name"]: _function(tool["function"]) for tool in view.get("tools") or []}
    states = [found for line in told.splitlines() if line.startswith("{") and isinstance(found := parsed(line), dict)]
    return Scene(
        functions=functions, state=states[0] if states else {}, log=view.get("log") or [], told=told.split("\n{")[0]
    )


def _function(document: Json) -> Function:
    service, _, does = document["description"].rpartition(_BELONGS)
    schema = document["parameters"]
    return Function(
        name=document["name"],
        service=service.strip(),
        does=_imperative(_SENTENCE.split(does.strip())[0].rstrip(".")),
        parameters=schema.get("properties", {}),
        required=frozenset(schema.get("required", ())),
    )


def _imperative(sentence: str) -> str:
    """`Presses the pedal` -> `Press the pedal`."""
    verb, space, rest = sentence.partition(" ")
    if verb.endswith("s") and not verb.endswith("ss"):
        verb = verb[:-2] if verb.endswith("sses") else verb[:-1]
    return verb + space + rest


def parsed(text: str) -> Json:
    """What a JSON text says, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def stems(name: str) -> frozenset[str]:
    """`stocks` and `stockList` share one."""
    return frozenset(word.lower().removesuffix("s") for word in WORD.findall(name))


def words_of(parameter: str) -> frozenset[str]:
    """The stems of a parameter's name, as they are called where its values are shown."""
    own = {parameter.lower()} if parameter.lower() in SAME else stems(parameter)
    return frozenset(SAME.get(word, word) for word in own)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and "e" not in repr(value)


def _facts(value: Json, path: tuple[str, str]) -> Iterator[Fact]:
    """Leaves with the words of the last two keys; the keys of a table of records are facts as well: its ids."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, dict) and path[1]:
                yield Fact(stems(path[1]) | {"id", "name"}, key)
            yield from _facts(inner, (path[1], key))
    elif isinstance(value, list):
        for inner in value:
            yield from _facts(inner, path)
    elif value is not None and not isinstance(value, bool):
        yield Fact(stems(path[0]) | stems(path[1]), value)
