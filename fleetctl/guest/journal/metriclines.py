"""Reads the lines that a command appends to $FLEETCTL_METRICS: one `{"step": 3, "loss": 0.5}` each.

Called by the run's supervisor, and by the host for a guest that passes lines on unread. A value
that cannot be recorded is left out and reported.
"""

from __future__ import annotations

from fleetctl.guest.task.flattening import flat_metrics
from fleetctl.guest.task.text import parse_as_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

LINE_BYTES_MAX = 64 * 1024
# Wrong lines of a run that are reported; beside them the first line with valid and wrong numbers.
REPORTED_MAX = 3
SHOWN_CHARACTERS_MAX = 60
STEP_CHARACTERS_MAX = 20
EXAMPLE = '{"step": 3, "loss": 0.5}'


class MetricLines:
    """A reader of $FLEETCTL_METRICS, as far as the file has been read. Problems are reported during
    the run and at its end.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.lines = 0
        self.wrong = self.mixed = 0
        self.first_problem = ""
        self._step = -1

    def take(
        self, data: bytes, *, last: bool = False
    ) -> tuple[list[tuple[int, dict[str, float]]], list[str]]:
        """Returns (step and values of each whole line in `data`, problems of other lines). last:
        a line without an end counts, too.
        """
        whole = len(data) if last else data.rfind(b"\n") + 1
        if not whole and len(data) > LINE_BYTES_MAX:
            whole = len(data)  # no line at all: skipped, so that it is not read again
        self.offset += whole
        found = []
        problems = []
        for line in data[:whole].removesuffix(b"\n").split(b"\n") if whole else ():
            after = max(self.lines, self._step + 1)
            step, values, problem = read_line(line, self.lines, after)
            self.lines += 1
            if values:
                self._step = step
                found.append((step, values))
            if problem:
                self.first_problem = self.first_problem or problem
                self.mixed += bool(values)
                self.wrong += not values
                if (self.mixed == 1) if values else (self.wrong <= REPORTED_MAX):
                    problems.append(problem)
        return found, problems

    @property
    def remark(self) -> str:
        """Returns the file's problems, in one sentence; "" when all lines were valid."""
        return format_problems(self.wrong + self.mixed, self.first_problem)


def format_problems(wrong: int, first_problem: str) -> str:
    """Returns the first problem of a file, and how many lines have one where several do."""
    more = f" ({wrong} lines in all)" if wrong > 1 else ""
    return first_problem + more


def read_line(
    line: bytes,
    number: int,
    after: int,
) -> tuple[int, dict[str, float], str]:
    """Returns (step, values, problem or ""). number: how many lines came before; after: the step of
    a line that names none: its position in the file, or the last step + 1.
    """
    where = f"line {number + 1} of $FLEETCTL_METRICS"
    if not line.strip():
        return after, {}, ""
    if len(line) > LINE_BYTES_MAX:
        return after, {}, f"{where} is not recorded: it has {len(line)} bytes of {LINE_BYTES_MAX}"
    try:
        values = parse_as_python(line.decode())
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        what = f"{where} is not recorded: it is `{shorten_line(line)}`, and not {EXAMPLE}"
        return after, {}, what
    step = parse_step(values.pop("step", after))
    if step is None:
        return after, {}, f"{where} is not recorded: its step must be a whole number ({EXAMPLE})"
    kept, left_out = flat_metrics(values, _as_number)
    if left_out:
        name, value = left_out[0]
        text = shorten_line(str(value).encode())
        what = f"`{name}` at step {step} is `{text}` and is not recorded"
        return step, kept, f"{where}: {what}; a metric is a number"
    return step, kept, "" if kept else f"{where} is not recorded: it names no metric ({EXAMPLE})"


def shorten_line(data: bytes) -> str:
    """Returns the first SHOWN_CHARACTERS_MAX characters of a text on one line, for messages."""
    text = data[: 4 * SHOWN_CHARACTERS_MAX].decode("utf-8", "replace").strip()
    text = "".join(one if one.isprintable() else " " for one in text)
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return text[:SHOWN_CHARACTERS_MAX] + "…"


def parse_step(value: Any) -> Optional[int]:
    """Converts `4`, `4.0` and `"4"` to a step, within the whole numbers that a store holds."""
    if isinstance(value, str) and len(value) <= STEP_CHARACTERS_MAX:
        try:
            value = int(value) if value.strip("+-").isdigit() else float(value)
        except ValueError:
            return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
        return None
    return value


def _as_number(value: Any) -> Optional[float]:
    """Returns a number as float, NaN and infinities included: the user has to see that a loss is
    not finite. None for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
