"""The copy on this machine of one remote run's journal, log and kept files, fed with the frames of
its guest, with the values of secrets masked.

All later reports of a run are read from these files, so a dropped stream or a crash of ours loses
and repeats no data: a new stream goes on where they end. Pieces of the kept files arrive behind the
run's output, before its end. They become the run's pack once all are here: large contents go to the
blobs that the attempts of an object share.

The values are masked here for guests without Python, whose shell cannot mask: guests in Python mask
their own output (guest/journal/masking.py), which passes unchanged.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.guest.journal.masking import Masking, merge_spans
from fleetctl.guest.outputs.pack import PackWriter, pack_name
from fleetctl.guest.supervision.services.names import service_name
from fleetctl.guest.supervision.services.process import LOG_BYTES_MAX as SERVICE_LOG_BYTES_MAX
from fleetctl.providers.paths import journal_path, make_private
from fleetctl.providers.remote.runs.segments import LOG_BYTES_MAX, Listing, Segments, sync_file
from fleetctl.providers.rundir.kept_outputs import KeptOutputs, read_pack, sync_pack
from fleetctl.specs.blocks.services import SERVICES_MAX

# Far above any line of a guest: a result is at most 256 KiB, a piece of log less.
FRAME_BYTES_MAX = 16 * 1024 * 1024
TAIL_BYTES = 64 * 1024
HEARD_BYTES_MAX = 8 * 1024  # of a journal in memory: thousands of runs may live
EOF = "eof"
LOST = "lost"
UNBEGUN = "unbegun"
_SERVICE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MARK = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW

# The guest writes compact JSON with `e` first; frames about the stream itself are known by it.
_HEAD = b'{"e":"'
_OF_THE_STREAM = (b"outputs", b"log", b"alive", b"eof", b"lost", b"unbegun")

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

STAR = b"*"
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')


class GarbledFrames(Exception):
    """A stream that no guest writes. Another stream from the last good offset may do."""


@dataclass(frozen=True, slots=True)
class FedFrames:
    """The content of some bytes of a stream. `end` is "", EOF, LOST or UNBEGUN; after any but "" no
    frame follows.
    """

    journal: bool = False  # the journal grew
    log: bool = False
    end: str = ""
    message: str = ""


def mark_begun(runs: Path, run: str) -> bool:
    """Note that the run may begin from now on. False when that was noted before."""
    path = journal_path(runs, run)
    try:
        try:
            handle = os.open(path, _MARK, 0o600)
        except FileNotFoundError:  # the first run of its resource
            make_private(runs)
            handle = os.open(path, _MARK, 0o600)
    except FileExistsError:
        return False
    os.close(handle)
    return True


class RunMirror:
    """journal_at and log_at: how much is here, and so where a stream is to begin."""

    def __init__(
        self,
        runs: Path,
        run: str,
        *,
        listing: Listing | None = None,
        log_bytes_max: int = LOG_BYTES_MAX,
        fresh: bool = False,
        masking: Masking | None = None,
    ) -> None:
        """runs: the directory of journals and logs of the run's resource; `mark` makes it. listing:
        the listing that all mirrors of the directory share. fresh: the run was marked just now, for
        the first time, so it has no other files here. masking: masks values that the guest may not
        have masked.
        """
        self._masking = masking
        self._starred: dict[Segments, StarredOutput] = {}
        self._listing = listing or Listing(runs)
        self._named = self._listing.note()  # the mark, or whatever an earlier controller left here
        self._path = journal_path(runs, run)
        self._log = Segments(runs, run, bytes_max=log_bytes_max, fresh=fresh)
        self.outputs = OutputsMirror(runs, run, fresh=fresh)
        self._services: dict[str, Segments] = {}  # logs of the services with output
        self._runs = runs
        self._run = run
        self._fresh = fresh
        self._bytes_max = log_bytes_max
        self._rest = b""
        self.journal_at = 0 if fresh else _count_whole_lines(self._path)
        self._there = fresh or self.journal_at > 0  # the journal, when `_named` was noted
        self._heard: bytes | None = None if self.journal_at else b""

    @property
    def log_at(self) -> int:
        return self._log.at

    @property
    def position(self) -> tuple[int, int, int]:
        """Returns how much is here, which only grows while a run is followed."""
        return self.journal_at, self.log_at, self.outputs.at

    @property
    def services_at(self) -> dict[str, int]:
        """The same of its services' logs. One that an earlier controller has comes again, and is
        kept once.
        """
        return {name: log.at for name, log in self._services.items()}

    @property
    def exists(self) -> bool:
        """Returns whether an attempt to begin the run was made."""
        return self._path.exists()

    def take_journal(self) -> bytes | None:
        """Returns the whole journal once, if it is short and arrived completely."""
        journal = self._heard
        self._heard = None
        return journal

    def restart(self) -> None:
        """Prepare for a new stream, which begins at journal_at and log_at: a half frame of the old
        one is void.
        """
        self._rest = b""
        for output in self._starred.values():
            output.forget()

    def feed(self, data: bytes) -> FedFrames:
        """Takes in a piece of the stream, cut anywhere. Raises GarbledFrames, or OSError when the
        disk refuses; the stream is to begin again then.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > FRAME_BYTES_MAX:
            raise GarbledFrames(f"a frame of more than {FRAME_BYTES_MAX} bytes")
        events: list[bytes] = []
        grew = False
        end = ""
        message = ""
        for line in lines:
            word = _stream_word(line)
            if word == b"log":
                grew |= self._take_output(line)
            elif word == b"outputs":
                self.outputs.write(*_piece_of(_parse_frame(line)))
            elif word in (b"eof", b"lost", b"unbegun"):
                end = word.decode()
                message = _frame_message(line)
                for output in self._starred.values():
                    output.flush()
                break
            elif word != b"alive":
                events.append(self._masked(line) + b"\n")
        if events:
            self._append(b"".join(events))
        return FedFrames(bool(events), grew, end, message)

    def flush(self) -> None:
        """Makes journal and log survive a loss of power, once this returns. Blocks."""
        for log in (self._log, *self._services.values()):
            log.flush()
        sync_file(self._path)
        self.outputs.settle()
        self._listing.keep(self._named)

    def _take_output(self, line: bytes) -> bool:
        frame = _parse_frame(line)
        at, data = _piece_of(frame)
        log = self._log_of(frame)
        before = log.at
        files = log.files
        try:
            self._writer_of(log)(at, data)
        finally:
            if log.files != files:
                self._named = self._listing.note()
        return log.at > before

    def _writer_of(self, log: Segments) -> Callable[[int, bytes], None]:
        if self._masking is None:
            return log.write
        if log not in self._starred:
            self._starred[log] = StarredOutput(self._masking, log.write)
        return self._starred[log].take

    def _masked(self, line: bytes) -> bytes:
        if self._masking is None:
            return line
        return starred_line(self._masking, line)

    def _log_of(self, frame: Mapping[str, Any]) -> Segments:
        """Returns the log of the run, or of the service that the frame names. Raises
        GarbledFrames.
        """
        name = frame.get("of")
        if name is None:
            return self._log
        if not isinstance(name, str) or not _SERVICE.fullmatch(name):
            raise GarbledFrames("output of a service whose name is none")
        if name not in self._services:
            if len(self._services) >= SERVICES_MAX:
                raise GarbledFrames("output of more services than one run has")
            self._services[name] = Segments(
                self._runs,
                service_name(self._run, name),
                bytes_max=min(self._bytes_max, SERVICE_LOG_BYTES_MAX),
                fresh=self._fresh,
            )
        return self._services[name]

    def _append(self, data: bytes) -> None:
        # At an offset, not at the end: two controllers that race write the same bytes to the same
        # offset.
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(handle, data[done:], self.journal_at + done)
        finally:
            os.close(handle)
        if not self._there:
            self._named = self._listing.note()
            self._there = True
        self.journal_at += len(data)
        if self._heard is not None:
            short = self.journal_at <= HEARD_BYTES_MAX
            self._heard = self._heard + data if short else None


def _piece_of(frame: Mapping[str, Any]) -> tuple[int, bytes]:
    """Returns the offset and the bytes that a frame carries. Raises GarbledFrames."""
    try:
        if "b64" in frame:
            return int(frame["at"]), base64.b64decode(frame["b64"], validate=True)
        return int(frame["at"]), bytes.fromhex(frame["hex"])
    except (KeyError, TypeError, ValueError) as error:
        raise GarbledFrames("a frame of output that is none") from error


def _stream_word(line: bytes) -> bytes:
    """The `e` of a frame about the stream itself; b"" for a line of the journal."""
    if not line.startswith(_HEAD):
        return b""
    word = line[len(_HEAD) : line.find(b'"', len(_HEAD))]
    if word in _OF_THE_STREAM:
        return word
    return b""


def _frame_message(line: bytes) -> str:
    return str(_parse_frame(line).get("message", ""))


def _parse_frame(line: bytes) -> dict[str, Any]:
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise GarbledFrames("a frame that is not JSON") from error
    if not isinstance(frame, dict):
        raise GarbledFrames("a frame that is not an object")
    return frame


def _count_whole_lines(path: Path) -> int:
    """Returns how many bytes of whole lines the journal has. A last line that a crash tore is cut
    off: it comes again.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        size = end = os.fstat(handle).st_size
        while end > 0:
            start = max(0, end - TAIL_BYTES)
            newline = os.pread(handle, end - start, start).rfind(b"\n")
            end = start if newline < 0 else start + newline + 1
            if newline >= 0:
                break
        if end < size:
            os.ftruncate(handle, end)
        return end
    finally:
        os.close(handle)


class OutputsMirror:
    """at: how much is here, and so where a stream is to go on."""

    def __init__(
        self,
        runs: Path,
        run: str,
        *,
        fresh: bool,
    ) -> None:
        """fresh: nothing of the run can be here yet."""
        self._runs = runs
        self._run = run
        self._part = runs / f"{pack_name(run)}.part"
        self.at = 0 if fresh else _size_of(self._part)

    def write(self, at: int, data: bytes) -> None:
        """Keeps `data`, whose first byte has offset `at`. Raises OSError when the disk refuses, and
        then can be called again.
        """
        view = memoryview(data)[max(0, self.at - at) :]
        if not view or at > self.at:
            return
        handle = os.open(self._part, _WRITE, 0o600)
        try:
            while view:
                done = os.pwrite(handle, view, self.at)
                view = view[done:]
                self.at = self.at + done
        finally:
            os.close(handle)

    def settle(self) -> None:
        """Makes the pieces the pack of the run once they are whole, and durable. Blocks. Raises
        OSError when the disk refuses, and then can be called again.
        """
        arrived = read_pack(self._part) if self.at else None
        if arrived is None:
            return
        directory = os.open(self._runs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._write_pack(arrived, directory)
        finally:
            os.close(directory)
        sync_pack(self._runs, self._run)
        self._part.unlink(missing_ok=True)
        self.at = 0

    def _write_pack(self, arrived: KeptOutputs, directory: int) -> None:
        writer = PackWriter(directory, self._run, blobs=True)
        try:
            for file in arrived.files:
                reader = _reader_of(arrived.contents(file))
                writer.add(file.path, file.mode, file.modified_at_s, reader)
            writer.finish({})
        except BaseException:
            writer.discard()
            raise


def _reader_of(pieces: Iterator[bytes]) -> Callable[[int], bytes]:
    rest = [b""]

    def read(size: int) -> bytes:
        data = rest[0] or next(pieces, b"")
        rest[0] = data[size:]
        return data[:size]

    return read


def _size_of(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


class StarredOutput:
    """A log with masked values. Bytes that may begin a value are kept back until more arrive; a new
    stream sends them again.
    """

    def __init__(self, masking: Masking, write: Callable[[int, bytes], None]) -> None:
        self._masking = masking
        self._write = write
        self.forget()

    def forget(self) -> None:
        """Forgets the bytes that were kept back, which come again."""
        self._at = 0
        self._held = b""
        self._covered = 0

    def take(self, at: int, data: bytes) -> None:
        """Takes `data`, whose first byte has offset `at`. Raises OSError."""
        if self._held and at > self._at + len(self._held):
            self.flush()  # the bytes between were dropped in the sandbox
        if self._held:
            data = self._held + data[self._at + len(self._held) - at :]
        else:
            self._at = at
            self._covered = 0
        self._put(data, len(data) - self._masking.unfinished(data))

    def flush(self) -> None:
        """Writes the rest: no more comes. Raises OSError."""
        self._put(self._held, len(self._held))

    def _put(self, data: bytes, cut: int) -> None:
        spans = merge_spans([(0, self._covered), *self._masking.find_spans(data)])
        stars = _star_spans(data, spans)[:cut]
        if stars:
            self._write(self._at, stars)
        reach = max((end for begin, end in spans if begin < cut or begin == 0), default=0)
        into = max(0, reach - cut) if spans and (self._covered or cut) else 0
        self._at, self._held, self._covered = self._at + cut, data[cut:], into


def starred_line(masking: Masking, line: bytes) -> bytes:
    """Returns a line of a journal, of the same length, masked in its texts and encoded content."""

    def star(text: re.Match[bytes]) -> bytes:
        return _star_spans(text[0], masking.find_spans(text[0]))

    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return line  # torn, or no JSON: its reader finds out
    if isinstance(event, dict):
        for key, decode, encode in _ENCODINGS:
            text = event.get(key)
            if isinstance(text, str):
                raw = decode(text)
                if found := masking.find_spans(raw):
                    stars = encode(_star_spans(raw, found))
                    line = line.replace(text.encode(), stars.encode(), 1)
    return _TEXT.sub(star, line)


def _star_spans(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    if not spans:
        return data
    stars = bytearray(data)
    for begin, end in spans:
        stars[begin:end] = STAR * (end - begin)
    return bytes(stars)


def _of_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def _of_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


_ENCODINGS: tuple[tuple[str, Callable[[str], bytes], Callable[[bytes], str]], ...] = (
    ("b64", _of_base64, _base64_of),
    ("hex", _of_hex, bytes.hex),
)
