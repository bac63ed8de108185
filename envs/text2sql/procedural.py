"""The procedural explorer of text2sql: plays a chat model's part with a grammar instead of a language model.

    reflect     says what the flagged attempts have in common and where to go: tables, clauses, what to vary
    next_call   looks at one or two tables, then tries queries: unguided ones spread over the grammar; with a signal
                they keep the failed task's structure, or the rare pattern, at other tables and values, and every
                third is one step harder
                with a guide they aim at its difficulty and begin with what it calls lacking
    harden      two tasks in one, one more condition, or fewer words (procedural_harden)
    abstract    the queries that answered become task-solution pairs
    repair      another wording, or another value where the result was of no use

It sees only the view that the prompts show (envs/protocols.py, Explorer): every table, column and value it writes
comes from there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from envs.text2sql import sqltext
from envs.text2sql.procedural_fill import fill
from envs.text2sql.procedural_grammar import harder, holding, holds, skeleton
from envs.text2sql.procedural_guide import aimed, lacking, near
from envs.text2sql.procedural_harden import hardened
from envs.text2sql.procedural_having import profile, thresholds
from envs.text2sql.procedural_parse import parse
from envs.text2sql.procedural_phrase import phrase
from envs.text2sql.procedural_query import Query, levels, render
from envs.text2sql.procedural_repair import repaired
from envs.text2sql.procedural_scene import Scene, Seen, read, understood
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
        sql = _compose(view, scene, rng) or _sample(view, scene, rng)
        return _run(sql) if sql else None

    def abstract(self, view: Json, rng: random.Random) -> list[Json]:
        """All queries of the log that answered, the best first; the caller takes as many as it wants."""
        scene, signal = read(view), view.get("signal") or {}
        answered = {seen.sql: seen for seen in scene.queries if seen.useful}
        ranked = _ranked(list(answered.values()), signal, view.get("guide") or {})
        known = [(seen.sql, understood(seen.sql, scene.tables)) for seen in ranked]
        return [{"user_turns": [phrase(query, scene.tables, rng)], "reference": sql} for sql, query in known if query]

    def harden(self, view: Json, operator: str, tasks: list[Json], rng: random.Random) -> list[Json]:
        return hardened(operator, tasks, read(view), rng)

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
    enough = len(scene.samples) >= min(LOOKS, len(scene.tables)) or len(view.get("log") or []) >= LOOKS
    sql = None if enough else _sample(view, scene, rng)
    return _run(sql) if sql else None


def _sample(view: Json, scene: Scene, rng: random.Random) -> str | None:
    """A look at a table that was not looked at, near those that were; None if there is none."""
    seen = scene.sampled_tables
    table = _neighbour(scene, seen, rng) if seen else _first(view, scene, rng)
    return f"SELECT * FROM {table} LIMIT {SAMPLE_ROWS}" if table else None


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
    signal = view.get("signal")
    tried = {seen.sql for seen in scene.queries}
    shapes = set() if signal else {sqltext.structure(sql) for sql in tried}
    more = bool(signal) and len(tried) % HARDER_EACH == HARDER_EACH - 1
    guide = view.get("guide") or {}
    for query in _proposals(_plans(signal, guide, rng, more=more), scene, rng, more=more):
        sql = render(query)
        if sql not in tried and sqltext.structure(sql) not in shapes:
            return sql
    return None


def _plans(signal: Json, guide: Json, rng: random.Random, *, more: bool) -> list[Query]:
    """Skeletons of the signal, or of what is lacking, grown to the difficulty asked for. Of a signal's only each third
    is: the others keep its shape."""
    wanted = [] if signal else lacking(guide, rng)[: TRIES // 2]
    wanted += _skeletons(signal, rng)
    return wanted if signal and not more else aimed(wanted, guide, rng)


def _skeletons(signal: Json, rng: random.Random) -> list[Query]:
    """What the signal asks for, the likeliest first: the failed task's skeleton, or some with the rare pattern."""
    if not signal:
        return [skeleton(rng) for _ in range(TRIES)]
    evidence = [str(one["structure"]) for one in signal.get("evidence") or [] if one.get("structure")]
    pattern = tuple(signal.get("pattern") or ())
    wanted = holding(pattern, rng) if pattern else [query for text in evidence if (query := parse(text))][:1]
    if not wanted:  # no statement has the pattern, or the algebra can't say the structure: then one with its clauses
        clauses = [words for text in evidence if (words := tuple(sqltext.action_tokens(text))) != (sqltext.INVALID,)]
        wanted = holding(clauses[0], rng) if clauses else [skeleton(rng) for _ in range(TRIES)]
    short = wanted[: max(TRIES, len(wanted) // 2)]
    return rng.sample(short, len(short))


def _proposals(wanted: list[Query], scene: Scene, rng: random.Random, *, more: bool) -> Iterator[Query]:
    """Filled queries: one step harder if `more`; a HAVING whose groups were seen; then the skeletons as they are."""
    if more:
        grown = (harder(query, rng) for query in wanted[:TRIES] for _ in range(2))
        yield from (query for plan in grown if (query := _filled(plan, scene, rng)))
    groups = [plan for plan in wanted if plan.having]
    yield from (query for plan in groups if (query := thresholds(plan, scene.queries, scene, rng)))
    again = [wanted[turn % len(wanted)] for turn in range(TRIES)]
    yield from (query for plan in again if (query := _filled(profile(plan), scene, rng)))


def _filled(plan: Query, scene: Scene, rng: random.Random) -> Query | None:
    return thresholds(plan, scene.queries, scene, rng) if plan.having else fill(plan, scene, rng)


def _ranked(answers: list[Seen], signal: Json, guide: Json) -> list[Seen]:
    """The best candidates first. With a signal: two of its kind, one harder, then the rest; else those that are as hard
    as asked for."""
    sure = sorted(answers, key=lambda seen: (0.0 if signal else near(seen.sql, guide), not seen.robust))
    alike = [seen for seen in sure if _alike(seen.sql, signal)] if signal else []
    others = sorted((seen for seen in sure if seen not in alike), key=lambda seen: -sqltext.difficulty(seen.sql))
    if not signal:
        return sure
    return [*alike[: HARDER_EACH - 1], *others[:1], *alike[HARDER_EACH - 1 :], *others[1:]]


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
