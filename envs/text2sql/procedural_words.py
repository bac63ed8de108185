"""Words for names, numbers and comparisons: the vocabulary of procedural_phrase.

spoken, plural, role   nouns from table and column names
Wording                how people speak of a measure: `older than`, `the cheapest`
predicate              "with more than 5 pages" -> "have more than 5 pages"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.text2sql.procedural_query import Hole, Literal, Query

IRREGULAR = {"person": "people", "child": "children", "man": "men", "woman": "women", "staff": "staff"}
COUNTED = ("pages", "days", "hours", "credits", "fans", "goals", "points", "seats", "minutes", "stars", "beds", "plays")
"""Columns whose name is itself a plural of what they count."""
PLACES = ("city", "country", "town", "region", "state")
PEOPLE = {
    *(
        "author",
        "member",
        "doctor",
        "patient",
        "customer",
        "teacher",
        "student",
        "player",
        "employee",
        "person",
        "user",
    ),
    *("guest", "artist", "singer", "pilot", "driver", "coach", "nurse", "worker", "client", "owner", "passenger"),
}
SHORT = {"dept": "department", "qty": "quantity", "yr": "year", "num": "number", "desc": "description"}
COMPARED = {
    "=": ("",),
    "!=": ("not ", "different from "),
    ">": ("above ", "greater than ", "over ", "higher than ", "more than "),
    "<": ("below ", "less than ", "under ", "lower than "),
    ">=": ("at least ", "no less than "),
    "<=": ("at most ", "no more than "),
}
AMOUNT = {
    "=": ("exactly ",),
    "!=": ("any number but ",),
    ">": ("more than ", "over "),
    "<": ("fewer than ", "less than "),
    ">=": ("at least ",),
    "<=": ("at most ", "no more than "),
}
IN_TIME = {"=": ("in ", "from "), ">": ("after ",), "<": ("before ",)}
IN_TIME |= {">=": ("in or after ",), "<=": ("in or before ",)}


@dataclass(frozen=True, slots=True)
class Wording:
    """How people compare by a measure. `{}` stands for the value."""

    more: tuple[str, ...]
    less: tuple[str, ...]
    most: str
    """Adjective before the noun."""
    least: str


_COSTLY = Wording(
    ("that cost more than {}", "priced over {}"), ("that cost less than {}",), "most expensive", "cheapest"
)
WORDINGS = {
    "age": Wording(("older than {}", "over the age of {}"), ("younger than {}",), "oldest", "youngest"),
    "price": _COSTLY,
    "cost": _COSTLY,
    "pages": Wording(("longer than {} pages",), ("shorter than {} pages",), "longest", "shortest"),
    "salary": Wording(
        ("who earn more than {}", "paid more than {}"), ("who earn less than {}",), "best paid", "worst paid"
    ),
    "height": Wording(("taller than {}",), ("shorter than {}",), "tallest", "shortest"),
    "weight": Wording(("heavier than {}",), ("lighter than {}",), "heaviest", "lightest"),
}


def spoken(name: str) -> str:
    """A table's or column's name in words."""
    return " ".join(SHORT.get(word, word) for word in name.lower().split("_") if word)


def plural(noun: str) -> str:
    """`cities`; of a measure `numbers of pages`."""
    if noun.startswith("number of "):
        return f"numbers{noun[6:]}"
    head, _, last = noun.rpartition(" ")
    start = f"{head} " if head else ""
    if last in IRREGULAR:
        return start + IRREGULAR[last]
    if last in COUNTED:
        return noun
    if last.endswith(("s", "x", "ch", "sh", "z")):
        return f"{noun}es"
    if last.endswith("y") and last[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def measured(column: str) -> str:
    """The column as a noun: `number of pages`, `city`."""
    word = spoken(column)
    return f"number of {word}" if word in COUNTED else word


def role(column: str, parent: str) -> str:
    """What a foreign key calls its parent: `home_id` -> `home team`, `author_id` -> `author`."""
    stem = spoken(column.lower().removesuffix("id").removesuffix("_"))
    noun = spoken(parent)
    return noun if not stem or stem in noun or noun in stem else f"{stem} {noun}"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" {last} {parts[-1]}"


def article(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def shown(value: Literal | Hole | Query) -> str:
    """A literal as it stands in a sentence."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def predicate(modifier: str, *, one: bool = False) -> str | None:
    """The modifier as what its noun is or does: "are from Oslo", of one "is from Oslo"; None for `whose`."""
    head, _, rest = modifier.partition(" ")
    if head == "whose":
        return None
    if head == "with":
        return f"{'has' if one else 'have'} {rest}"
    if head in ("who", "that"):
        verb, _, rest = rest.partition(" ")
        return f"{ {'have': 'has', 'are': 'is'}.get(verb, f'{verb}s') if one else verb } {rest}"
    return f"{'is' if one else 'are'} {modifier}"
