"""A committee whose judges play scripts, for the echo world."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from graphs.committee import Judges
from graphs.settings import JudgeSettings
from graphs.sitting import Voice
from store.rows import Candidate, Json, Row, Verdict
from tests.graph_setup import explorer, validate
from tests.refine_setup import asked
from tests.scripted import ScriptedChatModel, says

GOOD: Json = {"reason": "fine", "validity": 5, "difficulty_gain": 4, "diversity": 4, "realism": 5, "adopt": True}
BAD: Json = GOOD | {"reason": "unclear", "validity": 1, "adopt": False}


class Script:
    """A judge's answers one by one, the last again and again: JSON, text, an AIMessage, an Exception."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.seen: list[Json] = []

    def __call__(self, messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        role, payload = asked([message for message in messages if "```json" in str(message.content)])
        assert role == "judge"
        self.seen.append(payload)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, AIMessage | Exception):
            return answer
        return says(answer if isinstance(answer, str) else json.dumps(answer), tokens=10)


def voice(script: Script, name: str = "judge") -> Voice:
    return Voice(spec=name, model=ScriptedChatModel(policy=script))


def judges(*strong: Script | Json | str, cheap: Any = None, past: Any = None, **settings: Any) -> Judges:
    """Judges that play these scripts, or always give this answer."""
    scripts = [one if isinstance(one, Script) else Script(one) for one in strong]
    return Judges(
        strong=[voice(script, f"judge{at}") for at, script in enumerate(scripts)],
        cheap=voice(cheap, "cheap") if isinstance(cheap, Script) else cheap,
        settings=JudgeSettings(**settings),
        past=past or {},
    )


def judged(
    tmp: Path, candidates: Sequence[Candidate], court: Judges, **options: Any
) -> tuple[list[Verdict], list[Row]]:
    """(verdicts, rows) of `validate_all` with a validator that finds nothing wrong."""
    return validate(options.pop("policy", explorer()), tmp, candidates, judges=court, **options)
