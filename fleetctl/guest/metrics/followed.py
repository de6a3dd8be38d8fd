"""Records the metrics that an attempt prints or writes while it runs, as its template's `metrics`
describes them: in files, or in the output by a regular expression.
"""

from __future__ import annotations

from fleetctl.guest.journal.results import LINE_BYTES_MAX, shorten_line
from fleetctl.guest.metrics.cpulimit import CpuLimit, TookTooLong
from fleetctl.guest.metrics.events import EventFiles
from fleetctl.guest.metrics.files import JsonLines, Problems
from fleetctl.guest.metrics.thinning import NAMES_MAX, Sample

TYPE_CHECKING = False

if TYPE_CHECKING:
    from re import Match, Pattern
    from typing import Any, Callable, Iterator, Mapping, Optional, Protocol

    from fleetctl.guest.journal.record import Journal
    from fleetctl.guest.metrics.files import Row

    class Form(Protocol):
        """A format in which programs report metrics. source: where they are read, for messages."""

        source: str

        def begin(self, problems: Problems) -> None: ...
        def rows(self, problems: Problems, *, whole: bool) -> Iterator[Row]: ...


PRINTED = "what it printed"
NAME = "name"
VALUE = "value"
STEP = "step"
# One line; in longer ones a slow expression outruns any clock.
LOOKED_AT_CHARACTERS_MAX = 8192
TICKS_MAX = 10  # of CPU time in one look, so that time limits and ends are still seen
_CUT = (
    f"a line of {PRINTED} has more than {LOOKED_AT_CHARACTERS_MAX:,} characters; the first of them"
    " are looked at for metrics"
)
GIVEN_UP_MAX = 20  # lines on which an expression takes too long, before matching stops


class Followed:
    def __init__(
        self,
        asked: Mapping[str, Any],
        start: str,
        say: Callable[[str], None],
    ) -> None:
        """asked: the `metrics` block: `from`, with its `regex` or `path`, and `metric`, whose every
        value is recorded. start: the directory that the program begins in. say: writes a line to
        the run's log.
        """
        self._printed: Optional[Printed] = None
        self._form = self._form_of(asked, start)
        self._problems = Problems()
        self._sample = Sample(asked["metric"])
        self._say = say
        self._any = False

    def begin(self) -> None:
        """Begins; called where the run is followed, before its program starts."""
        self._form.begin(self._problems)

    def hear(self, data: bytes) -> None:
        """Searches a piece of the program's output for metrics."""
        if self._printed is not None:
            self._printed.hear(data)

    def take(self, journal: Journal, *, whole: bool = False) -> bool:
        """Records the metrics that are new since the last look; returns whether there were any.
        whole: the run has ended, so a last line without an end counts too.
        """
        any_new = False
        for step, at_s, values in self._form.rows(self._problems, whole=whole):
            self._any = True
            picked = self._sample.pick(step, at_s, values)
            any_new = journal.metric(step or 0, picked, at_s) or any_new
        for step, at_s, values in self._sample.rest() if whole else ():
            any_new = journal.metric(step or 0, values, at_s) or any_new
        for text in self._problems.take_new():
            self._say(text)
            any_new = journal.remark(text) or any_new
        for text in self._problems.totals() if whole else ():
            self._say(text)
        return any_new

    def conclude(
        self,
        line: str,
        ended: dict[str, Any],
        journal: Journal,
    ) -> str:
        """Adds remarks on missing or omitted metrics to the journal. Returns its result line,
        `line`, unchanged.
        """
        remarks = []
        if self._sample.at_capacity:
            remarks.append(f"it reported more than {NAMES_MAX} names, or too long ones")
        if ended["ok"] and not self._any:
            remarks.append(f"no metric was found: there was nothing to read in {self._form.source}")
        for text in remarks:
            journal.remark(text)
        return line

    def _form_of(self, asked: Mapping[str, Any], start: str) -> Form:
        if asked["from"] == "stdout":
            self._printed = Printed(asked["regex"])
            return self._printed
        if asked["from"] == "tensorboard":
            return EventFiles(start, asked["path"])
        return JsonLines(start, asked["path"])


class Printed:
    """A reader of a program's output that finds metrics by a `regex`.

    The expression names each number (`loss: (?P<loss>\\S+)`), or matches names as well as numbers,
    in the groups `name` and `value`, or in the first two groups where none has a name, as Katib
    does. A group or a metric with the name `step` is the step of its line; without one, the n-th
    value of a name has step n, from 0.
    """

    def __init__(self, regex: str) -> None:
        self.source = f"any line that matches `{shorten_line(regex.encode())}`"
        self._regex = regex
        self._pattern: Optional[Pattern[str]] = None
        self._rest = b""
        self._lines = 0
        self._counts: dict[str, int] = {}
        self._rows: list[Row] = []
        self._wrong: list[str] = []
        self._limit = CpuLimit()
        self._slow = self._given_up = self._cut = 0
        self._remarks: list[str] = []

    def begin(self, problems: Problems) -> None:
        import re

        try:
            self._pattern = re.compile(self._regex)
        except re.error as error:  # an older Python than the one that checked it
            problems.add(PRINTED, f"the Python of the image cannot read the `regex`: {error}")

    def hear(self, data: bytes) -> None:
        """Reads the lines of a piece of output. A carriage return ends a line too: progress bars
        use it.
        """
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        with self._limit:
            for line in lines:
                self._read_line(line)
        if len(self._rest) > LINE_BYTES_MAX:
            self._rest = self._rest[:0]

    def rows(self, problems: Problems, *, whole: bool) -> Iterator[Row]:
        if whole and self._rest:
            with self._limit:
                self._read_line(self._rest)
            self._rest = b""
        for text in self._wrong:
            problems.add(PRINTED, text)
        if whole and self._given_up > 1:
            self._remarks.append(f"{self._given_up:,} lines of {PRINTED} were not looked at")
        for text in self._remarks:
            problems.add(text, text)
        found = self._rows
        self._rows = []
        self._wrong = []
        self._remarks = []
        yield from found

    def _read_line(self, line: bytes) -> None:
        self._lines += bool(line)
        pattern = self._pattern
        if pattern is None or not line:
            return
        if self._slow >= GIVEN_UP_MAX or self._limit.ticks >= TICKS_MAX:
            self._given_up += 1
            return
        text = line[:LINE_BYTES_MAX].decode("utf-8", "replace")
        if len(text) > LOOKED_AT_CHARACTERS_MAX:
            text = text[:LOOKED_AT_CHARACTERS_MAX]
            self._cut += 1
            if self._cut == 1:
                self._remarks.append(_CUT)
        try:
            reports = self._limit.call(
                lambda: [pair for match in pattern.finditer(text) for pair in match_pairs(match)]
            )
        except (TookTooLong, MemoryError):
            self._give_up(line)
        else:
            self._record(line, reports)

    def _give_up(self, line: bytes) -> None:
        self._slow += 1
        self._given_up += 1
        if self._slow == 1:
            self._remarks.append(
                f"line {self._lines} of {PRINTED}, `{shorten_line(line)}`, is not looked at:"
                " the `regex` of `metrics` takes too long for it, as it tries one part of a line in"
                " many ways"
                " (`(a+)+` is `a+`)"
            )
        if self._slow == GIVEN_UP_MAX:
            self._remarks.append(
                f"the `regex` of `metrics` took too long for {GIVEN_UP_MAX} lines of {PRINTED}; no"
                " more of them are looked at"
            )

    def _record(self, line: bytes, reports: list[tuple[str, str]]) -> None:
        """Records a line. reports: name and text of each number in it."""
        values: dict[str, float] = {}
        for name, found in reports:
            value = _parse_number(found)
            if value is None:
                self._wrong.append(
                    f"line {self._lines} of {PRINTED}, `{shorten_line(line)}`: `{name}` is"
                    f" `{shorten_line(found.encode())}`, which is not a number, and is not recorded"
                )
            else:
                values[name] = value
        step = values.pop(STEP, None)
        if step is not None and step.is_integer() and abs(step) < 1 << 63:
            self._rows.append((int(step), None, values))
            return
        for name, value in values.items():
            count = self._counts[name] = self._counts.get(name, -1) + 1
            self._rows.append((count, None, {name: value}))


def match_pairs(match: Match[str]) -> Iterator[tuple[str, str]]:
    """Yields (name, text of the number) of each value in a match."""
    groups = match.groupdict()
    if not groups:
        name = match[1]
        value = match[2]
        groups = {NAME: name, VALUE: value}
    if VALUE in groups and NAME in groups:
        name = groups[NAME]
        value = groups[VALUE]
        if name and value is not None:
            yield name, value
        groups = {STEP: groups[STEP]} if STEP in groups else {}
    for name, found in groups.items():
        if found is not None:
            yield name, found


def _parse_number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None
