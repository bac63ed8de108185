"""Judges in the validation graph: what each kind of answer comes to, scripted, in the echo world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphs.committee import AUDIT
from graphs.settings import ModelSettings
from store.rows import Row, Span, Task, Verdict, Vote
from tests.fakes import EchoEnv
from tests.graph_setup import LOOK, candidate, explorer, of, validate
from tests.judge_setup import BAD, GOOD, Script, judged, judges


def only(verdicts: list[Verdict]) -> tuple[bool, str]:
    (verdict,) = verdicts
    return verdict.adopt, verdict.reason


def test_without_judges_nobody_is_asked(tmp_path: Path) -> None:
    verdicts, rows = validate(explorer(), tmp_path, [candidate()])
    assert (only(verdicts), of(Vote, rows)) == ((True, "valid"), [])


def test_a_committee_that_agrees_lets_it_pass_and_every_vote_is_a_row(tmp_path: Path) -> None:
    verdicts, rows = judged(tmp_path, [candidate()], judges(GOOD, GOOD))
    assert only(verdicts) == (True, "valid")
    votes = of(Vote, rows)
    assert [(vote.stage, vote.judge, vote.model, vote.adopt, vote.passes) for vote in votes] == [
        ("strong", 0, "judge0", True, True),
        ("strong", 1, "judge1", True, True),
    ]
    assert votes[0].scores == {key: GOOD[key] for key in ("validity", "difficulty_gain", "diversity", "realism")}
    assert (votes[0].prompt_tokens, votes[0].t, votes[0].candidate_id) == (10, 1, candidate().id)


def test_what_judges_took_is_in_the_trace_once(tmp_path: Path) -> None:
    """`v_cost` sums it up, and so do the budgets of a run."""
    _, rows = judged(tmp_path, [candidate()], judges(GOOD, GOOD))
    spans = {span.node: span for span in of(Span, rows)}
    assert (spans["panel"].calls, spans["panel"].prompt_tokens) == (2, 20)
    assert spans["judge"].calls == 0


def test_a_judge_sees_the_task_its_place_in_the_set_and_what_was_observed(tmp_path: Path) -> None:
    script = Script(GOOD)
    known = [EchoEnv().task("abc"), EchoEnv().task("world")]
    play = explorer(**{"try": [LOOK, {"problem": None}]})
    judged(tmp_path, [candidate()], judges(script), known=known, policy=play)
    (payload,) = script.seen
    assert payload["task"] == {"user_turns": ["say it"], "reference": "hello"}
    assert (payload["difficulty"], payload["set_mean"], payload["alike"]) == (5.0, 4.0, 1)
    assert json.loads(payload["observed"]) == {"word": "hello"}
    assert payload["world"] == "a room with an echo"


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ([GOOD, GOOD, BAD], (True, "valid")),
        ([GOOD, BAD, BAD], (False, "outvoted")),
        ([GOOD, BAD], (False, "outvoted")),
        ([GOOD, BAD, GOOD, BAD], (False, "outvoted")),
    ],
)
def test_more_than_half_must_be_for_it(tmp_path: Path, answers: list[Any], verdict: tuple[bool, str]) -> None:
    verdicts, rows = judged(tmp_path, [candidate()], judges(*answers))
    assert only(verdicts) == verdict
    assert len(of(Vote, rows)) == len(answers)


def test_a_tie_is_named(tmp_path: Path) -> None:
    ((verdict,), rows) = judged(tmp_path, [candidate()], judges(GOOD, BAD))
    assert verdict.detail.startswith("1 of 2 for it, a tie; judge1 rejects (validity 1, ")
    assert of(Task, rows) == []


@pytest.mark.parametrize(
    ("scores", "passes"),
    [((4, 4, 4, 4), True), ((5, 3, 4, 4), True), ((5, 3, 4, 3), False), ((1, 1, 1, 1), False)],
)
def test_adopt_needs_the_mean_score_too(tmp_path: Path, scores: tuple[int, ...], passes: bool) -> None:
    answer = GOOD | dict(zip(("validity", "difficulty_gain", "diversity", "realism"), scores, strict=True))
    verdicts, rows = judged(tmp_path, [candidate()], judges(answer))
    assert only(verdicts) == ((True, "valid") if passes else (False, "outvoted"))
    assert [(vote.adopt, vote.passes) for vote in of(Vote, rows)] == [(True, passes)]


def test_high_scores_do_not_adopt_by_themselves(tmp_path: Path) -> None:
    verdicts, _ = judged(tmp_path, [candidate()], judges(GOOD | {"adopt": False}))
    assert only(verdicts) == (False, "outvoted")


UNREADABLE: list[Any] = [
    "I think this is a good task. Adopt it!",
    "I cannot help with that.",
    "",
    '{"success": [false]}',
    '{"adopt": true}',
    json.dumps({key: value for key, value in GOOD.items() if key != "realism"}),
    json.dumps(GOOD)[:-10],
    GOOD | {"adopt": "true"},
    GOOD | {"adopt": 1},
    GOOD | {"adopt": [True]},
    GOOD | {"adopt": None},
    GOOD | {"validity": 6},
    GOOD | {"validity": 0},
    GOOD | {"validity": 4.5},
    GOOD | {"validity": "5"},
    GOOD | {"success": True},
    [GOOD],
    "[" * 3000,
]


@pytest.mark.parametrize("answer", UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_is_not_the_whole_verdict_is_a_vote_against(tmp_path: Path, answer: Any) -> None:
    script = Script(answer)
    verdicts, rows = judged(tmp_path, [candidate()], judges(script))
    assert only(verdicts) == (False, "outvoted")
    (vote,) = of(Vote, rows)
    assert (vote.adopt, vote.passes, vote.scores, vote.reason) == (None, False, None, "unreadable")
    assert (len(script.seen), vote.prompt_tokens) == (2, 20), "asked once more, and both answers are paid for"


def test_a_verdict_is_asked_for_once_more(tmp_path: Path) -> None:
    verdicts, rows = judged(tmp_path, [candidate()], judges(Script("Adopt!", GOOD)))
    assert only(verdicts) == (True, "valid")
    assert [vote.prompt_tokens for vote in of(Vote, rows)] == [20]


def test_one_unreadable_judge_of_three_is_outvoted(tmp_path: Path) -> None:
    verdicts, rows = judged(tmp_path, [candidate()], judges(GOOD, GOOD, "no"))
    assert only(verdicts) == (True, "valid")
    assert [vote.adopt for vote in of(Vote, rows)] == [True, True, None]


def test_judges_cannot_admit_what_execution_rejects(tmp_path: Path) -> None:
    script = Script(GOOD)
    verdicts, rows = judged(tmp_path, [candidate("")], judges(script))
    assert (only(verdicts), script.seen, of(Vote, rows)) == ((False, "empty_word"), [], [])


def test_what_repeats_a_known_task_costs_no_judge(tmp_path: Path) -> None:
    script = Script(GOOD)
    verdicts, _ = judged(tmp_path, [candidate("ping")], judges(script), known=EchoEnv().seed_tasks())
    assert (only(verdicts), script.seen) == ((False, "duplicate"), [])


def test_the_cheap_judge_spares_the_committee(tmp_path: Path) -> None:
    strong = Script(GOOD)
    court = judges(strong, cheap=Script(BAD, GOOD))
    verdicts, rows = judged(
        tmp_path, [candidate("aa", index=0), candidate("bb", index=1)], court, calls=ModelSettings(concurrency=1)
    )
    assert [verdict.reason for verdict in verdicts] == ["screened", "valid"]
    assert len(strong.seen) == 1
    assert [(vote.stage, vote.passes) for vote in of(Vote, rows)] == [
        ("cheap", False),
        ("cheap", True),
        ("strong", True),
    ]


def test_the_reward_model_screens_but_one_in_eight_goes_on(tmp_path: Path) -> None:
    strong = Script(GOOD)
    court = judges(strong, cheap=lambda shown: 0.1)
    words = [f"word{at}" for at in range(20)]
    verdicts, rows = judged(tmp_path, [candidate(word, index=at) for at, word in enumerate(words)], court)
    tasks = [EchoEnv().task(word, origin="explored") for word in words]
    assert {v.reason for v in verdicts} <= {"screened", "valid"}
    audited = sum(vote.stage == "strong" for vote in of(Vote, rows))
    assert audited == sum(verdict.adopt for verdict in verdicts) == len(strong.seen) > 0
    assert audited <= len(tasks) * 3 / AUDIT
    cheap = [vote for vote in of(Vote, rows) if vote.stage == "cheap"]
    assert {(vote.model, vote.scores["probability"]) for vote in cheap} == {("reward_model", 0.1)}
    assert len(cheap) == len(words)


def test_a_judge_whose_endpoint_is_down_is_no_word_on_the_candidate(tmp_path: Path) -> None:
    (verdict,), rows = judged(tmp_path, [candidate()], judges(GOOD, ConnectionError("down")))
    assert (verdict.adopt, verdict.reason) == (False, "infra")
    assert [vote.judge for vote in of(Vote, rows)] == [0], "what was heard is kept"


def test_a_spent_budget_leaves_the_candidate_undecided_and_what_was_heard_counts_later(tmp_path: Path) -> None:
    rows: list[Row] = []
    first, second = Script(GOOD), Script(GOOD)
    tight = ModelSettings(attempts=1, concurrency=1, token_budget=10)
    verdicts, _ = judged(tmp_path, [candidate()], judges(first, second), calls=tight, append=rows.extend)
    assert (verdicts, [vote.judge for vote in of(Vote, rows)]) == ([], [0])
    past = {(vote.candidate_id, vote.stage, vote.judge): vote for vote in of(Vote, rows)}
    verdicts, more = judged(tmp_path, [candidate()], judges(first, second, past=past))
    assert only(verdicts) == (True, "valid")
    assert (len(first.seen), [vote.judge for vote in of(Vote, more)]) == (1, [1])


def test_two_candidates_that_repeat_each_other_are_decided_in_order(tmp_path: Path) -> None:
    verdicts, _ = judged(tmp_path, [candidate(index=0), candidate(index=1, turns=["again"])], judges(GOOD))
    assert [verdict.reason for verdict in verdicts] == ["valid", "duplicate"]


def test_a_veto_does_not_make_the_next_one_a_duplicate(tmp_path: Path) -> None:
    court = judges(Script(BAD, GOOD))
    verdicts, _ = judged(
        tmp_path,
        [candidate(index=0), candidate(index=1, turns=["again"])],
        court,
        calls=ModelSettings(concurrency=1),
    )
    assert [verdict.reason for verdict in verdicts] == ["outvoted", "valid"]
