"""Reading what models answer in JSON: strict shapes, ValueError with words that the model can act on.

Nothing here guesses. A reply that does not have the asked-for shape is unreadable; the caller asks once more and then
takes the safe way (a plain context, no tasks, a rejected candidate).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Protocol, TypedDict, TypeVar

import msgspec

from envs.plain import plain
from graphs.state import DraftJson
from store.rows import Json

MAX_REPLY = 20_000
"""Characters of a reply that is read at all."""
_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)

Line = Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]
Turns = Annotated[list[Line], msgspec.Meta(min_length=1, max_length=20)]


class _Context(TypedDict):
    where: str
    failure: str
    vary: list[str]


class _Draft(msgspec.Struct, forbid_unknown_fields=True):
    user_turns: Turns
    reference: Any


class _Tasks(msgspec.Struct, forbid_unknown_fields=True):
    tasks: list[_Draft]


class _Repair(msgspec.Struct, forbid_unknown_fields=True):
    task: _Draft | None


class _Finding(msgspec.Struct, forbid_unknown_fields=True):
    problem: Line | None


class _Words(msgspec.Struct, forbid_unknown_fields=True):
    user_turns: Turns


Score = Annotated[float, msgspec.Meta(ge=1, le=10)]


class _Comparison(msgspec.Struct, forbid_unknown_fields=True):
    first: Score
    second: Score
    reason: str = ""


class _Rating(msgspec.Struct, forbid_unknown_fields=True):
    score: Score
    reason: str = ""


Grade = Annotated[int, msgspec.Meta(ge=1, le=5)]
GRADES = ("validity", "difficulty_gain", "diversity", "realism")
"""What a judge of tasks scores, 1 to 5 each."""


class Opinion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A judge's whole verdict on a task. Nothing but `true` adopts."""

    validity: Grade
    difficulty_gain: Grade
    diversity: Grade
    realism: Grade
    adopt: bool
    reason: str = ""

    @property
    def scores(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in GRADES}


T = TypeVar("T", covariant=True)


class Reader(Protocol[T]):
    def __call__(self, text: str) -> T: ...


def read_context(text: str) -> Json:
    """An exploration context: `where`, `failure`, `vary`, and whatever else the model adds."""
    context = _decode(text, Json)
    _convert(context, _Context)
    return context


def read_tasks(text: str) -> list[DraftJson]:
    """Task-solution pairs, equal ones once, in the order given."""
    drafts: dict[bytes, DraftJson] = {}
    for draft in _decode(text, _Tasks).tasks:
        drafts.setdefault(msgspec.json.encode(draft, order="sorted"), _plain(draft))
    return list(drafts.values())


def read_repair(text: str) -> DraftJson | None:
    """The repaired draft; None = given up."""
    draft = _decode(text, _Repair).task
    return None if draft is None else _plain(draft)


def read_finding(text: str) -> str:
    """What the validator's try found wrong; empty = nothing."""
    return " ".join((_decode(text, _Finding).problem or "").split())


def read_words(text: str) -> list[str]:
    """What the user of a task is to say, one entry a turn."""
    turns: list[str] = _decode(text, _Words).user_turns
    return turns


def read_comparison(text: str) -> tuple[float, float]:
    """A judge's scores, 1 to 10, of the response shown first and of the other."""
    comparison = _decode(text, _Comparison)
    return comparison.first, comparison.second


def read_rating(text: str) -> float:
    """A judge's score, 1 to 10, of one response."""
    return float(_decode(text, _Rating).score)


def read_opinion(text: str) -> Opinion:
    """A judge's verdict on a task."""
    opinion: Opinion = _decode(text, Opinion)
    return opinion


def opinion_schema() -> Json:
    """JSON schema of a judge's verdict on a task."""
    return _schema(dict.fromkeys(GRADES, _score(5)) | {"adopt": {"type": "boolean"}})


def verdict_schema(*scores: str) -> Json:
    """JSON schema of a judge's answer with these scores, 1 to 10."""
    return _schema(dict.fromkeys(scores, _score(10)))


def _score(highest: int) -> Json:
    """An enumeration, since some endpoints refuse a schema with bounds."""
    return {"type": "integer", "enum": list(range(1, highest + 1))}


def _schema(parts: Json) -> Json:
    """The reason comes first, so that it is written first."""
    properties = {"reason": {"type": "string"}, **parts}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _plain(draft: _Draft) -> DraftJson:
    return DraftJson(user_turns=draft.user_turns, reference=draft.reference)


def _decode(text: str, shape: Any) -> Any:
    if len(text) > MAX_REPLY:
        raise ValueError(f"the answer has {len(text)} characters, at most {MAX_REPLY} are read")
    fenced = _FENCE.match(text)
    try:
        raw = msgspec.json.decode(fenced[1] if fenced else text)
        return msgspec.convert(plain(raw), shape)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not the JSON object that was asked for: {error}") from None


def _convert(value: Json, shape: Any) -> None:
    try:
        msgspec.convert(value, shape)
    except ValueError as error:
        raise ValueError(f"not the JSON object that was asked for: {error}") from None
