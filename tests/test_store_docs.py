"""Every statement in docs/sql.md runs, and every view is in its table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from store.db import Store
from store.schema import VIEWS
from tests.store_rows import step, task, trajectory
from tests.story import story

TEXT = (Path(__file__).parent.parent / "docs" / "sql.md").read_text()
STATEMENTS = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("store"))
    rollout = trajectory(task(1).id, score=0.0)
    store.append(task(1), rollout, step(rollout, ["SELECT"]))
    return store


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_documented_statement_runs(store: Store, statement: str) -> None:
    assert store.sql(statement).columns


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("full"))
    store.append(story())
    return store


def test_there_are_recipes_enough() -> None:
    assert len(STATEMENTS) >= 15


@pytest.mark.parametrize(
    "statement", [each for each in STATEMENTS if not re.search(r"v_judged|v_refined|damage", each)]
)
def test_a_recipe_finds_something_in_a_run(full: Store, statement: str) -> None:
    assert full.sql(statement).rows


def test_the_failed_rollout_is_shown(store: Store) -> None:
    (statement,) = [each for each in STATEMENTS if "s.observation" in each]
    assert store.sql(statement).rows == [(0, 0, 0, "SELECT 1", "1")]


def test_every_view_is_documented() -> None:
    assert re.findall(r"^\| `(v_\w+)`", TEXT, re.MULTILINE) == list(VIEWS)
