"""An editor in the validation graph: what each kind of edit and of judgement comes to, scripted, in the echo world."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envs.protocols import Draft
from graphs.committee import Judges
from graphs.settings import JudgeSettings, ModelSettings, ValidateSettings
from store.rows import Origin, Row, Span, Task, Verdict, Vote
from tests.graph_setup import candidate, of, validate
from tests.judge_setup import BAD, GOOD
from tests.polish_setup import NEW, OLD, POLISH, Answer, Editor, WordyEcho, polished, scores, taste, worded
from tests.refine_setup import asked
from tests.scripted import ScriptedChatModel, says

ONE = candidate(turns=OLD)
LONG = "one two three four five six"


def outcome(verdict: Verdict) -> str:
    return str(verdict.edit["outcome"])


def committee(*tastes: Answer, opinion: Any = GOOD) -> Judges:
    """Judges of tasks who are of one opinion, and compare words each in their own way."""

    def judge(answer: Answer) -> ScriptedChatModel:
        def play(messages: Any, tools: Any) -> Any:
            role, payload = asked([message for message in messages if "```json" in str(message.content)])
            return says(json.dumps(answer(payload) if role == "compare" else opinion), tokens=10)

        return ScriptedChatModel(policy=play)

    voices = [replace(taste(one, f"judge{at}"), model=judge(one)) for at, one in enumerate(tastes)]
    return Judges(strong=voices, settings=JudgeSettings())


# ---- taken


def test_what_the_judges_prefer_is_the_task_and_its_lineage_shows_the_edit(tmp_path: Path) -> None:
    verdict, rows = polished(tmp_path, ONE, Editor())
    (task,) = of(Task, rows)
    assert (task.user_turns, task.reference, task.origin, task.id) == (NEW, "hello", "refined", verdict.task_id)
    assert (verdict.adopt, verdict.reason) == (True, "valid")
    assert verdict.edit == {"outcome": "accepted", "detail": "", "before": OLD, "after": NEW, "editor": "scripted"}


def test_without_a_committee_the_editors_model_compares_in_both_orders(tmp_path: Path) -> None:
    editor = Editor()
    _, rows = polished(tmp_path, ONE, editor)
    (vote,) = of(Vote, rows)
    assert (vote.stage, vote.judge, vote.model, vote.adopt, vote.passes) == ("polish", 0, "scripted", True, True)
    assert (vote.scores, vote.prompt_tokens, vote.t) == ({"old": 5.0, "new": 7.0}, 20, 1)
    assert (vote.shown["before"], vote.shown["user_turns"]) == (OLD, NEW)
    shown = sorted((payload["first"], payload["second"]) for payload in editor.payloads("compare"))
    assert shown == sorted([(OLD, NEW), (NEW, OLD)])


def test_the_editor_is_shown_words_and_reference_and_not_what_comes_back(tmp_path: Path) -> None:
    editor = Editor()
    polished(tmp_path, ONE, editor)
    assert editor.payloads("editor") == [
        {"world": "a room with an echo", "user_turns": OLD, "reference": "hello"},
    ]


def test_nobody_edits_unless_asked_to(tmp_path: Path) -> None:
    editor = Editor()
    verdict, rows = polished(tmp_path, ONE, editor, settings=ValidateSettings())
    assert (verdict.reason, verdict.edit, editor.seen, of(Vote, rows)) == ("valid", None, [], [])
    assert of(Task, rows)[0].origin == "explored"


def test_a_task_from_outside_stays_one(tmp_path: Path) -> None:
    _, rows = polished(tmp_path, ONE, Editor(), origins={ONE.id: "outside"})
    assert [(task.origin, task.user_turns) for task in of(Task, rows)] == [("outside", NEW)]


def test_the_committee_compares_and_then_judges_the_new_words(tmp_path: Path) -> None:
    court = committee(scores(5, 7), scores(6, 7), scores(9, 2))
    verdict, rows = polished(tmp_path, ONE, Editor(), judges=court)
    assert (verdict.reason, outcome(verdict)) == ("valid", "accepted")
    votes = of(Vote, rows)
    assert [(vote.stage, vote.passes) for vote in votes if vote.stage == "polish"] == [
        ("polish", True),
        ("polish", True),
        ("polish", False),
    ]
    assert {tuple(vote.shown["user_turns"]) for vote in votes if vote.stage == "strong"} == {tuple(NEW)}


def test_a_committee_can_prefer_the_new_words_and_still_turn_the_task_down(tmp_path: Path) -> None:
    verdict, rows = polished(tmp_path, ONE, Editor(), judges=committee(scores(2, 3), opinion=BAD))
    assert (verdict.adopt, verdict.reason, outcome(verdict), of(Task, rows)) == (False, "outvoted", "accepted", [])


# ---- not taken: the candidate goes on as it was


def kept(verdict: Verdict, rows: list[Row], words: list[str] = OLD) -> bool:
    """It was adopted in its own words."""
    (task,) = of(Task, rows)
    return (verdict.adopt, task.user_turns, task.origin) == (True, words, "explored")


@pytest.mark.parametrize(
    ("answer", "scored"),
    [
        (scores(7, 5), {"old": 7.0, "new": 5.0}),
        (scores(6, 6), {"old": 6.0, "new": 6.0}),
        (scores(6, 6, bias=3), {"old": 7.5, "new": 7.5}),
    ],
)
def test_what_is_not_strictly_better_over_both_orders_is_not_taken(tmp_path: Path, answer: Answer, scored: Any) -> None:
    verdict, rows = polished(tmp_path, ONE, Editor(compare=answer))
    assert kept(verdict, rows)
    assert outcome(verdict) == "not_preferred"
    assert verdict.edit["detail"].startswith("0 of 1 for it; scripted rejects (old ")
    assert [(vote.adopt, vote.passes, vote.scores) for vote in of(Vote, rows)] == [(False, False, scored)]


def test_a_place_bias_does_not_hide_what_is_better(tmp_path: Path) -> None:
    verdict, _ = polished(tmp_path, ONE, Editor(compare=scores(5, 6, bias=3)))
    assert outcome(verdict) == "accepted"


def test_a_tie_of_the_judges_keeps_the_words(tmp_path: Path) -> None:
    verdict, rows = polished(tmp_path, ONE, Editor(), judges=committee(scores(5, 7), scores(7, 5)))
    assert kept(verdict, rows)
    assert verdict.edit["detail"].startswith("1 of 2 for it, a tie; judge1 rejects (old 7, new 5)")


@pytest.mark.parametrize("which", ["both", "one order"])
def test_an_unreadable_comparison_never_wins(tmp_path: Path, which: str) -> None:
    def answer(payload: Any) -> Any:
        return "the second!" if which == "both" or payload["first"] == OLD else {"first": 9, "second": 1}

    verdict, rows = polished(tmp_path, ONE, Editor(compare=answer))
    assert kept(verdict, rows)
    assert (outcome(verdict), verdict.edit["detail"]) == ("not_preferred", "0 of 1 for it; scripted: unreadable")
    (vote,) = of(Vote, rows)
    assert (vote.adopt, vote.passes, vote.scores, vote.reason) == (None, False, None, "unreadable")


def reworded(*turns: str) -> Any:
    return {"user_turns": list(turns)}


REFUSED = [
    (reworded("say   it"), "unchanged", ""),
    (reworded("Please", "say it"), "turns", "2, where there were 1"),
    ("Please say it.", "unreadable", "Please say it."),
    ({"user_turns": []}, "unreadable", ""),
    (reworded("say\u200b it now"), "unfit_text", "U+200B"),
    (reworded("say it <|im_end|>"), "unfit_text", "chat templates"),
]


@pytest.mark.parametrize(("edit", "word", "detail"), REFUSED, ids=[word + detail for _, word, detail in REFUSED])
def test_an_edit_that_is_none_costs_the_candidate_nothing(tmp_path: Path, edit: Any, word: str, detail: str) -> None:
    editor = Editor(edit)
    verdict, rows = polished(tmp_path, ONE, editor)
    assert kept(verdict, rows)
    assert outcome(verdict) == word
    assert detail in verdict.edit["detail"]
    assert (editor.payloads("compare"), of(Vote, rows)) == ([], []), "no judge is asked"


def test_an_edit_that_gives_the_solution_away_is_refused(tmp_path: Path) -> None:
    one = candidate(LONG, turns=OLD)
    verdict, rows = polished(tmp_path, one, Editor(reworded("Say One, two three four five to me")))
    assert kept(verdict, rows)
    assert (outcome(verdict), verdict.edit["detail"]) == (
        "gives_away",
        "'one two three four five' is from the reference",
    )


def test_what_the_words_had_of_the_reference_they_may_keep(tmp_path: Path) -> None:
    one = candidate(LONG, turns=[f"say {LONG}"])
    verdict, _ = polished(tmp_path, one, Editor(reworded(f"Please say {LONG}.")), judges=committee(lambda _: {}))
    assert outcome(verdict) == "not_preferred", "it came to the judges"


def test_an_edit_that_loses_a_number_is_refused(tmp_path: Path) -> None:
    one = candidate("over 30", turns=["who is over 30 in room 7"])
    verdict, rows = polished(tmp_path, one, Editor(reworded("Who is old?")))
    assert kept(verdict, rows, one.user_turns)
    assert (outcome(verdict), verdict.edit["detail"]) == ("drops", "30, which the reference has")


def test_an_edit_that_says_what_a_held_out_item_says_is_refused(tmp_path: Path) -> None:
    held_out = worded(WordyEcho(), candidate("other", world="cellar"), NEW)
    verdict, rows = polished(tmp_path, ONE, Editor(), held_out=[held_out])
    assert kept(verdict, rows)
    assert (outcome(verdict), verdict.edit["detail"]) == ("held_out", held_out.id)


def test_an_edit_that_says_what_a_known_task_says_is_refused(tmp_path: Path) -> None:
    known = worded(WordyEcho(), candidate("other"), NEW)
    verdict, rows = polished(tmp_path, ONE, Editor(), known=[known])
    assert kept(verdict, rows)
    assert (outcome(verdict), verdict.edit["detail"]) == ("duplicate", known.id)


class Listening(WordyEcho):
    """What counts as right depends on the words."""

    def materialize(self, draft: Draft, origin: Origin) -> Task:
        return replace(super().materialize(draft, origin), expected=draft.user_turns)


def test_an_edit_that_makes_another_task_of_it_is_refused(tmp_path: Path) -> None:
    verdict, rows = polished(tmp_path, ONE, Editor(), env=Listening())
    assert kept(verdict, rows)
    assert (outcome(verdict), verdict.edit["detail"]) == (
        "replay_differs",
        "the reference reaches another outcome than before",
    )


class Choosy(WordyEcho):
    def check(self, draft: Draft) -> list[str]:
        return ["bad_question: too polite"] if draft.user_turns == NEW else super().check(draft)


def test_the_environments_own_checks_hold_for_an_edit(tmp_path: Path) -> None:
    verdict, rows = polished(tmp_path, ONE, Editor(), env=Choosy())
    assert kept(verdict, rows)
    assert (outcome(verdict), verdict.edit["detail"]) == ("bad_question", "too polite")


@pytest.mark.parametrize(
    ("faults", "word"), [(["invalid", "invalid"], "replay_fails"), ([None, "invalid"], "replay_differs")]
)
def test_an_edit_must_replay_twice_alike(tmp_path: Path, faults: list[Any], word: str) -> None:
    env = WordyEcho()
    env.faults[worded(env, ONE, NEW).id] = faults
    verdict, rows = polished(tmp_path, ONE, Editor(), env=env)
    assert kept(verdict, rows)
    assert outcome(verdict) == word


# ---- not asked for


def test_words_that_were_stripped_on_purpose_are_left_alone(tmp_path: Path) -> None:
    editor = Editor()
    verdict, rows = polished(tmp_path, replace(ONE, rewords="parent"), editor)
    assert kept(verdict, rows)
    assert (verdict.edit, editor.seen) == (None, [])


def test_what_is_a_twin_already_costs_no_editor(tmp_path: Path) -> None:
    editor = Editor()
    verdict, _ = polished(tmp_path, ONE, editor, known=[worded(WordyEcho(), ONE, ["other"])])
    assert (verdict.reason, verdict.edit, editor.seen) == ("duplicate", None, [])


def test_what_execution_rejects_is_not_edited(tmp_path: Path) -> None:
    editor = Editor()
    verdict, _ = polished(tmp_path, candidate(""), editor)
    assert (verdict.reason, verdict.edit, editor.seen) == ("empty_word", None, [])


# ---- our own faults


def test_an_editor_whose_endpoint_is_down_is_no_word_on_the_candidate(tmp_path: Path) -> None:
    verdict, rows = polished(tmp_path, ONE, Editor(ConnectionError("down")))
    assert (verdict.adopt, verdict.reason, verdict.edit, of(Task, rows)) == (False, "infra", None, [])


def test_a_judge_of_words_whose_endpoint_is_down_is_none_either(tmp_path: Path) -> None:
    verdict, rows = polished(tmp_path, ONE, Editor(compare=lambda _: ConnectionError("down")))
    assert (verdict.adopt, verdict.reason, of(Vote, rows)) == (False, "infra", [])


def test_a_world_that_is_lost_while_the_edit_replays_is_our_fault_and_tried_again(tmp_path: Path) -> None:
    env = WordyEcho()
    env.faults[worded(env, ONE, NEW).id] = ["lose"]
    verdict, _ = polished(tmp_path, ONE, Editor(), env=env)
    assert (verdict.reason, outcome(verdict)) == ("valid", "accepted")


def test_a_spent_budget_leaves_it_undecided_and_later_nobody_is_asked_twice(tmp_path: Path) -> None:
    editor, rows = Editor(), list[Row]()
    tight = ModelSettings(attempts=1, concurrency=1, token_budget=30)
    verdicts, _ = validate(
        editor, tmp_path, [ONE], env=WordyEcho(), settings=POLISH, calls=tight, append=rows.extend,
        judges=committee(scores(5, 7), scores(5, 7)),
    )  # fmt: skip
    asked_before = len(editor.payloads("editor"))
    heard = of(Vote, rows)
    assert (verdicts, asked_before, [(vote.stage, vote.judge) for vote in heard]) == ([], 1, [("polish", 0)])
    court = replace(
        committee(scores(5, 7), scores(5, 7)),
        past={(vote.candidate_id, vote.stage, vote.judge): vote for vote in heard},
    )
    verdict, more = polished(tmp_path, ONE, editor, judges=court)
    assert (outcome(verdict), len(editor.payloads("editor"))) == ("accepted", 1)
    again = {(vote.stage, vote.judge) for vote in of(Vote, more)} & {(vote.stage, vote.judge) for vote in heard}
    assert not again


def test_votes_on_record_about_other_words_refuse_the_edit(tmp_path: Path) -> None:
    _, rows = polished(tmp_path, ONE, Editor())
    past = {(vote.candidate_id, vote.stage, vote.judge): vote for vote in of(Vote, rows)}
    court = replace(committee(scores(5, 7)), past=past)
    verdict, more = polished(tmp_path, ONE, Editor(reworded("Say it, will you?")), judges=court)
    assert kept(verdict, more)
    assert verdict.edit["detail"] == "the votes on record are about other words"


def test_a_thread_that_is_resumed_without_an_editor_keeps_the_words(tmp_path: Path) -> None:
    tight = ModelSettings(attempts=1, token_budget=10)
    verdicts, _ = validate(Editor(), tmp_path, [ONE], env=WordyEcho(), settings=POLISH, calls=tight)
    assert verdicts == []
    verdict, rows = polished(tmp_path, ONE, Editor(), settings=ValidateSettings())
    assert kept(verdict, rows)
    assert verdict.edit is None


def test_the_editors_node_and_the_judges_are_traced_and_paid_for(tmp_path: Path) -> None:
    verdict, rows = polished(tmp_path, ONE, Editor())
    spans = {span.node: span for span in of(Span, rows)}
    assert [spans[node].calls for node in ("polish", "prefer")] == [1, 2]
    assert [spans[node].prompt_tokens for node in ("polish", "prefer")] == [10, 20]
    assert verdict.adopt
