"""The procedural explorer of AppWorld: a typed walk over the APIs, for any world and without a language model.

    reflect     says which apps and APIs the flagged attempts were about
    next_call   learns an app's APIs and what they take, logs in and lists, then acts with values that it saw, and looks
                at the lists again; with a signal it goes to the apps and APIs of the failing steps first
    abstract    acts that worked become instructions, and lists become questions
    repair      gives up: what fails is dropped

It sees only the view that the prompts show (envs/protocols.py, Explorer): every name and value that it writes comes
from there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from envs.appworld.procedural_scene import Doc, Scene, read, wanted
from envs.appworld.procedural_write import act, ask_apis, ask_docs, instruction, list_rows, look, questions
from store.rows import Json

LISTS = 3
"""Lists with rows that are looked at before the first act, ..."""
READS = 5
"""... lists at all, and ..."""
LOOKS = 2
"""... things that belong to a row."""
DOCS = 20
NOT_FOR_TASKS = ("signup", "login", "logout", "account", "password", "verif", "profile", "card", "prime", "file_data")
TRIES = 20


class ProceduralExplorer:
    """See the module's docstring; stateless."""

    def reflect(self, view: Json, rng: random.Random) -> Json:
        named = wanted(view)
        kind = (view.get("signal") or {}).get("kind")
        return {
            "where": ", ".join(dict.fromkeys(app for app, _ in named)) or ", ".join(read(view).apps),
            "failure": f"{kind}: " + ", ".join(dict.fromkeys(f"{app}.{api}" for app, api in named)),
            "vary": ["apps", "APIs", "rows", "values"],
        }

    def next_call(self, view: Json, rng: random.Random) -> Json | None:
        if view.get("steps_left", 1) < 1:
            return None
        if view.get("draft"):
            return None if view.get("log") else _run(str(view["draft"]["reference"]))
        code = _next(view, read(view), rng)
        return _run(code) if code else None

    def abstract(self, view: Json, rng: random.Random) -> list[Json]:
        """The newest acts first, each a task; then questions about the lists."""
        scene, first = read(view), [api for _, api in wanted(view)]
        done = [made for made in scene.acts if not made.failed]
        done.sort(key=lambda made: made.doc.api not in first)
        drafts = [draft for made in done if (draft := instruction(made, scene))]
        asked = list(questions(scene))
        rng.shuffle(asked)
        mixed = [pair for both in zip(drafts, asked, strict=False) for pair in both]
        rest = drafts[len(asked) :] + asked[len(drafts) :]
        return [{"user_turns": [words], "reference": code} for words, code in [*mixed, *rest]]

    def repair(self, view: Json, draft: Json, problem: str, rng: random.Random) -> Json | None:
        return None


EXPLORER = ProceduralExplorer()


def _run(code: str) -> Json:
    return {"name": "run_python", "args": {"code": code}}


def _next(view: Json, scene: Scene, rng: random.Random) -> str | None:
    """The next block: what is not known yet, else an act with what is, else another app."""
    app = _app(view, scene, rng)
    if app is None:
        return None
    if app not in scene.names:
        return ask_apis(app)
    docs = [doc for place, doc in scene.docs.items() if place[0] == app]
    if not docs:
        return None if (app, "") in scene.failed else ask_docs(app, _worth_knowing(view, scene, app, rng))
    if code := _read(docs, scene, rng):
        return code
    found = next((code for code in _acts(view, docs, scene, rng) if code not in scene.tried), None)
    others = [name for name in scene.apps if name not in scene.names]
    return found or (ask_apis(rng.choice(others)) if others else None)


def _read(docs: list[Doc], scene: Scene, rng: random.Random) -> str | None:
    """A block that reads: lists first, then what shows ids that some act needs and no row has."""
    done = scene.read | scene.failed
    unread = [doc for doc in docs if doc.reads and (doc.app, doc.api) not in done]
    read = [doc for doc in docs if doc.reads and (doc.app, doc.api) in done]
    rows = {source: found for source, found in scene.rows.items() if found and source.app == docs[0].app}
    lists = [doc for doc in unread if doc.lists]
    if lists and len({source.api for source in rows}) < LISTS and sum(doc.lists for doc in read) < READS:
        return list_rows(lists[0])
    has = {name for source, found in rows.items() for row in found for name in {*row, *dict(source.args)}}
    wants = {name for doc in docs if not doc.reads for name in doc.needs if name.endswith("_id")} - has
    if sum(not doc.lists for doc in read) < LOOKS:
        useful = sorted((doc for doc in unread if doc.shows & wants), key=lambda doc: -len(doc.shows & wants))
        return next((code for doc in useful if not doc.lists and (code := look(doc, scene, rng))), None)
    return None


def _app(view: Json, scene: Scene, rng: random.Random) -> str | None:
    """The one that it is at; at first one of the signal, or any."""
    if scene.names:
        return next(reversed(scene.names))
    if any(not api for _, api in scene.failed):
        return None
    named = [app for app, _ in wanted(view) if app in scene.apps]
    return rng.choice(named or scene.apps) if scene.apps else None


def _worth_knowing(view: Json, scene: Scene, app: str, rng: random.Random) -> list[str]:
    """Names of APIs: those of the signal, some that list, and some that act."""
    names = [name for name, _ in scene.names[app] if not any(word in name for word in NOT_FOR_TASKS)]
    first = [api for place, api in wanted(view) if place == app and api in names]
    lists = [name for name in names if name.startswith(("show_", "search_"))]
    acts = [name for name in names if name not in lists]
    rng.shuffle(lists)
    rng.shuffle(acts)
    lists.sort(key=lambda name: not name.endswith("s"))  # a list, by its name
    mixed = [*first, *lists[: DOCS // 2], *acts]
    return list(dict.fromkeys(mixed))[:DOCS]


def _acts(view: Json, docs: list[Doc], scene: Scene, rng: random.Random) -> Iterator[str]:
    """Blocks that change something; APIs of the signal first, then those that were not tried."""
    first = {api for _, api in wanted(view)}
    failed = {made.doc.api for made in scene.acts if made.failed}
    doers = [doc for doc in docs if not doc.reads and doc.api not in failed]
    rng.shuffle(doers)
    times = {doc.api: sum(made.doc.api == doc.api for made in scene.acts) for doc in doers}
    doers.sort(key=lambda doc: (times[doc.api], doc.api not in first))
    for _ in range(TRIES):
        for doc in doers:
            if code := act(doc, scene, rng):
                yield code
