"""The judges of a run: models that [judge] names, the votes on record, and the reward model distilled from these."""

from __future__ import annotations

import logging
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING

from coevolve.config import Settings
from graphs.committee import Judges, Place, named
from graphs.settings import REWARD_MODEL
from store.db import Store
from store.rows import Vote

if TYPE_CHECKING:
    from training.reward_model import RewardModel

log = logging.getLogger(__name__)


def judges(settings: Settings, store: Store, run: str) -> Judges | None:
    """None where nobody is asked; without judges but with an editor, the votes on record of its own model.

    UsageError for a model that is none, or without its key."""
    wanted = settings.judge
    if not wanted.models and not settings.validate_.polish:
        return None
    past: dict[Place, Vote] = {(v.candidate_id, v.stage, v.judge): v for v in store.rows(Vote, "run = ?", [run])}
    strong = named(wanted.models, settings.model, seed=settings.seed)
    if wanted.cheap == REWARD_MODEL:
        return Judges(strong=strong, cheap=reward_model(store), settings=wanted, past=past)
    cheap = (
        named([wanted.cheap], settings.model, seed=settings.seed, field_of="judge.cheap") if wanted.cheap else [None]
    )
    return Judges(strong=strong, cheap=cheap[0], settings=wanted, past=past)


def reward_model(store: Store) -> RewardModel | None:
    """Fitted to all votes of the workspace's committees; None as long as it would not be of use."""
    model = _fitted(store)
    if model is None or not model.report.useful:
        log.info(
            "the reward model waits: %s", "too few votes" if model is None else "it guesses no better than the rate"
        )
        return None
    return model


def distilled(store: Store) -> dict[str, float] | None:
    """The reward model's report; None where there are too few votes for one, or torch is not installed."""
    if find_spec("torch") is None:
        return None
    model = _fitted(store)
    return asdict(model.report) if model else None


def _fitted(store: Store) -> RewardModel | None:
    from training.reward_model import examples, fit

    return fit(examples(store.rows(Vote, "stage = 'strong'")))
