"""The blocks that the procedural explorer writes, and the tasks that it makes of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from envs.appworld.procedural_scene import RECORD, Act, Doc, Row, Scene, Source

ROWS = 8
"""Rows of a list that are printed."""
PRINT_ROWS = f"print(json.dumps(rows[:{ROWS}] if isinstance(rows, list) else rows))"
KEYS = (
    "title", "name", "product_name", "first_name", "subject", "label", "description", "message", "content", "body",
    "path",
)  # fmt: skip
"""What a row is told by, the best first."""
WORDS = (
    "title",
    "name",
    "content",
    "description",
    "message",
    "comment",
    "label",
    "review",
    "body",
    "subject",
    "question",
)
NUMBERS = ("amount", "quantity", "rating", "volume", "minutes", "priority")
MOST = 50
BY_PHONE = ("phone",)
Pair = tuple[str, str]
"""(instruction, reference)"""


def login(app: str) -> str:
    by = "phone_number" if app in BY_PHONE else "email"
    return (
        'passwords = {row["account_name"]: row["password"] for row in apis.supervisor.show_account_passwords()}\n'
        f'token = apis.{app}.login(username=apis.supervisor.show_profile()["{by}"], '
        f'password=passwords["{app}"])["access_token"]\n'
    )


def ask_apis(app: str) -> str:
    listed = f'apis.api_docs.show_api_descriptions(app_name="{app}")'
    return f'# apis {app}\nprint(json.dumps([[row["name"], row["description"]] for row in {listed}]))'


def ask_docs(app: str, names: list[str]) -> str:
    return (
        f"# docs {app}\nfound = []\nfor name in {json.dumps(names)}:\n"
        f'    doc = apis.api_docs.show_api_doc(app_name="{app}", api_name=name)\n'
        '    takes = [[each["name"], each["type"], each["required"]] for each in doc["parameters"]]\n'
        '    shows = sorted(set(json.dumps(doc.get("response_schemas", "")).split(chr(34))))\n'
        '    found.append({"api": name, "description": doc["description"], "parameters": takes, '
        '"shows": [word for word in shows if word.endswith("_id")]})\n'
        "print(json.dumps(found))"
    )


def list_rows(doc: Doc) -> str:
    return f"# list {doc.app}.{doc.api}\n{login(doc.app)}rows = {doc.listed()}\n{PRINT_ROWS}"


def look(doc: Doc, scene: Scene, rng: random.Random) -> str | None:
    """A block that shows what belongs to a row that was seen; None where no row has the ids that it needs."""
    args = _ids(doc.needs, doc, scene, rng)
    if not args or len(args) < len(doc.needs):
        return None
    call = doc.listed(**{name: json.dumps(value) for name, value in args.items()})
    return f"# look {doc.app}.{doc.api}\n# with {json.dumps(args)}\n{login(doc.app)}rows = {call}\n{PRINT_ROWS}"


def act(doc: Doc, scene: Scene, rng: random.Random) -> str | None:
    """A block that calls the API with values that were seen; None where one is missing."""
    optional = [name for name, (kind, required) in doc.parameters.items() if not required and kind == "string"]
    chosen = set(doc.needs)
    chosen |= set(rng.sample(optional, min(1, len(optional)))) if doc.api.startswith("update_") else set()
    ids = _ids([name for name in doc.needs if name.endswith("_id")], doc, scene, rng)
    args: dict[str, Any] = {}
    for name in (name for name in doc.parameters if name in chosen):
        value = ids.get(name) if name.endswith("_id") else _value(name, doc.parameters[name][0], doc, scene, rng)
        if value is None:
            return None
        args[name] = value
    if not args:
        return None
    call = _call(doc, {name: json.dumps(value) for name, value in args.items()})
    return f"# act {doc.app}.{doc.api}\n# with {json.dumps(args)}\n{login(doc.app)}print(json.dumps({call}))"


def _ids(names: list[str], doc: Doc, scene: Scene, rng: random.Random) -> dict[str, Any]:
    """The ids of one row where one has them all, of a list that sounds most like the API; {} where none has."""
    fit = [
        (len(_stems(doc.api) & _stems(source.api)), {name: {**dict(source.args), **row}[name] for name in names})
        for source, row in scene.all_rows(doc.app)
        if all({**dict(source.args), **row}.get(name) is not None for name in names)
    ]
    best = max((score for score, _ in fit), default=0)
    return _pick([ids for score, ids in fit if score == best], rng) or {}


def _stems(api: str) -> set[str]:
    return {word.removesuffix("s") for word in api.split("_")[1:]}


def _value(name: str, kind: str, doc: Doc, scene: Scene, rng: random.Random) -> Any:
    rows = [row for _, row in scene.all_rows(doc.app)]
    rows = rows or [row for app in scene.names for _, row in scene.all_rows(app)]
    if name.endswith("path") and kind == "string":
        return _pick([text for row in rows for text in row.values() if isinstance(text, str) and text[:1] == "/"], rng)
    if "phone" in name:
        return _pick([row[name] for row in rows if row.get(name) is not None], rng)
    if "email" in name:
        email = _pick([value for row in rows for value in _emails(row)], rng)
        return [email] if email and kind.startswith("list") else email
    if kind == "string" and any(word in name for word in WORDS):
        texts = [value for row in rows for key, value in row.items() if key in KEYS and isinstance(value, str)]
        taken = [row.get(name) for row in rows]  # most apps let no two rows have one name
        fit = [text for text in texts if text not in taken and 2 < len(text) <= 60 and text.isprintable()]
        return _pick([*fit, *map(_spoken, scene.apps)], rng)
    if kind in ("number", "integer") and any(word in name for word in NUMBERS):
        numbers = [value for row in rows for value in row.values() if type(value) in (int, float)]
        most = 5 if name == "rating" else MOST
        seen = [value for value in numbers if 1 <= value <= most]
        return _pick(seen or [value for value in scene.numbers if value <= most], rng)
    return None


def _emails(row: dict[str, Any]) -> Iterator[str]:
    for key, value in row.items():
        for inner in value if isinstance(value, list) else [value]:
            yield from _emails(inner) if isinstance(inner, dict) else ()
        if "email" in key and isinstance(value, str) and "@" in value:
            yield value


def _pick(options: list[Any], rng: random.Random) -> Any:
    return rng.choice(options) if options else None


def _call(doc: Doc, args: dict[str, str]) -> str:
    return f"apis.{doc.app}.{doc.api}({', '.join([f'{k}={v}' for k, v in args.items()] + ['access_token=token'])})"


# ---------------------------------------------------------------- tasks


def instruction(made: Act, scene: Scene) -> Pair | None:
    """The act as a task. Rows are named by what a person calls them, and looked up by that in the reference."""
    lines, args, told = {login(made.doc.app).rstrip(): None}, {}, []
    for name, value in made.args.items():
        if not name.endswith("_id"):
            args[name] = json.dumps(value)
            told.append(f"the {_spoken(name)} {_said(value)}")
            continue
        named = _named(name, value, made.doc.app, scene)
        if named is None:
            return None
        lines |= dict.fromkeys(named.lines)
        args[name] = named.code
        told.append(named.words)
    calls = [_call(made.doc, args), "apis.supervisor.complete_task()"]
    words = f"In my {_spoken(made.doc.app)} account: {_lower(made.doc.description)}. Use {_and(told)}."
    return words, "\n".join([*lines, *calls])


@dataclass(frozen=True, slots=True)
class Named:
    """An id, by what a person calls its row."""

    lines: list[str]
    """That find the row."""
    code: str
    words: str


def _named(name: str, value: Any, app: str, scene: Scene, known: tuple[str, ...] = ()) -> Named | None:
    """`known`: ids that are on their way to be named."""
    for source, row in scene.all_rows(app):
        if row.get(name) != value or name in (*known, *dict(source.args)):
            continue
        asked = {key: _named(key, number, app, scene, (*known, name)) for key, number in source.args}
        above = [each for each in asked.values() if each is not None]
        key = _telling(row, scene.rows[source])
        if key is None or len(above) < len(asked):
            continue
        lines = [line for each in above for line in each.lines]
        call = {key: each.code for key, each in asked.items() if each is not None}
        lines.append(_find(f"{name}_row", source, scene, call, f'row["{key}"] == {json.dumps(row[key])}'))
        words = f"the {_spoken(name[:-3])} with the {_spoken(key)} {_said(row[key])}"
        return Named(lines, f'{name}_row["{name}"]', " of ".join([words, *(each.words for each in above)]))
    return None


def _telling(row: Row, rows: list[Row]) -> str | None:
    """What tells the row from all others that were seen there."""
    for key in KEYS:
        text = row.get(key)
        if isinstance(text, str) and text and [other.get(key) for other in rows].count(text) == 1:
            return key
    return None


def _find(name: str, source: Source, scene: Scene, call: dict[str, str], test: str) -> str:
    doc = scene.docs[source.app, source.api]
    if not doc.pages:
        return f"{name} = [row for row in {source.of(doc.listed(**call))} if {test}][0]"
    return f"{_all_rows(doc, call)}\n{name} = [row for row in rows if {test}][0]"


def _all_rows(doc: Doc, call: dict[str, str]) -> str:
    listed = doc.listed(**call, page_index="page")
    return f"rows, page = [], 0\nwhile found := {listed}:\n    rows, page = rows + found, page + 1"


def questions(scene: Scene) -> Iterator[Pair]:
    """How many there are, and which has the most of something."""
    for source, rows in scene.rows.items():
        if not rows or source.args or source.key == RECORD:
            continue
        app, doc = source.app, scene.docs[source.app, source.api]
        fetch = _all_rows(doc, {}) if doc.pages else f"rows = {source.of(doc.listed())}"
        head = f"{login(app)}{fetch}\n"
        asked = f"In my {_spoken(app)} account you can {_lower(doc.description)}."
        entries, entry = f"{_spoken(source.key)} entries".strip(), f"{_spoken(source.key)} entry".strip()
        yield f"{asked} How many {entries} are there in all?", f"{head}{_submit('len(rows)')}"
        for label in [key for key in KEYS if all(isinstance(row.get(key), str) for row in rows)][:1]:
            for field in [key for key in rows[0] if _measure(key, rows)][:2]:
                best = f'max(rows, key=lambda row: row["{field}"])["{label}"]'
                words = f"{asked} What is the {_spoken(label)} of the {entry} with the largest {_spoken(field)}?"
                yield words, f"{head}{_submit(best)}"


def _measure(key: str, rows: list[dict[str, Any]]) -> bool:
    """Numbers of which one is the largest."""
    values = [row.get(key) for row in rows]
    if key.endswith("id") or len(rows) < 2 or not all(type(value) in (int, float) for value in values):
        return False
    return values.count(max(values, key=lambda value: value or 0)) == 1


def _submit(value: str) -> str:
    return f"answer = {value}\nprint(answer)\napis.supervisor.complete_task(answer=answer)"


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _said(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, list) else _and([_said(it) for it in value])


def _and(parts: list[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]


def _lower(text: str) -> str:
    """The first sentence, to go on with."""
    text = text.strip().split(". ")[0].rstrip(".")
    return text[:1].lower() + text[1:]
