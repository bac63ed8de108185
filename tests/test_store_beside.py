"""A look from outside beside a run at work: it sees no false difference, and it keeps nobody waiting."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from store import db
from store.db import Store
from store.journal import Problem
from store.rows import Task
from tests.store_rows import step, task, trajectory


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.append(task(1), trajectory("a"), step("a", ["SELECT"]))
    made.ingest()
    return made


@pytest.mark.parametrize("moment", ["_copy", "_beside_journal"])
def test_what_is_appended_while_check_compares_is_no_difference(
    store: Store, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    whole: Callable[..., Any] = getattr(Store, moment)

    def after_an_append(self: Store, *arguments: Any, **options: Any) -> Any:
        Store(store.root).append(task(2), step("b", ["SELECT"]))
        store.append(task(3))
        return whole(self, *arguments, **options)

    monkeypatch.setattr(Store, moment, after_an_append)
    assert store.check() == []
    assert len(store.rows(Task)) == 3


def test_check_holds_the_index_only_while_it_copies_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; from pathlib import Path; from store.db import Store; Store(Path(sys.argv[1]), patience_s=0)"
    whole, codes = db.differences, []

    def beside_another_process(connection: Any) -> Iterator[Problem]:
        codes.append(subprocess.run([sys.executable, "-c", f"{code}.ingest()", str(store.root)]).returncode)
        return whole(connection)

    monkeypatch.setattr(db, "differences", beside_another_process)
    assert (store.check(), codes) == ([], [0])


@contextmanager
def awaited(root: Path) -> Iterator[None]:
    """Somebody who must have the index waits for it."""
    folder = os.open(root, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    yield
    os.close(folder)


def test_who_can_read_a_copy_leaves_the_index_to_who_waits_for_it(store: Store) -> None:
    store.append(task(2))
    store.index.unlink()
    reader = Store(store.root, wait_s=0.05)
    with awaited(store.root):
        assert len(reader.rows(Task)) == 2
        assert reader.sql("SELECT count(*) FROM task").rows == [(2,)]
        assert not store.index.exists()
        assert Store(store.root, patience_s=0).ingest() == 4
    assert len(reader.rows(Task)) == 2


def test_a_rebuild_counts_what_the_journal_has_whoever_made_the_index(tmp_path: Path) -> None:
    class Beaten(Store):
        def _update(self, connection: Any) -> int:
            super()._update(connection)
            return super()._update(connection)

    store = Beaten(tmp_path)
    store.append(task(1), trajectory("a"), task(1))
    assert store.rebuild().rows == 2
