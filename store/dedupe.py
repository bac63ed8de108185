"""De-duplication over D_0 .. D_t and the held-out sets, in three stages, each with its threshold.

    exact       the same question, or the same reference, in one world, whatever the spacing and the case
    structural  references that differ in constants alone: D holds so many of one form, no more, and none of a form
                that a held-out item has
    semantic    questions that mean the same to an embedding model, and have the same outcome

An embedding alone would call "older than 30" and "older than 80" the same question; the outcome, which was found by
execution, tells them apart. Whatever is dropped names its twin. An environment's own keys (`Env.twins`) come on top.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from store.rows import Json, Task, content_id

Stage = Literal["exact", "structural", "semantic"]
Embed = Callable[[Sequence[str]], Any]
"""Texts -> float32 array [N, D] with rows of length 1."""

_CONSTANT = re.compile(r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|\b\d+(?:\.\d+)?\b""")
_WORD = re.compile(r"\w+|[<>=%]")


class DedupeSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    structural: int = Field(default=3, ge=0)
    """Tasks of one world in D whose references differ in constants alone; 0 = any number."""
    semantic: float = Field(default=0.6, gt=0, le=1)
    """Cosine of two questions' embeddings from which on, if their outcomes are the same too, they are one."""
    embedder: Literal["auto", "wordllama", "none"] = "auto"
    """Model of the semantic stage; `auto` = wordllama if it is installed, else none. A run keeps its first one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Twin:
    """Why a task is not needed."""

    stage: Stage
    task: str
    """Id of the task that is there already."""
    held_out: bool
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.task} ({', '.join(filter(None, [self.stage, self.detail]))})"


def question_key(task: Task) -> str:
    """One for questions of a world that differ in case, spacing and punctuation."""
    return content_id("question", task.world, _WORD.findall(" ".join(task.user_turns).casefold()))


def reference_key(task: Task) -> str:
    """One for references of a world that differ in case and spacing outside of constants."""
    return content_id("reference", task.world, task.tools, _walked(task.reference, _spelled))


def form_key(task: Task) -> str:
    """One for references of a world that differ in constants alone: numbers and what stands in quotes."""
    return content_id("form", task.world, task.tools, _walked(task.reference, _masked))


def _walked(value: Json, spell: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return spell(value)
    if isinstance(value, dict):
        return {key: _walked(each, spell) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_walked(each, spell) for each in value]
    return value if spell is _spelled else type(value).__name__


def _spelled(text: str) -> str:
    parts, at = list[str](), 0
    for constant in _CONSTANT.finditer(text):
        parts += [" ".join(text[at : constant.start()].casefold().split()), constant.group()]
        at = constant.end()
    return " ".join(filter(None, [*parts, " ".join(text[at:].casefold().split())])).rstrip("; ")


def _masked(text: str) -> str:
    return " ".join(_CONSTANT.sub(" ? ", text).casefold().split()).rstrip("; ")


@dataclass(kw_only=True, slots=True)
class _Vectors:
    """Embeddings of one world's questions, in an array that grows by doubling."""

    rows: Any = None
    count: int = 0
    ids: list[int] = field(default_factory=list)

    def add(self, vector: Any, index: int) -> None:
        import numpy

        if self.rows is None or self.count == len(self.rows):
            grown = numpy.zeros((max(64, 2 * self.count), len(vector)), dtype="float32")
            if self.rows is not None:
                grown[: self.count] = self.rows[: self.count]
            self.rows = grown
        self.rows[self.count] = vector
        self.count += 1
        self.ids.append(index)

    def close(self, vector: Any, threshold: float) -> list[tuple[float, int]]:
        """(cosine, index) of those at or above the threshold, the closest first."""
        if not self.count:
            return []
        cosines = self.rows[: self.count] @ vector
        return sorted(((float(cosines[at]), self.ids[at]) for at in (cosines >= threshold).nonzero()[0]), reverse=True)


class Index:
    """What is there already. Tasks are looked up and added one by one, in a fixed order: the first one stays."""

    def __init__(self, settings: DedupeSettings, embed: Embed | None = None) -> None:
        self._settings = settings
        self._embed = embed
        self._tasks: list[Task] = []
        self._held_out: list[bool] = []
        self._exact: dict[str, int] = {}
        self._forms: dict[str, list[int]] = defaultdict(list)
        self._held_forms: dict[str, int] = {}
        self._vectors: dict[str, _Vectors] = defaultdict(lambda: _Vectors())
        self._known: dict[str, Any] = {}
        """{text: vector}: what was embedded ahead, in batches."""

    def add(self, tasks: Iterable[Task], *, held_out: bool = False) -> None:
        tasks = list(tasks)
        self.prepare(tasks)
        for task in tasks:
            self._add(task, held_out)

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Embed their questions in one batch; without it each is embedded by itself, which takes longer."""
        if self._embed is None:
            return
        texts = list(dict.fromkeys(text for text in map(question, tasks) if text not in self._known))
        if texts:
            self._known.update(zip(texts, self._embed(texts), strict=True))

    def twin(self, task: Task, *, rewords: str | None = None) -> Twin | None:
        """What makes the task unnecessary; None if nothing does. Exact comes before semantic before structural.

        `rewords` is the id of a task that it asks for in other words: with that one it may share all but the question.
        """
        if (asked := question_key(task)) in self._exact:
            return self._twin("exact", self._exact[asked])

        def others(at: int) -> bool:
            return self._tasks[at].id != rewords

        solved = self._exact.get(reference_key(task))
        if solved is not None and others(solved):
            return self._twin("exact", solved)
        if found := self._semantic(task, others):
            return self._twin("semantic", found[1], f"cosine {found[0]:.2f}, same outcome")
        form = form_key(task)
        if form in self._held_forms:
            return self._twin("structural", self._held_forms[form], "differs in constants alone")
        limit, alike = self._settings.structural, [at for at in self._forms.get(form, []) if others(at)]
        if limit and len(alike) >= limit:
            return self._twin("structural", alike[0], f"{len(alike)} tasks that differ in constants alone")
        return None

    def _add(self, task: Task, held_out: bool) -> None:
        index = len(self._tasks)
        self._tasks.append(task)
        self._held_out.append(held_out)
        for key in (question_key(task), reference_key(task)):
            self._exact.setdefault(key, index)
        if held_out:
            self._held_forms.setdefault(form_key(task), index)
        else:
            self._forms[form_key(task)].append(index)
        if self._embed is not None:
            self._vectors[task.world].add(self._vector(task), index)

    def _semantic(self, task: Task, others: Callable[[int], bool]) -> tuple[float, int] | None:
        if self._embed is None:
            return None
        close = self._vectors[task.world].close(self._vector(task), self._settings.semantic)
        return next(
            ((cosine, at) for cosine, at in close if others(at) and self._tasks[at].expected == task.expected), None
        )

    def _vector(self, task: Task) -> Any:
        self.prepare([task])
        return self._known[question(task)]

    def _twin(self, stage: Stage, index: int, detail: str = "") -> Twin:
        return Twin(stage=stage, task=self._tasks[index].id, held_out=self._held_out[index], detail=detail)


def question(task: Task) -> str:
    return "\n".join(task.user_turns)
