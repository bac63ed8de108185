"""The shipped questions of text2sql: rebuilt from their sources byte for byte, valid, apart from each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from envs.protocols import Draft
from envs.text2sql.env import Text2Sql, builtin
from envs.text2sql.schemas import SCHEMAS
from scripts.build_text2sql import __main__ as build
from scripts.build_text2sql.check import problems
from scripts.build_text2sql.parse import Item, parse, reworded
from store.rows import Task

FILES = build.files()
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def env() -> Text2Sql:
    return builtin()


@pytest.fixture(scope="module")
def tasks(env: Text2Sql) -> dict[str, list[Task]]:
    return {"seed": env.seed_tasks(), **env.suites()}


def test_the_builder_rewrites_the_files_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = {path.name: path.read_bytes() for path in build.DATA.iterdir()}
    monkeypatch.setattr(build, "DATA", tmp_path)
    assert build.main() == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == shipped


def test_the_builder_writes_nothing_if_an_item_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Item("library", "Which genres are there?", "SELECT genres FROM book")
    monkeypatch.setattr(build, "DATA", tmp_path / "data")
    monkeypatch.setattr(build, "files", lambda: {**FILES, "gold": [*FILES["gold"], wrong]})
    assert build.main() == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", FILES)
def test_every_item_holds_what_check_py_asks(name: str) -> None:
    assert {item.question: found for item in FILES[name] if (found := list(problems(item)))} == {}


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT title FROM book WHERE genre = 'None'", "empty"),
        ("SELECT DISTINCT year FROM loan", "the same"),
        ("SELECT city FROM member ORDER BY city LIMIT 4", "ties"),
        ("SELECT title FROM book WHERE genre = 'Poetry'", "'Poetry' is not in the question"),
        ("SELECT MAX(days) FROM loan WHERE days IS NULL", "nothing but NULL"),
        ("SELECT a.id FROM loan AS a JOIN loan AS b ON a.year = b.year", "too large"),
        ("DELETE FROM loan", "not one query"),
    ],
)
def test_the_builder_names_what_is_wrong_with_an_item(sql: str, reason: str) -> None:
    assert any(reason in problem for problem in problems(Item("library", "Which books are 'None'?", sql)))


def test_questions_are_parsed_with_sql_over_several_lines() -> None:
    assert parse({"library": "\nWho?\n    SELECT name\n    FROM author\n"}) == [
        Item("library", "Who?", "SELECT name FROM author")
    ]
    with pytest.raises(ValueError, match="library"):
        parse({"library": "Who?\nWhat?\n    SELECT 1\n"})


def test_files_are_large_enough_and_each_world_has_its_share() -> None:
    assert len(FILES["seed"]) >= 96
    assert len(FILES["gold"]) >= 150
    assert len(FILES["test"]) >= 150
    assert len(FILES["shifted"]) >= 80
    train = {name for name, schema in SCHEMAS.items() if schema.split == "train"}
    for name, least in (("seed", 16), ("gold", 25), ("test", 25)):
        counts = Counter(item.world for item in FILES[name])
        assert set(counts) == train
        assert min(counts.values()) >= least
    assert {item.world for item in FILES["shifted"]} == set(SCHEMAS) - train


def test_every_task_passes_the_checks_replays_and_is_not_solved_by_constants(
    env: Text2Sql, tasks: dict[str, list[Task]]
) -> None:
    async def outcomes(task: Task) -> tuple[bool, bool]:
        return (await env.replay(task)).success, (await env.noop(task)).success

    for task in (task for suite in tasks.values() for task in suite):
        draft = Draft(world=task.world, user_turns=task.user_turns, reference=task.reference)
        assert env.check(draft) == [], task.user_turns
        assert asyncio.run(outcomes(task)) == (True, False), task.user_turns


def test_no_two_tasks_are_twins(env: Text2Sql, tasks: dict[str, list[Task]]) -> None:
    """But for the rewordings: each has a question of its own and the statement of a gold item."""
    plain = [task for name, suite in tasks.items() if name != "robust" for task in suite]
    keys = Counter(key for task in plain for key in env.twins(task))
    keys += Counter(env.twins(task)[0] for task in tasks["robust"])
    assert [key for key, count in keys.items() if count > 1] == []
    assert build.twins(FILES) == []


def test_rewordings_ask_gold_items_of_every_world_in_three_ways(tasks: dict[str, list[Task]]) -> None:
    gold = {(task.world, task.reference): task for task in tasks["gold"]}
    for task in tasks["robust"]:
        asked = gold[task.world, task.reference]
        assert task.expected == asked.expected
        assert task.user_turns != asked.user_turns
    worlds = Counter(item.world for item in FILES["robust"])
    assert set(worlds.values()) == {10}
    assert set(worlds) == {item.world for item in FILES["gold"]}
    kinds = Counter(item.kind for item in FILES["robust"])
    assert set(kinds) == {"paraphrased", "vague", "roundabout"}
    assert min(kinds.values()) >= 14
    assert len({item.sql for item in FILES["robust"]}) == len(FILES["robust"]) == 60


def test_a_rewording_of_no_gold_item_is_refused() -> None:
    with pytest.raises(ValueError, match="is no gold question"):
        reworded({"library": "Where is Iris?\n    vague: Where?"}, FILES["gold"])


def test_the_builder_sees_a_repeated_question_and_a_repeated_statement() -> None:
    one = Item("library", "How many?", "SELECT COUNT(*) FROM book")
    assert len(build.twins({"seed": [one], "gold": [Item("library", "how MANY?", "SELECT COUNT(*) FROM loan")]})) == 1
    assert len(build.twins({"seed": [one], "gold": [Item("library", "Count", "select count(*)  from BOOK")]})) == 1
    assert build.twins({"seed": [one], "gold": [Item("clinic", "How many?", "SELECT COUNT(*) FROM book")]}) == []


@pytest.mark.parametrize("suite", ["gold", "test"])
def test_a_fair_part_of_the_skeletons_occurs_in_no_seed_and_a_fair_part_does(
    suite: str, tasks: dict[str, list[Task]]
) -> None:
    known = {task.structure for task in tasks["seed"]}
    shapes = [task.structure for task in tasks[suite]]
    assert 0.3 <= sum(shape not in known for shape in shapes) / len(shapes) <= 0.6
    assert len(set(shapes) - known) / len(set(shapes)) >= 0.3


@pytest.mark.parametrize("suite", ["gold", "test"])
def test_about_half_of_the_items_are_within_reach_of_a_small_model(suite: str, tasks: dict[str, list[Task]]) -> None:
    easy = [t for t in tasks[suite] if t.reference.count("SELECT") == 1 and t.reference.count("JOIN") <= 1]
    assert 0.5 <= len(easy) / len(tasks[suite]) <= 0.85


def test_held_out_phrasings_are_out_of_the_product_s_reach() -> None:
    packages = ("coevolve", "graphs", "envs", "training", "store", "evals")
    sources = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    assert sources
    assert [path for path in sources if "build_text2sql" in path.read_text("utf-8")] == []
    held_out = {item.question for name in ("gold", "test", "shifted", "robust") for item in FILES[name]}
    assert held_out.isdisjoint(item.question for item in FILES["seed"])
