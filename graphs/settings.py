"""Settings of the agents. Kept apart from the graphs, so that reading them does not import LangGraph."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from store.rows import RefineRole

REWARD_MODEL = "reward_model"
"""What `judge.cheap` calls the model that is distilled from the committee's votes."""


class ModelSettings(BaseModel):
    """How the explorer's model is called."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(default=0.7, ge=0, le=2)
    max_tokens: int = Field(default=1024, ge=1)
    """Completion tokens of one call."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Seconds until one attempt counts as failed."""
    deadline_s: float = Field(default=180.0, gt=0)
    """Seconds until a call is given up, over all attempts and pauses."""
    attempts: int = Field(default=5, ge=1)
    token_budget: int | None = Field(default=None, ge=1)
    """Prompt and completion tokens of one phase; None = no limit."""
    cost_budget: float | None = Field(default=None, gt=0)
    """US dollars of one phase; None = no limit."""
    input_price: float | None = Field(default=None, ge=0)
    """US dollars per million prompt tokens; None = litellm's figure, or 0."""
    output_price: float | None = Field(default=None, ge=0)
    """US dollars per million completion tokens."""
    concurrency: int = Field(default=4, ge=1)
    """Explorations, validations, or, in `refine`, model calls at work at once."""
    api_base: str | None = None
    """URL of an OpenAI-compatible server."""


class ExploreSettings(BaseModel):
    """Budgets of one exploration (docs/concepts.md, budgets)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Literal["signals", "random", "adversarial", "none"] = "signals"
    """What sends the explorer into the environment in `evolve`: weaknesses; nothing in particular, or what the policy
    fails most, as often as the weaknesses would have; or it stays at home and D_0 is all there is."""
    guidance: list[Literal["difficulty", "diversity", "examples"]] = []
    """What it is told besides (docs/flywheel.md): the difficulty to reach, what D_t lacks, tasks that were admitted."""
    margin: float = Field(default=1.0, ge=0)
    """difficulty: how far above the mean of D_t, on the environment's own scale."""
    harden: int = Field(default=0, ge=0)
    """Attempts a round at making harder tasks of those that the policy has mastered."""
    per_signal: int = Field(default=2, ge=1)
    """Explorations of one signal."""
    steps: int | None = Field(default=None, ge=1, le=100)
    """Tool calls of one exploration; None = the environment's own default."""
    candidates: int = Field(default=3, ge=1)
    """Candidates that one exploration may yield."""
    deadline_s: float = Field(default=300.0, gt=0)
    """Seconds of model and tool time until an exploration stops and keeps what it has."""
    token_budget: int = Field(default=60_000, ge=1)
    """Prompt and completion tokens until an exploration stops and keeps what it has."""


class ValidateSettings(BaseModel):
    """Budgets of the validation of one candidate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repairs: int = Field(default=1, ge=0, le=5)
    """How often the validator may rewrite wording or reference."""
    steps: int = Field(default=3, ge=1, le=12)
    """Tool calls of one try in a fresh session."""
    max_difficulty: float = Field(default=0.0, ge=0)
    """Tasks that are harder, on the environment's own scale, stay out of D, seed tasks included; 0 = no limit."""
    growth: float = Field(default=0.2, ge=0.1, le=0.3)
    """Share of |D_t| that one round may add; the surplus stays pending."""
    polish: bool = False
    """An editor, the explorer's model, may put what execution accepts in better words (docs/flywheel.md)."""


class JudgeSettings(BaseModel):
    """Who may veto what execution has accepted (docs/flywheel.md). Without `models` nobody does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: list[str] = []
    """The committee, as `litellm:NAME` each; more votes for than against let a candidate pass, a tie does not."""
    cheap: str = ""
    """Asked first, to spare the committee: `litellm:NAME`, `reward_model`, or empty = nobody."""
    min_score: float = Field(default=4.0, ge=1, le=5)
    """Mean of a judge's four scores that its vote needs besides `adopt`."""

    @model_validator(mode="after")
    def _committee(self) -> JudgeSettings:
        if self.cheap and not self.models:
            raise ValueError("judge.cheap spares judge.models, which is empty; name at least one model there")
        for field, specs in (("models", self.models), ("cheap", [self.cheap] if self.cheap else [])):
            for spec in specs:
                named = spec.startswith("litellm:") and spec != "litellm:"
                if not named and (field, spec) != ("cheap", REWARD_MODEL):
                    more = f" or `{REWARD_MODEL}`" if field == "cheap" else ""
                    raise ValueError(f"judge.{field}: {spec!r} is no judge; write `litellm:NAME`{more}")
        return self


class RefineSettings(BaseModel):
    """How instruction data is refined (docs/refine.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["edit", "advise", "debate", "full"] = "full"
    """Who takes part: the editor alone; an advisor before it; debaters before them; and last a judge, without whom
    there is one iteration and every rewrite is taken."""
    judging: Literal["compare", "score"] = "compare"
    """The judge sees both responses, in both orders, or one at a time."""
    iterations: int = Field(default=3, ge=1, le=3)
    """At most so many of one response."""
    window: int = Field(default=4, ge=0)
    """Earlier turns of a conversation that are shown."""
    max_chars: int = Field(default=24_000, ge=100)
    """Characters of what a role is shown of a sample; earlier turns that do not fit are left out, a turn that does not
    fit by itself leaves its sample as it is."""
    models: dict[RefineRole, str] = {}
    """Models of single roles, as `litellm:NAME`, in place of --model."""
