"""When two results are the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.text2sql.engine import Database, Limits, Result, Value, build
from envs.text2sql.results import constant_query, empty, fingerprint, same, show


def result(*rows: tuple[Value, ...]) -> Result:
    return Result(columns=[str(i) for i in range(len(rows[0]) if rows else 1)], rows=list(rows))


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ([(1,)], [(1.0,)], True),
        ([(0.1 + 0.2,)], [(0.3,)], True),
        ([(1.00000049999,)], [(1.0000005,)], True),
        ([(1.0,)], [(1.001,)], False),
        ([(12345678,)], [(12345679,)], False),
        ([(2**60,)], [(2**60 + 1,)], False),
        ([(None,)], [(None,)], True),
        ([(None,)], [(0,)], False),
        ([(None,)], [("",)], False),
        ([("1",)], [(1,)], False),
        ([("a",)], [("A",)], False),
        ([(b"a",)], [("a",)], False),
        ([(1,), (2,)], [(2,), (1,)], True),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False),
        ([(1,), (1,)], [(1,)], False),
        ([(1, 2)], [(2, 1)], False),
        ([(1, 2)], [(1,)], False),
        ([], [], True),
        ([], [(None,)], False),
        ([(float("inf"),)], [(float("inf"),)], True),
        ([(float("inf"),)], [(float("-inf"),)], False),
    ],
)
def test_multisets_of_rows(left: list[Any], right: list[Any], equal: bool) -> None:
    assert same(result(*left), result(*right), ordered=False) is equal
    assert same(result(*right), result(*left), ordered=False) is equal


def test_lists_where_the_reference_orders() -> None:
    one, other = result((1,), (2,)), result((2,), (1,))
    assert not same(one, other, ordered=True)
    assert same(one, result((1.0,), (2 + 1e-9,)), ordered=True)
    assert fingerprint(one, ordered=True) != fingerprint(other, ordered=True)
    assert fingerprint(one, ordered=False) == fingerprint(other, ordered=False)


def test_nothing_but_null_is_no_answer() -> None:
    assert empty(result())
    assert empty(result((None,), (None,)))
    assert not empty(result((0,)))
    assert not empty(result((None, "")))


def test_a_shown_result_is_json_and_short() -> None:
    many = result(*(("x" * 500, i) for i in range(30)))
    shown = json.loads(show(many, rows=20, chars=2000))
    assert shown["row_count"] == 30
    assert len(shown["rows"]) == 9
    assert shown["rows"][0] == ["x" * 197 + "...", 0]
    assert json.loads(show(result((b"ab", float("inf"), None)), rows=5, chars=99))["rows"] == [
        ["<2 bytes>", "inf", None]
    ]


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=20),
)
ROWS = st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), min_size=1, max_size=6))


@given(ROWS, st.randoms())
def test_a_constant_query_gives_its_result_back(rows: list[tuple[Value, ...]], rng: Any) -> None:
    database = Database(build("CREATE TABLE t (a);", {}), Limits())
    again = database.run(constant_query(result(*rows)))
    database.close()
    assert isinstance(again, Result)
    assert same(result(*rows), again, ordered=True)
    shuffled = list(rows)
    rng.shuffle(shuffled)
    assert same(result(*rows), result(*shuffled), ordered=False)


def test_a_constant_query_of_many_rows_runs() -> None:
    many = result(*((i, f"name {i}", None) for i in range(200)))
    database = Database(build("CREATE TABLE t (a);", {}), Limits())
    again = database.run(constant_query(many))
    database.close()
    assert isinstance(again, Result)
    assert again.rows == many.rows
