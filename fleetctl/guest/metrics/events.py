"""Reads scalars, by tag and step, from the event files of TensorBoard while they grow.

Called by followed.py. A file is a sequence of TFRecord records: the length (8 bytes) and its
checksum, the data and their checksum; checksums are masked crc32c. The data are protobuf messages,
see tensorflow/core/util/event.proto and framework/summary.proto; the constants below are their
field numbers.
"""

from __future__ import annotations

import os
import time
from struct import Struct, error, unpack_from

from fleetctl.guest.metrics.files import (
    ENTRIES_MAX,
    FILES_MAX,
    READ_BYTES_MAX,
    GrowingFile,
    describe_cut,
    find_matches,
    is_older,
    path_from,
)
from fleetctl.guest.metrics.protobuf import convert_signed, read_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional

    from fleetctl.guest.metrics.files import Problems, Row

MARK = "tfevents"  # in the name of every event file
HEADER = Struct("<QI")
FOOTER = Struct("<I")
FRAME_BYTES = HEADER.size + FOOTER.size
MASK_DELTA = 0xA282EAD8
WALL_TIME, STEP, SUMMARY = 1, 2, 5  # of Event
VALUE = 1  # of Summary
TAG, SIMPLE_VALUE, TENSOR = 1, 2, 8  # of Summary.Value
DTYPE, CONTENT, FLOATS, DOUBLES = 1, 4, 5, 6  # of TensorProto
FORMS = {1: "f", 2: "d"}  # of DT_FLOAT and DT_DOUBLE


class EventFiles:
    """A reader of event files: one file, those in and below a directory, or all that match a
    pattern.
    """

    def __init__(self, start: str, path: str) -> None:
        """start: the directory that the program begins in."""
        self.source = f"`{path}`"
        self._path = os.path.join(start, path)
        self._start = start
        self._begun_s = 0.0
        self._before: set[str] = set()
        self._files: dict[str, GrowingFile] = {}
        self._broken: set[str] = set()

    def begin(self, problems: Problems) -> None:
        self._begun_s = time.time()
        self._before.update(path for path, _ in self._find_files(problems))

    def rows(self, problems: Problems, *, whole: bool) -> Iterator[Row]:
        for path, prefix in self._find_files(problems):
            if path in self._before or path in self._broken:
                continue
            if path not in self._files and is_older(path, self._begun_s):
                self._before.add(path)
                continue
            file = self._files.setdefault(path, GrowingFile())
            while data := file.read(path):
                before = file.offset
                yield from self._parse_records(
                    path,
                    prefix,
                    file,
                    data,
                    problems,
                )
                if not whole or file.offset == before or path in self._broken:
                    break

    def _find_files(self, problems: Problems) -> list[tuple[str, str]]:
        """Returns (path, prefix of its tags) of each file, oldest first. The prefix is the
        directory below the configured one, as TensorBoard names runs.
        """
        found: list[tuple[str, str]] = []
        tops, is_cut = find_matches(self._path)
        seen = 0
        for top in tops:
            if not os.path.isdir(top):
                found.append((top, ""))
                continue
            for directory, _, names in os.walk(top):
                run = os.path.relpath(directory, top)
                prefix = "" if run == "." else f"{run}/"
                found += [(os.path.join(directory, it), prefix) for it in names if MARK in it]
                seen += len(names) + 1
                if seen > ENTRIES_MAX:
                    break
        if is_cut or seen > ENTRIES_MAX:
            problems.add(self.source, describe_cut(self.source))
        return sorted(found, key=_time_in_name)[:FILES_MAX]

    def _parse_records(
        self,
        path: str,
        prefix: str,
        file: GrowingFile,
        data: bytes,
        problems: Problems,
    ) -> Iterator[Row]:
        name = path_from(path, self._start)
        at = 0
        while at + HEADER.size <= len(data):
            size, total = HEADER.unpack_from(data, at)
            where = f"the record at byte {file.offset} of `{name}`"
            if masked_crc32c(data[at : at + 8]) != total:
                problem = "has a wrong sum, so nothing after it is read"
                problems.add(name, f"{where} {problem}; is it an event file of TensorBoard?")
                self._broken.add(path)
                return
            if size + FRAME_BYTES > READ_BYTES_MAX:  # scalars are never this large
                file.skip(size + FRAME_BYTES)
                return
            end = at + FRAME_BYTES + size
            if end > len(data):
                return  # still being written
            record = data[at + HEADER.size : end - FOOTER.size]
            yield from _check_record(
                record,
                data[end - FOOTER.size : end],
                prefix,
                name,
                where,
                problems,
            )
            file.advance(data[at:end])
            at = end


def _time_in_name(found: tuple[str, str]) -> tuple[str, str]:
    """Returns a sort key: the name, which begins with the time, and the path. Names are
    events.out.tfevents.<seconds>.<host>.
    """
    return os.path.basename(found[0]), found[0]


def _check_record(
    record: bytes,
    footer: bytes,
    prefix: str,
    name: str,
    where: str,
    problems: Problems,
) -> Iterator[Row]:
    """Yields the row of a valid record with scalars, and adds the problem of a damaged one. Checks
    the checksum of no other record: pictures are large, and crc32c is slow in Python.
    """
    try:
        row = parse_event(record, prefix)
    except (IndexError, ValueError, error):
        problems.add(name, f"{where} is damaged and is not recorded")
        return
    if not row[2]:
        return
    if masked_crc32c(record) != FOOTER.unpack(footer)[0]:
        problems.add(name, f"{where} has a wrong sum and is not recorded")
        return
    yield row


def parse_event(record: bytes, prefix: str) -> Row:
    """Returns (step, seconds since the epoch, scalars by tag) of an event. Raises IndexError,
    ValueError or struct.error for a damaged one.
    """
    values: dict[str, float] = {}
    step = 0
    at_s = None
    for field, start, stop in read_fields(record, 0, len(record)):
        if field == WALL_TIME:
            (at_s,) = unpack_from("<d", record, start)
        elif field == STEP:
            step = convert_signed(start)
        elif field == SUMMARY:
            for one, begin, end in read_fields(record, start, stop):
                tag, value = _parse_value(record, begin, end) if one == VALUE else ("", None)
                if value is not None:
                    values[prefix + tag] = value
    return step, at_s, values


def _parse_value(
    data: bytes,
    at: int,
    end: int,
) -> tuple[str, Optional[float]]:
    """Returns (tag, scalar) of a Summary.Value; None for pictures, histograms and the like."""
    tag = ""
    value = None
    for field, start, stop in read_fields(data, at, end):
        if field == TAG:
            tag = data[start:stop].decode("utf-8", "replace")
        elif field == SIMPLE_VALUE:
            (value,) = unpack_from("<f", data, start)
        elif field == TENSOR:
            value = _parse_tensor(data, start, stop)
    return tag, value


def _parse_tensor(
    data: bytes,
    at: int,
    end: int,
) -> Optional[float]:
    """Returns a tensor's single number, as `tf.summary.scalar` writes it; None for several."""
    form = ""
    found = b""
    for field, start, stop in read_fields(data, at, end):
        if field == DTYPE:
            form = FORMS.get(start, "")
        elif field in (CONTENT, FLOATS, DOUBLES):
            found += data[start:stop]
    if not form or len(found) != Struct(form).size:
        return None
    (value,) = unpack_from(f"<{form}", found)
    return float(value)


def masked_crc32c(data: bytes) -> int:
    """Returns the crc32c (Castagnoli) of the data, rotated and shifted as TFRecord does."""
    table = _crc_table()
    total = 0xFFFFFFFF
    for byte in data:
        total = table[(total ^ byte) & 255] ^ total >> 8
    total ^= 0xFFFFFFFF
    return ((total >> 15 | total << 17) + MASK_DELTA) & 0xFFFFFFFF


def _crc_table() -> list[int]:
    if not _TABLE:
        for number in range(256):
            for _ in range(8):
                number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
            _TABLE.append(number)
    return _TABLE


_TABLE: list[int] = []
