"""The two graphs over AppWorld's real engine, with a scripted explorer and validator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from envs.appworld.env import AppWorld
from graphs.state import Evidence, StepView
from store.rows import Candidate, Step, Task, Trajectory
from tests.appworld_play import LOGIN, NOTE, WORLD
from tests.graph_setup import CONTEXT, DONE, FINE, explore, explorer, job, of, signal, validate
from tests.scripted import calls

LOOK = calls("run_python", code=LOGIN + 'print(me["email"])')
ASKED = {"user_turns": ['Make a note "List" that says "bread".'], "reference": NOTE}


def test_a_signal_becomes_a_task(appworld: AppWorld, tmp_path: Path) -> None:
    attempt = StepView(action="apis.simple_note.create_note()", observation="Execution failed.", failed=True)
    seen = Evidence(questions=["Make a note."], structure="simple_note.create_note", score=0.0, steps=[attempt])
    sent = replace(job(signal=signal(), world=WORLD), evidence=[seen])
    play = explorer(act=[LOOK, DONE], abstract={"tasks": [ASKED]})
    (found,), rows = explore(play, tmp_path, [sent], env=appworld)
    assert [role for role, _ in play.seen] == ["reflect", "act", "act", "abstract"]
    assert (found.outcome, found.context, found.signal_id, found.world) == ("done", CONTEXT, signal().id, WORLD)
    assert play.payloads("act")[0]["view"]["context"] == CONTEXT
    (step,) = of(Step, rows)
    assert (step.observation, step.failed) == ("ada.stone@gmail.com", False)
    assert step.tokens == ["supervisor.show_account_passwords", "supervisor.show_profile"]
    (candidate,) = of(Candidate, rows)

    play = explorer(**{"try": [calls("run_python", code=NOTE), FINE]})
    held_out = [task for tasks in appworld.suites().values() for task in tasks]
    (verdict,), rows = validate(play, tmp_path, [candidate], env=appworld, held_out=held_out)
    (task,) = of(Task, rows)
    assert (verdict.adopt, verdict.reason, verdict.task_id) == (True, "valid", task.id)
    assert (task.world, task.split, task.origin, task.reference) == (WORLD, "train", "explored", NOTE.strip())
    assert task.expected["models"] == ["simple_note.Note"]
    (tried,) = of(Trajectory, rows)
    assert (tried.purpose, [step.failed for step in of(Step, rows)]) == ("validate", [False])


def test_what_does_nothing_is_rejected_by_execution(appworld: AppWorld, tmp_path: Path) -> None:
    play = explorer(act=[LOOK, DONE], abstract={"tasks": [{**ASKED, "reference": "apis.supervisor.complete_task()"}]})
    _, rows = explore(play, tmp_path, [job(world=WORLD)], env=appworld)
    (verdict,), rows = validate(explorer(), tmp_path, of(Candidate, rows), env=appworld)
    assert (verdict.adopt, verdict.reason) == (False, "no_effect")
    assert of(Task, rows) == []
