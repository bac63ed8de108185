"""Many samples: order, turn by turn, what fails, budgets, stops, and going on from what is on record."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.errors import InfraError
from graphs.model import Budget, BudgetSpent, ModelUnavailable
from graphs.refining import count_tokens, unfit_sample
from graphs.sitting import Halted
from store.errors import StoreError, UsageError
from store.rows import Refined, Remark, Row
from tests.refine_setup import DEBATE, Play, alpaca, asked, by_length, grows, one, refine, remembered, talk
from tests.scripted import says

QUICK: dict[str, Any] = {"mode": "edit"}


def test_a_conversation_is_refined_turn_by_turn_on_what_is_refined_already() -> None:
    play = Play(editor=grows)
    row = one(talk(("a", "A"), ("b", "B"), ("c", "C"), system="be kind"), play, mode="edit")
    assert (row.outcome, row.responses, row.stops) == ("improved", ["A+", "B+", "C+"], ["unjudged"] * 3)
    first, second, third = play.payloads("editor")
    assert first == {"system": "be kind", "instruction": "a", "response": "A"}
    assert second["history"] == [{"instruction": "a", "input": "", "response": "A+"}]
    assert [each["response"] for each in third["history"]] == ["A+", "B+"]


def test_a_turn_that_is_kept_stays_in_a_conversation_that_is_improved() -> None:
    row = one(talk(("a", "A"), ("b", "B")), Play(editor=["A", "better"]), mode="edit")
    assert (row.outcome, row.responses, row.accepted) == ("improved", ["A", "better"], [0, 1])


@pytest.mark.parametrize(("window", "seen"), [(0, []), (1, ["C+"]), (2, ["B+", "C+"]), (9, ["A+", "B+", "C+"])])
def test_the_window_bounds_the_turns_that_are_shown(window: int, seen: list[str]) -> None:
    play = Play(editor=grows)
    one(talk(("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")), play, mode="edit", window=window)
    assert [each["response"] for each in play.payloads("editor")[-1].get("history", [])] == seen


def test_earlier_turns_that_do_not_fit_are_left_out() -> None:
    play = Play(editor=grows)
    one(talk(("a", "x" * 60), ("b", "y" * 30), ("c", "z" * 30)), play, mode="edit", max_chars=100)
    assert [each["response"][0] for each in play.payloads("editor")[-1]["history"]] == ["y"]


@pytest.mark.parametrize(
    ("sample", "error"),
    [
        (alpaca(" \n"), "empty: response 1 of the sample is empty"),
        (alpaca("x", instruction=""), "empty: instruction 1 of the sample is empty"),
        (talk(("a", "b"), ("c", "")), "empty: response 2 of the sample is empty"),
        (alpaca("x" * 800_000), "too_long: turn 1 has 800005 characters, refine.max_chars = 24000"),
        (talk(("a", "b"), ("c", "x" * 24_000), ("d", "e")), "too_long: turn 2 has 24001 characters"),
    ],
)
def test_what_cannot_be_refined_is_left_as_it_is_without_a_call(sample: Any, error: str) -> None:
    play, rows = Play(), list[Row]()
    row = one(sample, play, rows=rows)
    assert (row.outcome, row.responses) == ("failed", [])
    assert str(row.error).startswith(error)
    assert play.seen == []
    assert rows == [row]


def test_a_call_that_fails_costs_its_sample_and_no_other() -> None:
    def editor(payload: Any) -> Any:
        return ModelUnavailable("gone") if payload["response"] == "r1" else grows(payload)

    rows = refine([alpaca(f"r{at}", at) for at in range(3)], Play(editor=editor), **QUICK)
    assert [row.outcome for row in rows] == ["improved", "failed", "improved"]
    assert rows[1].error == "infra: gone"


def test_a_conversation_fails_as_a_whole() -> None:
    row = one(talk(("a", "A"), ("b", "B")), Play(editor=[grows, ModelUnavailable("gone")]), mode="edit")
    assert (row.outcome, row.responses) == ("failed", [])


def test_an_error_of_our_own_is_told_as_such() -> None:
    assert one(alpaca(), Play(editor=RuntimeError("oh")), **QUICK).error == (
        "infra: the model call failed and is not retried: RuntimeError: oh"
    )


def test_a_dead_endpoint_ends_the_job() -> None:
    with pytest.raises(InfraError, match="8 of 8 failed, the last with: infra: gone"):
        refine([alpaca("x", at) for at in range(100)], Play(editor=ModelUnavailable("gone")), **QUICK)


def test_samples_that_are_unfit_themselves_are_no_reason_to_end() -> None:
    rows = refine([alpaca("", at) for at in range(100)], Play(), **QUICK)
    assert {row.outcome for row in rows} == {"failed"}


def test_a_refused_key_ends_the_job_at_once() -> None:
    refusal = type("Refused", (Exception,), {"status_code": 401})("bad key")
    with pytest.raises(UsageError, match="401"):
        refine([alpaca("x", at) for at in range(9)], Play(editor=refusal), **QUICK)


def test_a_store_that_cannot_write_ends_the_job() -> None:
    class Full(list[Row]):
        def extend(self, rows: Any) -> None:
            raise StoreError("disk full")

    with pytest.raises(StoreError, match="disk full"):
        refine([alpaca("x", at) for at in range(9)], Play(editor=grows), rows=Full(), **QUICK)


class Slow(Play):
    """Answers later the earlier the sample is, and keeps count of what is in flight."""

    flying = most = 0
    lock = threading.Lock()

    def __call__(self, messages: Any, tools: Any) -> Any:
        with self.lock:
            self.flying += 1
            self.most = max(self.most, self.flying)
        _, payload = asked(messages)
        threading.Event().wait(0.002 * (20 - int(payload["response"].strip("r+"))))
        with self.lock:
            self.flying -= 1
        return super().__call__(messages, tools)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_order_is_kept_and_calls_are_bounded(concurrency: int) -> None:
    play = Slow(editor=grows, advisor="1. x")
    rows = refine([alpaca(f"r{at}", at) for at in range(20)], play, concurrency=concurrency, mode="advise")
    assert [(row.sample, row.responses) for row in rows] == [(at, [f"r{at}+"]) for at in range(20)]
    assert play.most == concurrency


def test_samples_are_read_as_they_are_needed() -> None:
    read: list[int] = []

    def source() -> Any:
        for at in range(1000):
            read.append(at)
            yield alpaca("x", at)

    def editor(payload: Any) -> Any:
        assert len(read) <= 40
        return InterruptedError("stop here")

    with pytest.raises(InfraError):
        refine(source(), Play(editor=editor), concurrency=2, **QUICK)
    assert len(read) < 60


def test_a_spent_budget_stops_and_the_rest_goes_on_with_a_higher_one() -> None:
    rows: list[Row] = []
    samples = [alpaca(f"r{at}", at) for at in range(6)]
    first = Play(editor=grows, advisor="1. x")
    with pytest.raises(BudgetSpent, match=r"token_budget: \d+ of 50 tokens are spent"):
        refine(samples, first, rows=rows, budget=Budget(max_tokens=50), mode="advise")
    assert len(first.seen) <= 6, "at most what was in flight is over the budget"
    assert sum(isinstance(row, Remark) for row in rows) == len(first.seen)
    second = Play(editor=grows, advisor="1. x")
    again = refine(samples, second, rows=rows, past=remembered(rows), mode="advise", attempt=1)
    assert [row.responses for row in again] == [[f"r{at}+"] for at in range(6)]
    assert len(first.seen) + len(second.seen) == 12


def test_a_stop_lets_what_is_in_flight_end_and_begins_nothing() -> None:
    stop, rows = threading.Event(), list[Row]()

    def editor(payload: Any) -> str:
        stop.set()
        return grows(payload)

    play = Play(editor=editor, advisor="1. x")
    with pytest.raises(Halted):
        refine([alpaca("x", at) for at in range(9)], play, rows=rows, stop=stop, mode="advise")
    assert len(play.seen) <= 4 + 2, "the advisors of the samples at work, and what was in flight at the stop"
    assert sum(isinstance(row, Remark) for row in rows) == len(play.seen)


def test_a_finished_sample_is_not_touched_again() -> None:
    rows: list[Row] = []
    play = Play(**DEBATE, editor=grows, compare=by_length)
    before = one(alpaca("old"), play, rows=rows)
    assert one(alpaca("old"), Play(), past=remembered(rows), attempt=1) == before


@given(known=st.integers(0, 24))
def test_whatever_was_said_before_a_kill_is_not_asked_again(known: int) -> None:
    rows: list[Row] = []
    whole = one(alpaca("old"), Play(**DEBATE, editor=grows, compare=by_length), rows=rows)
    said = [row for row in rows if isinstance(row, Remark)]
    assert len(said) == 24
    play, more = Play(**DEBATE, editor=grows, compare=by_length), list[Row]()
    again = one(alpaca("old"), play, past=remembered(said[:known]), rows=more)
    assert again == whole
    assert len(play.seen) == 24 - known
    assert {row.iteration for row in more if isinstance(row, Remark)} <= {1, 2, 3}


def test_a_failed_sample_is_tried_again_with_what_it_heard() -> None:
    rows: list[Row] = []
    play = Play(advisor="1. x", editor=[ModelUnavailable("gone"), grows])
    assert one(alpaca("old"), play, rows=rows, mode="advise").outcome == "failed"
    again = one(alpaca("old"), play, rows=rows, past=remembered(rows), mode="advise", attempt=1)
    assert (again.outcome, again.attempt) == ("improved", 1)
    assert play.prompts() == ["advisor", "editor", "editor"]
    keys = [(type(row), *(getattr(row, key) for key in row.KEY)) for row in rows]
    assert len(set(keys)) == len(keys)


def test_every_call_is_on_record_with_what_it_took() -> None:
    rows: list[Row] = []
    play = Play(**DEBATE, editor=lambda _: says("new", tokens=70), compare={"first": 5, "second": 5})
    one(alpaca("old"), play, rows=rows)
    said = [row for row in rows if isinstance(row, Remark)]
    heard = [(row.role, row.part, row.text, row.prompt_tokens) for row in said]
    assert sorted(heard)[:2] == [("advisor", 1, "1. Add it", 10), ("critical", 1, "it is short", 10)]
    assert ("editor", 1, "new", 70) in heard
    assert all(
        (row.job, row.sample, row.response, row.iteration, row.model) == ("j", 0, 0, 1, "scripted") for row in said
    )
    (end,) = [row for row in rows if isinstance(row, Refined)]
    assert rows[-1] is end


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("Hello, world!", 4), ("你好，世界", 5), ("abc中文 de", 4), ("don't 3.5", 6), (" \n", 0)],
)
def test_tokens_are_words_characters_and_marks(text: str, tokens: int) -> None:
    assert count_tokens([text]) == tokens


@given(st.text())
def test_any_text_has_a_length(text: str) -> None:
    assert 0 <= count_tokens([text]) <= len(text)
    assert unfit_sample(alpaca(text or "x"), 10**9) is None or not text.strip()
