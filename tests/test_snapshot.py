"""Snapshots: D_t appears whole, never changes, and what was changed is not read."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store import schema, snapshot
from store.errors import StoreError, UsageError
from store.rows import Task, snapshot_id
from store.snapshot import freeze, load, read_tasks
from tests.store_rows import task

ROOT = Path(__file__).parent.parent
TASKS = [
    task(3, tools=["run_sql"], user_turns=["a", "b\x00 😀"], reference={"calls": [["f", {"x": 1.5}]]}),
    task(1, expected=None, difficulty=2.5),
    task(2, reference=None, origin="explored"),
]


def test_what_was_frozen_is_loaded_in_order(tmp_path: Path) -> None:
    frozen = freeze(tmp_path / "snapshots", "r", 0, iter(TASKS))
    assert (frozen.run, frozen.t, frozen.task_ids) == ("r", 0, [each.id for each in TASKS])
    assert frozen.id == snapshot_id(frozen.task_ids)
    assert load(tmp_path / "snapshots") == (frozen, TASKS)


def test_a_snapshot_is_found_by_pointer_t_id_and_folder(tmp_path: Path) -> None:
    first, second = freeze(tmp_path, "r", 0, TASKS[:1]), freeze(tmp_path, "r", 10, TASKS)
    assert load(tmp_path)[0] == load(tmp_path, "latest")[0] == load(tmp_path, 10)[0] == second
    for ref in (0, "0", first.id, f"0-{first.id}"):
        assert load(tmp_path, ref)[0] == first
    assert load(tmp_path / f"0-{first.id}")[0] == first


def test_freezing_the_same_again_changes_nothing(tmp_path: Path) -> None:
    first = freeze(tmp_path, "r", 0, TASKS)
    files = {path: (path.stat().st_ino, path.read_bytes()) for path in tmp_path.glob("*/*")}
    assert freeze(tmp_path, "r", 0, TASKS) == first
    assert {path: (path.stat().st_ino, path.read_bytes()) for path in tmp_path.glob("*/*")} == files


def test_another_content_under_the_same_t_is_refused(tmp_path: Path) -> None:
    first = freeze(tmp_path, "r", 0, TASKS)
    for other in (TASKS[:2], TASKS[::-1], [*TASKS, task(9)]):
        with pytest.raises(UsageError, match=rf"snapshot t = 0: 0-{first.id} is published already"):
            freeze(tmp_path, "r", 0, other)
    assert load(tmp_path) == (first, TASKS)


def test_the_hash_covers_content_alone(tmp_path: Path) -> None:
    assert freeze(tmp_path / "a", "r", 0, TASKS).id == freeze(tmp_path / "b", "other", 5, TASKS).id


@pytest.mark.parametrize(
    ("tasks", "words"), [([], "D_4 is empty; add seed tasks"), ([task(1), task(1)], "occurs twice")]
)
def test_bad_sets_are_refused_and_nothing_is_written(tasks: list[Task], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        freeze(tmp_path / "snapshots", "r", 4, tasks)
    assert not (tmp_path / "snapshots").exists()


# ---- what is not there, or not what was frozen


def test_a_snapshot_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such folder; run `coevolve seed`"):
        load(tmp_path / "none")
    with pytest.raises(UsageError, match="snapshot latest: none in"):
        load(tmp_path)
    first = freeze(tmp_path, "r", 0, TASKS)
    with pytest.raises(UsageError, match=f"snapshot 7: does not exist in .* give one of latest, 0-{first.id}"):
        load(tmp_path, 7)


def test_a_damaged_pointer_names_the_snapshots_that_are_there(tmp_path: Path) -> None:
    first = freeze(tmp_path, "r", 0, TASKS)
    (tmp_path / "LATEST").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=f"give one of latest, 0-{first.id}"):
        load(tmp_path)
    assert load(tmp_path, 0)[0] == first


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / f"0-{freeze(tmp_path, 'r', 0, TASKS).id}"


def test_a_missing_manifest_is_told(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(UsageError, match=r"manifest.json is missing, so it is not whole"):
        load(folder.parent)


def test_missing_tasks_are_told(folder: Path) -> None:
    (folder / "tasks.parquet").unlink()
    with pytest.raises(UsageError, match=r"tasks.parquet is missing"):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"id": 1}'])
def test_a_damaged_manifest_is_told(content: bytes, folder: Path) -> None:
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"manifest.json is damaged"):
        load(folder)


def test_a_changed_file_is_told(folder: Path) -> None:
    data = bytearray((folder / "tasks.parquet").read_bytes())
    for at in range(0, len(data), 97):
        flipped = bytearray(data)
        flipped[at] ^= 4
        (folder / "tasks.parquet").write_bytes(flipped)
        with pytest.raises(UsageError, match=r"sha256 of tasks.parquet is \w+, its manifest says \w+: it was changed"):
            load(folder)


def test_other_tasks_under_a_matching_file_hash_are_told(folder: Path, tmp_path: Path) -> None:
    other = freeze(tmp_path / "other", "r", 0, TASKS[:2])
    source = tmp_path / "other" / f"0-{other.id}"
    shutil.copy(source / "tasks.parquet", folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["sha256"] = json.loads((source / "manifest.json").read_bytes())["sha256"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match=f"content hash is {other.id}, its manifest says"):
        load(folder)


# ---- faults while freezing


def test_a_full_disk_leaves_no_half_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = freeze(tmp_path, "r", 0, TASKS[:1])

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(snapshot, "_sync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        freeze(tmp_path, "r", 1, TASKS)
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"0-{first.id}", "LATEST"]
    assert load(tmp_path)[0] == first
    assert freeze(tmp_path, "r", 1, TASKS).t == 1


FREEZER = """
import sys
from pathlib import Path
from store.snapshot import freeze
from tests.store_rows import task
for t in range(10_000):
    freeze(Path(sys.argv[1]), "r", t, [task(number) for number in range(t + 1)])
    print(t, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.0, 0.005, 0.02, 0.04, 0.07, 0.1])
def test_a_killed_freeze_leaves_whole_snapshots_only(wait: float, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FREEZER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        child.stdout.readline()
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
    published = sorted(int(path.name.split("-")[0]) for path in tmp_path.glob("[0-9]*"))
    assert published == list(range(len(published)))
    assert all(len(load(tmp_path, t)[1]) == t + 1 for t in published)
    assert load(tmp_path)[0].t in published[-2:]
    following = len(published)
    freeze(tmp_path, "r", following, [task(number) for number in range(following + 1)])
    assert load(tmp_path)[0].t == following


# ---- task files


def lines(*tasks: dict[str, object]) -> str:
    return "\n".join(json.dumps(each) for each in tasks) + "\n"


def plain(number: int, **changes: object) -> dict[str, object]:
    given = task(number)
    return {name: getattr(given, name) for name in given.__dataclass_fields__} | changes


def test_a_task_file_is_read(tmp_path: Path) -> None:
    without_id = plain(2)
    del without_id["id"]
    (tmp_path / "tasks.jsonl").write_text("\n" + lines(plain(1), without_id))
    assert read_tasks(tmp_path / "tasks.jsonl") == [task(1), task(2)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: Input data was truncated"),
        ("[1]", "line 2: expected a JSON object"),
        (json.dumps(plain(2, world=None)), r"line 2: .*`\$.world`"),
        (json.dumps(plain(2, split="dev")), r"line 2: .*'dev' - at `\$.split`"),
        (json.dumps(plain(2, user_turns="q")), r"line 2: .*`\$.user_turns`"),
        (json.dumps({"env": "x"}), "line 2: .*missing required field"),
        (json.dumps(plain(2, reference="SELECT 9")), rf"line 2: id is {task(2).id}, its content has"),
        ("\ufffe\udcff", "line 2: "),
    ],
)
def test_a_bad_line_is_named_with_its_field(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes((lines(plain(1)) + line + "\n").encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=words):
        read_tasks(path)


def test_a_file_without_tasks_is_told(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("\n\n")
    with pytest.raises(UsageError, match="no task in it"):
        read_tasks(tmp_path / "tasks.jsonl")
    with pytest.raises(UsageError, match="No such file"):
        read_tasks(tmp_path / "none.jsonl")


def test_a_snapshot_of_before_a_column_was_added_is_read_with_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = schema.columns(Task)
    with monkeypatch.context() as before:
        before.setitem(schema._COLUMNS, "task", tuple(each for each in whole if each.name != "redistributable"))
        freeze(tmp_path, "r", 0, TASKS)
    assert load(tmp_path)[1] == TASKS
    assert {each.redistributable for each in TASKS} == {True}
