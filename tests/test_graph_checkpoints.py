"""Checkpoints: bytes linear in steps, nothing but JSON inside, gone when the rows are written."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from graphs import explore as exploring
from graphs.bench import bench
from graphs.known import Known
from graphs.resources import Resources
from graphs.settings import ExploreSettings, ModelSettings
from graphs.state import ExploreState
from store.errors import StoreError
from tests.graph_setup import LOOK, Echo, explore, explorer, job
from tests.scripted import ScriptedChatModel


def stored_bytes(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        (blobs,) = connection.execute("select coalesce(sum(length(checkpoint)), 0) from checkpoints").fetchone()
        (writes,) = connection.execute("select coalesce(sum(length(value)), 0) from writes").fetchone()
    connection.close()
    return int(blobs + writes)


def bytes_of(steps: int, folder: Path) -> int:
    """Checkpoint bytes of one exploration of so many tool calls."""
    env = Echo()
    env._words = ("x",)
    work = Resources(
        env=env,
        model=lambda seed: ScriptedChatModel(policy=explorer(act=LOOK)),
        known=Known(env),
        calls=ModelSettings(attempts=1),
        explore=ExploreSettings(steps=steps),
    )
    path = folder / f"{steps}.sqlite"

    async def run() -> None:
        async with bench(exploring.builder, work, path, None) as at:
            await at.play("x", ExploreState(id="x", world="room", seed=0, signal=None))

    asyncio.run(run())
    return stored_bytes(path)


def test_bytes_are_linear_in_steps(tmp_path: Path) -> None:
    few, more, many = (bytes_of(steps, tmp_path) for steps in (10, 20, 40))
    assert (many - more) / (more - few) == pytest.approx(2, rel=0.1)


def test_checkpoints_go_when_the_rows_are_written(tmp_path: Path) -> None:
    explore(explorer(), tmp_path, [job()])
    assert stored_bytes(tmp_path / "graphs.sqlite") == 0


def test_states_are_plain_under_strict_deserialisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", "true")
    (found,), _ = explore(explorer(), tmp_path, [job()])
    assert found.outcome == "done"


@pytest.mark.parametrize("at", [0, 20, 100, 4096, 5000, 9000])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, at: int) -> None:
    path = tmp_path / "graphs.sqlite"
    explore(explorer(), tmp_path, [job()])
    damaged = bytearray(path.read_bytes())
    damaged[at : at + 500] = b"\xff" * 500
    path.write_bytes(damaged)
    (found,), _ = explore(explorer(), tmp_path, [job()])
    assert (found.outcome, found.error) == ("done", None)


def test_a_truncated_file_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "graphs.sqlite"
    explore(explorer(), tmp_path, [job()])
    whole = path.read_bytes()
    for size in (0, 1, 100, 5000, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:size])
        (found,), _ = explore(explorer(), tmp_path, [job()])
        assert (found.outcome, found.error) == ("done", None), size


def test_a_file_that_cannot_be_used_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "graphs.sqlite").mkdir()
    with pytest.raises(StoreError, match=r"graphs\.sqlite: unable to open"):
        explore(explorer(), tmp_path, [job()])
