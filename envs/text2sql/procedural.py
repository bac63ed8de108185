"""The procedural explorer of text2sql: plays a chat model's part with a grammar instead of a language model.

    reflect     says what the flagged attempts have in common and where to go: tables, clauses, what to vary
    next_call   looks at one or two tables, then tries queries: unguided ones spread over the grammar; with a signal
                they keep the failed task's structure, or the rare pattern, at other tables and values, and every
                third is one step harder
    abstract    the queries that answered become task-solution pairs
    repair      another wording, or another value where the result was of no use

It sees only the view that the prompts show (envs/protocols.py, Explorer): every table, column and value it writes
comes from there.
"""

from __future__ import annotations

import random

from envs.text2sql import sqltext
from envs.text2sql.procedural_fill import fill
from envs.text2sql.procedural_grammar import harder, holding, holds, skeleton, tokens
from envs.text2sql.procedural_having import profile, thresholds
from envs.text2sql.procedural_parse import parse
from envs.text2sql.procedural_phrase import phrase
from envs.text2sql.procedural_query import Query, levels, render
from envs.text2sql.procedural_repair import repaired
from envs.text2sql.procedural_scene import Scene, read, understood
from store.rows import Json

SAMPLE_ROWS = 20
LOOKS = 2
"""Tables looked at before the first query."""
TRIES = 12
HARDER_EACH = 3
"""Every third guided query is one step harder than the task that failed."""


class ProceduralExplorer:
    """See the module's docstring; stateless."""

    def reflect(self, view: Json, rng: random.Random) -> Json:
        signal, scene = view.get("signal") or {}, read(view)
        tables = sorted({name for sql in _actions(signal) for name in _tables(sql) if name in scene.tables})
        vary = ["tables", "columns", "values", "clauses", "one step harder"]
        return {"where": ", ".join(tables or scene.tables), "failure": _failure(signal), "vary": vary}

    def next_call(self, view: Json, rng: random.Random) -> Json | None:
        if view.get("steps_left", 1) < 1:
            return None
        if view.get("draft"):
            return None if view.get("log") else _run(str(view["draft"]["reference"]))
        scene = read(view)
        look = _look(view, scene, rng)
        if look:
            return look
        sql = _compose(view, scene, rng)
        return _run(sql) if sql else None

    def abstract(self, view: Json, rng: random.Random) -> list[Json]:
        """All queries of the log that answered, the best first; the caller takes as many as it wants."""
        scene, signal = read(view), view.get("signal") or {}
        answered = {seen.sql: seen for seen in scene.queries if seen.useful}
        ranked = sorted(answered.values(), key=lambda seen: (not _alike(seen.sql, signal), not seen.robust))
        known = [(seen.sql, understood(seen.sql, scene.tables)) for seen in ranked]
        return [{"user_turns": [phrase(query, scene.tables, rng)], "reference": sql} for sql, query in known if query]

    def repair(self, view: Json, draft: Json, problem: str, rng: random.Random) -> Json | None:
        scene = read(view)
        query = understood(str(draft.get("reference")), scene.tables)
        better = repaired(query, problem.partition(":")[0], scene.tables) if query else None
        if better is None:
            return None
        return {"user_turns": [phrase(better, scene.tables, rng)], "reference": render(better)}


EXPLORER = ProceduralExplorer()


def _run(sql: str) -> Json:
    return {"name": "run_sql", "args": {"sql": sql}}


# ---------------------------------------------------------------- looking


def _look(view: Json, scene: Scene, rng: random.Random) -> Json | None:
    """The next look at the world, or None once enough was seen."""
    if not scene.tables:
        listed = any(entry["name"] == "list_tables" for entry in view.get("log") or [])
        return None if listed else {"name": "list_tables", "args": {}}
    seen = scene.sampled_tables
    if len(seen) >= min(LOOKS, len(scene.tables)) or len(view.get("log") or []) >= LOOKS:
        return None
    table = _neighbour(scene, seen, rng) if seen else _first(view, scene, rng)
    return _run(f"SELECT * FROM {table} LIMIT {SAMPLE_ROWS}") if table else None


def _first(view: Json, scene: Scene, rng: random.Random) -> str | None:
    """A table to begin with: of the failed attempts half of the time, else any."""
    named = [name for sql in _actions(view.get("signal") or {}) for name in _tables(sql) if name in scene.tables]
    if named and rng.random() < 0.5:
        return rng.choice(named)
    return rng.choice([name for name, table in scene.tables.items() if table.plain] or list(scene.tables))


def _neighbour(scene: Scene, seen: list[str], rng: random.Random) -> str | None:
    """A table linked with one already looked at: its parents first."""
    parents = [parent for name in seen for _, parent, _ in scene.tables[name].links]
    children = [name for name, table in scene.tables.items() if {p for _, p, _ in table.links} & set(seen)]
    options = [name for name in (*parents, *parents, *children, *scene.tables) if name not in seen]
    near = [name for name in (*parents, *parents, *children) if name in scene.tables and name not in seen]
    return rng.choice(near or options) if options else None


# ---------------------------------------------------------------- composing


def _compose(view: Json, scene: Scene, rng: random.Random) -> str | None:
    """The next query, unlike those of the log; None if nothing new comes to mind."""
    tried = {seen.sql for seen in scene.queries}
    shapes = {sqltext.structure(sql) for sql in tried}
    signal = view.get("signal")
    more = len(tried) % HARDER_EACH == HARDER_EACH - 1
    for attempt in range(TRIES):
        wanted = _wanted(signal, rng, more=more and attempt < TRIES // 2) if signal else skeleton(rng)
        query = thresholds(wanted, scene.queries, scene, rng) or fill(profile(wanted), scene, rng)
        sql = render(query) if query else ""
        if sql and sql not in tried and (signal or sqltext.structure(sql) not in shapes):
            return sql
    return None


def _wanted(signal: Json, rng: random.Random, *, more: bool) -> Query:
    """The skeleton that the signal asks for; `more` = one step harder, the rare pattern kept."""
    pattern = tuple(signal.get("pattern") or ())
    wanted = holding(pattern, rng) if pattern else _failed(signal, rng)
    if not more:
        return wanted
    grown = [harder(wanted, rng) for _ in range(4)]
    return next((query for query in grown if holds(tokens(query), pattern)), wanted)


def _failed(signal: Json, rng: random.Random) -> Query:
    """The skeleton of the task that failed; where the algebra can't say it, one with its clauses."""
    structures = [str(evidence["structure"]) for evidence in signal.get("evidence") or [] if evidence.get("structure")]
    for structure in structures:
        if query := parse(structure):
            return query
    clauses = [words for text in structures if (words := tuple(sqltext.action_tokens(text))) != (sqltext.INVALID,)]
    return holding(clauses[0], rng) if clauses else skeleton(rng)


def _alike(sql: str, signal: Json) -> bool:
    """The query shares the signal's structure or pattern."""
    pattern = tuple(signal.get("pattern") or ())
    if pattern:
        return holds(tuple(sqltext.action_tokens(sql)), pattern)
    return sqltext.structure(sql) in {evidence.get("structure") for evidence in signal.get("evidence") or []}


# ---------------------------------------------------------------- reading the signal


def _actions(signal: Json) -> list[str]:
    """SQL that the policy wrote in the flagged trajectories."""
    steps = [step for evidence in signal.get("evidence") or [] for step in evidence.get("steps") or []]
    return [sqltext.extract_sql(str(step["action"])) for step in steps if step.get("action")]


def _tables(sql: str) -> list[str]:
    query = parse(sql)
    return [name for level in levels(query) for name in level.tables] if query else []


def _failure(signal: Json) -> str:
    kind = signal.get("kind")
    if kind == "rare":
        return "The policy hardly ever writes " + " ".join(signal.get("pattern") or [])
    errors = sum(step.get("failed", False) for e in signal.get("evidence") or [] for step in e.get("steps") or [])
    how = "the statement did not run" if errors else "the result was wrong"
    when = "solved before, not any more" if kind == "forgetting" else "solved in some attempts only"
    return f"{when}: {how}"
