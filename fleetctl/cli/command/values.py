"""The small languages inside flags: times, indexes, counts, money, namespaces, formats."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime

from fleetctl.common.text import did_you_mean
from fleetctl.specs.values.quantities import INDEX_MAX

DAY_S = 86400.0
_DAYS_AGO = {"today": 0, "yesterday": 1}
_DATE = re.compile(r"\d{4}-\d")  # a duration has no dash
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


# A year: longer is a slip of the pen, and larger numbers overflow select().
DURATION_S_MAX = 366 * 86400.0


_SUCH_AS = {
    "jsonpath": "such as jsonpath={.metadata.name}",
    "custom-columns": "such as custom-columns=NAME:.metadata.name",
}


def duration_s(text: str) -> float:
    """`45s 5m 2h 7d`, combinations such as `1h30m`, or plain seconds. Raises ArgumentTypeError."""
    total = 0.0
    number = ""
    last_unit = DURATION_S_MAX
    for char in text:
        if char.isascii() and (char.isdigit() or char == "."):
            number += char
            continue
        unit = _UNITS_S.get(char)
        if unit is None or not _is_number(number) or unit >= last_unit:
            raise _bad_duration(text)
        total = total + float(number) * unit
        number = ""
        last_unit = unit
    if number:
        if total or not _is_number(number):
            raise _bad_duration(text)
        total = float(number)
    elif last_unit == DURATION_S_MAX:
        raise _bad_duration(text)
    if total > DURATION_S_MAX:
        raise argparse.ArgumentTypeError(f"`{text}` is longer than a year")
    return total


def parse_moment(text: str) -> Callable[[float], float]:
    """Reads a `--since`: a time ago, as for `duration_s`, or a day or a time, in UTC where it names
    no zone. Returns a function from `now` to that moment, in seconds since the epoch. Raises
    ArgumentTypeError.
    """
    if text in _DAYS_AGO:
        return lambda now_s: now_s // DAY_S * DAY_S - _DAYS_AGO[text] * DAY_S
    if not _DATE.match(text):
        ago_s = duration_s(text)
        return lambda now_s: now_s - ago_s
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a time ({error}); write it as 2026-11-01, 2026-11-01T18:30 or 2h"
        ) from None
    at_s = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    return lambda _: at_s


def _is_number(text: str) -> bool:
    return text.count(".") <= 1 and any(c.isdigit() for c in text)


def _bad_duration(text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(
        f"`{text}` is not a time; write it as 45s, 5m, 2h, 7d or a number of seconds"
    )


def parse_pattern(text: str) -> re.Pattern[str]:
    """Reads a regular expression. Raises ArgumentTypeError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"`{text}` is not a regular expression: {error}") from None


class TaskIndexes:
    """A set of task indexes as ranges, so that `0-99999` takes no memory."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: tuple[tuple[int, int], ...]) -> None:
        self.ranges = ranges

    def __contains__(self, index: int) -> bool:
        return any(low <= index <= high for low, high in self.ranges)


def parse_indexes(text: str) -> TaskIndexes:
    """Reads `3,7-9`. Raises ArgumentTypeError."""
    ranges = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not _is_index(low) or (dash and not _is_index(high)):
            raise argparse.ArgumentTypeError(
                f"`{text}` is not a list of indexes; write it as 3,7-9"
                + (f", or `--stage {text}`" if text[:1].isalpha() and text.isascii() else "")
            )
        first = int(low)
        last = int(high if dash else low)
        if last < first:
            raise argparse.ArgumentTypeError(
                f"`{part.strip()}` runs backwards; write {last}-{first}"
            )
        ranges.append((first, last))
    return TaskIndexes(tuple(ranges))


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= INDEX_MAX


def parse_count(text: str) -> int:
    """Reads a whole number from 0. Raises ArgumentTypeError."""
    if not _is_index(text):
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from 0")
    return int(text)


def parse_money(text: str) -> float:
    """Reads `25`, `25.50` or `25USD`, in USD. Raises ArgumentTypeError."""
    number = text.removesuffix("USD").removeprefix("$").strip()
    whole, _, part = number.partition(".")
    if not (whole + part).isdigit() or not (whole + part).isascii() or len(number) > 12:
        raise argparse.ArgumentTypeError(f"`{text}` is not an amount; write it as 25 or 25USD")
    return float(number)


def parse_namespace(text: str) -> str:
    """Reads the name of a namespace. Raises ArgumentTypeError."""
    if not is_namespace(text):
        raise argparse.ArgumentTypeError(
            f"`{text}` cannot name a namespace; write at most 63 lower case letters, digits and `-`"
        )
    return text


def is_namespace(text: str) -> bool:
    plain = all(char.islower() or char.isdigit() or char == "-" for char in text)
    return 0 < len(text) <= 63 and text.isascii() and plain and text.strip("-") == text


def one_of(*words: str) -> Callable[[str], str]:
    """Returns an argparse type that takes one of `words` and names the nearest in its error."""

    def check(text: str) -> str:
        if text in words:
            return text
        near = did_you_mean(text, words)
        raise argparse.ArgumentTypeError(
            f"`{text}` is not one of {', '.join(words)}" + (f"; {near}" if near else "")
        )

    return check


def parse_rollout(text: str) -> str:
    """Reads a rollout, also as peers write it: `finish-running`. Raises ArgumentTypeError."""
    known = {"replace": "Replace", "finishrunning": "FinishRunning"}
    return known.get(text.lower().replace("-", "")) or one_of(*known.values())(text)


def _make_format_parser(*formats: str) -> Callable[[str], str]:
    whole = one_of(*formats)

    def check(text: str) -> str:
        word, equals, rest = text.partition("=")
        if equals and f"{word}=" in formats and rest:
            return text
        if f"{word}=" in formats:
            raise argparse.ArgumentTypeError(f"`{word}=` needs what to write; {_SUCH_AS[word]}")
        return whole(text)

    return check
