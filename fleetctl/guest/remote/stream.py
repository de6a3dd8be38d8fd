"""Streams a run's journal and log as frames to stdout, from any offset, live, until its end: from a
process of its own, or from within the supervisor that begins the run.

The stream reads files alone, so that any process may stream at any time, and several at once; a
line to the supervisor only wakes the process that follows.
"""

from __future__ import annotations

import binascii
import os
import select
import time

from fleetctl.guest.journal.record import Journal, write_unbegun
from fleetctl.guest.remote import place

TYPE_CHECKING = False

if TYPE_CHECKING:
    from _socket import socket
    from typing import Dict, Optional, Tuple

    from fleetctl.guest.remote.loop import Loop

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

STUCK_S = 60.0  # that a reader may take no byte at the end; it is gone then, or hangs

LOOK_S = 0.1  # between two looks while there is no line to the supervisor
BEGINNING_S = 5.0  # between a latch and the journal; longer means that the latch's owner died
LOST = 3  # the exit code of a run whose supervisor died without an end record


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
            handle = os.open(place.outputs_path(self._run), os.O_RDONLY | os.O_CLOEXEC)
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
                with open(place.services_path(self._run), encoding="ascii") as file:
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


def follow_run(
    run: str,
    offsets: Offsets,
    line: Optional[socket],
    log_bytes_max: Optional[int] = None,
) -> int:
    """Writes frames until the end of the run, or of enough of its log; returns the exit code."""
    story = Story(run, offsets, log_bytes_max)
    try:
        return _follow_run(run, story, line)
    finally:
        story.close()


def _follow_run(
    run: str,
    story: Story,
    line: Optional[socket],
) -> int:
    begun_s = said_s = time.monotonic()
    gone = False
    while True:
        # Checked first: frames from before the supervisor's death are still read below.
        supervised = line is not None or place.is_supervised()
        gone = gone and not supervised
        news = story.next_frames()
        now_s = time.monotonic()
        if news:
            while news:
                _write_all(news)
                news = story.next_frames()
            said_s = now_s
        elif not supervised and (story.there or now_s - begun_s > BEGINNING_S):
            if story.there and not gone:
                gone = True  # it may have begun between both looks
                continue
            if story.there:
                _write_all(b'{"e":"lost","message":"the process that looked after the run died"}\n')
                return LOST

            write_unbegun_run(run)
            continue
        elif now_s - said_s >= ALIVE_S:
            _write_all(ALIVE)
            said_s = now_s
        if story.over:
            return 0
        line = _wait_for_news(line, ALIVE_S - (now_s - said_s))


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _wait_for_news(line: Optional[socket], alive_s: float) -> Optional[socket]:
    """Waits until there may be events; returns the line to the supervisor after that."""
    poll = select.poll()
    poll.register(1, 0)  # reports that the reader has closed the pipe
    if line is None:
        line = place.connect_supervisor()
    if line is not None:
        poll.register(line.fileno(), select.POLLIN)
        wait_s = alive_s
    else:
        wait_s = min(LOOK_S, alive_s)
    for handle, _ in poll.poll(max(0.0, wait_s) * 1000):
        if handle == 1:
            raise BrokenPipeError
        if line is not None and not _drain_line(line):
            line.close()
            line = None
    return line


def _drain_line(line: socket) -> bool:
    """Drops the supervisor's bytes, which mean `look` alone; False when it has gone."""
    try:
        return bool(line.recv(4096))
    except OSError:
        return False


class Telling:
    """Streams a run from within its supervisor, which must never wait for the reader: bytes that
    the pipe refuses now are written when it takes more, and frames that are not due yet are in
    files alone.
    """

    def __init__(
        self,
        loop: Loop,
        story: Story,
        handle: int,
    ) -> None:
        """handle: descriptor for the frames; ours from now on."""
        self._loop = loop
        self._story = story
        self._handle = handle
        self._rest = b""  # the unwritten rest of the last frames
        os.set_blocking(handle, False)
        loop.after("alive", ALIVE_S, self._send_alive)

    def look(self) -> None:
        """Writes new frames, as far as the pipe takes them now."""
        if self._handle < 0 or self._rest:
            return  # the loop calls when the pipe takes more
        news = self._story.next_frames()
        while news and self._write(news):
            news = self._story.next_frames()
        if self._story.over and not self._rest:
            self.close()

    def finish(self) -> None:
        """Writes all remaining frames to a reader that takes them: no other work is left."""
        self.look()
        room = select.poll()
        while self._rest:
            room.register(self._handle, select.POLLOUT)
            if not room.poll(STUCK_S * 1000):
                break
            self._write_rest()
        self.close()

    def close(self) -> None:
        if self._handle < 0:
            return
        if self._rest:
            self._loop.forget(self._handle)
        self._loop.cancel("alive")
        self._story.close()
        os.close(self._handle)
        self._handle = -1
        self._rest = b""

    def _write_rest(self) -> None:
        self._loop.forget(self._handle)
        rest = self._rest
        self._rest = b""
        if self._write(rest):
            self.look()

    def _write(self, data: bytes) -> bool:
        """Returns whether all was written; else the rest is to come, or the reader has gone."""
        self._loop.after("alive", ALIVE_S, self._send_alive)
        try:
            done = os.write(self._handle, data)
        except BlockingIOError:
            done = 0
        except OSError:
            self.close()
            return False
        if done < len(data):
            self._rest = data[done:]
            self._loop.watch_room(self._handle, self._write_rest)
        return not self._rest

    def _send_alive(self) -> None:
        if not self._rest:
            self._write(ALIVE)


def write_unbegun_run(run: str) -> None:
    """Makes the run's journal, so that no process can begin the run any more."""
    runs = os.open(place.RUNS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        journal = Journal(runs, run)
    except FileExistsError:
        return
    finally:
        os.close(runs)
    write_unbegun(journal, '"keeper":"","note":""', "its sandbox takes no more work")
