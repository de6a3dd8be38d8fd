"""What of a listing goes by age and size, and what never does."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.controllers.kinds.retention_decision import (
    DEFAULTS,
    GIB,
    RetentionItem,
    RetentionLimits,
    RetentionSort,
    decide_retention,
    limits_of,
    shrink_group,
)
from fleetctl.specs.kinds.settings import RetentionBudget, RetentionLimit, RetentionSettings

NOW_S = 1_000_000.0


def item(key: str, size: int, age_s: float, held: str = "") -> RetentionItem:
    return RetentionItem(key, key, size, NOW_S - age_s, held)


def going(items: list[RetentionItem], limits: RetentionLimits) -> list[tuple[str, str]]:
    return [(it.item.key, it.why) for it in decide_retention(items, limits, NOW_S).goes]


def test_what_is_too_old_goes_and_then_the_oldest_until_the_rest_is_small_enough() -> None:
    items = [item("a", 5, 400), item("b", 5, 300), item("c", 5, 200), item("d", 5, 100)]
    assert going(items, RetentionLimits()) == []
    assert going(items, RetentionLimits(max_age_s=350)) == [("a", "maxAge")]
    assert going(items, RetentionLimits(max_bytes=10)) == [("a", "maxSize"), ("b", "maxSize")]
    assert going(items, RetentionLimits(350, 10)) == [("a", "maxAge"), ("b", "maxSize")]
    assert going(items, RetentionLimits(max_bytes=20)) == []


def test_what_is_in_use_stays_and_counts() -> None:
    items = [item("a", 9, 400, "not over"), item("b", 1, 300), item("c", 1, 200)]
    assert going(items, RetentionLimits(0.0, 1)) == [("b", "maxAge"), ("c", "maxAge")]
    assert going(items, RetentionLimits(max_bytes=10)) == [("b", "maxSize")]


def test_the_newest_stay_however_old_and_large() -> None:
    items = [item("a", 9, 400), item("b", 9, 300), item("c", 9, 200)]
    assert going(items, RetentionLimits(0.0, 1, keep_last=2)) == [("a", "maxAge")]
    assert going(items, RetentionLimits(0.0, 1, keep_last=5)) == []


things = st.lists(
    st.builds(
        lambda key, size, age, held: item(f"{key:03}", size, age, held),
        st.integers(0, 999),
        st.integers(0, 100),
        st.integers(0, 50),
        st.sampled_from(["", "", "not over"]),
    ),
    unique_by=lambda it: it.key,
    max_size=12,
)
limits = st.builds(
    RetentionLimits,
    st.none() | st.integers(0, 50).map(float),
    st.none() | st.integers(1, 300),
    st.integers(0, 3),
)


@given(things, limits)
def test_no_more_goes_than_must_and_no_less(
    items: list[RetentionItem], wanted: RetentionLimits
) -> None:
    found = decide_retention(items, wanted, NOW_S)
    goes = {it.item.key for it in found.goes}
    oldest_first = sorted(items, key=lambda it: (it.used_s, it.key))
    newest = oldest_first[max(len(items) - wanted.keep_last, 0) :]
    left = [it for it in items if it.key not in goes]
    free = [it for it in left if not it.held and it not in (newest if wanted.keep_last else [])]
    assert not any(it.item.held for it in found.goes)
    assert wanted.keep_last == 0 or not goes & {it.key for it in newest}
    if wanted.max_age_s is not None:
        assert all(NOW_S - it.used_s <= wanted.max_age_s for it in free)
    if wanted.max_bytes is not None and sum(it.bytes for it in left) > wanted.max_bytes:
        assert not free  # all that may go has gone
    by_size = [it.item for it in found.goes if it.why == "maxSize"]
    assert all(one.used_s <= other.used_s for one in by_size for other in free)
    if by_size and wanted.max_bytes is not None:  # the last of them was still needed
        assert sum(it.bytes for it in left) + by_size[-1].bytes > wanted.max_bytes


def test_every_sort_has_defaults_that_do_not_fill_a_laptop() -> None:
    assert {*DEFAULTS} == {*RetentionSort}
    assert sum(it.max_bytes or 0 for it in DEFAULTS.values()) <= 14 * GIB
    # Objects go by request alone, and outputs, which tasks were asked to keep, by their age.
    without = {sort for sort, it in DEFAULTS.items() if not it.max_bytes}
    assert without == {RetentionSort.OBJECTS, RetentionSort.OUTPUTS}


def test_what_is_said_of_a_sort_takes_the_place_of_its_default_field_by_field() -> None:
    said = RetentionSettings(logs=RetentionLimit(max_size=5 * GIB))
    default = DEFAULTS[RetentionSort.LOGS]
    found = limits_of(said)[RetentionSort.LOGS]
    assert found == replace(default, max_bytes=5 * GIB, group="finishedWork")
    assert limits_of(said, 5.0)[RetentionSort.DELETED].max_age_s == 5.0
    said = RetentionSettings(deleted=RetentionLimit(max_age=7.0))
    assert limits_of(said, 5.0)[RetentionSort.DELETED].max_age_s == 7.0


def test_a_group_has_one_age_and_its_sorts_one_size_together() -> None:
    groups = RetentionSettings(
        finished_work=RetentionBudget(max_age=50.0), caches=RetentionBudget(max_size=7)
    )
    found = limits_of(groups, 5.0)
    assert {found[RetentionSort(it)].max_age_s for it in ("logs", "runs", "outputs")} == {50.0}
    assert found[RetentionSort.DELETED].max_age_s == 50.0
    assert found[RetentionSort.LOGS].max_bytes == DEFAULTS[RetentionSort.LOGS].max_bytes
    sources = found[RetentionSort.SOURCES]
    assert (sources.group_bytes, sources.max_bytes, sources.keep_last) == (7, None, 1)
    assert found[RetentionSort.EVENTS] == DEFAULTS[RetentionSort.EVENTS]
    assert found[RetentionSort.OBJECTS] == DEFAULTS[RetentionSort.OBJECTS]


def test_the_size_of_a_group_takes_the_oldest_of_all_its_sorts() -> None:
    items = {
        "environments": [item("a", 5, 500), item("b", 5, 300), item("c", 5, 100)],
        "reuse": [item("x", 5, 400), item("y", 5, 200), item("z", 5, 900, held="needed")],
    }
    decisions = {
        it: decide_retention(listed, RetentionLimits(), NOW_S) for it, listed in items.items()
    }
    found = shrink_group(items, decisions, {"environments": 2, "reuse": 0}, 18)
    gone = {sort: [it.item.key for it in one.goes] for sort, one in found.items()}
    assert gone == {"environments": ["a"], "reuse": ["x", "y"]}
    assert shrink_group(items, decisions, {"environments": 0, "reuse": 0}, 30) == decisions
