"""Which of the environment's seed tasks D_0 takes: none that gives a held-out item away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coevolve.workspace import Workspace
from envs.text2sql.engine import build
from store.rows import Task
from tests.cli import coevolve
from tests.tiny_sql import DDL, ROWS

BEST = {"db_id": "trade", "question": "Which shops have five stars?", "query": "SELECT name FROM shop WHERE stars = 5"}
CITIES = {"db_id": "trade", "question": "How many cities are there?", "query": "SELECT count(*) FROM city"}
SEED = {"db_id": "trade", "question": "What did all shops sell?", "query": "SELECT sum(sales) FROM shop"}


def test_d_0_has_no_task_over_the_limit_of_difficulty(tmp_path: Path) -> None:
    assert coevolve("init", tmp_path / "work").code == 0
    settings = ("policy=litellm:none", "seed_set.seeds=12", "seed_set.unguided=8", "validate.max_difficulty=2.0")
    options = [part for setting in settings for part in ("--set", setting)]
    done = coevolve("seed", "--workspace", tmp_path / "work", *options, "--json")
    assert done.code == 0
    store = Workspace.find(str(tmp_path / "work")).store
    counted = store.query("select origin, count(*), max(difficulty) from task group by 1 order by 1")
    assert [
        (origin, count >= least, hardest) for (origin, count, hardest), least in zip(counted, (8, 12), strict=True)
    ] == [
        ("explored", True, 2.0),
        ("seed", True, 2.0),
    ]
    assert store.query("select count(*) > 0 from verdict where reason = 'too_hard'") == [(True,)]


@pytest.mark.parametrize(
    "same",
    [
        BEST,
        BEST | {"question": "WHICH \uff53hops have five stars", "query": "SELECT name FROM shop"},
        BEST | {"question": "The best?", "query": "select S.name from shop as S where S.stars = 5"},
        BEST | {"question": "The best?", "query": "SELECT name FROM shop WHERE stars = 5.0"},
    ],
)
def test_a_seed_that_is_held_out_is_left_out_and_both_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, same: dict[str, Any]
) -> None:
    folder = tmp_path / "spider"
    (folder / "database/trade").mkdir(parents=True)
    (folder / "database/trade/trade.sqlite").write_bytes(build(DDL, ROWS[0]))
    (folder / "train.json").write_text(json.dumps([same, SEED]))
    (folder / "dev.json").write_text(json.dumps([BEST, CITIES]))
    assert coevolve("init", tmp_path / "work").code == 0
    settings = (f"env=text2sql:{folder}", "policy=litellm:none", "seed_set.unguided=0", "eval.suites=[]", "eval.final=")
    options = [part for setting in settings for part in ("--set", setting)]
    done = coevolve("seed", "--workspace", tmp_path / "work", *options, "--json")
    wanted = {"run": "r001", "seeds": 1, "unguided": 0, "pending": 0, "held_out": 1}
    assert (done.code, json.loads(done.out)) == (0, wanted)
    (kept,) = Workspace.find(str(tmp_path / "work")).store.rows(Task)
    assert kept.user_turns == [SEED["question"]]
    assert f"({same['question']!r}) is left out: it gives away item " in caplog.text
    assert f"of suite gold ({BEST['question']!r})" in caplog.text
