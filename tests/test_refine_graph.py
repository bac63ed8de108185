"""The state machine of one response: who speaks when, what each is shown, and when a rewrite replaces the old one."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from graphs.refine import decide
from store.rows import Remark, Row
from tests.refine_setup import DEBATE, Play, alpaca, by_length, grows, one

ROUND = ["positive", "critical", "cross", "cross", "advisor", "editor", "compare", "compare"]


def test_better_replaces_and_goes_on_until_the_limit() -> None:
    play = Play(**DEBATE, editor=grows, compare=by_length)
    row = one(alpaca("old"), play)
    assert (row.outcome, row.responses, row.stops) == ("improved", ["old+++"], ["limit"])
    assert (row.iterations, row.accepted) == ([3], [3])
    assert play.prompts() == ROUND * 3


def test_the_next_iteration_works_on_the_new_response() -> None:
    play = Play(**DEBATE, editor=grows, compare=by_length)
    one(alpaca("old"), play)
    assert [each["response"] for each in play.payloads("positive")] == ["old", "old+", "old++"]


def test_not_better_stops_and_keeps_the_best_so_far() -> None:
    play = Play(**DEBATE, editor=[grows, "longer by far"], compare=[by_length, by_length, {"first": 5, "second": 5}])
    row = one(alpaca("old"), play)
    assert (row.outcome, row.responses, row.stops) == ("improved", ["old+"], ["not_better"])
    assert (row.iterations, row.accepted) == ([2], [1])


def test_an_equal_score_is_no_win() -> None:
    row = one(alpaca(), Play(**DEBATE, editor="new", compare={"reason": "", "first": 7, "second": 7}))
    assert (row.outcome, row.responses, row.stops) == ("kept", [], ["not_better"])


@pytest.mark.parametrize("scores", [(10, 1), (1, 10)])
def test_a_judge_who_always_prefers_a_place_changes_nothing(scores: tuple[int, int]) -> None:
    play = Play(**DEBATE, editor="new", compare={"first": scores[0], "second": scores[1]})
    assert one(alpaca(), play).stops == ["not_better"]
    assert len(play.payloads("compare")) == 2


def test_both_orders_are_shown_and_neither_says_which_is_old() -> None:
    play = Play(**DEBATE, editor="new", compare={"first": 5, "second": 5})
    one(alpaca("old", input="about"), play)
    first, second = play.payloads("compare")
    matter = {"instruction": "do it", "input": "about"}
    assert first == {**matter, "first": "old", "second": "new"}
    assert second == {**matter, "first": "new", "second": "old"}


def test_scores_are_stored_as_old_and_new() -> None:
    rows: list[Row] = []
    answers = [{"reason": "r", "first": 3, "second": 9}, {"reason": "r", "first": 8, "second": 4}]
    one(alpaca(), Play(**DEBATE, editor="new", compare=answers), rows=rows, iterations=1)
    judged = [row for row in rows if isinstance(row, Remark) and row.role == "judge"]
    assert [row.scores for row in judged] == [{"old": 3, "new": 9}, {"old": 4, "new": 8}]
    assert [row.part for row in judged] == [1, 2]


UNREADABLE: list[Any] = ["", "7 8", {"first": 0, "second": 9}, {"first": "1", "second": "9"}, {"first": 1}, [1, 9]]
UNREADABLE += [{"first": 1, "second": 9, "winner": "second"}, {"first": True, "second": 9}, {"first": 1, "second": 11}]
UNREADABLE += ['{"first": 1, "second": NaN}', 'Sure! {"first": 1, "second": 9}']


@pytest.mark.parametrize("answer", UNREADABLE)
def test_two_unreadable_verdicts_keep_the_old_and_say_so(answer: Any) -> None:
    row = one(alpaca(), Play(**DEBATE, editor="new", compare=answer))
    assert (row.outcome, row.stops, row.error) == ("kept", ["unreadable"], None)


@pytest.mark.parametrize("unreadable", [0, 1])
@pytest.mark.parametrize(("old", "new", "stop"), [(4, 6, "limit"), (6, 4, "not_better"), (5, 5, "not_better")])
def test_of_one_unreadable_verdict_the_other_decides(unreadable: int, old: int, new: int, stop: str) -> None:
    answers: list[Any] = [{"first": old, "second": new}, {"first": new, "second": old}]
    answers[unreadable] = "I prefer the new one."
    row = one(alpaca(), Play(**DEBATE, editor="new", compare=answers), iterations=1)
    assert row.stops == [stop]


def test_a_fenced_verdict_is_read() -> None:
    answers = ['```json\n{"first": 1, "second": 9.5}\n```', '{"first": 9.5, "second": 1, "reason": "x"}']
    assert one(alpaca(), Play(**DEBATE, editor="new", compare=answers), iterations=1).responses == ["new"]


def test_in_score_mode_each_is_judged_alone() -> None:
    play = Play(**DEBATE, editor="new", score=[{"reason": "", "score": 4}, {"score": 4.5}])
    row = one(alpaca("old"), play, judging="score", iterations=1)
    assert row.responses == ["new"]
    assert [each["response"] for each in play.payloads("score")] == ["old", "new"]
    assert "compare" not in play.prompts()


@pytest.mark.parametrize("answers", [["?", {"score": 9}], [{"score": 1}, "?"], ["?", "?"]])
def test_in_score_mode_a_response_without_a_score_never_wins(answers: list[Any]) -> None:
    assert one(alpaca(), Play(**DEBATE, editor="new", score=answers), judging="score").stops == ["unreadable"]


def test_round_two_shows_each_debater_the_others_argument() -> None:
    play = Play(**DEBATE, editor="old", compare={"first": 5, "second": 5})
    one(alpaca(), play)
    shown = [(each["own"], each["other"]) for each in play.payloads("cross")]
    assert shown == [("it is right", "it is short"), ("it is short", "it is right")]
    assert not {"own", "other"} & set(play.payloads("positive")[0])


def test_advisor_hears_both_rounds_and_editor_the_advice() -> None:
    play = Play(**(DEBATE | {"cross": ["so-so", "granted"]}), editor="old", compare="")
    one(alpaca(), play)
    fixed, free = play.payloads("advisor")[0]["debate"]
    assert fixed == {"positive": "it is right", "critical": "it is short"}
    assert free == {"positive": "so-so", "critical": "granted"}
    assert play.payloads("editor")[0] == {"instruction": "do it", "response": "old", "advice": "1. Add it"}


@pytest.mark.parametrize(
    ("mode", "prompts"),
    [
        ("edit", ["editor"]),
        ("advise", ["advisor", "editor"]),
        ("debate", ["positive", "critical", "cross", "cross", "advisor", "editor"]),
    ],
)
def test_without_a_judge_one_rewrite_is_taken(mode: str, prompts: list[str]) -> None:
    play = Play(**DEBATE, editor=grows)
    row = one(alpaca("old"), play, mode=mode)
    assert (row.outcome, row.responses, row.stops, row.iterations) == ("improved", ["old+"], ["unjudged"], [1])
    assert play.prompts() == prompts
    assert ("advice" in play.payloads("editor")[0]) == (mode != "edit")


@pytest.mark.parametrize("role", ["positive", "critical", "cross", "advisor", "editor"])
def test_a_role_that_says_nothing_ends_it(role: str) -> None:
    play = Play(**({**DEBATE, "editor": "new"} | {role: " \n"}), compare=by_length)
    row = one(alpaca(), play)
    assert (row.outcome, row.stops, row.responses) == ("kept", ["silent"], [])
    assert "compare" not in play.prompts()


def test_a_model_that_returns_nothing_at_all_keeps_the_old() -> None:
    play = Play(positive="", critical="", cross="", advisor="", editor="", compare="")
    assert one(alpaca(), play).stops == ["silent"]
    assert len(play.seen) == 2


@pytest.mark.parametrize(
    ("edited", "stop"),
    [
        ("old\n", "unchanged"),
        (AIMessage("half a sen", response_metadata={"finish_reason": "length"}), "cut"),
        ("x" * 20_001, "cut"),
        ("new<|im_end|>", "unfit_text"),
        ("new\u202e", "unfit_text"),
    ],
)
@pytest.mark.parametrize("mode", ["full", "edit"])
def test_what_is_no_rewrite_is_not_even_judged(edited: Any, stop: str, mode: str) -> None:
    row = one(alpaca(), Play(**DEBATE, editor=edited), mode=mode)
    assert (row.outcome, row.stops) == ("kept", [stop])


def test_a_response_that_already_held_marks_may_keep_them() -> None:
    assert one(alpaca("</s> is a tag"), Play(editor="</s> ends it"), mode="edit").responses == ["</s> ends it"]


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([], "unreadable"),
        ([None, None], "unreadable"),
        ([{"old": 1}], "unreadable"),
        ([{"old": 7.1, "new": 8.3}, {"old": 8.3, "new": 7.1}], "not_better"),
        ([{"old": 5, "new": 6}, {"old": 9, "new": 9}], "better"),
        ([{"old": 9, "new": 1}, {"old": 1, "new": 8}], "not_better"),
    ],
)
def test_means_over_both_orders_decide(scores: list[Any], verdict: str) -> None:
    assert decide(scores) == verdict
