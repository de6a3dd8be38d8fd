"""Lines of cron in time zones: both changes of the clocks, and lines that are none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.specs.values.cron import COUNTED_MAX, CronSchedule

DAY_S = 86_400


def at(text: str) -> float:
    """`2026-03-29 01:00`, in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def fired(line: str, zone: str, begin: str, end: str) -> list[str]:
    return [
        datetime.fromtimestamp(it, UTC).strftime("%d. %H:%M")
        for it in _all(CronSchedule(line, zone), at(begin), at(end))
    ]


def _all(times: CronSchedule, after_s: float, until_s: float) -> Iterator[float]:
    found = times.next_s(after_s)
    while found is not None and found <= until_s:
        yield found
        found = times.next_s(found)


@pytest.mark.parametrize(
    ("line", "zone", "span", "expected"),
    [
        # Clocks go from 02:00 to 03:00 at 01:00 UTC.
        ("30 2 * * *", "Europe/Berlin", ("2026-03-28 00:00", "2026-03-30 12:00"),
         ["28. 01:30", "29. 01:00", "30. 00:30"]),
        ("0 * * * *", "Europe/Berlin", ("2026-03-29 00:30", "2026-03-29 03:00"),
         ["29. 01:00", "29. 02:00", "29. 03:00"]),
        # They go from 03:00 back to 02:00 at 01:00 UTC.
        ("30 2 * * *", "Europe/Berlin", ("2026-10-24 00:00", "2026-10-26 12:00"),
         ["24. 00:30", "25. 00:30", "26. 01:30"]),
        ("30 * * * *", "Europe/Berlin", ("2026-10-25 00:00", "2026-10-25 02:00"),
         ["25. 00:30", "25. 01:30"]),
        ("30 1 * * *", "America/New_York", ("2026-10-31 12:00", "2026-11-02 12:00"),
         ["01. 05:30", "02. 06:30"]),
        # By half an hour, on an island.
        ("15 2 * * *", "Australia/Lord_Howe", ("2026-10-02 00:00", "2026-10-04 23:00"),
         ["02. 15:45", "03. 15:30", "04. 15:15"]),
        ("30 2 * * *", "", ("2026-03-28 00:00", "2026-03-30 00:00"), ["28. 02:30", "29. 02:30"]),
        ("0 0 29 2 *", "", ("2026-01-01 00:00", "2029-01-01 00:00"), ["29. 00:00"]),
    ],
)  # fmt: skip
def test_it_fires_once_where_clocks_change(
    line: str, zone: str, span: tuple[str, str], expected: list[str]
) -> None:
    assert fired(line, zone, *span) == expected


@pytest.mark.parametrize(
    ("line", "zone", "words"),
    [
        ("0 0 30 2 *", "", "it never fires"),
        ("0 0 31 4,6 *", "", "it never fires"),
        ("0 0 3 * * *", "", "not 6; hint: leave the seconds out"),
        ("@every 5m", "", "hint: write `*/15 * * * *`"),
        ("@reboot", "", "hint: there are @yearly"),
        ("TZ=Europe/Berlin 0 3 * * *", "", "hint: write `timeZone: Europe/Berlin`"),
        ("61 * * * *", "", "its minute cannot be read"),
        ("0 0 * 13 *", "", "its month cannot be read"),
        ("0 0 ? * 1", "", "hint: write `*` in place of `?`"),
        ("", "", "not 0"),
        ("0 3 * * *", "Europe/Berln", "hint: did you mean `Europe/Berlin`?"),
        ("0 3 * * *", "local", "no time zone has this name"),
        ("0 3 * * *", "../etc/passwd", "no time zone has this name"),
    ],
)
def test_what_is_no_line_or_never_fires_is_refused(line: str, zone: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        CronSchedule(line, zone)
    assert words in f"{refused.value}; hint: {getattr(refused.value, 'hint', '')}"


LINES = st.sampled_from(
    ["30 2 * * *", "0 * * * *", "*/7 1-3 * * *", "15 2,3 * * SUN", "0 3 * * *", "59 23 L * *"]
)
ZONES = st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"])
# Around both changes of 2026 in each of the zones.
MOMENTS = st.integers(int(at("2026-03-01 00:00")), int(at("2026-11-10 00:00")))


@settings(max_examples=150, deadline=None)
@given(LINES, ZONES, MOMENTS, st.integers(1, 2 * DAY_S))
def test_who_looks_in_between_sees_the_same_moments(
    line: str, zone: str, begin_s: int, ahead_s: int
) -> None:
    """However often a controller begins anew, each moment is found once."""
    times = CronSchedule(line, zone)
    whole = list(_all(times, begin_s, begin_s + 4 * DAY_S))
    assert whole == sorted(set(whole))
    middle_s = begin_s + ahead_s
    first = list(_all(times, begin_s, middle_s))
    assert first + list(_all(times, middle_s, begin_s + 4 * DAY_S)) == whole
    found = times.between(begin_s, middle_s)
    assert (found.last_s, found.count) == (first[-1], len(first)) if first else found is None


def test_a_year_of_minutes_is_not_counted_one_by_one() -> None:
    found = CronSchedule("* * * * *").between(at("2025-01-01 00:00"), at("2026-01-01 00:00") + 59)
    assert found is not None
    assert (found.last_s, found.count) == (at("2026-01-01 00:00"), COUNTED_MAX + 1)
