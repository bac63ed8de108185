"""The judge distilled from the committee's votes: what it learns, when it is of use, and what it says of itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.rows import Json, Vote
from training.reward_model import MIN_EXAMPLES, Example, examples, features, fit


def shown(question: str = "q", reference: Json = "SELECT 1", **changes: Json) -> Json:
    about = {"world": "shop", "structure": "SELECT ?", "difficulty": 2.0, "set_mean": 2.0, "alike": 3}
    return {"user_turns": [question], "reference": reference, **about, **changes}


def vote(candidate: str, judge: int, passes: bool, **changes: Json) -> Vote:
    fields: Json = {
        "candidate_id": candidate,
        "run": "r",
        "t": 0,
        "stage": "strong",
        "judge": judge,
        "model": "m",
        "adopt": passes,
        "passes": passes,
        "scores": None,
        "reason": "",
        "text": "",
        "shown": shown(candidate),
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cost": 0.0,
        "seconds": 0.0,
    }
    return Vote(**fields | changes)


def given_examples(count: int, noise: float = 0.0, seed: int = 0) -> list[Example]:
    """A committee that likes joins: with `noise` it says the contrary."""
    rng = random.Random(seed)
    found = []
    for at in range(count):
        joined = rng.random() < 0.5
        sql = f"SELECT a{at % 7} FROM t{' JOIN u ON t.x = u.y' if joined else ''} WHERE b > {at}"
        passed = joined != (rng.random() < noise)
        found.append(Example(shown=shown(f"what is {at} of {rng.choice('abcdef')}?", sql), passed=passed))
    return found


def test_it_learns_what_the_committee_likes() -> None:
    model = fit(given_examples(160))
    assert model is not None
    assert model.report.agreement > 0.95 > model.report.base_rate
    assert model.report.useful
    new = given_examples(60, seed=1)
    assert sum((model(one.shown) >= 0.5) == one.passed for one in new) >= 57


def test_its_probabilities_mean_what_they_say() -> None:
    model = fit(given_examples(400, noise=0.2))
    assert model is not None
    new = given_examples(400, noise=0.2, seed=1)
    likely = [model(one.shown) for one in new]
    assert model.report.ece < 0.1
    for joined in (True, False):
        group = [p for p, one in zip(likely, new, strict=True) if ("JOIN" in one.shown["reference"]) == joined]
        assert sum(group) / len(group) == pytest.approx(0.8 if joined else 0.2, abs=0.1)


def test_a_committee_that_throws_dice_makes_no_useful_model() -> None:
    model = fit(given_examples(200, noise=0.5))
    assert model is not None
    assert model.report.agreement < 0.6
    assert model.report.ece < 0.15
    assert all(0.15 < model(one.shown) < 0.85 for one in given_examples(50, seed=2)), "it is not sure of anything"


def test_equal_votes_make_an_equal_model() -> None:
    assert fit(given_examples(60)) == fit(given_examples(60))


@pytest.mark.parametrize(
    "change", [lambda all_: all_[: MIN_EXAMPLES - 1], lambda all_: [replace(one, passed=True) for one in all_]]
)
def test_too_little_to_learn_from_makes_none(change: object) -> None:
    assert fit(change(given_examples(80))) is None  # type: ignore[operator]


def passed(votes: Sequence[Vote]) -> list[bool]:
    return [example.passed for example in examples(votes)]


def test_an_example_is_what_the_majority_said_of_one_candidate() -> None:
    votes = [vote("a", 0, True), vote("a", 1, True), vote("a", 2, False), vote("b", 0, True), vote("b", 1, False)]
    assert passed(votes) == [True, False], "a tie is no"
    assert passed([*votes, vote("c", 0, True, stage="cheap")]) == [True, False], "the cheap judge teaches nothing"


def test_the_runs_name_has_no_part_in_it() -> None:
    votes = [vote(name, 0, name > "m") for name in "azbycx"]
    renamed = [replace(one, candidate_id=f"{9 - at}", run="other") for at, one in enumerate(votes)]
    assert examples(votes) == examples(renamed)


@given(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_text_has_finite_features(question: str, reference: Json) -> None:
    found = features(shown(question, reference))
    assert all(abs(value) < 100 for value in found.values())
