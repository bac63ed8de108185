"""Text that no task may hold: what a reader does not see, and what a chat template takes for its own marks.

A task's words become prompts and training targets. A control or invisible character there is at best noise; a mark of a
template ends the user's turn and lets the text speak as somebody else.
"""

from __future__ import annotations

import re
import unicodedata

from envs.protocols import Draft
from store.rows import Json

_ALLOWED = frozenset("\t\n\r\u200c\u200d")
"""The two joiners belong to the spelling of some languages, and to emoji."""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories: control, format (bidirectional overrides, zero width), surrogate, private use, line ends."""
_MARK = re.compile(
    r"<\|[^<>|\s]{1,40}\|>|</?(?:s|bos|eos|pad|unk|think|tools?|tool_call|tool_response|(?:start|end)_of_turn)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|AVAILABLE_TOOLS)\]|<</?SYS>>",
    re.IGNORECASE,
)


def unfit(text: str) -> str:
    """Why the text may be in no task, empty if it may."""
    for char in text:
        if unicodedata.category(char) in _UNSEEN and char not in _ALLOWED:
            return f"it holds the invisible character U+{ord(char):04X}"
    mark = _MARK.search(text)
    return f"it holds {mark[0]!r}, a mark of chat templates" if mark else ""


def unfit_draft(draft: Draft) -> str:
    """The same of everything that a draft says."""
    return next(filter(None, map(unfit, texts([*draft.user_turns, draft.reference]))), "")


def texts(value: Json) -> list[str]:
    """Every text in a JSON value, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in texts(item)]
    return [text for item in value for text in texts(item)] if isinstance(value, list) else []
