"""Environments as TRL's `environment_factory` takes them: a class with `reset`, tools as typed methods, `get_reward`.

    GRPOTrainer(..., train_dataset=Dataset.from_list([{"task": task.id} for task in tasks]),
                environment_factory=trl_environment(env, tasks))

TRL (1.16) calls `reset(**row)` before it samples a rollout, a method for each tool call of the model, and `get_reward`
when the model stops calling tools. It is not imported here: the class is all that it looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from envs.background import wait_for
from envs.protocols import Env
from envs.signature import describe
from envs.tool_episode import DEADLINE_S, REPLY, ToolEpisode, tools_of
from store.errors import UsageError
from store.rows import Json, Task

OVER = "The episode is over."
RESERVED = ("reset", "get_reward", "reply")


class TrlEnvironment:
    """What the classes of `trl_environment` share. An instance is used for one rollout after the other."""

    _env: ClassVar[Env]
    _tasks: ClassVar[dict[str, Task]]
    _deadline_s: ClassVar[float]

    def __init__(self) -> None:
        self._episode: ToolEpisode | None = None

    def reset(self, task: str, **row: Any) -> str:
        """Begin an episode of the task with this id. What it gives is the prompt: what a system prompt would say, and
        the user's first turn. TRL puts it behind the last message of the row's own `prompt`, if it has one.

        "" if the environment could not be opened. UsageError for a task that the class was not made for.
        """
        if task not in self._tasks:
            raise UsageError(f"task {task!r}: it is none of the {len(self._tasks)} tasks of this environment class")
        return wait_for(self._begin(self._tasks[task]))

    def get_reward(self) -> float | None:
        """The score, in [0, 1]. None, which TRL leaves out, where there is none: the machine failed, or the task."""
        return wait_for(self._score())

    async def _begin(self, task: Task) -> str:
        if self._episode is not None:
            await self._episode.close()
        self._episode = ToolEpisode(self._env, task, deadline_s=self._deadline_s)
        return await self._episode.start()

    async def _score(self) -> float | None:
        if self._episode is None:
            return None
        outcome = await self._episode.finish()
        await self._episode.close()
        return outcome.score if outcome.kind == "scored" else None

    async def _act(self, name: str, arguments: Json) -> str:
        """What the model is shown. Its errors are answers, as in our own rollouts; none is raised."""
        if self._episode is None:
            return "There is no episode."
        if name == "reply":
            answer = await self._episode.reply(str(arguments.get("text", "")))
        else:
            answer = await self._episode.call(name, arguments)
        return answer.text if self._episode.outcome is None else OVER


def trl_environment(env: Env, tasks: Sequence[Task], *, deadline_s: float = DEADLINE_S) -> type[TrlEnvironment]:
    """The class for `environment_factory`, named as the environment. Rows of the data set: {"task": id of one of
    `tasks`}. Its tools are all that some of the tasks offers; where tasks differ much in theirs, make a class for each
    kind and give TRL a dict of them.

    `deadline_s`: seconds of the session's own time in one episode. UsageError for tools that cannot be methods.
    """
    tools = tools_of(env, tasks)
    if taken := next((name for name in tools if name in RESERVED or name.startswith("_")), None):
        raise UsageError(f"tool {taken!r} of {env.name}: TRL's environments cannot have a tool of that name")
    if env.action_format == "tool_calls":  # where a message without calls ends the user's turn
        tools["reply"] = REPLY
    methods = {name: _method(tool) for name, tool in tools.items()}
    members = {"_env": env, "_tasks": {task.id: task for task in tasks}, "_deadline_s": deadline_s, **methods}
    return type(env.name, (TrlEnvironment,), members)


def _method(tool: Json) -> Callable[..., str]:
    name = tool["function"]["name"]

    def call(self: TrlEnvironment, **arguments: Any) -> str:
        return wait_for(self._act(name, arguments))

    describe(call, tool)
    return call
