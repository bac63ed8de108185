"""States, settings and messages of the graphs: JSON only, no types live in the graph files themselves.

LangGraph loads a graph file a second time under another name, so a class defined there would exist twice. States
hold ids and small JSON; `log` is stored as deltas, so the bytes of a thread's checkpoints grow linearly with its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from langgraph.channels import DeltaChannel
from typing_extensions import TypedDict  # pydantic, which draws the input forms of Studio, wants it below 3.12

from store.rows import Json, Signal, Task, content_id

DEFAULT_ENV = "text2sql"
"""Of graphs that run alone, as in Studio."""
RECURSION_LIMIT = 250
"""Supersteps of one graph; the budgets end it long before, LangGraph's own default is 10007."""


SHOWN_STEPS = 12
"""Steps of a flagged trajectory that an explorer is shown, the last ones."""
SHOWN_CHARS = 2000
"""Characters of one action or observation that an explorer is shown."""


class Call(TypedDict):
    """One tool call as the model wrote it."""

    name: str
    args: dict[str, Any]
    text: str
    """What the model said along with it."""
    error: str | None
    """Why it could not be read; such a call never reaches the session, the model gets this as observation."""


class Entry(Call):
    """A call and its answer: one line of the call log."""

    observation: str
    failed: bool


class Spent(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    cost: float
    """US dollars."""
    seconds: float
    """Model and tool time; survives a resume, unlike a wall-clock start."""


class DraftJson(TypedDict):
    """A task-solution pair, as an explorer proposes it and a validator rewrites it."""

    user_turns: list[str]
    reference: Json


class StepView(TypedDict):
    action: str
    observation: str
    failed: bool


class Evidence(TypedDict):
    """A flagged trajectory, as an explorer sees it: what was asked, done and answered, never the reference."""

    questions: list[str]
    structure: str
    """The environment's structure key of the task."""
    score: float | None
    steps: list[StepView]


def shown(evidence: Evidence) -> Evidence:
    """The evidence as far as it fits a prompt: its last steps, long texts cut."""
    steps = [
        StepView(action=shortened(step["action"]), observation=shortened(step["observation"]), failed=step["failed"])
        for step in evidence["steps"][-SHOWN_STEPS:]
    ]
    return Evidence(**{**evidence, "steps": steps})


def shortened(text: str) -> str:
    """The text as far as a prompt has room for it."""
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]} ... ({len(text)} characters in all)"


class SignalView(TypedDict):
    """A signal, as an explorer sees it."""

    kind: str
    """forgetting | boundary | rare, or what stands for a signal: adversarial | focus"""
    pattern: list[str] | None
    """Action tokens, for `rare` only."""
    stats: Json
    evidence: list[Evidence]


class Example(TypedDict):
    """A task that was admitted, as an explorer is shown it."""

    user_turns: list[str]
    reference: Json
    """None where the policy itself explores: it must never see one."""
    difficulty: float


class Lacking(TypedDict):
    """What a set of tasks has least of, the rarest first."""

    structures: list[str]
    tokens: list[str]
    """Action tokens."""


class Guide(TypedDict, total=False):
    """What an explorer is told besides its signal (docs/flywheel.md). A key that is absent is not asked for."""

    mode: str
    """`signal`, `unguided`, `adversarial`, `focus`, or `harden`."""
    about: str
    """adversarial, focus: the structure."""
    difficulty: float
    """To be reached."""
    set_mean: float
    lacking: Lacking
    examples: list[Example]
    operator: str
    """harden: `compose`, `constrain` or `strip`."""
    parents: list[str]
    """harden: ids of the tasks that it began with."""


class Facts(TypedDict, total=False):
    """What a view shows of the matter at hand."""

    signal: SignalView | None
    context: Json | None
    guide: Guide | None
    draft: DraftJson
    """Only where the validator tries a draft through the tools."""


class View(Facts):
    """What every prompt shows; the procedural explorer reads it too (envs/protocols.py, Explorer)."""

    world: str
    tools: list[Json]
    log: list[Json]
    """[{"name", "args", "observation", "failed"}]"""
    steps_left: int


def extend(log: list[Entry], writes: Sequence[list[Entry]]) -> list[Entry]:
    """Reducer of a call log: appends."""
    return [*log, *(entry for write in writes for entry in write)]


Log = Annotated[list[Entry], DeltaChannel(extend)]


class ActState(TypedDict, total=False):
    """What the loop act <-> tools needs; both graphs have it."""

    id: str
    """Key of the session: exploration id, or candidate id."""
    world: str
    seed: int
    log: Log
    pending: list[Call]
    """Calls of the last reply that the tools have not answered yet."""
    said: str
    """The text of the last reply."""
    spent: Spent
    stop: str | None
    """Why the loop ended: done | steps | tokens | deadline | environment; None while it runs."""


class ExploreState(ActState, total=False):
    signal: SignalView | None
    """None = unguided."""
    reflection: str
    """What the model wrote on why the flagged trajectory failed."""
    context: Json | None
    """The structured exploration context: {"where", "failure", "vary", ...}."""
    drafts: list[DraftJson]
    guide: Guide | None
    """None = nothing."""
    tasks: list[DraftJson]
    """harden: the tasks to begin with."""


class ValidateState(ActState, total=False):
    tools: list[str]
    """The draft's tools allow-list."""
    origin: str
    """Of the task that it becomes; `explored` if not given."""
    triplets: list[Entry]
    """An exploration's log; read only where no draft is given, as in Studio."""
    draft: DraftJson | None
    base: int
    """Entries of `log` that belong to earlier tries, before the last repair."""
    repairs: int
    """Repairs made."""
    repairs_left: int
    task: Json | None
    """The materialised Task row."""
    rewords: str | None
    """Id of the task whose twin it may be, since it asks for the same in other words."""
    edited: Json | None
    """The Task row in the editor's words, until its judges have compared it."""
    edit: Json | None
    """As of Verdict, less the editor; None = no editor."""
    problem: str | None
    """What the last node found wrong, as `word: explanation`; None = nothing."""
    verdict: Json | None
    """{"adopt", "reason", "detail"} once decided."""


class VoteView(TypedDict):
    """A judge's vote, as Studio shows it; the whole of it is a row."""

    stage: str
    model: str
    adopt: bool | None
    passes: bool
    scores: Json
    reason: str


class JudgeState(TypedDict, total=False):
    """One task before its judges."""

    id: str
    """Candidate."""
    world: str
    draft: DraftJson | None
    """Read only where no task is given, as in Studio."""
    task: Json | None
    """The Task row that execution has accepted."""
    rewords: str | None
    """As of ValidateState."""
    observed: str | None
    """What the reference came back with, if it was seen."""
    votes: list[VoteView]
    problem: str | None
    """Why it is rejected, as `word: explanation`; None = nothing so far."""
    verdict: Json | None
    """{"adopt", "reason", "detail"} once decided."""


class PairJson(TypedDict):
    """What was asked, and the response."""

    instruction: str
    input: str
    response: str


class RefineState(TypedDict, total=False):
    """One response of a sample."""

    system: str
    history: list[PairJson]
    """The turns before, as far as they are shown; refined already."""
    instruction: str
    input: str
    response: str
    """The best so far."""
    iteration: int
    """Begun; from 1 on."""
    accepted: int
    """Rewrites that replaced the response."""
    positions: dict[str, str]
    """{debater: what it argued with a fixed position}."""
    crossed: dict[str, str]
    """{debater: what it said freely}."""
    advice: str
    edited: str
    stop: str | None
    """Why it ended, one stable word; None while it runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExploreJob:
    """One exploration to be run."""

    run: str
    t: int
    """Iteration in which it is run; its signal may be older."""
    index: int
    """0.. within the signal, or within the unguided explorations of t."""
    world: str
    attempt: int = 0
    """Counts up where the same was tried before in t and failed for our own faults."""
    signal: Signal | None = None
    evidence: list[Evidence] = field(default_factory=list)
    """The flagged trajectories that the explorer is shown: the signal's, or the structure's of `guide`."""
    guide: Guide | None = None
    tasks: list[Task] = field(default_factory=list)
    """harden: the tasks to begin with."""

    @property
    def id(self) -> str:
        again = [self.attempt] if self.attempt else []
        about = self.signal.id if self.signal else self._about() or "unguided"
        return content_id("exploration", self.run, self.t, about, self.index, *again)

    def seed(self, base: int) -> int:
        """Depends on what is explored but not on the run's name: two runs of one seed explore alike."""
        about = (self.signal.kind, self.signal.task_id, self.signal.pattern) if self.signal else self._about()
        return derive_seed("explore", base, self.t, about, self.index, self.world)

    def _about(self) -> Json:
        """What stands in for a signal; None for an unguided exploration."""
        guide = self.guide or Guide()
        named = (guide.get("about"), guide.get("operator"), guide.get("parents"))
        return [guide.get("mode"), *named] if any(named) else None


def derive_seed(*parts: Json) -> int:
    """A seed in [0, 2**31) from the content of `parts`."""
    return int(content_id(*parts), 16) % 2**31
