"""The populations: the same on every machine, consistent, and what schemas.py says of them is true."""

from __future__ import annotations

import hashlib
import json

import pytest

from envs.text2sql.draw import PEOPLE, TITLES, Draw, Rows
from envs.text2sql.schemas import POPULATIONS, SCHEMAS
from scripts.build_text2sql.check import database

WORLDS = [(name, population) for name in SCHEMAS for population in POPULATIONS]


def digest(populations: list[Rows]) -> str:
    return hashlib.sha256(json.dumps(populations).encode()).hexdigest()[:12]


def column(world: str, population: int, sql: str) -> list[object]:
    return [row[0] for row in database(world, population).execute(sql)]


def test_the_rows_are_what_they_were_when_the_expected_results_were_recorded() -> None:
    # Changing a population changes every task id and expected hash: raise Text2Sql.version together with this.
    assert {
        name: digest([schema.populate(population) for population in POPULATIONS]) for name, schema in SCHEMAS.items()
    } == {
        "library": "4a196e1640b0",
        "clinic": "cdbabca14a9a",
        "shop": "7e48230da06e",
        "school": "5db7f67512a1",
        "league": "14e1652147ed",
        "company": "5eef1efbd05b",
        "hotel": "f5f8465754a7",
        "farm": "c45256808387",
        "music": "582d859d345c",
    }


@pytest.mark.parametrize(("world", "population"), WORLDS)
def test_a_population_is_the_same_twice_and_its_foreign_keys_hold(world: str, population: int) -> None:
    schema = SCHEMAS[world]
    assert schema.populate(population) == schema.populate(population)
    assert database(world, population).execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.parametrize(("world", "population"), WORLDS)
def test_tables_are_few_small_and_named_shortly(world: str, population: int) -> None:
    rows = SCHEMAS[world].populate(population)
    assert 3 <= len(rows) <= 6
    for table, content in rows.items():
        names = column(world, population, f"SELECT name FROM pragma_table_info('{table}')")
        assert 3 <= len(names) <= 5
        assert 20 <= len(content) <= 200
        assert all(len(str(name)) <= 12 for name in (table, *names))


def test_no_table_has_the_same_number_of_rows_in_all_populations() -> None:
    for schema in SCHEMAS.values():
        sizes = [{table: len(rows) for table, rows in schema.populate(p).items()} for p in POPULATIONS]
        assert all(len({size[table] for size in sizes}) > 1 for table in sizes[0]), schema.name


@pytest.mark.parametrize(("world", "population"), WORLDS)
def test_names_and_titles_are_unique(world: str, population: int) -> None:
    for table in SCHEMAS[world].populate(population):
        for name in ("name", "title"):
            if name in column(world, population, f"SELECT name FROM pragma_table_info('{table}')"):
                values = column(world, population, f"SELECT {name} FROM {table}")
                assert len(values) == len(set(values)), table


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(
    ("world", "measure"),
    [
        ("library", "book.pages"),
        ("clinic", "visit.cost"),
        ("clinic", "drug.price"),
        ("shop", "product.price"),
        ("school", "teacher.salary"),
        ("league", "team.budget"),
        ("league", "game.fans"),
        ("company", "employee.salary"),
        ("company", "project.budget"),
        ("hotel", "room.price"),
        ("farm", "farm.acres"),
        ("farm", "worker.wage"),
        ("farm", "crop.price"),
        ("music", "album.copies"),
        ("music", "concert.fans"),
    ],
)
def test_measures_have_no_ties(world: str, measure: str, population: int) -> None:
    table, name = measure.split(".")
    values = column(world, population, f"SELECT {name} FROM {table}")
    assert len(values) == len(set(values))


@pytest.mark.parametrize(("world", "population"), WORLDS)
def test_only_the_columns_that_may_be_null_are_and_in_every_population(world: str, population: int) -> None:
    found = set()
    for table in SCHEMAS[world].populate(population):
        for name in column(world, population, f"SELECT name FROM pragma_table_info('{table}')"):
            if column(world, population, f"SELECT 1 FROM {table} WHERE {name} IS NULL LIMIT 1"):
                found.add(f"{table}.{name}")
    allowed = {"library": {"loan.days"}, "school": {"grade.score"}, "company": {"employee.boss_id"}}
    assert found == allowed.get(world, set())


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(
    ("world", "parent", "child"),
    [
        ("library", "author", "book"),
        ("clinic", "doctor", "visit"),
        ("shop", "purchase", "item"),
        ("school", "student", "grade"),
        ("league", "team", "player"),
        ("company", "dept", "employee"),
        ("hotel", "hotel", "room"),
        ("music", "album", "song"),
    ],
)
def test_parents_that_are_said_to_have_children_have_them(world: str, parent: str, child: str, population: int) -> None:
    childless = f"SELECT id FROM {parent} WHERE id NOT IN (SELECT {parent}_id FROM {child})"
    assert column(world, population, childless) == []


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(
    ("world", "parent", "child"),
    [
        ("library", "book", "loan"),
        ("clinic", "patient", "visit"),
        ("shop", "product", "item"),
        ("school", "teacher", "course"),
        ("company", "project", "work"),
        ("hotel", "guest", "stay"),
        ("farm", "farm", "worker"),
        ("music", "band", "album"),
    ],
)
def test_some_other_parents_have_no_children(world: str, parent: str, child: str, population: int) -> None:
    childless = f"SELECT id FROM {parent} WHERE id NOT IN (SELECT {parent}_id FROM {child})"
    assert column(world, population, childless) != []


def test_text_values_are_shared_between_populations() -> None:
    for world, sql in (
        ("library", "SELECT genre FROM book"),
        ("clinic", "SELECT specialty FROM doctor"),
        ("music", "SELECT country FROM band"),
    ):
        values = [set(column(world, population, sql)) for population in POPULATIONS]
        assert len(set.intersection(*values)) >= 4
        assert len(set.union(*values)) > len(values[0])


def test_draws_stay_in_their_bounds_and_repeat() -> None:
    draw = Draw("any", 0)
    assert {draw.between(3, 5) for _ in range(100)} == {3, 4, 5}
    assert sorted(draw.some(range(9), 9)) == list(range(9))
    assert len(set(draw.distinct(20, 10, 500, 10))) == 20
    assert sorted({*draw.parents(40, range(1, 21), cover=True)}) == list(range(1, 21))
    assert len({*draw.parents(400, range(1, 21), cover=False)}) <= 18
    assert min(draw.spread(20, ["a", "b", "c"]).count(value) for value in "abc") >= 2
    assert len({Draw("any", population).size(20, 22) for population in POPULATIONS}) == 3
    assert [Draw("any", 0).between(0, 10**6)] * 2 == [Draw("any", 0).between(0, 10**6) for _ in range(2)]
    assert len(set(PEOPLE)) == len(PEOPLE) == 396
    assert len(set(TITLES)) == len(TITLES) == 200
