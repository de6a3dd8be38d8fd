"""The output of one run as lines with a prefix: escaped for a terminal, raw for a program."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fleetctl.cli.output.render import Screen
from fleetctl.common.text import safe, timestamp
from fleetctl.views.logs import log_exists, past_s, read_bytes, read_times

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import RunRow

# A line without end is cut into pieces of this size, so that it needs no memory.
LINE_BYTES_MAX = 64 * 1024
# Colours, and what progress bars send to draw over what they drew. All else is shown as an escape.
_DECORATION = re.compile(r"\x1b\[[0-9;]*[mKA]")


class Dating(NamedTuple):
    """timestamps: every line begins with its time. since_s: lines before it are left out."""

    timestamps: bool = False
    since_s: float | None = None

    @property
    def any(self) -> bool:
        return self.timestamps or self.since_s is not None


UNDATED = Dating()


class Stream(Protocol):
    def __call__(self, node: int, *, alone: bool) -> LogStream: ...


class NodeStreams:
    """The output of one run: of each of its nodes, as they come to be, or of `only` one.

    stream: makes that of a node; alone: there is no other.
    """

    def __init__(self, stream: Stream, *, only: int | None = None) -> None:
        self._stream = stream
        self._only = only
        first = stream(only or 0, alone=not only)
        self.name = stream(0, alone=True).name
        self._open = [first]

    @property
    def empty(self) -> bool:
        return all(it.empty for it in self._open)

    @property
    def begun(self) -> bool:
        """Whether the node that alone was asked for has begun; the first one, where none was."""
        return self._open[0].exists

    @property
    def past_s(self) -> float | None:
        """When retention took the log; None where it did not."""
        return self._open[0].past_s

    def drain(self) -> None:
        """Print all whole lines that are there now."""
        if self._only is None:
            self._find_more()
        for stream in self._open:
            stream.drain()

    def finish(self) -> None:
        """Print what is left of last lines that have no end."""
        for stream in self._open:
            stream.finish()

    def _find_more(self) -> None:
        while (more := self._stream(len(self._open), alone=False)).exists:
            if len(self._open) == 1:
                self._open[0].one_of_several()
            self._open.append(more)


class LogStream:
    """Remembers how far the log is printed. label: the task, and its object where there are
    several; node: which, where there are several; service: whose output, in place of the work's.
    """

    def __init__(
        self,
        state_dir: Path,
        uid: str,
        run: RunRow,
        screen: Screen,
        *,
        tail: int | None = None,
        prefixed: bool = True,
        dating: Dating = UNDATED,
        label: str = "",
        node: int | None = None,
        service: str = "",
    ) -> None:
        self._label, self._node, self._prefixed = label, node, prefixed
        self._service = service
        self.empty = True
        self._place = state_dir
        self._uid = uid
        self._run = run
        self._screen = screen
        self._dating = dating
        self._times: list[tuple[int, float]] = []
        self._offset = 0
        self._line_at = 0  # where the line that is read now begins
        self._partial = b""
        self._skipping: deque[tuple[str, bytes]] | None = (
            None if tail is None else deque(maxlen=tail)
        )

    @property
    def name(self) -> str:
        node = "" if self._node is None else f" n{self._node}"
        service = f" {safe(self._service)}" if self._service else ""
        return f"[{self._label or self._run.index}/{self._run.attempt}{node}{service}]"

    @property
    def exists(self) -> bool:
        """Whether its node has begun."""
        return log_exists(self._place, self._uid, self._run, node=self._node or 0)

    @property
    def past_s(self) -> float | None:
        return past_s(self._place, self._uid, self._run)

    def one_of_several(self) -> None:
        """From now on its lines say which node they are of."""
        self._node = self._node or 0

    def drain(self) -> None:
        """Print all whole lines that are there now; with `tail`, at first only the last ones."""
        log, which = (self._place, self._uid, self._run), self._node or 0
        for data, offset in read_bytes(*log, self._offset, node=which, service=self._service):
            self._offset, self.empty = offset, False
            if self._dating.any:
                self._times = read_times(*log, node=which, service=self._service)
            self._line_at = offset - len(data) - len(self._partial)
            self._take(data)
        if self._skipping is not None:
            kept, self._skipping = self._skipping, None
            if self._partial and kept and len(kept) == kept.maxlen:
                kept.popleft()  # the line without an end is one of the last lines too
            for line in kept:
                print_line(self._screen, *line)

    def finish(self) -> None:
        """Print what is left of a last line that has no end."""
        if self._partial:
            self._line(self._partial)
            self._partial = b""

    def _take(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._line(line)
            self._line_at += len(line) + 1
        while len(self._partial) > LINE_BYTES_MAX:
            if self._screen.out_is_terminal and b"\r" in self._partial:
                # A bar that was drawn over and over: its last state is all that one would see.
                self._partial = self._partial[self._partial.rindex(b"\r") :]
                continue
            self._line(self._partial[:LINE_BYTES_MAX])
            self._line_at += LINE_BYTES_MAX
            self._partial = self._partial[LINE_BYTES_MAX:]

    def _line(self, line: bytes) -> None:
        prefix = f"{self.name} " if self._prefixed else ""
        if self._dating.any:
            at_s = self._times[bisect_right(self._times, (self._line_at, float("inf"))) - 1][1]
            if self._dating.since_s is not None and at_s < self._dating.since_s:
                return
            if self._dating.timestamps:
                prefix += f"{timestamp(at_s)} "
        if self._skipping is not None:
            self._skipping.append((prefix, line))
        else:
            print_line(self._screen, prefix, line)


def print_line(screen: Screen, prefix: str, line: bytes) -> None:
    """One line of output, without its end: as a terminal would have it in the end, escaped; raw for
    a program.
    """
    if screen.out_is_terminal:
        text = line.decode("utf-8", "replace")
        screen.data(f"{prefix}{safe(_drawn(text).expandtabs(8))}")
    else:
        screen.raw(prefix.encode() + line + b"\n")


def _drawn(text: str) -> str:
    """What stands there after all that was drawn over: the last state of a progress bar."""
    if "\x1b" in text:
        text = _DECORATION.sub("", text)
    states = text.split("\r")
    return next((state for state in reversed(states) if state), "")
