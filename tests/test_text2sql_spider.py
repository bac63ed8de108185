"""Spider and BIRD folders: a small one in each format, and what is wrong with others."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from envs import registry
from envs.text2sql.engine import build
from envs.text2sql.spider import load
from store.errors import UsageError
from tests.tiny_sql import DDL, ROWS

TRAIN = {"db_id": "trade", "question": "Which shops have five stars?", "query": "SELECT name FROM shop WHERE stars = 5"}
DEV = {"db_id": "travel", "question": "How many cities are there?", "query": "SELECT count(*) FROM city"}
NUMBERS = "CREATE TABLE n (id INTEGER PRIMARY KEY, word TEXT);"


def database(folder: Path, name: str, content: bytes) -> None:
    place = folder / name
    place.mkdir(parents=True)
    (place / f"{name}.sqlite").write_bytes(content)


def write(path: Path, data: Any) -> None:
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")


@pytest.fixture
def spider(tmp_path: Path) -> Path:
    for name, rows in zip(("trade", "travel"), ROWS, strict=True):
        database(tmp_path / "database", name, build(DDL, rows))
    database(tmp_path / "database", "unused", build(NUMBERS, {}))
    write(tmp_path / "tables.json", [{"db_id": "trade"}, {"db_id": "travel"}])
    write(tmp_path / "train_spider.json", [TRAIN])
    write(tmp_path / "dev.json", [DEV])
    return tmp_path


def test_a_spider_folder_is_an_environment(spider: Path) -> None:
    env = load(spider)
    (seed,), suites = env.seed_tasks(), env.suites()
    assert (seed.world, seed.reference, seed.split, len(seed.expected)) == ("trade", TRAIN["query"], "train", 1)
    assert [(task.world, task.split) for task in suites["gold"]] == [("travel", "gold")]
    assert [world.id for world in env.worlds("train")] == ["trade"]
    assert [world.id for world in env.worlds("gold")] == ["travel"]
    assert "CREATE TABLE shop" in env.describe("trade")
    assert all(asyncio.run(env.replay(task)).success for task in (seed, *suites["gold"]))


def test_more_files_of_a_database_are_more_populations(spider: Path) -> None:
    (spider / "database/trade/trade_1.sqlite").write_bytes(build(DDL, ROWS[1]))
    env = registry.get(f"text2sql:{spider}")
    (seed,) = env.seed_tasks()
    assert len(seed.expected) == 2
    assert seed.expected[0] != seed.expected[1]


def test_files_are_not_touched(spider: Path) -> None:
    before = {path: path.read_bytes() for path in spider.rglob("*") if path.is_file()}
    env = registry.get("text2sql", folder=str(spider))
    asyncio.run(env.replay(env.seed_tasks()[0]))
    assert {path: path.read_bytes() for path in spider.rglob("*") if path.is_file()} == before


def test_a_bird_folder_has_sql_and_evidence(tmp_path: Path) -> None:
    database(tmp_path / "dev_databases", "trade", build(DDL, ROWS[0]))
    item = {"db_id": "trade", "question": "Which shops?", "evidence": "best means stars = 5", "SQL": TRAIN["query"]}
    write(tmp_path / "dev.json", [item])
    write(tmp_path / "dev_tables.json", [{"db_id": "trade"}])
    (task,) = load(tmp_path).suites()["gold"]
    assert task.user_turns == ["best means stars = 5\nWhich shops?"]
    assert task.reference == TRAIN["query"]


def test_references_need_only_run(spider: Path) -> None:
    """Spider's own references may be empty or leave an order open: they are taken as they are."""
    loose = [
        TRAIN | {"query": sql} for sql in ("SELECT name FROM shop WHERE stars = 9", "SELECT name FROM city LIMIT 1")
    ]
    write(spider / "train_spider.json", loose)
    assert len(load(spider).seed_tasks()) == 2


@pytest.mark.parametrize(
    ("file", "data", "words"),
    [
        ("dev.json", "[", r"dev.json: no JSON"),
        ("dev.json", {"a": 1}, r"dev.json: a list of items is expected"),
        ("dev.json", [DEV, 7], r"dev.json item 1: an object is expected"),
        ("dev.json", [{"db_id": "travel", "query": "x"}], r"dev.json item 0: field question is missing"),
        ("dev.json", [{"db_id": "travel", "question": "x"}], r"dev.json item 0: field query \(or SQL\) is missing"),
        ("dev.json", [DEV | {"db_id": "moon"}], r"dev.json item 0: db_id 'moon'.*database/moon/moon.sqlite"),
        ("dev.json", [DEV, DEV | {"question": "\ud800 x"}], r"dev.json item 1: field question is no valid Unicode"),
        ("dev.json", [DEV | {"query": "SELECT '\udfff'"}], r"dev.json item 0: field query \(or SQL\) is no valid"),
        ("dev.json", [DEV | {"evidence": "\ud800"}], r"dev.json item 0: field evidence is no valid Unicode"),
        ("dev.json", [DEV | {"db_id": ["travel"]}], r"dev.json item 0: field db_id is missing or no text"),
        ("dev.json", [DEV | {"db_id": "\ud800"}], r"dev.json item 0: field db_id is no valid Unicode"),
        ("tables.json", [{"db_id": "moon"}], r"tables.json item 0: db_id 'moon'"),
        ("tables.json", [{"db_id": ["travel"]}], r"tables.json item 0: db_id .*travel"),
        ("tables.json", [{"db_id": "\ud800"}], r"tables.json item 0: db_id '\ufffd'"),
        ("database/travel/travel.sqlite", "no database at all, sorry" * 99, r"travel.sqlite: it is no SQLite database"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_item(spider: Path, file: str, data: Any, words: str) -> None:
    write(spider / file, data)
    with pytest.raises(UsageError, match=words) as error:
        load(spider)
    assert str(error.value).encode()


def test_a_byte_order_mark_is_no_part_of_the_data(spider: Path) -> None:
    (spider / "dev.json").write_bytes(b"\xef\xbb\xbf" + (spider / "dev.json").read_bytes())
    assert len(load(spider).suites()["gold"]) == 1


def test_a_file_of_items_that_is_none_is_named(spider: Path) -> None:
    (spider / "train_x.json").mkdir()
    with pytest.raises(UsageError, match=r"train_x.json: it cannot be read \(Is a directory\)"):
        load(spider)
    (spider / "train_x.json").rmdir()
    (spider / "train_x.json").symlink_to("/nowhere/train.json")
    with pytest.raises(UsageError, match=r"train_x.json: it cannot be read \(No such file"):
        load(spider)


def test_a_view_of_a_table_that_is_gone_is_told(spider: Path) -> None:
    with closing(sqlite3.connect(spider / "database/trade/trade.sqlite")) as connection:
        connection.execute("CREATE VIEW broken AS SELECT * FROM nowhere")
        connection.commit()
    with pytest.raises(UsageError, match=r"trade.sqlite: its schema cannot be read \(.*nowhere"):
        load(spider)


def test_an_environment_without_tasks_is_an_error(spider: Path) -> None:
    write(spider / "train_spider.json", [TRAIN | {"query": "nope"}])
    with pytest.raises(UsageError, match="none of the 1 items of split train can be used"):
        load(spider).seed_tasks()
    write(spider / "train_spider.json", [])
    assert load(spider).seed_tasks() == []  # a folder to test on
    write(spider / "dev.json", [])
    with pytest.raises(UsageError, match=r"there is no item in .*train_spider.json, .*dev.json"):
        load(spider)


def test_a_reference_that_does_not_run_is_left_out_and_named(spider: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(spider / "dev.json", [DEV, DEV | {"query": "SELECT nope FROM city"}])
    assert len(load(spider).suites()["gold"]) == 1
    assert "dev.json item 1 is left out: execution_error: population 0: no such column: nope" in caplog.text


LONG = TRAIN | {"question": "x" * 5001}
MARKED = TRAIN | {"question": "<|im_end|> hi"}


def test_a_question_that_no_prompt_should_hold_is_left_out_and_named(
    spider: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(spider / "train_spider.json", [LONG, MARKED, TRAIN | {"question": "x" * 5000}])
    write(spider / "dev.json", [DEV | {"question": LONG["question"]}, DEV | MARKED])
    env = load(spider)
    assert [len(task.user_turns[0]) for task in env.seed_tasks()] == [5000]
    assert [task.user_turns[0] for task in env.suites()["gold"]] == [MARKED["question"]]  # only tested on: as it is
    assert "train_spider.json item 0 is left out: bad_question: 5001 characters, at most 5000" in caplog.text
    assert "train_spider.json item 1 is left out: unfit_text: it holds '<|im_end|>'" in caplog.text
    assert "dev.json item 0 is left out: bad_question" in caplog.text


def test_a_folder_that_is_something_else(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        load(tmp_path / "nope")
    with pytest.raises(UsageError, match=r"no database/<db>/<db>.sqlite"):
        load(tmp_path)
    database(tmp_path / "database", "trade", build(DDL, ROWS[0]))
    with pytest.raises(UsageError, match=r"no train\*.json, dev\*.json or test\*.json"):
        load(tmp_path)
