"""What explorers are told besides a signal: how hard, what D_t lacks, how admitted tasks look, what to harden.

Everything is read from snapshots and from rollouts with purpose `train`; held-out suites have no part in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import fmean

from coevolve import evidence, indices
from coevolve.loop import Loop
from coevolve.wiring import POLICY
from envs.protocols import Env
from envs.rollout import action_text
from graphs.settings import ExploreSettings
from graphs.state import Evidence, Example, ExploreJob, Guide, Lacking
from store.db import Store
from store.errors import UsageError
from store.rows import Candidate, Task, Trajectory

RAREST = 5
"""Structures and action tokens that are named as lacking."""
EXAMPLES = 3
SHOWN = 3
"""Failed rollouts that an adversary is shown."""
MASTERED = 0.75
"""Mean score in the present iteration from which on a task may be hardened."""
OPERATORS = ("compose", "constrain", "strip")


@dataclass(frozen=True)
class Guidance:
    """The same for all explorations of a phase, but for the examples, which take turns."""

    settings: ExploreSettings
    tasks: Sequence[Task] = ()
    lacking: Lacking | None = None
    examples: Sequence[Example] = ()
    _mean: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        mean = fmean(task.difficulty for task in self.tasks) if self.tasks else 0.0
        object.__setattr__(self, "_mean", round(mean, 3))

    def told(self, mode: str, index: int, about: str | None = None) -> Guide | None:
        """What the index-th exploration is told; None = nothing."""
        guide, wanted = Guide(mode=mode), self.settings.guidance
        if about is not None:
            guide["about"] = about
        if "difficulty" in wanted and self.tasks:
            guide["difficulty"], guide["set_mean"] = round(self._mean + self.settings.margin, 3), self._mean
        if "diversity" in wanted and self.lacking:
            guide["lacking"] = self.lacking
        if "examples" in wanted and self.examples:
            turns = islice(cycle(self.examples), index % len(self.examples), None)
            guide["examples"] = list(islice(turns, min(EXAMPLES, len(self.examples))))
        return guide if len(guide) > 1 else None


def guidance(loop: Loop, tasks: Sequence[Task]) -> Guidance:
    """For explorations that are to add to `tasks`."""
    settings = loop.settings.explore
    return Guidance(
        settings=settings,
        tasks=tasks,
        lacking=lacking(loop.env, tasks) if "diversity" in settings.guidance else None,
        examples=_examples(tasks, own=loop.settings.explorer == POLICY) if "examples" in settings.guidance else (),
    )


def lacking(env: Env, tasks: Sequence[Task]) -> Lacking:
    """Structures and action tokens of the environment's tasks that these have least of; ties by name."""
    every = {task.id: task for task in [*env.seed_tasks(), *tasks]}.values()
    structures = Counter(dict.fromkeys((task.structure for task in every), 0))
    structures.update(task.structure for task in tasks)
    members = {task.id for task in tasks}
    tokens: Counter[str] = Counter()
    for task in every:
        for token in set(_tokens(env, task)):
            tokens[token] += task.id in members
    return Lacking(structures=_rarest(structures), tokens=_rarest(tokens))


def _rarest(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda name: (counts[name], name))[:RAREST]


_TOKENS: dict[tuple[str, str], list[str]] = {}


def _tokens(env: Env, task: Task) -> list[str]:
    """Action tokens of the reference, remembered: some environments play it to tell."""
    at = (env.name, task.id)
    if at not in _TOKENS:
        said = [message for message in env.solution(task) if message["role"] == "assistant"]
        _TOKENS[at] = [token for message in said for token in env.action_tokens(action_text(message))]
    return _TOKENS[at]


def _examples(tasks: Sequence[Task], *, own: bool) -> list[Example]:
    """Explored tasks where there are any, else seeds; spread over difficulty. `own`: the policy sees no reference."""
    explored = [task for task in tasks if task.origin != "seed"] or list(tasks)
    ordered = sorted(explored, key=lambda task: (task.difficulty, task.id))
    step = max(1, len(ordered) // (4 * EXAMPLES))
    return [
        Example(
            user_turns=task.user_turns, reference=None if own else task.reference, difficulty=round(task.difficulty, 3)
        )
        for task in ordered[::step]
    ]


def by_rarity(env: Env, tasks: Sequence[Task]) -> list[str]:
    """Train worlds, those that the tasks have least of first; ties in the environment's order."""
    counts = Counter(task.world for task in tasks)
    return sorted((world.id for world in env.worlds("train")), key=lambda world: counts[world])


# ---------------------------------------------------------------- a structure in place of a signal


def adversarial(loop: Loop, t: int, count: int, guide: Guidance) -> list[ExploreJob]:
    """`count` explorations of the structures that the policy fails most in iteration t, in turn."""
    with loop.store.reading():
        worst = _failed_structures(loop.store, loop.run.id, t)
        jobs = _of_structures(loop, t, worst, count, indices.ADVERSARIAL, "adversarial", guide)
    return jobs


def focused(loop: Loop, t: int, structure: str, count: int, guide: Guidance, first: int) -> list[ExploreJob]:
    """`count` explorations of one structure, the index of the first given. UsageError if no task of D_t has it."""
    known = Counter(task.structure for task in guide.tasks)
    if structure not in known:
        common = "; ".join(repr(name) for name, _ in known.most_common(3))
        raise UsageError(f"--focus: no task of D_{t} has the structure {structure!r}; the commonest are {common}")
    with loop.store.reading():
        return _of_structures(loop, t, [structure], count, indices.FOCUS + first, "focus", guide)


def _failed_structures(store: Store, run: str, t: int) -> list[str]:
    """Those with the most failed rollouts of iteration t first."""
    found = store.query(
        """
        select k.structure, sum(s.failures) as failed from v_task_score s join task k on k.id = s.task_id
        where s.run = ? and s.t = ? group by 1 having failed > 0 order by failed desc, k.structure
        """,
        [run, t],
    )
    return [str(structure) for structure, _ in found]


def _of_structures(
    loop: Loop, t: int, structures: Sequence[str], count: int, first: int, mode: str, guide: Guidance
) -> list[ExploreJob]:
    jobs = []
    for at, structure in zip(range(count), cycle(structures), strict=False):
        shown = _attempts(loop.store, loop.run.id, t, structure, at)
        members = [task for task in guide.tasks if task.structure == structure]
        task = members[at % len(members)] if members else None
        if not shown and task is None:
            continue
        told = guide.told(mode, at, about=structure)
        asked = [] if task is None else [_unplayed(task)]
        world = shown[0].world if shown else task.world if task else ""
        jobs.append(
            ExploreJob(
                run=loop.run.id,
                t=t,
                index=first + at,
                world=world,
                evidence=[evidence.of(loop.store, row) for row in shown] or asked,
                guide=told,
            )
        )
    return jobs


def _attempts(store: Store, run: str, t: int, structure: str, at: int) -> list[Trajectory]:
    """Training rollouts of iteration t on the structure, failures first; a later exploration begins further on. The
    order is not by id, which depends on the run's name."""
    where = """
        id in (select r.id from v_rollout r join task k on k.id = r.task_id
               where r.run = ? and r.t = ? and k.structure = ?)
    """
    found = store.rows(Trajectory, where, [run, t, structure], order="score, task_id, k")
    start = at % len(found) if found else 0
    return [*found[start:], *found[:start]][:SHOWN]


def _unplayed(task: Task) -> Evidence:
    return Evidence(questions=task.user_turns, structure=task.structure, score=None, steps=[])


# ---------------------------------------------------------------- hardening


def hardenings(loop: Loop, t: int, tasks: Sequence[Task]) -> list[ExploreJob]:
    """`explore.harden` attempts at tasks of D_t that the policy mastered in iteration t, the operators in turn."""
    count = loop.settings.explore.harden
    if not count:
        return []
    with loop.store.reading():
        mastered = _mastered(loop.store, loop.run.id, t, tasks)
        stripped = {row.rewords for row in loop.store.rows(Candidate, "run = ? and rewords is not null", [loop.run.id])}
    choose: dict[str, Callable[[], Iterable[list[Task]]]] = {
        "compose": lambda: _pairs(mastered),
        "constrain": lambda: ([task] for task in mastered),
        "strip": lambda: ([task] for task in mastered if task.id not in stripped),
    }
    queues = {operator: iter(choose[operator]()) for operator in OPERATORS}
    jobs: list[ExploreJob] = []
    for operator in islice(cycle(OPERATORS), count):
        if parents := next(queues[operator], None):
            jobs.append(_hardening(loop, t, len(jobs), operator, parents))
    return jobs


def _hardening(loop: Loop, t: int, at: int, operator: str, parents: list[Task]) -> ExploreJob:
    guide = Guide(mode="harden", operator=operator, parents=[task.id for task in parents])
    world = parents[0].world
    return ExploreJob(run=loop.run.id, t=t, index=indices.HARDEN + at, world=world, guide=guide, tasks=parents)


def _mastered(store: Store, run: str, t: int, tasks: Sequence[Task]) -> list[Task]:
    """The surest first, and of these the easiest."""
    scores = dict(store.query("select task_id, score from v_task_score where run = ? and t = ?", [run, t]))
    found = [task for task in tasks if scores.get(task.id, 0.0) >= MASTERED]
    return sorted(found, key=lambda task: (-scores[task.id], task.difficulty, task.id))


def _pairs(tasks: Sequence[Task]) -> Iterable[list[Task]]:
    """Each task with the next one of its world that it was not paired with."""
    for at, task in enumerate(tasks):
        for other in tasks[at + 1 :]:
            if other.world == task.world:
                yield [task, other]
                break
