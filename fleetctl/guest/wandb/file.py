"""Reads the file that wandb writes of a run, `run-<id>.wandb`, while it grows.

Called by trial.py beside the trial. Records lie in blocks as in a log of LevelDB, each with
its sum; a record is protobuf, read here by hand: a sandbox has the standard library alone. Records
other than those of history, summary and header are skipped.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from fleetctl.guest.metrics.numbers import (
    flatten_value,
    parse_finite,
    parse_json,
    select_numbers,
    without_media,
)
from fleetctl.guest.metrics.protobuf import convert_signed, read_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

    Row = tuple[Optional[int], Optional[float], dict[str, float]]

MAGIC = b":W&B"
FILE_HEADER_BYTES = 7
BLOCK_BYTES = 32 * 1024
CHUNK_HEADER = Struct("<IHB")  # sum, length, type
WHOLE = 1
FIRST = 2
MIDDLE = 3
LAST = 4
RECORD_BYTES_MAX = 64 * 1024 * 1024  # a record in many pieces; a larger one is skipped
NAMES_KEPT_MAX = 10_000  # of metrics, so that each is decoded once
HISTORY = 2
SUMMARY = 3
HEADER = 21
KEY = 1
NESTED_KEY = 2
VALUE = 16
VALUE_TAG = b"\x82\x01"  # of field 16


class WandbFile:
    """One file as far as it has been read. `offset` is the next byte to read."""

    def __init__(self) -> None:
        self.offset = 0
        self.version = ""  # of wandb; "" before 0.22, and before it is known
        self.rows = 0
        self.not_finite = ""  # the first metric that was no number, with its step
        self.damaged = 0  # sums and lengths that did not fit
        self.foreign = False  # it is not a file of wandb's
        self._pieces: list[bytes] = []  # of an unfinished record
        self._summary: dict[bytes, tuple[str, bytes]] = {}
        self._names: dict[bytes, str] = {}

    def take(self, data: bytes) -> list[Row]:
        """Returns (step, seconds since the epoch, numbers by name) of each row of history in
        `data`, which begins at `offset`. Incomplete records are left for the next call.
        """
        found: list[Row] = []
        at = self._open(data)
        for record in self._records(data, at):
            try:
                self._read(record, found)
            except (IndexError, ValueError):  # its sum fits, so a later form of wandb
                self.damaged += 1
        self.rows += len(found)
        return found

    def summary(self) -> dict[str, Any]:
        """Returns the run's present summary, by dotted name: numbers, truth values and texts."""
        found: dict[str, Any] = {}
        typed: list[str] = []
        for name, value in self._summary.values():
            flatten_value(name, parse_json(value), found, typed)
        kept = without_media(found, typed)
        return {name: it for name, it in kept.items() if not isinstance(it, float) or it - it == 0}

    # -- blocks ------------------------------------------------------------------------------------

    def _open(self, data: bytes) -> int:
        """Returns where the first chunk begins in `data`."""
        if self.offset or len(data) < FILE_HEADER_BYTES:
            return 0
        self.foreign = not data.startswith(MAGIC)
        self.offset = FILE_HEADER_BYTES
        return FILE_HEADER_BYTES

    def _records(self, data: bytes, at: int) -> Iterator[bytes]:
        """Yields each whole record; moves `offset` behind it."""
        if self.foreign or not self.offset:
            return
        base = self.offset - at
        end = len(data)
        unpack = CHUNK_HEADER.unpack_from
        pieces = self._pieces
        while True:
            left = BLOCK_BYTES - (base + at) % BLOCK_BYTES
            if left < FILE_HEADER_BYTES:  # filled up: the next chunk begins in the next block
                if at + left > end:
                    break
                at += left
                continue
            if at + FILE_HEADER_BYTES > end:
                break
            total, size, kind = unpack(data, at)
            stop = at + FILE_HEADER_BYTES + size
            fits = FILE_HEADER_BYTES + size <= left and WHOLE <= kind <= LAST
            if fits and stop > end:
                break
            # The sum covers the type and the bytes after it.
            if not fits or crc32(data[at + 6 : stop]) != total:
                if at + left > end:
                    break  # perhaps it is still being written
                self.damaged += any(data[at : at + FILE_HEADER_BYTES])
                pieces.clear()
                at += left
                continue
            piece = data[at + FILE_HEADER_BYTES : stop]
            at = stop
            self.offset = base + at
            if kind == WHOLE:
                pieces.clear()
                yield piece
            elif kind == FIRST:
                pieces[:] = [piece]
            elif pieces:
                pieces.append(piece)
                if kind == LAST:
                    whole = b"".join(pieces)
                    pieces.clear()
                    yield whole
                elif len(pieces) * BLOCK_BYTES > RECORD_BYTES_MAX:
                    pieces.clear()
        self.offset = base + at

    # -- records -----------------------------------------------------------------------------------

    def _read(self, record: bytes, found: list[Row]) -> None:
        for field, start, stop in read_fields(record, 0, len(record)):
            if field == HISTORY:
                row = self._history(record, start, stop)
                if row[2]:
                    found.append(row)
            elif field == SUMMARY:
                self._take_summary(record, start, stop)
            elif field == HEADER:
                self._take_header(record, start, stop)

    def _history(
        self,
        data: bytes,
        at: int,
        end: int,
    ) -> Row:
        values: dict[str, float] = {}
        typed: list[str] = []
        step: Optional[int] = None
        time_s: Optional[float] = None
        odd, deep = "", False  # deep: a value has parts, or is one
        names = self._names
        number = float
        for field, start, stop in read_fields(data, at, end):
            if field == 2:  # HistoryStep {num}
                step = next(
                    (num for one, num, _ in read_fields(data, start, stop) if one == 1), step
                )
                step = None if step is None else convert_signed(step)
            if field != 1:
                continue
            key, value_at, value_end = _parse_item(data, start, stop)
            name = names.get(key)
            if name is None:
                name = self._name(key)
            value = data[value_at:value_end]
            if name[:1] == "_":
                if name == "_timestamp":
                    time_s = parse_finite(value)
                elif name == "_step" and step is None:
                    own = parse_finite(value)
                    step = int(own) if own is not None and abs(own) < 1 << 63 else None
                continue
            first = value[:1]
            if first in b"-0123456789NI" and first:
                read = number(value)
                values[name] = read
                if read - read != 0 and not (odd or self.not_finite):
                    odd = name
            elif first == b"{" or name.endswith("._type"):
                flatten_value(name, parse_json(value), values, typed)
                deep = True
        if odd:
            self.not_finite = f"`{odd}` at step {step}"
        return step, time_s, select_numbers(values, typed) if deep else values

    def _take_summary(
        self,
        data: bytes,
        at: int,
        end: int,
    ) -> None:
        for field, start, stop in read_fields(data, at, end):
            key, value_at, value_end = _parse_item(data, start, stop)
            if field == 1:
                name = self._names.get(key) or self._name(key)
                if name[:1] != "_":
                    self._summary[key] = (name, data[value_at:value_end])
            elif field == 2:
                self._summary.pop(key, None)

    def _take_header(
        self,
        data: bytes,
        at: int,
        end: int,
    ) -> None:
        """Reads HeaderRecord {1 version_info {1 producer}}: the version, `+` and a revision."""
        for field, start, stop in read_fields(data, at, end):
            if field == 1:
                for one, begin, over in read_fields(data, start, stop):
                    if one == 1:
                        text = data[begin:over].decode("utf-8", "replace")
                        self.version = text.partition("+")[0]

    def _name(self, key: bytes) -> str:
        """Returns the dotted name of an item's key, given as in the file: one part, or several."""
        if len(self._names) >= NAMES_KEPT_MAX:
            self._names.clear()
        parts = [key[start:stop] for _, start, stop in read_fields(key, 0, len(key))]
        name = b".".join(parts).decode("utf-8", "replace")
        return self._names.setdefault(key, name)


def _parse_item(
    data: bytes,
    at: int,
    end: int,
) -> tuple[bytes, int, int]:
    """Returns (the key's fields as they are, where the JSON value begins, where it ends)."""
    # Nearly all: one part of less than 128 bytes, then the value, also so short.
    if at + 2 <= end and data[at + 1] < 128:
        value = at + 2 + data[at + 1]
        begin = value + 3
        size = data[begin - 1] if begin <= end else 128
        if size < 128 and begin + size == end and data[value : value + 2] == VALUE_TAG:
            return data[at:value], begin, end
    key = b""
    value_at = end
    value_end = end
    before = at
    for field, start, stop in read_fields(data, at, end):
        if field in (KEY, NESTED_KEY):
            key += data[before:stop]
        elif field == VALUE:
            value_at = start
            value_end = stop
        before = stop
    return key, value_at, value_end
