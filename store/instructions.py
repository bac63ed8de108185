"""Instruction data sets: records in Alpaca or ShareGPT form as samples, and back.

    alpaca     {"instruction": str, "input": str (may be absent), "output": str, ...}
    sharegpt   {"conversations": [{"from": "human", "value": str}, {"from": "gpt", "value": str}, ...], ...}; a first
               message may be from "system"; "user" and "assistant" are read as "human" and "gpt"

Other keys of a record stay as they are. An `id`, if there is one, is the sample's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from store import datafile
from store.datafile import Fault, Record, encodable
from store.errors import UsageError
from store.rows import Json, content_id

Format = Literal["alpaca", "sharegpt"]
HUMAN, MODEL, SYSTEM = ("human", "user"), ("gpt", "assistant"), ("system",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """What was asked, and the response."""

    instruction: str
    input: str = ""
    """What the instruction is about, where the format keeps it apart."""
    response: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    index: int
    """Place among the records of the file, 0-based."""
    name: str | None
    record: Json
    place: str = ""
    """In the file, in words."""
    system: str = ""
    pairs: list[Pair]


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What a whole file holds."""

    samples: int
    faults: int
    sha256: str


class _Bad(Exception):
    """`field: why`."""


def format_of(path: Path) -> Format:
    """By the first record that can be read."""
    for record in datafile.read(path):
        if isinstance(record, Record):
            return "sharegpt" if isinstance(record.value, dict) and "conversations" in record.value else "alpaca"
    raise UsageError(f"data set: {path} holds no record")


def read(path: Path, form: Format) -> Iterator[Sample | Fault]:
    """The samples of a file in order; a Fault in place of one that is not in that form."""
    of = {"alpaca": _alpaca, "sharegpt": _sharegpt}[form]
    for index, record in enumerate(datafile.read(path)):
        if isinstance(record, Fault):
            yield record
            continue
        try:
            if not isinstance(record.value, dict):
                raise _Bad(f"record: {_shown(record.value)} is no object")
            system, pairs = of(record.value)
            name = _name(record.value)
            yield Sample(index=index, name=name, record=record.value, place=record.place, system=system, pairs=pairs)
        except _Bad as error:
            yield Fault(place=record.place, words=str(error))


def samples(path: Path, form: Format) -> Iterator[Sample]:
    """The samples of a file that `survey` found no fault in. UsageError if it has one now."""
    for sample in read(path, form):
        if isinstance(sample, Fault):
            raise UsageError(f"data set: {path}: {sample}")
        yield sample


def survey(path: Path, form: Format, tell: Callable[[Fault], None]) -> Survey:
    """Read the whole file and `tell` every fault, names that occur twice among them."""
    count = faults = 0
    names: set[int] = set()
    for sample in read(path, form):
        count += 1
        fault = sample if isinstance(sample, Fault) else _twice(sample, names)
        if fault:
            faults += 1
            tell(fault)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Survey(samples=count, faults=faults, sha256=digest)


def _twice(sample: Sample, names: set[int]) -> Fault | None:
    if sample.name is None:
        return None
    key = int(content_id(sample.name), 16)
    if key in names:
        return Fault(place=sample.place, words=f"id: {sample.name!r} occurs before; ids must differ")
    names.add(key)
    return None


def with_responses(sample: Sample, form: Format, responses: Sequence[str]) -> dict[str, Any]:
    """The sample's record with other responses; everything else as it was."""
    if form == "alpaca":
        return {**sample.record, "output": responses[0]}
    left = iter(responses)
    talk = [{**one, "value": next(left)} if one["from"] in MODEL else one for one in sample.record["conversations"]]
    return {**sample.record, "conversations": talk}


def messages(sample: Sample) -> list[dict[str, Any]]:
    """The sample as chat messages: system, user, assistant, ..."""
    talk = [{"role": "system", "content": sample.system}] if sample.system else []
    for pair in sample.pairs:
        asked = f"{pair.instruction}\n\n{pair.input}" if pair.input else pair.instruction
        talk += [{"role": "user", "content": asked}, {"role": "assistant", "content": pair.response}]
    return talk


def _alpaca(record: dict[str, Any]) -> tuple[str, list[Pair]]:
    instruction, output = (_text(record, key, key) for key in ("instruction", "output"))
    about = "" if record.get("input") is None else _text(record, "input", "input")
    return "", [Pair(instruction=instruction, input=about, response=output)]


def _sharegpt(record: dict[str, Any]) -> tuple[str, list[Pair]]:
    talk = record.get("conversations")
    if not isinstance(talk, list):
        raise _Bad(f"conversations: {_missing(record) if talk is None else f'{_shown(talk)} is no list of messages'}")
    said = [_message(message, f"conversations[{at}]") for at, message in enumerate(talk)]
    system = said.pop(0)[1] if said and said[0][0] in SYSTEM else ""
    if not said or len(said) % 2:
        raise _Bad(f"conversations: {len(said)} turns; as many of gpt as of human, and at least one of each")
    pairs = []
    for at in range(0, len(said), 2):
        for role, wanted in zip((said[at][0], said[at + 1][0]), (HUMAN, MODEL), strict=True):
            if role not in wanted:
                raise _Bad(f"conversations: turn {at + 1} and the next are from {said[at][0]} and {said[at + 1][0]}, "
                           "not from human and gpt")  # fmt: skip
        pairs.append(Pair(instruction=said[at][1], response=said[at + 1][1]))
    return system, pairs


def _message(message: Json, field: str) -> tuple[str, str]:
    if not isinstance(message, dict):
        raise _Bad(f"{field}: {_shown(message)} is no object")
    role = _text(message, "from", f"{field}.from")
    if role not in (*HUMAN, *MODEL, *SYSTEM):
        raise _Bad(f"{field}.from: {role!r} is no known role; human, gpt and, first of all, system are")
    return role, _text(message, "value", f"{field}.value")


def _text(record: dict[str, Any], key: str, field: str) -> str:
    if key not in record:
        raise _Bad(f"{field}: {_missing(record)}" if key == field else f"{field}: missing")
    value = record[key]
    if not isinstance(value, str):
        raise _Bad(f"{field}: {_shown(value)} is no text")
    if not encodable([value]):
        raise _Bad(f"{field}: half a character (a lone surrogate), which UTF-8 can't hold")
    return value


def _missing(record: dict[str, Any]) -> str:
    return f"missing; the record has {', '.join(map(str, list(record)[:8])) or 'nothing'}"


def _name(record: dict[str, Any]) -> str | None:
    name = record.get("id")
    if name is None:
        return None
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise _Bad(f"id: {_shown(name)} is no text and no whole number")
    return str(name)


def _shown(value: Json) -> str:
    return repr(value)[:60]
