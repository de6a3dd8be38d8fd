"""What of a listing goes by age and size, and what never does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.controllers.kinds.retention.decide import Item, decide
from fleetctl.controllers.kinds.retention.limits import DEFAULTS, GIB, Limits, Sort, limits_of
from fleetctl.specs.kinds.settings import Limit, RetentionSettings

NOW_S = 1_000_000.0


def item(key: str, size: int, age_s: float, held: str = "") -> Item:
    return Item(key, key, size, NOW_S - age_s, held)


def going(items: list[Item], limits: Limits) -> list[tuple[str, str]]:
    return [(it.item.key, it.why) for it in decide(items, limits, NOW_S).goes]


def test_what_is_too_old_goes_and_then_the_oldest_until_the_rest_is_small_enough() -> None:
    items = [item("a", 5, 400), item("b", 5, 300), item("c", 5, 200), item("d", 5, 100)]
    assert going(items, Limits()) == []
    assert going(items, Limits(max_age_s=350)) == [("a", "maxAge")]
    assert going(items, Limits(max_bytes=10)) == [("a", "maxSize"), ("b", "maxSize")]
    assert going(items, Limits(350, 10)) == [("a", "maxAge"), ("b", "maxSize")]
    assert going(items, Limits(max_bytes=20)) == []


def test_what_is_in_use_stays_and_counts() -> None:
    items = [item("a", 9, 400, "not over"), item("b", 1, 300), item("c", 1, 200)]
    assert going(items, Limits(0.0, 1)) == [("b", "maxAge"), ("c", "maxAge")]
    assert going(items, Limits(max_bytes=10)) == [("b", "maxSize")]


def test_the_newest_stay_however_old_and_large() -> None:
    items = [item("a", 9, 400), item("b", 9, 300), item("c", 9, 200)]
    assert going(items, Limits(0.0, 1, keep_last=2)) == [("a", "maxAge")]
    assert going(items, Limits(0.0, 1, keep_last=5)) == []


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
    Limits,
    st.none() | st.integers(0, 50).map(float),
    st.none() | st.integers(1, 300),
    st.integers(0, 3),
)


@given(things, limits)
def test_no_more_goes_than_must_and_no_less(items: list[Item], wanted: Limits) -> None:
    found = decide(items, wanted, NOW_S)
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
    assert {*DEFAULTS} == {*Sort}
    assert sum(it.max_bytes or 0 for it in DEFAULTS.values()) <= 10 * GIB
    assert all(it.max_bytes for sort, it in DEFAULTS.items() if sort is not Sort.OBJECTS)


def test_what_is_said_of_a_sort_takes_the_place_of_its_default_field_by_field() -> None:
    said = RetentionSettings(logs=Limit(max_size=5 * GIB))
    default = DEFAULTS[Sort.LOGS]
    found = limits_of(said)[Sort.LOGS]
    assert found == Limits(default.max_age_s, 5 * GIB, default.keep_last)
    assert limits_of(said, 5.0)[Sort.DELETED].max_age_s == 5.0
    said = RetentionSettings(deleted=Limit(max_age=7.0))
    assert limits_of(said, 5.0)[Sort.DELETED].max_age_s == 7.0
