"""Metrics in what a program prints, found by a regular expression. Called by followed.py with the
output as it comes; the log has it whole.
"""

from __future__ import annotations

from fleetctl.guest.journal.metriclines import LINE_BYTES_MAX, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Match, Pattern
    from typing import Iterator, Optional

    from fleetctl.guest.metrics.files import Problems, Row

PRINTED = "what it printed"
NAME, VALUE, STEP = "name", "value", "step"


class Printed:
    """`regex` names each number (`loss: (?P<loss>\\S+)`), or finds names as well as numbers: in the
    groups `name` and `value`, or in the first two where none has a name, as Katib has it. The group
    or the name `step` is the step of its line; else the n-th value of a name is step n, from 0.
    """

    def __init__(self, regex: str) -> None:
        self.what = f"any line that matches `{shown(regex.encode())}`"
        self._regex = regex
        self._pattern: Optional[Pattern[str]] = None
        self._rest, self._lines = b"", 0
        self._counts: dict[str, int] = {}
        self._rows: list[Row] = []
        self._wrong: list[str] = []

    def begin(self, problems: Problems) -> None:
        import re

        try:
            self._pattern = re.compile(self._regex)
        except re.error as error:  # an older Python than the one that checked it
            problems.add(PRINTED, f"the Python of the image cannot read the `regex`: {error}")

    def hear(self, data: bytes) -> None:
        """Progress bars end their lines with a carriage return."""
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._read(line)
        if len(self._rest) > LINE_BYTES_MAX:
            self._rest = self._rest[:0]

    def rows(self, problems: Problems, *, whole: bool) -> Iterator[Row]:
        if whole and self._rest:
            self._read(self._rest)
            self._rest = b""
        for text in self._wrong:
            problems.add(PRINTED, text)
        found, self._rows, self._wrong = self._rows, [], []
        yield from found

    def _read(self, line: bytes) -> None:
        self._lines += bool(line)
        if self._pattern is None or not line:
            return
        text = line[:LINE_BYTES_MAX].decode("utf-8", "replace")
        reports = [pair for match in self._pattern.finditer(text) for pair in pairs(match)]
        values: dict[str, float] = {}
        for name, found in reports:
            value = _number(found)
            if value is None:
                self._wrong.append(
                    f"line {self._lines} of {PRINTED}, `{shown(line)}`: `{name}` is"
                    f" `{shown(found.encode())}`, which is not a number, and is not recorded"
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


def pairs(match: Match[str]) -> Iterator[tuple[str, str]]:
    """(name, text of the number) of each value in a match."""
    groups = match.groupdict()
    if not groups:
        name, value = match[1], match[2]
        groups = {NAME: name, VALUE: value}
    if VALUE in groups and NAME in groups:
        name, value = groups[NAME], groups[VALUE]
        if name and value is not None:
            yield name, value
        groups = {STEP: groups[STEP]} if STEP in groups else {}
    for name, found in groups.items():
        if found is not None:
            yield name, found


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None
