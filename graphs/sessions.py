"""Sessions that live beside the state: the state holds the call log, this process holds the open session.

After a restart the session is opened again and the log is replayed; an environment that then answers differently is
not the one that the exploration saw, and the exploration ends as an infrastructure failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.errors import SessionLost
from envs.protocols import Env, Session
from graphs.state import Call, Entry
from store.rows import Json

MAX_OBSERVATION = 8_000
"""Characters of one observation that a model is shown and the log keeps."""


@dataclass(slots=True)
class Live:
    """An open session and how many log entries it has played."""

    session: Session
    played: int = 0
    done: bool = False
    """The environment ended the episode."""

    @property
    def tools(self) -> list[Json]:
        return self.session.tools

    async def play(self, call: Call, index: int) -> Entry:
        """Carry out one call. A call that could not be read is answered here and never reaches the session."""
        self.played += 1
        if call["error"] is not None:
            return Entry(**call, observation=call["error"], failed=True)
        tool_call = {"id": f"call_{index}", "name": call["name"], "args": call["args"]}
        answer = await self.session.act({"role": "assistant", "content": call["text"], "tool_calls": [tool_call]})
        self.done = answer.done
        shown = "\n".join(str(message.get("content") or "") for message in answer.messages)
        return Entry(**call, observation=_cut(shown), failed=answer.failed)


class Sessions:
    """Open sessions by key, of this process only."""

    def __init__(self) -> None:
        self._live: dict[str, Live] = {}

    async def get(self, key: str, env: Env, world: str, log: Sequence[Entry] = ()) -> Live:
        """The session of `key` with exactly `log` behind it, reopened and replayed if need be. SessionLost."""
        live = self._live.get(key)
        if live is not None and live.played == len(log):
            return live
        await self.drop(key)
        live = self._live[key] = Live(env.open(world, tools=True))
        await live.session.start()
        for index, entry in enumerate(log):
            again = await live.play(_call(entry), index)
            if again != entry:
                await self.drop(key)
                raise SessionLost(f"on replay, call {index} ({entry['name']}) was answered differently in {world}")
        return live

    async def drop(self, key: str) -> None:
        """Close the session of `key`, and those of its tries (`key/...`)."""
        for found in [name for name in self._live if name == key or name.startswith(f"{key}/")]:
            await self._live.pop(found).session.close()

    def __len__(self) -> int:
        return len(self._live)


def _call(entry: Entry) -> Call:
    return Call(name=entry["name"], args=entry["args"], text=entry["text"], error=entry["error"])


def _cut(text: str) -> str:
    return text if len(text) <= MAX_OBSERVATION else text[:MAX_OBSERVATION] + " ... (cut)"


SESSIONS = Sessions()
