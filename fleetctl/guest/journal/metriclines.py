"""What a command appends to $FLEETCTL_METRICS: one `{"step": 3, "loss": 0.5}` a line.

Called by whoever keeps the run, and by the host for a guest that hands lines on as they are. What
cannot be recorded is left out and said.
"""

from __future__ import annotations

from fleetctl.guest.task.text import parse_as_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

LINE_BYTES_MAX = 64 * 1024
SAID_MAX = 3  # lines of one run that are told of, each once; of those that keep numbers one
SHOWN_CHARACTERS_MAX = 60
STEP_CHARACTERS_MAX = 20
EXAMPLE = '{"step": 3, "loss": 0.5}'


class MetricLines:
    """The file as far as it has been read. Told of while the run goes on, and at its end."""

    def __init__(self) -> None:
        self.offset = 0
        self.lines = 0
        self.wrong = self.mixed = 0
        self.first_problem = ""
        self._step = -1

    def take(
        self, data: bytes, *, last: bool = False
    ) -> tuple[list[tuple[int, dict[str, float]]], list[str]]:
        """(step and values of each whole line in `data`, what to say of others). last: what has no
        end is a line, too.
        """
        whole = len(data) if last else data.rfind(b"\n") + 1
        if not whole and len(data) > LINE_BYTES_MAX:
            whole = len(data)  # no line at all: skipped, so that it is not read again
        self.offset += whole
        found, problems = [], []
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
                if (self.mixed == 1) if values else (self.wrong <= SAID_MAX):
                    problems.append(problem)
        return found, problems

    @property
    def remark(self) -> str:
        """What was wrong with the file, in one sentence; "" when all was well."""
        return remark(self.wrong + self.mixed, self.first_problem)


def remark(wrong: int, first_problem: str) -> str:
    more = f" ({wrong} lines in all)" if wrong > 1 else ""
    return first_problem + more


def read_line(line: bytes, number: int, after: int) -> tuple[int, dict[str, float], str]:
    """(step, values, what is wrong or ""). number: how many lines came before; after: the step of a
    line that names none, which is its place in the file, and at least one further than the last.
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
        return after, {}, f"{where} is not recorded: it is `{shown(line)}`, and not {EXAMPLE}"
    step = whole_step(values.pop("step", after))
    if step is None:
        return after, {}, f"{where} is not recorded: its step must be a whole number ({EXAMPLE})"
    kept = {name: float(it) for name, it in values.items() if _is_number(it)}
    left_out = [name for name in values if name not in kept]
    if left_out:
        value = shown(str(values[left_out[0]]).encode())
        what = f"`{left_out[0]}` at step {step} is `{value}` and is not recorded"
        return step, kept, f"{where}: {what}; a metric is a number"
    return step, kept, "" if kept else f"{where} is not recorded: it names no metric ({EXAMPLE})"


def shown(data: bytes) -> str:
    """The beginning of a text for people, in one line."""
    text = data[: 4 * SHOWN_CHARACTERS_MAX].decode("utf-8", "replace").strip()
    text = "".join(one if one.isprintable() else " " for one in text)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"


def whole_step(value: Any) -> Optional[int]:
    """`4`, `4.0` and `"4"` are steps, as far as a store holds whole numbers."""
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


def _is_number(value: Any) -> bool:
    """NaN and infinities too: that a loss has left the numbers is what its user has to see."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True
