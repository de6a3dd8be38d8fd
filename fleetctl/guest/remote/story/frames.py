"""Encodes a run's journal and log as frames, from any offset on.

Reads files alone, so that any process may stream at any time, and several at once.
"""

from __future__ import annotations

import binascii
import os

from fleetctl.guest.remote import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

    # Offsets of the journal, the log, of services' logs by name, where missing ones are 0, and of
    # the outputs.
    Offsets = Tuple[int, int, Dict[str, int], int]

LOG_READ_BYTES = 48 * 1024  # of output in one frame
OUTPUTS_READ_BYTES = 192 * 1024  # of what is kept, in one frame
JOURNAL_READ_BYTES = 1024 * 1024
TAIL_BYTES = 16 * 1024  # an `ended` event is shorter
ENDED = b'{"e":"ended"'
EOF = b'{"e":"eof"}\n'
ALIVE_S = 15.0  # a stream that is silent for longer than this is broken
ALIVE = b'{"e":"alive"}\n'


class Story:
    """The stream of a run. over: all frames, or enough, were returned."""

    def __init__(
        self,
        run: str,
        offsets: Offsets,
        log_bytes_max: Optional[int] = None,
    ) -> None:
        """log_bytes_max: how many bytes of logs are enough."""
        journal, log, self._known, self._outputs_at = offsets
        self._run = run
        self._journal, self._log = JournalReader(run, journal), LogReader(run, log)
        self._services: Optional[list[tuple[str, LogReader]]] = None  # once they are known
        self._left = log_bytes_max
        self._last = b""  # from the end record on
        self.over = False

    @property
    def there(self) -> bool:
        """Returns whether the run has a journal."""
        return self._journal.there

    def next_frames(self) -> bytes:
        """Returns the next frames, whole ones; b"" without new ones, or at the end."""
        if self.over:
            return b""
        lines = b""
        if not self._journal.ended:
            lines, self._last = self._journal.read()
        # The journal was read first, so the log holds all output from before its end.
        data, output = self._output()
        if data:
            lines += output
            if self._left is not None:
                self._left -= len(data)
                self.over = self._left <= 0
        elif self._journal.ended:
            lines += self._last + EOF
            self.over = True
        return lines

    def _output(self) -> tuple[bytes, bytes]:
        """Returns the next output and its frame: of the run, or else of a service."""
        data = self._log.read()
        if data:
            return data, _log_frame(b"", self._log.offset - len(data), data)
        for name, log in self._logs_of_services():
            data = log.read()
            if data:
                of = b'"of":"%s",' % name.encode()
                return data, _log_frame(of, log.offset - len(data), data)
        if self._journal.ended:
            return self._read_outputs()
        return (b"", b"")

    def _read_outputs(self) -> tuple[bytes, bytes]:
        """Returns the next piece of the kept outputs and its frame; they are whole by the end of
        the run.
        """
        try:
            handle = os.open(place.outputs(self._run), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b"", b""
        try:
            data = os.pread(handle, OUTPUTS_READ_BYTES, self._outputs_at)
        finally:
            os.close(handle)
        if not data:
            return b"", b""
        at, self._outputs_at = self._outputs_at, self._outputs_at + len(data)
        text = binascii.b2a_base64(data, newline=False)
        return data, b'{"e":"outputs","at":%d,"b64":"%s"}\n' % (at, text)

    def _logs_of_services(self) -> list[tuple[str, LogReader]]:
        """Opens the services' logs; their names are written before the journal's first line."""
        if self._services is None and self._journal.begun:
            try:
                with open(place.services(self._run), encoding="ascii") as file:
                    names = file.read().split()
            except FileNotFoundError:
                names = []
            self._services = [(name, self._log_of(name)) for name in names]
        return self._services or []

    def _log_of(self, service: str) -> LogReader:
        from fleetctl.guest.supervision.services.names import service_name  # most runs have none

        return LogReader(service_name(self._run, service), self._known.get(service, 0))

    def close(self) -> None:
        self._journal.close()
        self._log.close()
        for _, log in self._services or []:
            log.close()


def _log_frame(
    of: bytes,
    at: int,
    data: bytes,
) -> bytes:
    text = binascii.b2a_base64(data, newline=False)
    return b'{"e":"log",%s"at":%d,"b64":"%s"}\n' % (of, at, text)


class JournalReader:
    """Reads whole lines of a journal from an offset; `ended` once its end record was read."""

    def __init__(self, run: str, offset: int) -> None:
        self._path = f"{place.RUNS}/{run}.jsonl"
        self._offset = offset
        self._handle: Optional[int] = None
        self.ended = False

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)

    @property
    def there(self) -> bool:
        return self._handle is not None

    @property
    def begun(self) -> bool:
        """Returns whether its first line was read, here or before."""
        return self._offset > 0

    def read(self) -> tuple[bytes, bytes]:
        """Returns new bytes in two parts; the second begins with the end record."""
        if self._handle is None:
            try:
                self._handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b"", b""
            before = max(0, self._offset - TAIL_BYTES)
            tail = b"\n" + os.pread(self._handle, self._offset - before, before)
            self.ended = b"\n" + ENDED in tail
        data = os.pread(self._handle, JOURNAL_READ_BYTES, self._offset)
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        end = 0 if self.ended else (b"\n" + data).find(b"\n" + ENDED)
        if end < 0:
            return data, b""
        self.ended = True
        return data[:end], data[end:]


class LogReader:
    """Reads a log and its later parts as one text with holes, from an offset on."""

    def __init__(self, run: str, offset: int) -> None:
        self._run = run
        self.offset = offset
        self._start = 0
        self._handle = -1

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    def read(self) -> bytes:
        """Returns the next bytes; they end at `offset`. Parts that were dropped are skipped."""
        while True:
            if self._handle >= 0:
                data = os.pread(self._handle, LOG_READ_BYTES, self.offset - self._start)
                if data:
                    self.offset += len(data)
                    return data
            if not self._next_part():
                return b""

    def _next_part(self) -> bool:
        """Opens the part that holds the offset, or else the next one; False without either."""
        starts = self._starts()
        here = max((start for start in starts if start <= self.offset), default=-1)
        if here < 0 or (self._handle >= 0 and here <= self._start):
            # The part that holds the offset is read to its end, or gone.
            here = min((start for start in starts if start > self.offset), default=-1)
            if here < 0:
                return False
            self.offset = here
        path = f"{place.RUNS}/{self._run}.{here}.log" if here else f"{place.RUNS}/{self._run}.log"
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # dropped a moment ago
            return True
        if self._handle >= 0:
            os.close(self._handle)
        self._start = here
        self._handle = handle
        return True

    def _starts(self) -> list[int]:
        """Returns the offsets at which the parts on disk begin."""
        first = len(self._run) + 1
        starts = []
        for name in os.listdir(place.RUNS):
            if name.endswith(".log") and name.startswith(self._run + "."):
                middle = name[first:-4]
                if middle.isdigit():
                    starts.append(int(middle))
                elif name == f"{self._run}.log":
                    starts.append(0)
        return starts
