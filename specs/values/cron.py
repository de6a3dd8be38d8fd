"""The moments that a line of cron names, in a time zone. Pure; times are seconds since the epoch.

Library cronsim steps through them as Debian's cron does at changes of the clocks: a line with fixed
hours and minutes fires once on such a day, at the end of a gap where its hour does not exist and at
the first of two equal hours; a line with `*` in hours or minutes goes by the time that passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from functools import lru_cache

from fleetctl.specs.values.hints import WrongValueError

FIELDS = "minute, hour, day of month, month and day of week"
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
COUNTED_MAX = 1000  # limit of missed moments that are counted one by one
# From here one is looked for that fires at all: any day of a year and of a leap year are ahead.
_BEGIN_S = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
# Windows in which the last moment before a given one is looked for, shortest first. A line fires
# so often in the first that matters that going through it is cheap.
_WINDOWS_S = (3600.0, 86_400.0, 32 * 86_400.0, 367 * 86_400.0, 9 * 366 * 86_400.0)


@dataclass(frozen=True, slots=True)
class MissedTimes:
    """Moments of a span: the last one, and how many there are, at most COUNTED_MAX + 1."""

    last_s: float
    count: int


class CronSchedule:
    """A line of cron in a time zone. line: five fields, or a macro. Raises ValueError, perhaps with
    a hint, for an invalid line or zone, or a line that never fires.
    """

    def __init__(self, line: str, zone: str = "") -> None:
        self._line, self._zone = _fields_of(line), zone_of(zone)
        minute, hour, day, _, weekday = self._line.split()
        fields = self._line
        self._line = f"{minute} {hour} {day} * {weekday}"
        try:
            self.next_s(_BEGIN_S)  # the library takes a day that no such month has for a bad one
            self._line = fields
            fires = _day_comes(fields) and self.next_s(_BEGIN_S) is not None
        except ValueError as error:
            raise WrongValueError(str(error), _suggest_fix(line)) from error
        if not fires:
            raise WrongValueError(
                "it never fires: no month has such a day", "correct the day or the month"
            )

    def next_s(self, after_s: float) -> float | None:
        """Returns the first moment later than `after_s`; None if there is no such moment in 50
        years.
        """
        from cronsim import CronSim, CronSimError

        begin = datetime.fromtimestamp(after_s, self._zone)
        try:
            # Begun in the second of two equal hours, it may name a moment of the first.
            found = (moment.timestamp() for moment in CronSim(self._line, begin))
            return next((at_s for at_s in found if at_s > after_s), None)
        except CronSimError as error:
            word = str(error).removeprefix("Bad ").replace("-", " ")
            raise ValueError(f"its {word} cannot be read") from error

    def between(self, after_s: float, until_s: float) -> MissedTimes | None:
        """Returns the moments later than `after_s` and not later than `until_s`; None if there are
        none.
        """
        count = 0
        at_s = self.next_s(after_s)
        last_s = after_s
        while at_s is not None and at_s <= until_s:
            count = count + 1
            last_s = at_s
            if count > COUNTED_MAX:
                return MissedTimes(self._last_s(until_s), count)
            at_s = self.next_s(at_s)
        if count:
            return MissedTimes(last_s, count)
        return None

    def _last_s(self, until_s: float) -> float:
        """The last moment that is not later than `until_s`."""
        for window_s in _WINDOWS_S:
            at_s = self.next_s(until_s - window_s)
            last_s = None
            while at_s is not None and at_s <= until_s:
                at_s, last_s = self.next_s(at_s), at_s
            if last_s is not None:
                return last_s
        raise AssertionError("a line that fired so often fires in nine years")

    def text(self, at_s: float) -> str:
        """Returns `2026-03-29 03:00 CEST`, as the zone writes it."""
        return datetime.fromtimestamp(at_s, self._zone).strftime("%Y-%m-%d %H:%M %Z")


@lru_cache(maxsize=256)
def times_of(line: str, zone: str) -> CronSchedule:
    """Returns a schedule; each line and zone is read once."""
    return CronSchedule(line, zone)


def _fields_of(line: str) -> str:
    text = line.strip()
    if text.startswith("@"):
        known = MACROS.get(text.lower())
        if known is None:
            hint = (
                "write `*/15 * * * *` for every 15 minutes"
                if text.lower().startswith("@every")
                else f"there are {', '.join(MACROS)}"
            )
            raise WrongValueError("cron has no such word", hint)
        return known
    if text.upper().startswith(("TZ=", "CRON_TZ=")):
        zone = text.split()[0].partition("=")[2]
        raise WrongValueError("the zone has a field of its own", f"write `timeZone: {zone}`")
    count = len(text.split())
    if count != 5:
        hint = 'leave the seconds out: `"0 3 * * *"`' if count == 6 else 'such as `"0 3 * * *"`'
        raise WrongValueError(f"it must be five fields ({FIELDS}), not {count}", hint)
    return text


def _day_comes(line: str) -> bool:
    """Returns True if any of the months has one of the days; the line's other fields
    can be read.
    """
    from cronsim import CronSim, CronSimError

    month = line.split()[3]
    try:
        CronSim(line, datetime.fromtimestamp(_BEGIN_S, UTC))
    except CronSimError as error:
        try:
            CronSim(f"0 0 1 {month} *", datetime.fromtimestamp(_BEGIN_S, UTC))
        except CronSimError:
            raise ValueError("its month cannot be read") from error
        return False
    return True


def _suggest_fix(line: str) -> str:
    if "?" in line:
        return "write `*` in place of `?`"
    return f"the fields are {FIELDS}, such as `30 6 * * MON-FRI`"


def zone_of(name: str) -> tzinfo:
    """Returns the zone. Raises ValueError, with a hint, for an unknown name."""
    from zoneinfo import ZoneInfo, available_timezones

    if name in ("", "UTC"):
        return UTC
    try:
        if name.lower() == "local" or name.startswith("/"):
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        near = get_close_matches(name, available_timezones(), n=1)
        hint = f"did you mean `{near[0]}`?" if near else "a name such as `Europe/Berlin`, or `UTC`"
        raise WrongValueError("no time zone has this name", hint) from None
