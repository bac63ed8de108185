"""Means with 95 % intervals."""

from __future__ import annotations

import pytest

from evals.metrics import interval, paired_gain


def test_binary_values_get_wilsons_interval() -> None:
    """Wilson 1927 for 8 of 10: 0.4902 to 0.9433."""
    found = interval([1.0] * 8 + [0.0] * 2)
    assert (found.n, found.value) == (10, 0.8)
    assert (found.low, found.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_all_right_is_not_certain() -> None:
    found = interval([1.0] * 20)
    assert found.value == found.high == 1.0
    assert found.low == pytest.approx(0.8389, abs=1e-4)


def test_means_of_groups_are_bootstrapped_and_reproducible() -> None:
    values = [0.0, 0.25, 0.5, 0.75, 1.0] * 10
    found = interval(values)
    assert found == interval(values)
    assert found.value == 0.5
    assert found.low < 0.5 < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.3536 / 50**0.5, rel=0.15)


@pytest.mark.parametrize("n", range(1, 30))
def test_bounds_of_none_and_all_right_are_exact(n: int) -> None:
    assert interval([0.0] * n).low == 0.0
    assert interval([1.0] * n).high == 1.0


def test_no_values_have_no_mean() -> None:
    with pytest.raises(ValueError, match="no values"):
        interval([])


def test_a_paired_gain_is_that_of_the_same_items() -> None:
    """50 items, 10 better, 5 worse: 0.1, with a normal interval of 1.96 sqrt((0.3 - 0.01) / 50) = 0.149."""
    before = [0.0] * 10 + [1.0] * 40
    after = [1.0] * 10 + [0.0] * 5 + [1.0] * 35
    found = paired_gain(before, after)
    assert (found.n, found.value) == (50, pytest.approx(0.1))
    assert (found.low, found.high) == pytest.approx((0.1 - 0.149, 0.1 + 0.149), abs=0.03)
    assert paired_gain(after, before).value == pytest.approx(-0.1)


def test_items_that_are_not_the_same_have_no_gain() -> None:
    with pytest.raises(ValueError):
        paired_gain([0.0], [0.0, 1.0])
