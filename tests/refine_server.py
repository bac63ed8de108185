"""An endpoint that plays all roles: the same request always gets the same answer. Judges like length up to a point."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from store.rows import Json
from tests.fake_openai import Behaviour, answer

LONGEST = 8
"""Characters of a response beyond which more is no better."""


def role_answer(request: Json) -> str:
    found = re.search(r"^```json\n(\{.*\})\n```$", request["messages"][-1]["content"], re.MULTILINE)
    assert found
    asked: dict[str, Any] = json.loads(found[1])
    match asked["role"]:
        case "editor":
            return str(asked["response"]) + "!"
        case "compare":
            scores = {place: min(LONGEST, len(asked[place])) + 1 for place in ("first", "second")}
            return json.dumps({"reason": "length", **scores})
        case "advisor":
            return "1. Add a short example of the rule.\n2. Remove the second sentence."
        case role:
            return f"{role}: {asked['response']} is so."


def roles() -> Behaviour:
    return answer(role_answer)


def workspace(root: Path, url: str, **model: Any) -> Path:
    """A workspace whose models are those of the server."""
    root.mkdir()
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"api_base": url, "input_price": 1.0, **model}.items()]
    (root / "config.toml").write_text("[model]\n" + "\n".join(lines) + "\n")
    return root


def write_alpaca(path: Path, count: int) -> Path:
    records = [
        {"id": at, "instruction": f"Say {at}.", "input": "", "output": f"r{at}", "tag": [at]} for at in range(count)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
