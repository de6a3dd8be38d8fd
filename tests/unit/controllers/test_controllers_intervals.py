"""Sets of indexes as intervals."""

from __future__ import annotations

from fleetctl.controllers.history.facts import IntervalSet


def test_neighbours_join_into_one_interval() -> None:
    assert str(IntervalSet([3, 1, 2, 7])) == "1-3,7"


def test_the_hole_between_two_intervals_joins_them() -> None:
    found = IntervalSet([0, 1, 3, 4])
    assert found.add(2)
    assert str(found) == "0-4"


def test_adding_twice_counts_once() -> None:
    found = IntervalSet([5])
    assert not found.add(5)
    assert len(found) == 1


def test_taking_out_of_the_middle_splits_an_interval() -> None:
    found = IntervalSet(range(5))
    assert found.discard(2)
    assert str(found) == "0-1,3-4"
    assert not found.discard(2)


def test_gaps_are_what_is_missing_in_a_range() -> None:
    assert list(IntervalSet([1, 2, 5]).gaps(0, 8)) == [0, 3, 4, 6, 7]


def test_a_long_text_is_cut_and_says_so() -> None:
    assert IntervalSet(range(0, 100, 2)).text(intervals_max=3) == "0,2,4,..."


def test_a_hundred_thousand_indexes_are_one_interval() -> None:
    assert str(IntervalSet(range(100_000))) == "0-99999"
