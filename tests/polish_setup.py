"""An editor and judges of words that play scripts, for the echo world."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from envs.protocols import Draft, Env
from graphs.settings import ValidateSettings
from graphs.sitting import Voice
from store.rows import Candidate, Json, Row, Task, Verdict, content_id
from tests.fakes import EchoEnv
from tests.graph_setup import Echo, explorer, validate
from tests.refine_setup import asked
from tests.scripted import Roles, ScriptedChatModel, says

OLD, NEW = ["say it"], ["Please say it back to me."]
POLISH = ValidateSettings(polish=True)
Answer = Callable[[Json], Any]
"""payload -> JSON, text, an AIMessage or an Exception."""


class WordyEcho(Echo):
    """Echo whose tasks are twins too if the user says the same."""

    def twins(self, task: Task) -> list[str]:
        return [*super().twins(task), content_id("words", task.user_turns)]


class Editor:
    """A validator that finds nothing wrong; as editor and as judge of words it answers by its scripts."""

    def __init__(self, edit: Any = None, compare: Answer | None = None, **roles: Any) -> None:
        self._edit = edit if edit is not None else {"user_turns": NEW}
        self._compare = compare or likes_new
        self.validator: Roles = explorer(**roles)
        self.seen: list[tuple[str, Json]] = []

    def __call__(self, messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        role, payload = asked([message for message in messages if "```json" in str(message.content)])
        if role not in ("editor", "compare"):
            return self.validator(messages, tools)
        self.seen.append((role, payload))
        return said(self._compare(payload) if role == "compare" else self._edit)

    def payloads(self, role: str) -> list[Json]:
        return [payload for seen, payload in self.seen if seen == role]


def said(answer: Any) -> AIMessage | Exception:
    if isinstance(answer, AIMessage | Exception):
        return answer
    return says(answer if isinstance(answer, str) else json.dumps(answer), tokens=10)


def scores(old: float, new: float, *, bias: float = 0.0) -> Answer:
    """Scores that depend on the words, and by `bias` on the place: what is shown first gets so much more."""

    def answer(payload: Json) -> Json:
        first, second = (old if payload[place] == OLD else new for place in ("first", "second"))
        return {"reason": "so", "first": first + bias, "second": second}

    return answer


likes_new = scores(5, 7)


def taste(answer: Answer, name: str = "judge") -> Voice:
    """A judge of words alone."""

    def play(messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        role, payload = asked([message for message in messages if "```json" in str(message.content)])
        assert role == "compare"
        return said(answer(payload))

    return Voice(spec=name, model=ScriptedChatModel(policy=play))


def polished(
    tmp: Path, one: Candidate, editor: Editor, *, env: Env | None = None, **options: Any
) -> tuple[Verdict, list[Row]]:
    """(verdict, rows) of one candidate whose words may be edited."""
    settings = options.pop("settings", POLISH)
    (verdict,), rows = validate(editor, tmp, [one], env=env or WordyEcho(), settings=settings, **options)
    return verdict, rows


def worded(env: EchoEnv, one: Candidate, turns: list[str]) -> Task:
    """The task that the candidate becomes in these words."""
    draft = Draft(world=one.world, user_turns=turns, reference=one.reference, tools=one.tools)
    return env.materialize(draft, "refined")
