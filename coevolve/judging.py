"""The judges of a run: models that [judge] names, the votes on record, and the reward model distilled from these."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from coevolve.config import Settings
from graphs.committee import Judges, named
from graphs.settings import REWARD_MODEL
from store.db import Store
from store.rows import Vote

if TYPE_CHECKING:
    from training.reward_model import RewardModel

log = logging.getLogger(__name__)


def judges(settings: Settings, store: Store, run: str) -> Judges | None:
    """None where [judge] names nobody. UsageError for a model that is none, or without its key."""
    wanted = settings.judge
    if not wanted.models:
        return None
    past = {(v.candidate_id, v.stage, v.judge): v for v in store.rows(Vote, "run = ?", [run])}
    strong = named(wanted.models, settings.model, seed=settings.seed)
    if wanted.cheap == REWARD_MODEL:
        return Judges(strong=strong, cheap=reward_model(store), settings=wanted, past=past)
    cheap = (
        named([wanted.cheap], settings.model, seed=settings.seed, field_of="judge.cheap") if wanted.cheap else [None]
    )
    return Judges(strong=strong, cheap=cheap[0], settings=wanted, past=past)


def reward_model(store: Store) -> RewardModel | None:
    """Fitted to all votes of the workspace's committees; None as long as it would not be of use."""
    from training.reward_model import MIN_EXAMPLES, examples, fit

    given = examples(store.rows(Vote, "stage = 'strong'"))
    model = fit(given)
    if model is None:
        log.info(
            "the reward model waits: %d candidates were judged, it needs %d of both kinds", len(given), MIN_EXAMPLES
        )
        return None
    report = model.report
    log.info(
        "reward model: agrees with the committee on %.0f %% of %d candidates that it was not fitted to (the commoner "
        "answer: %.0f %%), Brier %.3f, calibration error %.3f",
        *(100 * report.agreement, report.examples, 100 * report.base_rate, report.brier, report.ece),
    )
    return model if report.useful else None
