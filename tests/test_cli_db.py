"""db check, db rebuild: what is lost or damaged is told with its fix, and made again; no row and no file is dropped."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coevolve.workspace import RunFolder, Workspace
from store.journal import segments
from store.rows import Snapshot, Task
from store.snapshot import freeze, load
from tests.cli import Ran, coevolve
from tests.loops import command
from tests.store_rows import task

TASKS = [task(1), task(2, reference={"b": [1.5, None], "a": "é"}), task(3, user_turns=["a", "b\x00 😀"])]


def make(root: Path, tasks: list[Task] = TASKS) -> Workspace:
    """A workspace with a run whose D_0 has the first two tasks, and D_1 all of them in another order."""
    assert coevolve("init", root).code == 0
    place = Workspace.find(str(root))
    run = place.create_run({})
    run.update(created_at=1.0, rounds=2)
    place.store.append(tasks)
    place.store.append(freeze(run.snapshots, run.id, 0, tasks[:2]), freeze(run.snapshots, run.id, 1, tasks[::-1]))
    place.store.ingest()
    return place


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return make(tmp_path / "work")


@pytest.fixture
def run(place: Workspace) -> RunFolder:
    return place.run()


def db(place: Workspace, *arguments: str) -> Ran:
    return coevolve("db", *arguments, "--workspace", place.root)


def loaded(run: RunFolder) -> list[tuple[Snapshot, list[Task]]]:
    return [load(run.snapshots, ref) for ref in (0, 1, "latest")]


# ---- rows


def test_rows_that_the_journal_has_lost_are_told_and_written_back(place: Workspace) -> None:
    segments(place.store.journal.directory)[0].unlink()
    told = db(place, "check")
    assert told.code == 1
    assert "task: unknown: 3 rows of the index have no line in the journal; `coevolve db rebuild` writes" in told.out
    assert "snapshot: unknown: 2 rows" in told.out
    assert "drops" not in told.out
    assert json.loads(db(place, "rebuild", "--json").out) == {
        "rows": 5,
        "salvaged": 5,
        "unreadable": "",
        "set_aside": 0,
        "snapshots": [],
        "refused": [],
    }
    assert db(place, "check").code == 0
    assert sorted(row.id for row in place.store.rows(Task)) == sorted(row.id for row in TASKS)


def test_the_report_for_people(place: Workspace) -> None:
    assert db(place, "rebuild").out == "the index is made again from 5 rows of the journal\n"
    place.store.journal.close()
    (segment,) = segments(place.store.journal.directory)
    segment.write_bytes(b"{}\n" + segment.read_bytes())
    folder = place.store.journal.directory / "damaged"
    done = db(place, "rebuild").out.splitlines()
    assert done[1:] == [f"1 damaged segments are set aside in {folder}; their whole rows are in new ones"]
    assert db(place, "check").code == 0
    segments(place.store.journal.directory)[0].unlink()
    assert "5 of them were salvaged: the journal had lost them, and has them again" in db(place, "rebuild").out
    place.store.index.write_bytes(b"garbage" * 4000)
    done = db(place, "rebuild")
    assert (done.code, done.out.splitlines()[0]) == (0, "the index is made again from 5 rows of the journal")
    assert "the old index could not be read, so it gave no row that the journal lacks" in done.out


# ---- snapshots


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def become_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


DAMAGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "no snapshots": (shutil.rmtree, ["0", "1", "LATEST"]),
    "no D_0": (lambda folder: shutil.rmtree(next(folder.glob("0-*"))), ["0"]),
    "no D_1": (lambda folder: shutil.rmtree(next(folder.glob("1-*"))), ["1"]),
    "D_1 a file": (lambda folder: become_a_file(next(folder.glob("1-*"))), ["1"]),
    "no manifest": (lambda folder: next(folder.glob("0-*/manifest.json")).unlink(), ["0"]),
    "no tasks": (lambda folder: next(folder.glob("0-*/tasks.parquet")).unlink(), ["0"]),
    "half a manifest": (lambda folder: next(folder.glob("1-*/manifest.json")).write_text("{"), ["1"]),
    "changed tasks": (lambda folder: change(next(folder.glob("1-*/tasks.parquet"))), ["1"]),
    "a stray copy": (lambda folder: shutil.copytree(next(folder.glob("0-*")), folder / "0-copy"), ["0"]),
    "no LATEST": (lambda folder: (folder / "LATEST").unlink(), ["LATEST"]),
    "LATEST garbage": (lambda folder: (folder / "LATEST").write_bytes(b"\xff\x00"), ["LATEST"]),
    "LATEST empty": (lambda folder: (folder / "LATEST").write_bytes(b""), ["LATEST"]),
    "LATEST stale": (
        lambda folder: (folder / "LATEST").write_text(next(folder.glob("0-*")).name + "\n"),
        ["LATEST"],
    ),
}


@pytest.mark.parametrize(("damage", "made"), DAMAGES.values(), ids=list(DAMAGES))
def test_a_lost_or_damaged_snapshot_is_told_and_made_again(
    place: Workspace, run: RunFolder, damage: Callable[[Path], object], made: list[str]
) -> None:
    before, names = loaded(run), {path.name.split("-")[0]: path.name for path in run.snapshots.iterdir()}
    damage(run.snapshots)
    told = db(place, "check")
    assert told.code == 1
    lines = [line for line in told.out.splitlines() if line.startswith("run r001: damaged: snapshot ")]
    assert len(lines) == len(made)
    assert all("`coevolve db rebuild`" in line for line in lines)
    done = db(place, "rebuild", "--json")
    assert (done.code, json.loads(done.out)["snapshots"]) == (0, [f"r001/{names[each]}" for each in made])
    assert loaded(run) == before
    assert db(place, "check").code == 0
    assert json.loads(db(place, "rebuild", "--json").out)["snapshots"] == []


def test_a_damaged_folder_is_kept(place: Workspace, run: RunFolder) -> None:
    (folder,) = run.snapshots.glob("1-*")
    change(folder / "tasks.parquet")
    content = (folder / "tasks.parquet").read_bytes()
    assert f"frozen again from the store: r001/{folder.name}" in db(place, "rebuild").out
    (aside,) = run.snapshots.glob(f"damaged-{folder.name}-*")
    assert (aside / "tasks.parquet").read_bytes() == content


def test_tasks_that_only_the_index_has_come_back_first(place: Workspace, run: RunFolder) -> None:
    before = loaded(run)
    shutil.rmtree(place.store.journal.directory)
    shutil.rmtree(run.snapshots)
    assert db(place, "rebuild").code == 0
    assert loaded(run) == before


@pytest.mark.parametrize("at", [0, 2])
def test_a_task_whose_content_is_not_what_was_frozen_is_refused(tmp_path: Path, at: int) -> None:
    tasks = [*TASKS]
    tasks[at] = replace(tasks[at], reference="changed")  # the id stays
    place = make(tmp_path / "work", tasks)
    run = place.run()
    names = sorted(path.name for path in run.snapshots.glob("?-*"))
    refused = names if at == 0 else names[1:]
    for path in run.snapshots.glob("*/manifest.json"):
        path.unlink()
    left = {path: path.read_bytes() for name in refused for path in (run.snapshots / name).iterdir()}
    done = db(place, "rebuild", "--json")
    data = json.loads(done.out)
    assert (done.code, data["snapshots"]) == (2, [f"r001/{name}" for name in names if name not in refused])
    for name in refused:
        assert f"snapshot {run.snapshots / name}: the store has" in done.err
    assert done.err.count("error:") == 1
    assert "bring the folder back from a copy" in done.err
    assert {path: path.read_bytes() for path in left} == left
    assert db(place, "check").code == 1


def test_a_task_that_the_store_lacks_is_refused(place: Workspace, run: RunFolder) -> None:
    ghost = freeze(run.snapshots, run.id, 2, [*TASKS, task(9)])
    place.store.append(ghost)
    shutil.rmtree(run.snapshots)
    done = db(place, "rebuild")
    assert done.code == 2
    assert f"snapshot {run.snapshots / f'2-{ghost.id}'}: the store has 3 of its 4 tasks" in done.err
    assert sorted(path.name[0] for path in run.snapshots.iterdir()) == ["0", "1"]  # LATEST would lead nowhere


def test_a_newer_snapshot_than_the_store_knows_stays_the_latest(place: Workspace, run: RunFolder) -> None:
    newer = freeze(run.snapshots, run.id, 2, TASKS)  # and its writer was killed before it appended the row
    shutil.rmtree(next(run.snapshots.glob("0-*")))
    assert len(json.loads(db(place, "rebuild", "--json").out)["snapshots"]) == 1
    assert load(run.snapshots)[0] == newer


def test_a_run_at_work_is_left_alone_and_a_sound_one_does_not_stop_the_rebuild(
    place: Workspace, run: RunFolder
) -> None:
    with run.locked("evolve"):
        assert db(place, "rebuild").code == 0
        (run.snapshots / "LATEST").unlink()
        done = db(place, "rebuild")
        assert (done.code, f"(PID {os.getpid()})" in done.err) == (1, True)
        assert not (run.snapshots / "LATEST").exists()
    assert db(place, "rebuild").code == 0
    assert load(run.snapshots)[0].t == 1


def test_a_run_that_was_deleted_stays_so(place: Workspace, run: RunFolder) -> None:
    shutil.rmtree(run.path)
    assert db(place, "check").code == 0
    assert json.loads(db(place, "rebuild", "--json").out)["snapshots"] == []
    assert not run.path.exists()


def test_doctor_tells_of_snapshots_too(place: Workspace, run: RunFolder) -> None:
    (run.snapshots / "LATEST").unlink()
    findings = json.loads(coevolve("doctor", "--workspace", place.root, "--json").out)
    (found,) = [finding for finding in findings if finding["what"] == "store"]
    assert (found["state"], found["fix"]) == ("fail", "coevolve db check")
    assert str(run.snapshots / "LATEST") in found["found"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rebuild_that_is_killed_anywhere_is_finished_by_the_next(tmp_path: Path) -> None:
    place = make(tmp_path / "work")
    before, rows = loaded(place.run()), place.store.rows(Snapshot)
    segments(place.store.journal.directory)[0].unlink()
    shutil.rmtree(place.run().snapshots)
    kills = 0
    for at in range(1, 100):
        work = Path(shutil.copytree(place.root, tmp_path / f"killed{at}"))
        done = command(work, "db", "rebuild", KILL_COUNTER=str(tmp_path / f"count{at}"), KILL_AT=str(at))
        copy = Workspace.find(str(work))
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
        kills += 1
        assert db(copy, "rebuild").code == 0
        assert (loaded(copy.run()), copy.store.rows(Snapshot)) == (before, rows)
        assert db(copy, "check").code == 0
    assert 15 <= kills < 99
