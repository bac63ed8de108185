"""Every persisted noun, in the order in which the loop makes them.

    Run         one `coevolve evolve` history: its seed, config and versions
    Task        an executable task; its id is a hash of its content
    Snapshot    D_t: the tasks that iteration t trains on
    Trajectory  one episode of a policy or an explorer in an environment
    Step        one action and the observation that answered it
    Signal      a weakness found in training rollouts: forgetting, boundary, rare
    Exploration one run of the exploration agent, unguided or conditioned on a signal
    Candidate   a task-solution pair abstracted from one exploration
    Vote        what one judge said of a candidate that execution had accepted
    Verdict     what became of a candidate: the task, or why it was rejected
    Rating      what a person said of a candidate
    Withdrawal  a task found defective later (its reference no longer replays)
    Metric      a figure of one optimiser step
    Score       a metric of one policy version on one held-out suite
    Phase       a finished phase of an iteration: its seconds and counts; the loop resumes from these
    Figure      a figure of one round: a point of a curve
    Decision    what a guard or a stop rule decided after a round, with its figures
    Span        one node of one graph run: when, how long, what the model was told and said there
    Remark      what one role said of one response while a data set was refined: one model call
    Refined     what became of one sample of a data set that was refined

Rows are frozen and carry no behaviour beyond computing their own id. `t` is an iteration: one `train` call on
snapshot D_t. The policy that samples in iteration t is version t; training on D_t writes version t+1. Every
row is identified by `KEY`; appending the same key twice is harmless, the first one stays.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec

Json = Any
"""A JSON value: dict, list, str, int, float, bool or None."""

SUCCESS = 0.5
"""A rollout, or the mean of a task's rollouts, succeeds from this score on."""

Split = Literal["train", "gold", "test", "shifted", "robust"]
Origin = Literal["seed", "explored", "refined", "outside"]
Purpose = Literal["train", "eval", "validate", "explore"]
OutcomeKind = Literal["scored", "infra", "invalid"]
SignalKind = Literal["forgetting", "boundary", "rare"]
JudgeStage = Literal["cheap", "strong", "polish"]
RefineRole = Literal["positive", "critical", "advisor", "editor", "judge"]


def content_id(*parts: Json) -> str:
    """16 hex digits of SHA-256 over the canonical JSON of `parts` (sorted keys, no spaces)."""
    try:
        canonical = msgspec.json.encode(parts, order="sorted")
    except UnicodeEncodeError:
        canonical = msgspec.json.encode(without_lone_surrogates(parts), order="sorted")
    return hashlib.sha256(canonical).hexdigest()[:16]


def without_lone_surrogates(value: Json) -> Json:
    """The value with U+FFFD for what UTF-8 can't hold: a model may write "\\ud800" in its JSON. Rows are stored so."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list | tuple):
        return [without_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_lone_surrogates(key): without_lone_surrogates(item) for key, item in value.items()}
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    KEY: ClassVar[tuple[str, ...]] = ("id",)
    id: str
    created_at: float
    """Unix seconds."""
    seed: int
    env: str
    policy: str
    """Spec string of the policy, as wiring reads it (`hf:DIR`, `litellm:NAME`, ...)."""
    config: Json
    """The resolved settings."""
    versions: Json
    """{component: version} of python, coevolve and what it runs on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    KEY: ClassVar[tuple[str, ...]] = ("id",)
    id: str
    """`task_id(...)` of the content: env, env_version, world, user_turns, tools, reference, expected."""
    env: str
    env_version: str
    world: str
    split: Split
    user_turns: list[str]
    """What the user says, one entry a turn."""
    tools: list[str]
    """Names of the tools that the policy may use; empty = the environment's default."""
    reference: Json
    """The reference solution: SQL text, calls per turn, or code. Never in a prompt of the policy."""
    expected: Json
    """The outcome that the reference reaches: result hash per population, state per turn, ... Never in a prompt."""
    structure: str
    """The environment's structure key: tasks of one shape share it."""
    difficulty: float
    """The environment's own measure, >= 0, comparable within one environment."""
    origin: Origin
    redistributable: bool = True
    """Whether its text may be passed on in plain; False where it derives from data whose licence forbids that."""


def task_id(
    *,
    env: str,
    env_version: str,
    world: str,
    user_turns: list[str],
    tools: list[str],
    reference: Json,
    expected: Json,
) -> str:
    """Id of a task's content: no run, no time, no lineage, so the same task has the same id everywhere."""
    return content_id("task", env, env_version, world, user_turns, tools, reference, expected)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    KEY: ClassVar[tuple[str, ...]] = ("run", "t")
    id: str
    """`snapshot_id(task_ids)`: covers task content only, in order."""
    run: str
    t: int
    task_ids: list[str]
    """In training order; D_{t+1} starts with the rows of D_t."""
    created_at: float
    mix: Json = None
    """How the tasks are sampled (store/mix.py): shares and, a task each, part, band and probability; None = evenly."""


def snapshot_id(task_ids: list[str]) -> str:
    return content_id("snapshot", task_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    KEY: ClassVar[tuple[str, ...]] = ("id",)
    id: str
    run: str
    t: int
    """Iteration; for eval rows the policy version that was evaluated (the same number)."""
    purpose: Purpose
    env: str
    world: str
    task_id: str | None
    """None for explorations."""
    suite: str | None
    """Held-out suite of an eval row, else None."""
    k: int
    """Index in the group of K rollouts of one task."""
    attempt: int
    """0 for the first try; a retry after an infrastructure failure counts up."""
    policy: str
    policy_version: int
    """The version whose training had begun or ended when it was sampled: its number, whatever steps came since."""
    seed: int
    """Sampling seed: hash(config seed, t, task, k); the attempt is not in it."""
    outcome: OutcomeKind
    score: float | None
    """In [0, 1]; None unless outcome is `scored`."""
    violation: str | None
    """Kind of detected cheating (then score is 0), else None."""
    error: str | None
    """What went wrong in words: the infrastructure failure, the defect of the task."""
    steps: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    created_at: float
    policy_step: int | None = None
    """Optimiser steps of the run that the sampling weights had seen; None where nothing is trained here."""


def trajectory_id(*, run: str, purpose: Purpose, t: int, task: str, k: int, attempt: int = 0) -> str:
    """`task` is the task id, or the exploration id for explorations."""
    return content_id("trajectory", run, purpose, t, task, k, attempt)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    KEY: ClassVar[tuple[str, ...]] = ("trajectory_id", "index")
    trajectory_id: str
    index: int
    action: str
    """What the model wrote: text, SQL, or the JSON of its tool calls."""
    observation: str
    """What the environment answered; empty where nothing was shown to the model."""
    tokens: list[str]
    """Action tokens (docs/concepts.md): tool names, `app.api`, or one token per SQL clause. Also the index's narrow
    `tool_calls` table, one row a token, which the rare-pattern query reads."""
    failed: bool
    """The environment refused the action or it raised an error."""
    prompt_ids: list[int] | None
    """[P] token ids that the sampler was given, None where the sampler gives none."""
    completion_ids: list[int] | None
    """[C] token ids that the sampler chose."""
    logprobs: list[float] | None
    """[C] log-probability of each chosen token under the sampling distribution."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    KEY: ClassVar[tuple[str, ...]] = ("id",)
    id: str
    """content_id("signal", run, t, kind, task_id or pattern)."""
    run: str
    t: int
    kind: SignalKind
    task_id: str | None
    """None for `rare`."""
    pattern: list[str] | None
    """The n-gram of action tokens, for `rare` only."""
    evidence: list[str]
    """Ids of the trajectories that show it, sorted."""
    stats: Json
    """forgetting: {"best", "best_t", "now"}; boundary: {"successes", "failures"}; rare: {"count", "rollouts"}."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exploration:
    KEY: ClassVar[tuple[str, ...]] = ("id",)
    id: str
    """content_id("exploration", run, t, signal_id or "unguided", index), and the attempt where it is not the first."""
    run: str
    t: int
    """Iteration in which it was run; a signal whose explorations failed is explored again in a later one."""
    signal_id: str | None
    """None = unguided."""
    index: int
    """0.. within the signal, or within the unguided explorations of t."""
    world: str
    model: str
    """Spec of the explorer's model."""
    context: Json
    """The structured exploration context that the reflect node wrote; None if unguided."""
    trajectory_id: str | None
    """Its (action, observation) triplets: a trajectory with purpose `explore`."""
    outcome: Literal["done", "infra"]
    error: str | None
    steps: int
    tokens: int
    cost: float
    """US dollars; 0 for local models."""
    seconds: float
    guide: Json = None
    """What it was told besides its signal: {"mode": .., "difficulty", "lacking", "examples", ...} (docs/flywheel.md);
    None = nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    KEY: ClassVar[tuple[str, ...]] = ("id",)
    id: str
    """content_id("candidate", exploration_id, world, user_turns, tools, reference)."""
    exploration_id: str
    run: str
    t: int
    world: str
    user_turns: list[str]
    tools: list[str]
    reference: Json
    index: int
    """Order within its exploration."""
    rewords: str | None = None
    """Id of the task that it asks for in other words, with the same reference; None for all others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    KEY: ClassVar[tuple[str, ...]] = ("candidate_id", "stage", "judge")
    candidate_id: str
    run: str
    t: int
    stage: JudgeStage
    """cheap, strong: is it worth training on? polish: are the edited words better than those of before?"""
    judge: int
    """Place in `judge.models`, 0-based; 0 for the cheap one, and where the editor's model is the judge of words."""
    model: str
    """Spec of the model, `reward_model` for the distilled one."""
    adopt: bool | None
    """What it said, None if that could not be read. polish: whether the new words have the higher score."""
    passes: bool
    """It said adopt and its mean score reaches the threshold: a vote for the candidate. All else is one against it.
    polish: a vote for the new words."""
    scores: Json
    """{"validity", "difficulty_gain", "diversity", "realism"}, 1 to 5 each; of the reward model {"probability"};
    polish: {"old", "new"}, 1 to 10, means over both orders; None = unreadable."""
    reason: str
    text: str
    """What it wrote."""
    shown: Json
    """What it judged: {"world", "user_turns", "reference", "structure", "difficulty", "set_mean", "alike"}; polish:
    "before" too, the words that were to be replaced."""
    prompt_tokens: int
    completion_tokens: int
    cost: float
    """US dollars."""
    seconds: float


VETOES = ("screened", "outvoted")
"""Reasons of verdicts that are judges' doing: the cheap judge's, the committee's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    KEY: ClassVar[tuple[str, ...]] = ("id",)
    id: str
    """content_id("verdict", candidate_id)."""
    candidate_id: str
    run: str
    t: int
    """Iteration in which it was decided."""
    adopt: bool
    reason: str
    """`valid`, or one stable word for the rejection: `parse_error`, `empty_result`, `noop_passes`, `duplicate`, ..."""
    detail: str
    """The same in words, with figures; for a duplicate the id of its twin."""
    task_id: str | None
    """The task that it became, if adopted. Pending until a Snapshot has its id."""
    repairs: int
    """How often the validator rewrote wording or reference before the decision."""
    seconds: float
    edit: Json = None
    """What an editor made of the words: {"outcome", "detail", "before", "after", "editor"} (docs/flywheel.md);
    `accepted`, or one stable word for why the words of before stayed. None = nobody edited them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rating:
    KEY: ClassVar[tuple[str, ...]] = ("candidate_id", "rater", "revision")
    candidate_id: str
    run: str
    rater: str
    revision: int
    """Ratings of the candidate by the same person before this one; the last counts."""
    adopt: bool
    scores: Json
    """As of a Vote, those that were given."""
    comment: str
    created_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Withdrawal:
    KEY: ClassVar[tuple[str, ...]] = ("run", "task_id")
    run: str
    task_id: str
    t: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    KEY: ClassVar[tuple[str, ...]] = ("run", "step", "name")
    run: str
    t: int
    step: int
    """Optimiser steps of the run, this one included."""
    name: str
    """Such as `reward`, `kl`, `entropy`, `seconds/sample`; docs/training.md lists them."""
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    KEY: ClassVar[tuple[str, ...]] = ("run", "t", "suite", "slice", "metric")
    run: str
    t: int
    """Policy version: 0 = warm start (or the base model), t+1 = after iteration t."""
    suite: str
    slice: str
    """`all`, or a named part of the suite (`seen`, `unseen` skeletons)."""
    metric: str
    n: int
    """Scored items; infrastructure failures are not among them."""
    value: float
    low: float
    high: float
    """95 % interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    KEY: ClassVar[tuple[str, ...]] = ("run", "t", "name")
    run: str
    t: int
    name: str
    """seed | train | signals | explore | validate | snapshot | eval SUITE; by hand `explore 1`, `validate 2`, ..."""
    finished_at: float
    seconds: float
    counts: Json


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    KEY: ClassVar[tuple[str, ...]] = ("run", "t", "name")
    run: str
    t: int
    """Round: 0 = D_0 and the warm start, t + 1 = iteration t, the version and the snapshot that it made."""
    name: str
    """Such as `difficulty`, `diversity/spread`, `accepted/execution`; docs/flywheel.md lists them."""
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    KEY: ClassVar[tuple[str, ...]] = ("run", "t", "rule", "number")
    run: str
    t: int
    """Iteration after which it was decided."""
    rule: str
    """guard | breaker | plateau | saturation | overfitting | cost | seconds | tokens | dollars"""
    number: int
    """0, and counting up where a paused run was told how to go on."""
    action: str
    """guard: go_on, rollback, pause, continue; breaker: inject, novelty, revisit; the others: stop."""
    reason: str
    """The same in words."""
    figures: Json
    version: int | None = None
    """Policy version that is trained on from here; None unless the action is a rollback."""
    checkpoint: str | None = None
    """Hash of that version's files."""
    snapshot: str | None = None
    """Id of the snapshot that is restored."""
    decided_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    KEY: ClassVar[tuple[str, ...]] = ("thread", "index")
    thread: str
    """Of the graph: an exploration's id, a candidate's id, or `JOB/SAMPLE/RESPONSE` of `coevolve refine`,
    with the attempt where it is not the first."""
    index: int
    """0.. in the order in which the nodes began."""
    run: str
    """Or the job of `coevolve refine`."""
    t: int
    """Iteration; 0 for `refine`."""
    graph: Literal["explore", "validate", "refine"]
    node: str
    started_at: float
    """Unix seconds."""
    seconds: float
    calls: int
    """Of the model."""
    prompt_tokens: int
    completion_tokens: int
    cost: float
    """US dollars."""
    error: str | None
    """Why the node failed; the graph may have tried it again after."""
    messages: Json
    """[{"role", "text"}]: what the model was told and had not been told before in this thread, and its answers, long
    texts cut. [] for `refine`, whose texts are remarks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    KEY: ClassVar[tuple[str, ...]] = ("job", "sample", "response", "iteration", "role", "part")
    job: str
    """Of `coevolve refine`, one data set in and one out."""
    sample: int
    """Place in the data set, 0-based."""
    response: int
    """Which of the sample's responses, 0-based."""
    iteration: int
    """1-based."""
    role: RefineRole
    part: int
    """Debaters: 1 = with a fixed position, 2 = free. Judge: 1 = the old response was shown first (or alone), 2 = the
    new one. Else 1."""
    model: str
    """Spec of the role's model."""
    text: str
    """What it said."""
    cut: bool
    """It ended for want of tokens."""
    scores: Json
    """Judge: {"old": .., "new": ..}, 1 to 10; None = it could not be read. None for the others."""
    prompt_tokens: int
    completion_tokens: int
    cost: float
    """US dollars."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Refined:
    KEY: ClassVar[tuple[str, ...]] = ("job", "sample", "attempt")
    job: str
    sample: int
    attempt: int
    """Runs of the job before this one: a failed sample is tried again by `--resume`."""
    name: str | None
    """The `id` that the sample has in its file, if it has one."""
    outcome: Literal["improved", "kept", "failed"]
    """failed: nothing is known of it, and it is in the output as it was."""
    stops: list[str]
    """Why each response was refined no further: `limit`, `not_better`, `unreadable`, ... (docs/refine.md)."""
    iterations: list[int]
    """Iterations begun, of each response."""
    accepted: list[int]
    """Rewrites that replaced the old response, of each response."""
    responses: list[str]
    """The responses as they are in the output, if improved; else []."""
    tokens_before: int
    """Words, single CJK characters and punctuation marks of all responses."""
    tokens_after: int
    error: str | None
    """Why it failed: one stable word and, after a colon, the same in words."""


Row = (
    Run
    | Task
    | Snapshot
    | Trajectory
    | Step
    | Signal
    | Exploration
    | Candidate
    | Vote
    | Verdict
    | Rating
    | Withdrawal
    | Metric
    | Score
    | Phase
    | Figure
    | Decision
    | Span
    | Remark
    | Refined
)
ROW_TYPES: tuple[type[Row], ...] = (
    Run,
    Task,
    Snapshot,
    Trajectory,
    Step,
    Signal,
    Exploration,
    Candidate,
    Vote,
    Verdict,
    Rating,
    Withdrawal,
    Metric,
    Score,
    Phase,
    Figure,
    Decision,
    Span,
    Remark,
    Refined,
)
