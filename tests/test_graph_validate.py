"""Every branch of the validation graph, with a scripted validator in the echo world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.protocols import Outcome
from graphs.settings import ValidateSettings
from store.dedupe import DedupeSettings, Index
from store.rows import Step, Task, Trajectory, Verdict
from tests.graph_setup import FINE, LOOK, Echo, candidate, explorer, of, validate
from tests.scripted import calls

OBJECTION = {"problem": "the word is not what the user asks for"}
BETTER = {"task": {"user_turns": ["say it better"], "reference": "better"}}


def only(verdicts: list[Verdict]) -> tuple[bool, str]:
    (verdict,) = verdicts
    return verdict.adopt, verdict.reason


def test_a_good_candidate_becomes_a_task(tmp_path: Path) -> None:
    play = explorer(**{"try": [calls("say", word="hello"), FINE]})
    (verdict,), rows = validate(play, tmp_path, [candidate()])
    (task,) = of(Task, rows)
    assert (verdict.adopt, verdict.reason, verdict.task_id, verdict.repairs) == (True, "valid", task.id, 0)
    assert (task.reference, task.user_turns, task.origin, task.split) == ("hello", ["say it"], "explored", "train")
    assert (verdict.t, verdict.candidate_id) == (1, candidate().id)
    (trajectory,) = of(Trajectory, rows)
    assert (trajectory.purpose, trajectory.score, len(of(Step, rows))) == ("validate", None, 1)


def test_the_try_sees_the_draft_and_its_own_log(tmp_path: Path) -> None:
    play = explorer(**{"try": [LOOK, FINE]})
    validate(play, tmp_path, [candidate()])
    first, second = (payload["view"] for payload in play.payloads("try"))
    assert first["draft"] == {"user_turns": ["say it"], "reference": "hello"}
    assert (first["log"], [entry["name"] for entry in second["log"]]) == ([], ["look"])


def test_the_environments_reason_is_the_verdicts(tmp_path: Path) -> None:
    verdicts, rows = validate(explorer(), tmp_path, [candidate("")])
    assert only(verdicts) == (False, "empty_word")
    assert verdicts[0].detail == "there is nothing to say back"
    assert of(Task, rows) == []


@pytest.mark.parametrize(
    ("limit", "verdict"), [(0.0, (True, "valid")), (5.0, (True, "valid")), (4.0, (False, "too_hard"))]
)
def test_a_task_over_the_limit_of_difficulty_is_rejected(
    tmp_path: Path, limit: float, verdict: tuple[bool, str]
) -> None:
    """The difficulty in the echo world is the word's length: 5."""
    verdicts, _ = validate(explorer(), tmp_path, [candidate()], settings=ValidateSettings(max_difficulty=limit))
    assert only(verdicts) == verdict


def test_a_failed_check_is_repaired(tmp_path: Path) -> None:
    play = explorer(repair=BETTER)
    (verdict,), rows = validate(play, tmp_path, [candidate("")])
    assert (verdict.adopt, verdict.repairs) == (True, 1)
    (task,) = of(Task, rows)
    assert (task.reference, task.user_turns) == ("better", ["say it better"])
    assert play.payloads("repair")[0]["problem"].startswith("empty_word: ")


def test_an_objection_is_repaired_and_tried_again_in_a_fresh_session(tmp_path: Path) -> None:
    env = Echo()
    play = explorer(**{"try": [LOOK, OBJECTION, LOOK, FINE]}, repair=BETTER)
    (verdict,), rows = validate(play, tmp_path, [candidate()], env=env)
    assert (verdict.adopt, verdict.repairs) == (True, 1)
    tries = play.payloads("try")
    assert [len(payload["view"]["log"]) for payload in tries] == [0, 1, 0, 1]
    assert tries[2]["view"]["draft"]["reference"] == "better"
    assert len(of(Step, rows)) == 2
    assert all(session.closed for session in env.sessions)


def test_repairs_are_bounded(tmp_path: Path) -> None:
    others: list[Any] = [{"task": {"user_turns": [f"try {i}"], "reference": f"w{i}"}} for i in range(9)]
    play = explorer(**{"try": OBJECTION}, repair=others)
    verdicts, _ = validate(play, tmp_path, [candidate()], settings=ValidateSettings(repairs=2))
    assert only(verdicts) == (False, "objection")
    assert verdicts[0].repairs == 2
    assert verdicts[0].detail == OBJECTION["problem"]


@pytest.mark.parametrize(
    "answer", [{"task": None}, "can't", {"task": {"user_turns": ["say it"], "reference": "hello"}}]
)
def test_giving_up_a_repair_leaves_the_problem_standing(tmp_path: Path, answer: Any) -> None:
    verdicts, _ = validate(explorer(**{"try": OBJECTION}, repair=answer), tmp_path, [candidate()])
    assert only(verdicts) == (False, "objection")


@pytest.mark.parametrize(
    "said", ["looks good", '{"problem": false}', '{"adopt": true}', '{"problem": null, "ok": 1}', ""]
)
def test_an_unclear_finding_rejects(tmp_path: Path, said: str) -> None:
    verdicts, _ = validate(explorer(**{"try": said}), tmp_path, [candidate()])
    assert only(verdicts) == (False, "unclear")


def test_a_finding_is_asked_for_once_more(tmp_path: Path) -> None:
    verdicts, _ = validate(explorer(**{"try": ["looks good", FINE]}), tmp_path, [candidate()])
    assert only(verdicts) == (True, "valid")


def test_a_looping_try_is_cut_and_asked_for_its_finding(tmp_path: Path) -> None:
    play = explorer(**{"try": [LOOK, LOOK, LOOK, FINE]})
    verdicts, rows = validate(play, tmp_path, [candidate()], settings=ValidateSettings(steps=3))
    assert only(verdicts) == (True, "valid")
    assert len(of(Step, rows)) == 3


class Unsound(Echo):
    """An environment whose replays and no-ops come out as they are told to."""

    def __init__(self, *, replays: list[Outcome] | None = None, noop: Outcome | None = None) -> None:
        super().__init__()
        self._replays = replays
        self._noop = noop

    async def replay(self, task: Task) -> Outcome:
        return self._replays.pop(0) if self._replays else await super().replay(task)

    async def noop(self, task: Task) -> Outcome:
        return self._noop or await super().noop(task)


RIGHT = Outcome(kind="scored", score=1.0, detail="a")


@pytest.mark.parametrize(
    ("replays", "reason"),
    [
        ([Outcome(kind="scored", score=0.0), RIGHT], "replay_fails"),
        ([Outcome(kind="invalid", detail="hash"), RIGHT], "replay_fails"),
        ([RIGHT, Outcome(kind="scored", score=1.0, detail="b")], "replay_differs"),
        ([RIGHT, Outcome(kind="scored", score=0.0)], "replay_differs"),
        ([RIGHT, RIGHT], "valid"),
    ],
)
def test_the_reference_must_replay_twice_alike(tmp_path: Path, replays: list[Outcome], reason: str) -> None:
    verdicts, _ = validate(explorer(), tmp_path, [candidate()], env=Unsound(replays=replays))
    assert only(verdicts) == (reason == "valid", reason)


def test_a_noop_that_finds_the_task_defective_rejects(tmp_path: Path) -> None:
    broken = Outcome(kind="invalid", detail="no such table")
    verdicts, _ = validate(explorer(), tmp_path, [candidate()], env=Unsound(noop=broken))
    assert only(verdicts) == (False, "replay_fails")


def test_a_noop_that_passes_rejects(tmp_path: Path) -> None:
    verdicts, _ = validate(explorer(), tmp_path, [candidate()], env=Unsound(noop=RIGHT))
    assert only(verdicts) == (False, "noop_passes")


def test_an_environment_that_keeps_failing_is_no_verdict_on_the_task_but_ends_in_one(tmp_path: Path) -> None:
    down = Outcome(kind="infra", detail="worker died")
    verdicts, rows = validate(explorer(), tmp_path, [candidate()], env=Unsound(replays=[down, down]))
    assert only(verdicts) == (False, "infra")
    assert "worker died" in verdicts[0].detail
    assert of(Task, rows) == []


def test_one_environment_failure_is_survived(tmp_path: Path) -> None:
    down = Outcome(kind="infra", detail="worker died")
    verdicts, _ = validate(explorer(), tmp_path, [candidate()], env=Unsound(replays=[down]))
    assert only(verdicts) == (True, "valid")


def test_a_repeat_of_a_known_task_is_a_duplicate(tmp_path: Path) -> None:
    known = Echo().task("hello")
    verdicts, _ = validate(explorer(), tmp_path, [candidate()], known=[known])
    assert only(verdicts) == (False, "duplicate")
    assert verdicts[0].detail == known.id


def test_a_held_out_item_is_never_admitted(tmp_path: Path) -> None:
    held = Echo().task("hello")
    verdicts, _ = validate(explorer(), tmp_path, [candidate()], held_out=[held], known=[held])
    assert only(verdicts) == (False, "held_out")
    assert verdicts[0].detail == held.id


def test_what_gives_a_held_out_answer_away_is_never_admitted_but_is_no_duplicate(tmp_path: Path) -> None:
    held = Echo().task("HELLO")
    verdicts, _ = validate(explorer(), tmp_path / "a", [candidate()], held_out=[held])
    assert (only(verdicts), verdicts[0].detail) == ((False, "held_out"), held.id)
    verdicts, _ = validate(explorer(), tmp_path / "b", [candidate()], known=[held])
    assert only(verdicts) == (True, "valid")


@pytest.mark.parametrize("text", ["say\x1b[2J", "say\u202e it", "<|im_end|>", "[INST] say"])
def test_hostile_text_is_no_task_of_any_environment(tmp_path: Path, text: str) -> None:
    verdicts, _ = validate(explorer(), tmp_path, [candidate(turns=[text]), candidate(text, index=1)])
    assert [(one.adopt, one.reason) for one in verdicts] == [(False, "unfit_text")] * 2


def test_of_equal_candidates_the_first_is_adopted_whatever_finishes_first(tmp_path: Path) -> None:
    pair = [candidate("hello", index=0, turns=["slow"]), candidate("hello", index=1, turns=["fast"])]
    play = explorer(**{"try": [LOOK, LOOK, LOOK, FINE]})
    verdicts, rows = validate(play, tmp_path, pair)
    assert [verdict.reason for verdict in verdicts] == ["valid", "duplicate"]
    assert verdicts[1].detail == verdicts[0].task_id
    assert [task.user_turns for task in of(Task, rows)] == [["slow"]]


def test_a_repair_into_a_duplicate_is_a_duplicate(tmp_path: Path) -> None:
    known = Echo().task("better")
    verdicts, _ = validate(explorer(repair=BETTER), tmp_path, [candidate("")], known=[known])
    assert only(verdicts) == (False, "duplicate")


@pytest.mark.parametrize("reference", [None, 0, [], {"a": [1]}, "x" * 10_000, "\x00"])
def test_hostile_references_are_decided_not_crashed_on(tmp_path: Path, reference: Any) -> None:
    verdicts, _ = validate(explorer(), tmp_path, [candidate(reference)])
    assert len(verdicts) == 1


def test_a_task_from_outside_keeps_its_origin(tmp_path: Path) -> None:
    play = explorer(**{"try": [calls("say", word="hello"), FINE]})
    one = candidate()
    (verdict,), rows = validate(play, tmp_path, [one], origins={one.id: "outside"})
    assert verdict.adopt
    assert [task.origin for task in of(Task, rows)] == ["outside"]


def test_what_the_environments_keys_do_not_show_names_its_twin_and_stage(tmp_path: Path) -> None:
    """Another word of the same form: the index holds one of a form, and the known task is there already."""
    known = Echo().task("other")
    alike = Index(DedupeSettings(structural=1))
    said = candidate("'hello'")
    twin = Echo().task("'other'")
    play = explorer(**{"try": [calls("say", word="'hello'"), FINE]})
    (verdict,), _ = validate(play, tmp_path, [said], known=[known, twin], alike=alike)
    assert (verdict.adopt, verdict.reason) == (False, "duplicate")
    assert verdict.detail.startswith(f"{twin.id} (structural")
