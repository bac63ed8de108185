"""An environment as an MCP server: any MCP client plays it, one episode at a time for each client.

Its tools are given as they are, and beside them `list_tasks`, `new_episode`, `finish`, and where a user speaks in
several turns `reply`. Whatever a client gets wrong is a tool result with `isError`; so is a fault of the machine, which
is told as `infra` and is no score. Needs the extra `mcp`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import mcp.types as types
import uvicorn
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS

from envs.protocols import Env, Outcome
from envs.tool_episode import DEADLINE_S, REPLY, ToolEpisode, function_tool, tools_of
from store.errors import CoevolveError, UsageError
from store.rows import Json, Task

HOST = "127.0.0.1"
IDLE_S = 1800.0
"""Seconds without a request after which a client's session, over HTTP, and then its episode are closed."""
SHOWN = 200
"""Characters of a client's own words in a message."""
INSTRUCTIONS = """\
Play tasks of the environment {name}: `list_tasks` tells which there are, `new_episode` begins one and gives the task. \
Work on it with the other tools{reply}. `finish` ends the episode and gives the verdict: a score in [0, 1]. \
Some environments have a tool that ends it too; then that tool gives the verdict."""
ANSWERS = "; `reply` answers the user, who may then ask for more"

Context = ServerRequestContext["Clients", Any]


OWN = [
    function_tool("list_tasks", "The tasks that can be played: id, and what the user asks first."),
    function_tool(
        "new_episode",
        "Begin an episode, and give up the one that is played, if any. Gives the task.",
        {"task": {"type": "string", "description": "Id of the task. Left out: the next of the list."}},
    ),
    function_tool("finish", "End the episode and get the verdict: its score, and why."),
]


class Client:
    """Who plays: the present episode, and what is open beside it. Requests are served one by one."""

    def __init__(self, env: Env, tasks: Sequence[Task], tools: dict[str, Json], deadline_s: float) -> None:
        self.seen = time.monotonic()
        self._env = env
        self._tasks = {task.id: task for task in tasks}
        self._tools = tools
        self._deadline_s = deadline_s
        self._own = _own(env)
        self._handlers: dict[str, Callable[..., Awaitable[types.CallToolResult]]] = {
            "list_tasks": self._list_tasks,
            "new_episode": self._new_episode,
            "finish": self._finish,
            "reply": self._reply,
        }
        self._played = 0
        self._episode: ToolEpisode | None = None
        self._one_by_one = asyncio.Lock()

    def tools(self) -> list[Json]:
        """Those of the episode; outside of one, all that some task offers."""
        going_on = self._episode is not None and self._episode.outcome is None
        open_ = self._episode.tools if self._episode is not None and going_on else list(self._tools.values())
        return [*self._own.values(), *open_]

    async def call(self, name: str, args: dict[str, Any]) -> types.CallToolResult:
        async with self._one_by_one:
            self.seen = time.monotonic()
            if name in self._own:
                if wrong := _wrong(self._own[name], args):
                    return _said(wrong, failed=True)
                return await self._handlers[name](**args)
            return await self._act(name, args)

    async def close(self) -> None:
        if self._episode is not None:
            await self._episode.close()

    async def _list_tasks(self) -> types.CallToolResult:
        found = [{"task": task.id, "user": task.user_turns[0]} for task in self._tasks.values()]
        return _said(json.dumps(found, ensure_ascii=False))

    async def _new_episode(self, task: str | None = None) -> types.CallToolResult:
        ids = list(self._tasks)
        if task is not None and task not in self._tasks:
            return _said(f"there is no task {task[:SHOWN]!r}; list_tasks tells which there are", failed=True)
        chosen = task if task is not None else ids[self._played % len(ids)]
        self._played = ids.index(chosen) + 1
        await self.close()
        self._episode = ToolEpisode(self._env, self._tasks[chosen], deadline_s=self._deadline_s)
        shown = await self._episode.start()
        if self._episode.outcome is not None:
            return _verdict(self._episode.outcome)
        return _said(f"Task {chosen}\n\n{shown}")

    async def _finish(self) -> types.CallToolResult:
        if self._episode is None:
            return _said("there is no episode to finish; call new_episode first", failed=True)
        return _verdict(await self._episode.finish())

    async def _reply(self, text: str) -> types.CallToolResult:
        return await self._act(None, text)

    async def _act(self, tool: str | None, said: Any) -> types.CallToolResult:
        """Call a tool of the environment with `said`; without one, say it."""
        episode = self._episode
        if episode is None:
            return _said("there is no episode; call new_episode first", failed=True)
        if episode.outcome is not None:
            return _said("the episode is over; finish tells its verdict, new_episode begins another", failed=True)
        answer = await (episode.reply(said) if tool is None else episode.call(tool, said))
        ended: Outcome | None = episode.outcome
        return _said(answer.text, failed=answer.failed) if ended is None else _verdict(ended)


class Clients:
    """The clients of one server: over HTTP by session, on a pipe there is one."""

    def __init__(self, env: Env, tasks: Sequence[Task], tools: dict[str, Json], deadline_s: float) -> None:
        self._given = env, tasks, tools, deadline_s
        self._known: dict[str, Client] = {}

    async def of(self, context: Context) -> Client:
        """CoevolveError for a client without a session, whose episode could not be found again."""
        headers = getattr(context.request, "headers", None)
        key = "" if headers is None else headers.get("mcp-session-id")
        if key is None:
            raise CoevolveError("an episode needs a session: connect with the initialize handshake")
        if key not in self._known:
            await self._forget_idle()
            self._known[key] = Client(*self._given)
        return self._known[key]

    async def _forget_idle(self) -> None:
        before = time.monotonic() - IDLE_S
        for key in [key for key, client in self._known.items() if client.seen < before]:
            await self._known.pop(key).close()

    async def close(self) -> None:
        for client in self._known.values():
            await client.close()


def server(env: Env, tasks: Sequence[Task], *, deadline_s: float = DEADLINE_S) -> Server[Clients]:
    """The server, without a transport. `deadline_s`: seconds of the session's own time in one episode.

    UsageError without tasks, and for an environment with a tool named like one of the server's.
    """
    if not tasks:
        raise UsageError(f"{env.name}: there is no task to be played")
    tools, own = tools_of(env, tasks), _own(env)
    if taken := next((name for name in tools if name in own), None):
        raise UsageError(f"tool {taken!r} of {env.name}: the server has a tool of that name itself")

    @asynccontextmanager
    async def lifespan(_: Server[Clients]) -> AsyncIterator[Clients]:
        clients = Clients(env, tasks, tools, deadline_s)
        try:
            yield clients
        finally:
            await clients.close()

    return Server(
        f"coevolve-{env.name}",
        version=env.version,
        instructions=INSTRUCTIONS.format(name=env.name, reply=ANSWERS if "reply" in own else ""),
        lifespan=lifespan,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
    )


async def serve_stdio(served: Server[Clients]) -> None:
    """Serve the one client at the other end of stdin and stdout, until it leaves."""
    options = served.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (incoming, outgoing):
        await served.run(incoming, outgoing, options)


def listening(port: int) -> socket.socket:
    """A socket on this machine alone; port 0 = a free one. UsageError for a port that is taken."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise UsageError(f"--http {port}: {error.strerror or error}; give another, or 0 for a free one") from error


def serve_http(served: Server[Clients], at: socket.socket) -> None:
    """Serve clients on the socket, streamable HTTP at /mcp, until SIGTERM or ctrl-C."""
    # Episodes need sessions, which the protocol has only after its handshake: a client that asks is told so.
    served.add_request_handler("server/discover", types.RequestParams, _discover)
    app = served.streamable_http_app(host=HOST, session_idle_timeout=IDLE_S)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[at])


async def _discover(context: Context, params: types.RequestParams) -> types.DiscoverResult:
    capabilities = types.ServerCapabilities(tools=types.ToolsCapability(list_changed=True))
    return types.DiscoverResult(supported_versions=list(HANDSHAKE_PROTOCOL_VERSIONS), capabilities=capabilities)


async def _list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    client = await context.lifespan_context.of(context)
    functions = [tool["function"] for tool in client.tools()]
    return types.ListToolsResult(
        tools=[
            types.Tool(name=each["name"], description=each.get("description"), input_schema=each["parameters"])
            for each in functions
        ]
    )


async def _call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    try:
        client = await context.lifespan_context.of(context)
        before = client.tools()
        result = await client.call(params.name, params.arguments or {})
    except CoevolveError as error:
        return _said(str(error), failed=True)
    if client.tools() != before:
        await context.session.send_tool_list_changed()
    return result


def _own(env: Env) -> dict[str, Json]:
    """The server's tools. Only where actions are calls does a message without one end the user's turn."""
    tools = [*OWN, *([REPLY] if env.action_format == "tool_calls" else [])]
    return {tool["function"]["name"]: tool for tool in tools}


def _wrong(tool: Json, args: dict[str, Any]) -> str:
    """What is wrong with the arguments of one of the server's tools, which are all text; "" if nothing is."""
    name, wanted = tool["function"]["name"], tool["function"]["parameters"]
    if missing := [key for key in wanted["required"] if key not in args]:
        return f"{name} needs the argument {missing[0]}"
    if unknown := [key for key in args if key not in wanted["properties"]]:
        return f"{name} takes no argument {unknown[0][:SHOWN]!r}"
    wrong = [key for key, value in args.items() if not isinstance(value, str)]
    return f"{name}: the argument {wrong[0]} must be text" if wrong else ""


def _verdict(outcome: Outcome) -> types.CallToolResult:
    # why a task is defective would tell of its reference
    why = "the task is defective" if outcome.kind == "invalid" else outcome.detail
    told = {"kind": outcome.kind, "score": outcome.score, "detail": _plain(why)}
    if outcome.violation:
        told["violation"] = outcome.violation
    result = _said(json.dumps(told, ensure_ascii=False), failed=outcome.kind != "scored")
    result.structured_content = told
    return result


def _said(text: str, *, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=_plain(text))], is_error=failed)


def _plain(text: str) -> str:
    """What a client sent may come back, and lone surrogates cannot be sent."""
    return text.encode("utf-8", "replace").decode()
