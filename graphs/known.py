"""What is already known: tasks that a new one must not repeat, and held-out items that it must not touch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from envs.protocols import Env
from store.dedupe import Index
from store.rows import Task

_TWINS: dict[tuple[str, str, str], list[str]] = {}


def twins(env: Env, task: Task) -> list[str]:
    """`env.twins(task)`, remembered: the same few hundred items are asked for in every round."""
    at = (env.name, env.version, task.id)
    if at not in _TWINS:
        _TWINS[at] = env.twins(task)
    return _TWINS[at]


def giveaways(env: Env, task: Task) -> list[str]:
    """Keys that no task may share with a held-out item: its twins' and its answers'."""
    return [*twins(env, task), *env.answers(task)]


class Known:
    """Twin keys, and the queue in which candidates are compared: each waits until all before it are decided.

    So duplicates among concurrently validated candidates are decided in candidate order, whatever finishes first.
    """

    def __init__(
        self,
        env: Env,
        tasks: Iterable[Task] = (),
        held_out: Iterable[Task] = (),
        order: Sequence[str] = (),
        alike: Index | None = None,
    ) -> None:
        """`alike` finds what the environment's own keys do not show; it gets what is known and what is adopted."""
        tasks, held_out = list(tasks), list(held_out)
        self._env = env
        self._alike = alike
        if alike:
            alike.add(held_out, held_out=True)
            alike.prepare(tasks)
        self._twins: dict[str, str] = {}
        self._held_out = {key: task.id for task in held_out for key in giveaways(env, task)}
        self._before = dict(zip(order[1:], order, strict=False))
        self._decided = {candidate: asyncio.Event() for candidate in order}
        for task in tasks:
            self.add(task)

    def add(self, task: Task) -> None:
        for key in twins(self._env, task):
            self._twins.setdefault(key, task.id)
        if self._alike:
            self._alike.add([task])

    def decided(self, candidate: str, adopted: Iterable[Task]) -> None:
        """Note what became of the candidate and let the next take its turn. To be called in candidate order."""
        for task in adopted:
            self.add(task)
        self._decided[candidate].set()

    async def turn(self, candidate: str) -> None:
        """Return once every candidate before this one is decided."""
        if before := self.before(candidate):
            await self._decided[before].wait()

    def before(self, candidate: str) -> str | None:
        """The candidate that must be decided before this one."""
        return self._before.get(candidate)

    def held_out(self, task: Task) -> str | None:
        """The held-out item that the task repeats, or whose answer it gives away."""
        found = (self._held_out[key] for key in giveaways(self._env, task) if key in self._held_out)
        return next(found, None)

    def problem(self, task: Task, *, rewords: str | None = None) -> str | None:
        """`held_out: <id of the item>` or `duplicate: <id of the twin>`, with the stage that found it, or None.

        `rewords` is the id of a task that it asks for in other words: of that one it may share some keys, not all.
        """
        if item := self.held_out(task):
            return f"held_out: {item}"
        found = [self._twins.get(key) for key in twins(self._env, task)]
        excused = rewords if None in found else None
        twin = next((owner for owner in found if owner not in (None, excused)), None)
        if twin:
            return f"duplicate: {twin}"
        if self._alike and (alike := self._alike.twin(task, rewords=excused)):
            return f"{'held_out' if alike.held_out else 'duplicate'}: {alike}"
        return None
