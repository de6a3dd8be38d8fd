from __future__ import annotations

import pytest

from fleetctl.specs.values.quantities import parse_bytes, parse_cpu, parse_duration, parse_indexes


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        ("90", 90.0),
        ("90s", 90.0),
        ("1m30s", 90.0),
        ("250ms", 0.25),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("7d", 604800.0),
        (0, 0.0),
    ],
)
def test_a_duration_is_seconds_or_numbers_with_units(written: str | float, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize("written", ["", "s", "5 m", "5M", "-5s", "1e3", "5m ", "٥s", -1, 1e12])
def test_other_durations_are_refused(written: str | float) -> None:
    with pytest.raises(ValueError, match="a duration must"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (1, 1),
        ("1", 1),
        ("4Gi", 4 * 1024**3),
        ("4G", 4 * 1000**3),
        ("0.5Ki", 512),
        ("1k", 1000),
        ("7Ei", 7 * 1024**6),
    ],
)
def test_a_size_has_the_suffixes_of_kubernetes(written: str | int, size: int) -> None:
    assert parse_bytes(written) == size


@pytest.mark.parametrize("written", ["4GB", "4gi", "4 Gi", "", "-1", "0", "1e9", "9Ei", "100m", 0])
def test_other_sizes_are_refused(written: str | int) -> None:
    with pytest.raises(ValueError, match="a size must"):
        parse_bytes(written)


def test_cpu_counts_cores_or_thousandths() -> None:
    assert [parse_cpu(it) for it in (2, 0.5, "1.5", "500m")] == [2.0, 0.5, 1.5, 0.5]
    for wrong in ("", "0", "2 cores", -1, "1u", 1e9):
        with pytest.raises(ValueError, match="cpu must"):
            parse_cpu(wrong)


def test_indexes_are_rising_ranges() -> None:
    assert parse_indexes("0-2,5") == (range(3), range(5, 6))
    for wrong in ("", "2-1", "1,1", "0-5,3", "a", "1,", "-1", "3,1"):
        with pytest.raises(ValueError, match="indexes must"):
            parse_indexes(wrong)
