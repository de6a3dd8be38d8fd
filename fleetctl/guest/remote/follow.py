"""Tells a run's story as frames on stdout, from any offset, live, until its end.

Called by attach.py. Reads files alone; the line to the supervisor only says when to look.
"""

from __future__ import annotations

import binascii
import os
import select
import time

from fleetctl.guest.remote import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Optional

ALIVE_S = 15.0  # a stream that says nothing for longer than this is broken
LOOK_S = 0.1  # between two looks while there is no line to the supervisor
BEGINNING_S = 5.0  # between a latch and the journal; longer means that whoever took it died
LOG_READ_BYTES = 48 * 1024  # of one frame
JOURNAL_READ_BYTES = 1024 * 1024
TAIL_BYTES = 16 * 1024  # an `ended` event is shorter
ENDED = b'{"e":"ended"'
LOST = 3  # the exit code of a run whose supervisor died without an end record


def follow(
    run: str, offsets: tuple[int, int], line: Optional[socket], log_bytes_max: Optional[int] = None
) -> int:
    """Write frames until the end of the run, or until so much of its log is told; the exit code."""
    journal, log = JournalReader(run, offsets[0]), LogReader(run, offsets[1])
    enough = None if log_bytes_max is None else offsets[1] + log_bytes_max
    try:
        return _follow(run, journal, log, line, enough)
    finally:
        journal.close()
        log.close()


def _follow(
    run: str,
    journal: JournalReader,
    log: LogReader,
    line: Optional[socket],
    enough: Optional[int],
) -> int:
    begun_s = time.monotonic()
    said_s = begun_s
    while True:
        # Asked first: what was written before the supervisor died is still read below.
        supervised = line is not None or place.supervised()
        lines, last = journal.read()
        _write(lines)
        # The journal was read first, so the log holds all that was written before its end.
        said = _say_log(log, enough) or bool(lines or last)
        if enough is not None and log.offset >= enough:
            return 0
        _write(last)
        if journal.ended:
            _write(b'{"e":"eof"}\n')
            return 0
        now_s = time.monotonic()
        if said:
            said_s = now_s
        elif not supervised and (journal.there or now_s - begun_s > BEGINNING_S):
            if journal.there:
                _write(b'{"e":"lost","message":"the process that looked after the run died"}\n')
                return LOST
            from fleetctl.guest.remote.unbegun import write_unbegun_run

            write_unbegun_run(run)
            continue
        elif now_s - said_s >= ALIVE_S:
            _write(b'{"e":"alive"}\n')
            said_s = now_s
        line = _wait(line, ALIVE_S - (now_s - said_s))


class JournalReader:
    """Whole lines of a journal from an offset; `ended` once its end record was read."""

    def __init__(self, run: str, offset: int) -> None:
        self._path, self._offset = f"{place.RUNS}/{run}.jsonl", offset
        self._handle: Optional[int] = None
        self.ended = False

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)

    @property
    def there(self) -> bool:
        return self._handle is not None

    def read(self) -> tuple[bytes, bytes]:
        """What was added; the second part begins with the end record."""
        if self._handle is None:
            try:
                self._handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b"", b""
            before = max(0, self._offset - TAIL_BYTES)
            said = b"\n" + os.pread(self._handle, self._offset - before, before)
            self.ended = b"\n" + ENDED in said
        data = os.pread(self._handle, JOURNAL_READ_BYTES, self._offset)
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        end = 0 if self.ended else (b"\n" + data).find(b"\n" + ENDED)
        if end < 0:
            return data, b""
        self.ended = True
        return data[:end], data[end:]


class LogReader:
    """A log and its later parts as one text with holes, from an offset on."""

    def __init__(self, run: str, offset: int) -> None:
        self._run, self.offset = run, offset
        self._start, self._handle = 0, -1

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    def read(self) -> bytes:
        """The next bytes; they end at `offset`. Parts that were dropped are passed over."""
        while True:
            if self._handle >= 0:
                data = os.pread(self._handle, LOG_READ_BYTES, self.offset - self._start)
                if data:
                    self.offset += len(data)
                    return data
            if not self._next_part():
                return b""

    def _next_part(self) -> bool:
        """Open the part that holds the offset, or else the next one; False when there is none."""
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
        self._start, self._handle = here, handle
        return True

    def _starts(self) -> list[int]:
        """Offsets at which the parts on disk begin."""
        first, starts = len(self._run) + 1, []
        for name in os.listdir(place.RUNS):
            if name.endswith(".log") and name.startswith(self._run + "."):
                middle = name[first:-4]
                if middle.isdigit():
                    starts.append(int(middle))
                elif name == f"{self._run}.log":
                    starts.append(0)
        return starts


def _say_log(log: LogReader, enough: Optional[int]) -> bool:
    """All that there is of the log, as frames, or enough of it; whether there was anything."""
    said = False
    data = log.read()
    while data:
        said = True
        text = binascii.b2a_base64(data, newline=False)
        _write(b'{"e":"log","at":%d,"b64":"%s"}\n' % (log.offset - len(data), text))
        data = b"" if enough is not None and log.offset >= enough else log.read()
    return said


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _wait(line: Optional[socket], alive_s: float) -> Optional[socket]:
    """Until there may be news; the line to the supervisor after that."""
    poll = select.poll()
    poll.register(1, 0)  # tells when nobody reads any more
    if line is None:
        line = place.connect()
    if line is not None:
        poll.register(line.fileno(), select.POLLIN)
        wait_s = alive_s
    else:
        wait_s = min(LOOK_S, alive_s)
    for handle, _ in poll.poll(max(0.0, wait_s) * 1000):
        if handle == 1:
            raise BrokenPipeError
        if line is not None and not _heard(line):
            line.close()
            line = None
    return line


def _heard(line: socket) -> bool:
    """Take what the supervisor said, which means nothing but `look`; False when it has gone."""
    try:
        return bool(line.recv(4096))
    except OSError:
        return False
