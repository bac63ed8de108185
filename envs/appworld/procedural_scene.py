"""What the procedural explorer knows: read back from the world's description and from what its own blocks printed.

Each block begins with a comment that says what it is for: `# apis venmo`, `# docs venmo`, `# list venmo.show_x`,
`# look venmo.show_z` (which needs the id of a row), `# act venmo.create_y`. So the log alone is its memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from store.rows import Json

HEAD = re.compile(r"# (apis|docs|list|look|act) (\w+)(?:\.(\w+))?")
APP = re.compile(r"^(\w+): ", re.MULTILINE)
CALL = re.compile(r"\bapis\.(\w+)\.(\w+)")
SMALL = re.compile(r"\b[1-9]\d?\b")
NO_PLACE = ("api_docs", "supervisor")


@dataclass(frozen=True, slots=True)
class Doc:
    app: str
    api: str
    description: str
    parameters: dict[str, tuple[str, bool]]
    """{name: (type, required)}"""
    shows: frozenset[str] = frozenset()
    """Ids in what it answers."""

    @property
    def needs(self) -> list[str]:
        return [name for name, (_, required) in self.parameters.items() if required and name != "access_token"]

    @property
    def reads(self) -> bool:
        return self.api.startswith(("show_", "search_", "download_"))

    @property
    def lists(self) -> bool:
        """It shows rows, and needs nothing, or nothing but a token, for it."""
        return self.api.startswith(("show_", "search_")) and not self.needs

    def listed(self, **args: str) -> str:
        """The call that shows them, as code."""
        token = {"access_token": "token"} if "access_token" in self.parameters else {}
        return (
            f"apis.{self.app}.{self.api}({', '.join(f'{name}={value}' for name, value in {**token, **args}.items())})"
        )

    @property
    def pages(self) -> bool:
        return "page_index" in self.parameters


@dataclass(frozen=True, slots=True)
class Source:
    """What showed rows: an API's list, a list in the record that it showed, or this record."""

    app: str
    api: str
    key: str = ""
    """Of the list in the record; empty where the API shows a list."""
    args: tuple[tuple[str, Any], ...] = ()
    """Ids that it was asked with."""

    def of(self, call: str) -> str:
        """The rows, as code, of the call as code."""
        return {"": call, RECORD: f"[{call}]"}.get(self.key, f'{call}["{self.key}"]')


RECORD = "."
"""Key of a record without lists."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Act:
    doc: Doc
    args: dict[str, Any]
    code: str
    failed: bool


@dataclass(slots=True)
class Scene:
    apps: list[str]
    names: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """{app: [(API, description)]}"""
    docs: dict[tuple[str, str], Doc] = field(default_factory=dict)
    rows: dict[Source, list[Row]] = field(default_factory=dict)
    read: set[tuple[str, str]] = field(default_factory=set)
    """(app, API) of all lists and looks that showed something."""
    failed: set[tuple[str, str]] = field(default_factory=set)
    numbers: list[int] = field(default_factory=list)
    """Small ones in the world's description."""
    acts: list[Act] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)

    def all_rows(self, app: str) -> Iterator[tuple[Source, Row]]:
        for source, rows in self.rows.items():
            if source.app == app:
                for row in rows:
                    yield source, row


def read(view: Json) -> Scene:
    told = str(view.get("world") or "")
    scene = Scene(
        apps=[app for app in APP.findall(told) if app not in NO_PLACE],
        numbers=[int(number) for number in SMALL.findall(told)],
    )
    for entry in view.get("log") or []:
        code = str((entry.get("args") or {}).get("code", ""))
        if head := HEAD.match(code):
            scene.tried.add(code)
            _note(scene, head[1], head[2], head[3] or "", code, entry)
    return scene


def _note(scene: Scene, what: str, app: str, api: str, code: str, entry: Json) -> None:
    try:
        printed = None if entry["failed"] else json.loads(entry["observation"])
    except ValueError:
        printed = None
    if what == "act" and (doc := scene.docs.get((app, api))):
        scene.acts.append(Act(doc, _arguments(code), code, printed is None))
    elif printed is None:
        scene.failed.add((app, api))
    elif what == "apis":
        scene.names[app] = [(str(name), str(words)) for name, words in printed]
    elif what == "docs":
        for doc in printed:
            parameters = {name: (kind, required) for name, kind, required in doc["parameters"]}
            shows = frozenset(doc.get("shows", ()))
            scene.docs[app, doc["api"]] = Doc(app, doc["api"], doc["description"], parameters, shows)
    elif what in ("list", "look"):
        scene.read.add((app, api))
        scene.rows.update(_rows(app, api, _arguments(code), printed))


def _rows(app: str, api: str, args: dict[str, Any], printed: Any) -> Iterator[tuple[Source, list[Row]]]:
    """The rows of a list, or of each list of a record; the record where it has none. A text is a row of one value."""
    asked = tuple(args.items())
    if isinstance(printed, list):
        rows = [{"": row} if isinstance(row, str) else row for row in printed]
        yield Source(app, api, args=asked), [row for row in rows if isinstance(row, dict)]
    elif isinstance(printed, dict):
        lists = {key: value for key, value in printed.items() if isinstance(value, list) and _dicts(value)}
        for key, rows in lists.items():
            yield Source(app, api, key, asked), rows
        if not any(isinstance(value, list) for value in printed.values()):
            yield Source(app, api, RECORD, asked), [printed]


def _dicts(found: list[Any]) -> bool:
    return bool(found) and all(isinstance(row, dict) for row in found)


def _arguments(code: str) -> dict[str, Any]:
    """The arguments of an act or a look, which its block holds as JSON."""
    found = re.search(r"^# with (\{.*\})$", code, re.MULTILINE)
    arguments: dict[str, Any] = json.loads(found[1]) if found else {}
    return arguments


def wanted(view: Json) -> list[tuple[str, str]]:
    """(app, API) that the signal is about, most telling first: its pattern, the failing steps, then all steps."""
    signal = view.get("signal") or {}
    pattern = [tuple(token.split(".", 1)) for token in signal.get("pattern") or [] if "." in token]
    steps = [step for one in signal.get("evidence") or [] for step in one.get("steps") or []]
    steps.sort(key=lambda step: not step.get("failed"))
    used = [pair for step in steps for pair in CALL.findall(str(step.get("action")))]
    shapes = [CALL.findall(f"apis.{word}") for one in signal.get("evidence") or [] for word in one["structure"].split()]
    found = [*pattern, *used, *(pair for shape in shapes for pair in shape)]
    return [(app, api) for app, api in found if app not in NO_PLACE]
