"""A run's output as lines with a prefix, escaped for a terminal, raw for a program; and the choice
of the runs whose output is printed.
"""

from __future__ import annotations

import re
from argparse import Namespace
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fleetctl.cli.command.flags import TaskIndexes
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.text import escape_line, format_duration, format_timestamp
from fleetctl.guest.metrics.cpulimit import CpuLimit, TookTooLong
from fleetctl.views.objects import View, parse_document
from fleetctl.views.run_files import log_exists, past_s, read_bytes, read_times
from fleetctl.views.store_reading import StoreReading
from fleetctl.views.tasks import ENDED_BADLY, Task, build_attempt

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import RunRow


# A line without end is cut into pieces of this size, on a terminal and for a program, so that it
# needs no memory.
LINE_BYTES_MAX = 64 * 1024
# Colours, and the codes of progress bars that draw over earlier text. All else is shown as an
# escape.
_DECORATION = re.compile(r"\x1b\[[0-9;]*[mKA]")


class TimestampOptions(NamedTuple):
    """timestamps: every line begins with its time. since_s: lines before it are left out."""

    timestamps: bool = False
    since_s: float | None = None

    @property
    def any(self) -> bool:
        return self.timestamps or self.since_s is not None


UNDATED = TimestampOptions()


class OutputStream(Protocol):
    def __call__(self, node: int, *, alone: bool) -> LogStream: ...


class NodeStreams:
    """A run's output: that of all its nodes, as they begin, or that of node `only`.

    stream: makes that of a node; alone: there is no other.
    """

    def __init__(self, stream: OutputStream, *, only: int | None = None) -> None:
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
        """Returns true where the requested node has begun; the first one, without a request."""
        return self._open[0].exists

    @property
    def past_s(self) -> float | None:
        """Returns when retention removed the log; None where it did not."""
        return self._open[0].past_s

    def drain(self) -> None:
        """Prints all whole lines that are there now."""
        if self._only is None:
            self._find_more()
        for stream in self._open:
            stream.drain()

    def show_unfinished(self, *, alone: bool) -> None:
        """Prints unfinished lines of each node; alone: no other run prints."""
        for stream in self._open:
            stream.show_unfinished(alone=alone and len(self._open) == 1)

    def waits(self, screen: Screen) -> bool:
        """Returns true where another stream's line must end before this may print."""
        return screen.part_of is not None and all(
            screen.part_of is not stream and not stream.prefixed for stream in self._open
        )

    def finish(self) -> None:
        """Prints the rest of last lines that have no end."""
        for stream in self._open:
            stream.finish()

    def _find_more(self) -> None:
        while (more := self._stream(len(self._open), alone=False)).exists:
            if len(self._open) == 1:
                self._open[0].one_of_several()
            self._open.append(more)


class LogStream:
    """A log and its printed length. label: the task, and its object where there are several; node:
    its name, where there are several; service: the service that wrote it, instead of the work;
    grep: the pattern of lines to print.
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
        dating: TimestampOptions = UNDATED,
        label: str = "",
        node: int | None = None,
        service: str = "",
        grep: re.Pattern[str] | None = None,
    ) -> None:
        self._grep = grep
        self._label = label
        self._node = node
        self.prefixed = prefixed
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
        self._partial = b""  # the part of the present line that is not printed
        self._told = 0  # bytes of the present line that a program has received
        self._drawn = ""  # that line, as it stands on the terminal
        self._skipping: deque[tuple[str, bytes]] | None = (
            None if tail is None else deque(maxlen=tail)
        )

    @property
    def name(self) -> str:
        node = "" if self._node is None else f" n{self._node}"
        service = f" {escape_line(self._service)}" if self._service else ""
        return f"[{self._label or self._run.index}/{self._run.attempt}{node}{service}]"

    @property
    def exists(self) -> bool:
        """Returns true where its node has begun."""
        return log_exists(self._place, self._uid, self._run, node=self._node or 0)

    @property
    def past_s(self) -> float | None:
        return past_s(self._place, self._uid, self._run)

    def one_of_several(self) -> None:
        """Makes its lines name their node from now on."""
        self._node = self._node or 0

    def drain(self) -> None:
        """Prints all whole lines that are there now; with `tail`, at first only the last ones."""
        log = (self._place, self._uid, self._run)
        which = self._node or 0
        for data, offset in read_bytes(*log, self._offset, node=which, service=self._service):
            self._offset = offset
            self.empty = False
            if self._dating.any:
                self._times = read_times(*log, node=which, service=self._service)
            self._line_at = offset - len(data) - len(self._partial) - self._told
            self._take(data)
        if self._skipping is not None:
            kept = self._skipping
            self._skipping = None
            if self._partial and kept and len(kept) == kept.maxlen:
                kept.popleft()  # the line without an end is one of the last lines too
            for line in kept:
                print_line(self._screen, *line)

    def show_unfinished(self, *, alone: bool) -> None:
        """Prints the present part of a line without an end: bars and dots show as they grow. alone:
        no other stream prints, whose lines would break one that has no prefix.
        """
        prefix = self._prefix() if self._partial and self._grep is None else None
        if prefix is None or not (alone or self.prefixed or self._screen.out_is_terminal):
            return
        if self._screen.out_is_terminal:
            self._draw(prefix)
        else:
            self._send_letters(prefix)

    def finish(self) -> None:
        """Prints the rest of a last line that has no end."""
        if self._partial or self._told:
            self._line(self._partial)
            self._partial = b""

    def _take(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            told = self._told
            self._line(line)
            self._line_at += told + len(line) + 1
        if len(self._partial) <= LINE_BYTES_MAX or self._grep is not None:
            return
        if self._screen.out_is_terminal:
            self._cut()
        elif self._skipping is None and (prefix := self._prefix()) is not None:
            self._send_letters(prefix)

    def _cut(self) -> None:
        while len(self._partial) > LINE_BYTES_MAX:
            if b"\r" in self._partial:
                # A bar that was redrawn many times: only its last state is visible.
                self._partial = self._partial[self._partial.rindex(b"\r") :]
                if len(self._partial) <= LINE_BYTES_MAX:
                    return
            size = count_complete_letters(self._partial[:LINE_BYTES_MAX])
            self._line(self._partial[:size])
            self._line_at += size
            self._partial = self._partial[size:]

    def _line(self, line: bytes) -> None:
        """Prints a line. line: the part that is not printed yet."""
        told = self._told
        self._told = 0
        self._drawn = ""
        prefix = self._prefix()
        if prefix is None or (self._grep is not None and not has_match(self._grep, line)):
            return
        if self._skipping is not None:
            self._skipping.append((prefix, line))
        elif told:
            self._screen.part(self, line + b"\n", prefix=prefix.encode(), ends=True)
        else:
            print_line(self._screen, prefix, line)

    def _prefix(self) -> str | None:
        """Returns the text before the line that is read now; None for a line that is left out."""
        prefix = f"{self.name} " if self.prefixed else ""
        if not self._dating.any:
            return prefix
        at_s = self._times[bisect_right(self._times, (self._line_at, float("inf"))) - 1][1]
        if self._dating.since_s is not None and at_s < self._dating.since_s:
            return None
        if self._dating.timestamps:
            return f"{prefix}{format_timestamp(at_s)} "
        return prefix

    def _send_letters(self, prefix: str) -> None:
        """Sends a program the bytes that there are, up to the last whole letter."""
        size = count_complete_letters(self._partial)
        if size:
            self._screen.part(self, self._partial[:size], prefix=prefix.encode())
            self._told += size
            self._partial = self._partial[size:]

    def _draw(self, prefix: str) -> None:
        """Draws the newest state, as wide as the terminal."""
        whole = self._partial[: count_complete_letters(self._partial)]
        text = prefix + escape_line(_resolve_redraws(_decode_text(whole)).expandtabs(8))
        if text != self._drawn or not self._screen.draws_output:
            self._drawn = text
            width = get_terminal_size().columns - 1
            head = text[: len(prefix)]
            tail = text[len(prefix) :]
            room = max(1, width - len(head) - 1)
            shown = text if len(text) <= width else f"{head}…{tail[-room:]}"
            self._screen.redraw_output(shown)


def print_line(
    screen: Screen,
    prefix: str,
    line: bytes,
) -> None:
    """Prints one line of output, without its end: as a terminal would finally show it, escaped; raw
    for a program.
    """
    if screen.out_is_terminal:
        text = _decode_text(line)
        screen.data(f"{prefix}{escape_line(_resolve_redraws(text).expandtabs(8))}")
    else:
        screen.raw(prefix.encode() + line + b"\n")


def has_match(pattern: re.Pattern[str], line: bytes) -> bool:
    """Returns whether a user's expression is in a line. Raises UsageError where it tries too long:
    an expression such as `(a+)+$` would try for ever.
    """
    text = _decode_text(line)
    limit = CpuLimit()
    try:
        with limit:
            return limit.call(lambda: pattern.search(text) is not None)
    except TookTooLong:
        raise UsageError(
            f"--grep `{pattern.pattern}` takes too long for a line of {len(text):,} characters",
            hint="it tries one part of a line in many ways: write `(a+)+` as `a+`",
        ) from None


def count_complete_letters(data: bytes) -> int:
    """Returns how many of the bytes come before a last letter of UTF-8 that is not whole."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            size = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            if size > back:
                return len(data) - back
            return len(data)
    return len(data)


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _resolve_redraws(text: str) -> str:
    """Returns the final state of a text that was drawn over: the last state of a progress bar."""
    if "\x1b" in text:
        text = _DECORATION.sub("", text)
    states = text.split("\r")
    return next((state for state in reversed(states) if state), "")


class LogSelection(NamedTuple):
    """The flags of `fleetctl logs`."""

    indexes: TaskIndexes | None
    failed: bool
    attempt: int | None
    tail: int | None
    prefixed: bool
    previous: bool = False
    dating: TimestampOptions = TimestampOptions()
    several: bool = False  # lines name their task
    stage: str = ""
    node: int | None = None  # None = all existing ones
    service: str = ""  # whose output is printed, instead of the work's
    grep: re.Pattern[str] | None = None  # lines must contain this

    @property
    def single(self) -> int | None:
        """Returns the one requested index, which saves reading the others."""
        ranges = self.indexes.ranges if self.indexes is not None else ()
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            return ranges[0][0]
        return None

    def tasks(
        self,
        seen: View,
        reading: StoreReading,
        *,
        every: bool = False,
    ) -> Iterator[Task]:
        """Yields by index the newest attempt of each task, or with `every` all attempts."""
        found: Iterator[Task]
        if self.previous:
            newest = reading.tasks(seen, index=self.single)
            found = (build_attempt(task.older[-1]) for task in newest if task.older)
        elif self.attempt is None and not every:
            found = reading.tasks(seen, index=self.single)
        else:
            found = reading.attempts(seen, index=self.single)
        return (task for task in found if self._wants(task))

    def _wants(self, task: Task) -> bool:
        if self.attempt is not None and task.run.attempt != self.attempt:
            return False
        if self.indexes is not None and task.run.index not in self.indexes:
            return False
        if self.stage and parse_document(task.run.params).get("stage") != self.stage:
            return False
        since_s = self.dating.since_s
        ended_at_s = task.run.ended_at_s
        if since_s is not None and ended_at_s is not None and ended_at_s < since_s:
            return False
        return not self.failed or task.run.state in ENDED_BADLY

    def stream(
        self,
        state_dir: Path,
        seen: View,
        task: Task,
        screen: Screen,
        *,
        uid: str = "",
    ) -> NodeStreams:
        """Returns the stream of a task. uid: of another object, if the run is that object's."""
        label = f"{escape_line(seen.key)} " if self.several else ""
        label += f"{seen.name_unit(task.run).split(' ')[1]}"

        def stream(node: int, *, alone: bool) -> LogStream:
            return LogStream(
                state_dir,
                uid or seen.resource.uid,
                task.run,
                screen,
                tail=self.tail,
                prefixed=self.prefixed,
                dating=self.dating,
                label=escape_line(label),
                node=None if alone else node,
                service=self.service,
                grep=self.grep,
            )

        return NodeStreams(stream, only=self.node)


def pick_of(
    args: Namespace,
    now_s: float,
    *,
    several: bool,
) -> LogSelection:
    since_s = None if args.since is None else args.since(now_s)
    return LogSelection(
        args.index,
        args.failed,
        args.attempt,
        args.tail,
        not args.no_prefix,
        args.previous,
        TimestampOptions(args.timestamps, since_s),
        several,
        args.stage or "",
        args.node,
        args.service or "",
        args.grep,
    )


def describe_ending(task: Task) -> str:
    """`succeeded after 3m02s`, `failed after 41s: OOMKilled`."""
    run = task.run
    spent = ""
    if run.started_at_s is not None and run.ended_at_s is not None:
        spent = f" after {format_duration(run.ended_at_s - run.started_at_s)}"
    reason = f": {run.reason}" if run.reason not in ("", "Completed") else ""
    return f"{run.state.lower()}{spent}{escape_line(reason)}"
