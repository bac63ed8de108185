"""What the procedural explorer knows: read back from the world's description and from what its own blocks printed.

Each block begins with a comment that says what it is for: `# apis venmo`, `# docs venmo`, `# list venmo.show_x`,
`# act venmo.create_y`. So the log alone is its memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from store.rows import Json

HEAD = re.compile(r"# (apis|docs|list|act) (\w+)(?:\.(\w+))?")
APP = re.compile(r"^(\w+): ", re.MULTILINE)
CALL = re.compile(r"\bapis\.(\w+)\.(\w+)")
NO_PLACE = ("api_docs", "supervisor")


@dataclass(frozen=True, slots=True)
class Doc:
    app: str
    api: str
    description: str
    parameters: dict[str, tuple[str, bool]]
    """{name: (type, required)}"""

    @property
    def lists(self) -> bool:
        """It shows rows, and needs nothing, or nothing but a token, for it."""
        needs = {name for name, (_, required) in self.parameters.items() if required}
        return self.api.startswith(("show_", "search_")) and needs <= {"access_token"}

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
    rows: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    """{(app, API): rows that it showed}"""
    failed: set[tuple[str, str]] = field(default_factory=set)
    acts: list[Act] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)

    def all_rows(self, app: str) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
        for place, rows in self.rows.items():
            if place[0] == app:
                for row in rows:
                    yield place, row


def read(view: Json) -> Scene:
    scene = Scene(apps=[app for app in APP.findall(view.get("world") or "") if app not in NO_PLACE])
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
            scene.docs[app, doc["api"]] = Doc(app, doc["api"], doc["description"], parameters)
    elif what == "list" and isinstance(printed, list):
        scene.rows[app, api] = [row for row in printed if isinstance(row, dict)]


def _arguments(code: str) -> dict[str, Any]:
    """The arguments of an act, which its block holds as JSON."""
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
