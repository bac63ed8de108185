"""What the package holds, as the parent side sees it: entries, tools, and which side of a split an entry is on."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from envs.venvs import Venv
from envs.worker import Limits, Pool, Program
from store.errors import UsageError
from store.rows import Json, content_id

HERE = Path(__file__).parent
VENV = Venv(name="bfcl", requirements=HERE / "requirements.txt")
CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
ABSTAINING = ("miss_func", "miss_param")
"""Categories with turns that ask for nothing that can be done."""
ENVIRON = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}

Calls = list[list[dict[str, Any]]]
"""Per user turn: [{"name": str, "args": {parameter: value}}]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An official entry; its id names the world, which is its initial configuration."""

    id: str
    category: str
    classes: list[str]
    state: Json
    """{class: initial configuration} of the classes that are involved."""
    turns: list[str]
    hidden: dict[str, int]
    """{function: turn from which on it is shown}."""
    reference: Calls

    @property
    def number(self) -> int:
        """Shared by the four variants of one base entry."""
        return int(self.id.rpartition("_")[2])

    @property
    def place(self) -> str:
        """Equal for worlds that behave alike."""
        return content_id(sorted(self.classes), self.state, self.category == "long_context")


class Catalog:
    """The package's data, read through a worker when first asked for."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @cached_property
    def _raw(self) -> Json:
        return self._pool.ask({"verb": "catalog"}, seconds=60)

    @cached_property
    def entries(self) -> dict[str, Entry]:
        return {raw["id"]: Entry(**raw) for raw in self._raw["entries"]}

    @property
    def classes(self) -> dict[str, Json]:
        """{class: {"description", "tools": [JSON-schema function]}}."""
        found: dict[str, Json] = self._raw["classes"]
        return found

    def entry(self, world: str) -> Entry:
        if world not in self.entries:
            raise UsageError(f"world {world!r}: there is none of that name; one is multi_turn_base_0")
        return self.entries[world]

    def tools(self, entry: Entry) -> dict[str, Json]:
        """{name: JSON-schema function} of all functions of the entry's classes."""
        return {tool["function"]["name"]: tool for name in entry.classes for tool in self.classes[name]["tools"]}

    @cached_property
    def names(self) -> frozenset[str]:
        """All documented functions."""
        return frozenset(tool["function"]["name"] for each in self.classes.values() for tool in each["tools"])


def pool(limits: Limits | None = None) -> Pool:
    """Workers of the installed package. UsageError if it is not installed."""
    program = Program(python=VENV.need(), module="envs.bfcl.worker", environ=ENVIRON, limits=limits or Limits())
    return Pool(program)


@dataclass(frozen=True, slots=True)
class Sides:
    """One split of splits.toml."""

    train: frozenset[int]
    """Numbers on the training side."""
    others: int | None
    """Functions that a new task offers besides those of its reference; None = all of its services."""


def sides(split: str) -> Sides:
    """UsageError if there is no split of that name."""
    splits = tomllib.loads((HERE / "splits.toml").read_text("utf-8"))
    if split not in splits:
        raise UsageError(f"env 'bfcl:{split}': there is no such split; choose from {', '.join(splits)}")
    found = splits[split]
    return Sides(train=frozenset(_numbers(found["train"])), others=found.get("others"))


def _numbers(items: Sequence[Any]) -> list[int]:
    ranges = [range(item["from"], item["to"] + 1) if isinstance(item, dict) else [item] for item in items]
    return [number for each in ranges for number in each]
