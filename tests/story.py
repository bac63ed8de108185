"""A small run as the loop leaves it: three iterations, every kind of row, one task that is forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from coevolve.workspace import Workspace
from store.rows import (
    Candidate,
    Phase,
    Row,
    Run,
    Score,
    Signal,
    Snapshot,
    Span,
    Step,
    Task,
    Trajectory,
    Verdict,
    content_id,
    snapshot_id,
)
from tests.store_rows import exploration, step, task, trajectory

RUN = "r001"
ITERATIONS = 3
HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror="document.title=1">\x1b[31m\u202e'
SEEDS = [task(number, difficulty=1.0 + number) for number in range(4)]
"""Task 0 is learnt and then forgotten, 1 is a boundary all along, 2 is always solved, 3 never."""
MADE = [task(10 + number, origin="explored", difficulty=4.0) for number in range(2)]
SCORES = {0: [1.0, 1.0, 0.0], 1: [0.5, 0.5, 0.5], 2: [1.0, 1.0, 1.0], 3: [0.0, 0.0, 0.0]}
"""{seed task: mean score by iteration}, of two rollouts."""


def make_story(root: Path, **versions: Any) -> Workspace:
    """A workspace with the run r001."""
    root.mkdir(parents=True)
    (root / "config.toml").write_text('env = "text2sql"\n')
    place = Workspace(root)
    folder = place.create_run({})
    folder.update(created_at=1000.0, rounds=4)
    place.store.append(story())
    return place


def make_hostile_story(root: Path) -> Workspace:
    """The same, with a rollout of the boundary task that writes HTML, escapes and a megabyte."""
    place = make_story(root)
    evil = trajectory(SEEDS[1].id, 0, run=RUN, t=3, score=0.0, policy_version=3, steps=2)
    place.store.append(evil, step(evil, ["SELECT"], action=HOSTILE, observation="x" * 1_000_000), step(evil, [], 1))
    return place


def story() -> list[Row]:
    run = Run(id=RUN, created_at=1000.0, seed=0, env="text2sql", policy="smollm2", config={}, versions={"duckdb": "2"})
    rows: list[Row] = [run, *SEEDS, *MADE, _phase(0, "seed", 5.0, pending=0), _snapshot(0, SEEDS)]
    for t in range(ITERATIONS):
        rows += [*_training(t), *_weaknesses(t), *_looking_back(t), *_held_out(t)]
    return rows


def _phase(t: int, name: str, seconds: float, **counts: int) -> Phase:
    at = 1000.0 + 100 * t + {"train": 50, "signals": 51, "explore": 60, "validate": 70, "snapshot": 71}.get(name, 90)
    return Phase(run=RUN, t=t, name=name, finished_at=at, seconds=seconds, counts=counts)


def _snapshot(t: int, tasks: list[Task]) -> Snapshot:
    ids = [one.id for one in tasks]
    return Snapshot(id=snapshot_id(ids), run=RUN, t=t, task_ids=ids, created_at=1000.0 + 100 * t)


def rollout(number: int, t: int, k: int) -> Trajectory:
    score = float(k == 0) if SCORES[number][t] == 0.5 else SCORES[number][t]
    return trajectory(SEEDS[number].id, k, run=RUN, t=t, score=score, policy_version=t, created_at=1000.0 + 100 * t)


def _training(t: int) -> list[Row]:
    rows: list[Row] = [_phase(t, "train", 50.0)]
    for number in SCORES:
        for k in range(2):
            one = rollout(number, t, k)
            rows += [one, *_steps(one)]
    for made in MADE[:t]:
        one = trajectory(made.id, run=RUN, t=t, score=1.0, policy_version=t)
        rows += [one, *_steps(one)]
    lost = trajectory(SEEDS[2].id, 2, run=RUN, t=t, outcome="infra", error="worker died")
    return [*rows, lost]


def _steps(of: Trajectory) -> list[Step]:
    good = of.score == 1.0
    return [
        step(of, ["SELECT"], 0, action="SELECT name FROM item", observation="salt\npepper"),
        step(of, ["SELECT", "WHERE"], 1, action="SELECT 1 WHERE x", observation="" if good else "no such column: x"),
    ]


def _weaknesses(t: int) -> list[Row]:
    found = [_boundary(t)]
    if t == 2:
        evidence = sorted(rollout(0, t, k).id for k in range(2))
        stats = {"best": 1.0, "best_t": 1, "now": 0.0}
        found.append(_signal(t, "forgetting", task_id=SEEDS[0].id, evidence=evidence, stats=stats))
        rare = {"pattern": ["SELECT", "WHERE"], "stats": {"count": 1, "rollouts": 8}}
        found.append(_signal(t, "rare", evidence=[rollout(3, t, 0).id], **rare))
    return [*found, _phase(t, "signals", 1.0)]


def _boundary(t: int) -> Signal:
    evidence = sorted(rollout(1, t, k).id for k in range(2))
    return _signal(t, "boundary", task_id=SEEDS[1].id, evidence=evidence, stats={"successes": 1, "failures": 1})


def _signal(t: int, kind: Any, **rest: Any) -> Signal:
    about = rest.get("task_id") or rest.get("pattern")
    defaults: dict[str, Any] = {"task_id": None, "pattern": None}
    return Signal(id=content_id("signal", RUN, t, kind, about), run=RUN, t=t, kind=kind, **(defaults | rest))


def _looking_back(t: int) -> list[Row]:
    """In 0 and 1 the boundary is explored: one candidate is adopted, one is a duplicate."""
    rows: list[Row] = []
    if t < 2:
        told = trajectory("e", t, run=RUN, t=t, purpose="explore", task_id=None, score=None, outcome="scored")
        made = exploration(_boundary(t).id, t, run=RUN, context={"where": "item", "vary": ["price"]})
        made = replace(made, id=content_id("e", t), trajectory_id=told.id, tokens=100, cost=0.01)
        rows = [told, step(told, ["SELECT"], 0, action="SELECT price FROM item"), made, *_spans(made.id, "explore", t)]
        for index, (reason, of) in enumerate([("valid", MADE[t]), ("duplicate", None)]):
            rows += _decided(made.id, t, index, reason, of)
    tasks = SEEDS + MADE[: t + 1]
    counts = {"tasks": len(tasks), "admitted": int(t < 2), "pending": 0, "withdrawn": 0}
    closed = [_phase(t, "snapshot", 1.0, **counts), _snapshot(t + 1, tasks)]
    return [*rows, _phase(t, "explore", 9.0), _phase(t, "validate", 10.0), *closed]


def _decided(made: str, t: int, index: int, reason: str, of: Task | None) -> list[Row]:
    name = content_id("c", t, index)
    pair: dict[str, Any] = {"world": "shop", "user_turns": ["How dear is salt?"], "tools": [], "reference": "SELECT 1"}
    verdict = Verdict(
        id=content_id("verdict", name),
        candidate_id=name,
        run=RUN,
        t=t,
        adopt=of is not None,
        reason=reason,
        detail="" if of else SEEDS[0].id,
        task_id=of.id if of else None,
        repairs=0,
        seconds=1.0,
    )
    candidate = Candidate(id=name, exploration_id=made, run=RUN, t=t, index=index, **pair)
    return [candidate, verdict, *_spans(name, "validate", t)]


def _spans(thread: str, graph: Any, t: int) -> list[Row]:
    nodes = ("reflect", "act", "collect") if graph == "explore" else ("check", "replay", "decide")
    said = [{"role": "user", "text": "Look at the prices."}, {"role": "assistant", "text": "I look."}]
    return [
        Span(
            thread=thread,
            index=index,
            run=RUN,
            t=t,
            graph=graph,
            node=node,
            started_at=1052.0 + 100 * t + index,
            seconds=0.9,
            calls=1,
            prompt_tokens=40,
            completion_tokens=10,
            cost=0.001,
            error=None,
            messages=said if index == 1 else [],
        )
        for index, node in enumerate(nodes)
    ]


def _held_out(t: int) -> list[Row]:
    rows: list[Row] = []
    for suite, base in (("gold", 0.2), ("shifted", 0.1)):
        for version in (0, 1) if t == 0 else (t + 1,):
            value = base + 0.1 * version
            bounds = {"n": 10, "value": value, "low": value - 0.1, "high": value + 0.1}
            rows += [
                Score(run=RUN, t=version, suite=suite, slice="all", metric="accuracy", **bounds),
                _phase(version, f"eval {suite}", 4.0),
                trajectory(f"{suite}-1", run=RUN, t=version, purpose="eval", suite=suite, score=float(value > 0.25)),
            ]
    return rows
