"""The output of one run as lines with a prefix: escaped for a terminal, raw for a program."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.logsource import read_bytes
from fleetctl.cli.render import Screen
from fleetctl.cli.text import safe

if TYPE_CHECKING:
    from fleetctl.stores.reader import RunRow

# A line without end is cut into pieces of this size, so that it needs no memory.
LINE_BYTES_MAX = 64 * 1024


class LogStream:
    """Remembers how far the log is printed."""

    def __init__(
        self,
        place: Path,
        uid: str,
        run: RunRow,
        screen: Screen,
        *,
        tail: int | None = None,
        prefixed: bool = True,
    ) -> None:
        self.name = f"[{run.index}/{run.attempt}]"
        self.empty = True
        self._place = place
        self._uid = uid
        self._run = run
        self._screen = screen
        self._prefix = f"{self.name} " if prefixed else ""
        self._offset = 0
        self._partial = b""
        self._skipping: deque[bytes] | None = None if tail is None else deque(maxlen=tail)

    def drain(self) -> None:
        """Print all whole lines that are there now; with `tail`, at first only the last ones."""
        pieces = read_bytes(self._place, self._uid, self._run, self._offset)
        for data, offset in pieces:
            self._offset, self.empty = offset, False
            self._take(data)
        if self._skipping is not None:
            kept, self._skipping = self._skipping, None
            if self._partial and kept and len(kept) == kept.maxlen:
                kept.popleft()  # the line without an end is one of the last lines too
            for line in kept:
                print_line(self._screen, self._prefix, line)

    def finish(self) -> None:
        """Print what is left of a last line that has no end."""
        if self._partial:
            self._line(self._partial)
            self._partial = b""

    def _take(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._line(line)
        while len(self._partial) > LINE_BYTES_MAX:
            self._line(self._partial[:LINE_BYTES_MAX])
            self._partial = self._partial[LINE_BYTES_MAX:]

    def _line(self, line: bytes) -> None:
        if self._skipping is not None:
            self._skipping.append(line)
        else:
            print_line(self._screen, self._prefix, line)


def print_line(screen: Screen, prefix: str, line: bytes) -> None:
    """One line of output, without its end: escaped for a terminal, raw for a program."""
    if screen.out_is_terminal:
        text = line.decode("utf-8", "replace").rstrip("\r").expandtabs(8)
        screen.data(f"{prefix}{safe(text)}")
    else:
        screen.raw(prefix.encode() + line + b"\n")
