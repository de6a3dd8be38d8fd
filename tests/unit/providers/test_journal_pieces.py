"""Reading the file of a journal while a run writes it: nothing of what comes before its end is
lost, whenever that comes, and no look takes more than a piece.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fleetctl.providers.rundir import journal_runs
from fleetctl.providers.rundir.journal_runs import JournalRuns
from fleetctl.providers.rundir.run_journal import RunJournal, parse_complete

UID, RUN = "0123456789abcdef", "fl-" + "a" * 26
LONG = "x" * 5000
STORIES = 600  # the planted bug shows in one of fifty


def line(**event: Any) -> bytes:
    return (json.dumps(event, separators=(",", ":")) + "\n").encode()


STARTED = line(e="started", at=1.0, keeper="k/1", note="process")
RESULT = line(e="result", sha256=sha256(b'{"a":1}').hexdigest(), text='{"a":1}')
ENDED = line(e="ended", at=9.0, started_at=1.0, ok=True, reason="Completed", exit=0, open=True)
CLOSED = line(e="closed", at=20.0)
TABLE = line(e="nodes", at=9.0, nodes=[{"state": "Succeeded"}, {"state": "Succeeded"}])


def story(rng: random.Random) -> list[bytes]:
    """The lines of a run: reports, remarks, checkpoints and one that is longer than a piece."""
    lines = [STARTED]
    for seq in range(rng.randint(0, 60)):
        lines.append(line(e="metric", seq=seq, step=seq, at=2.0, values={"loss": float(seq)}))
        if rng.random() < 0.1:
            lines.append(line(e="remark", at=2.0, message=f"remark {seq}"))
        if rng.random() < 0.1:
            lines.append(line(e="checkpoint", step=seq, path=f"/c/{seq}", at=2.0, bytes=1))
        if rng.random() < 0.02:
            lines.append(line(e="remark", at=2.0, message=LONG))
    table = [TABLE] if rng.random() < 0.3 else []
    return [*lines, RESULT, *table, ENDED, *([CLOSED] if rng.random() < 0.3 else [])]


class Writer:
    """Appends the story in pieces cut anywhere, whenever the reader asks the system for a thing."""

    def __init__(self, path: Path, whole: bytes, rng: random.Random) -> None:
        self._path, self._whole, self._rng = path, whole, rng
        self.at = 0

    @property
    def over(self) -> bool:
        return self.at == len(self._whole)

    def write(self) -> None:
        if self._rng.random() < 0.5:
            return
        end = min(len(self._whole), self.at + self._rng.choice((1, 40, 400, 4000, 10**6)))
        with self._path.open("ab") as file:
            file.write(self._whole[self.at : end])
        self.at = end


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[JournalRuns, Path]]:
    monkeypatch.setattr(journal_runs, "PIECE_BYTES", 300)
    monkeypatch.setattr(journal_runs, "SHORT_BYTES", 200)
    runs = JournalRuns(tmp_path, "local")
    path = runs.directory(UID) / f"{RUN}.jsonl"
    path.parent.mkdir(parents=True)
    yield runs, path


def between(monkeypatch: pytest.MonkeyPatch, writer: Writer) -> None:
    """The run goes on writing between any two calls of the reader."""

    class System:
        def __getattr__(self, name: str) -> Any:
            writer.write()
            return getattr(os, name)

    monkeypatch.setattr(journal_runs, "os", System())


async def read_to_the_end(runs: JournalRuns) -> list[RunJournal]:
    seen: list[RunJournal] = []
    offset = 0
    while not seen or seen[-1].ending is None:
        part = await runs.look(UID, RUN, offset)
        assert part is not None
        seen.append(part)
        offset = part.offset
    return seen


def read_while_written(reading: tuple[JournalRuns, Path], seed: int) -> tuple[list[Any], list[Any]]:
    """(metrics, remarks and checkpoints that were read, those that were written)."""
    runs, path = reading
    rng = random.Random(seed)
    lines = story(rng)
    path.write_bytes(b"")
    with pytest.MonkeyPatch.context() as patch:
        between(patch, Writer(path, b"".join(lines), rng))
        seen = asyncio.run(read_to_the_end(runs))
    assert all(part.ending is None for part in seen[:-1])
    last = seen[-1]
    assert (last.result, last.started_at_s, last.supervisor) == ('{"a":1}', 1.0, "k/1")
    told = [json.loads(one) for one in lines]
    wrote = [
        [one["seq"] for one in told if one["e"] == "metric"],
        [one["message"] for one in told if one["e"] == "remark"],
        [one["step"] for one in told if one["e"] == "checkpoint"],
    ]
    read = [
        [one.seq for part in seen for one in part.metrics],
        [one for part in seen for one in part.remarks],
        [one.step for part in seen for one in part.checkpoints.saved],
    ]
    return read, wrote


@pytest.mark.parametrize("first", range(0, STORIES, 20))
def test_nothing_before_an_end_is_lost_whenever_it_is_written(
    first: int, reading: tuple[JournalRuns, Path]
) -> None:
    for seed in range(first, first + 20):
        read, wrote = read_while_written(reading, seed)
        assert read == wrote, seed


def test_a_reader_that_looks_twice_is_caught(
    reading: tuple[JournalRuns, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: the end is looked for in what was written since the piece was read."""
    real = journal_runs._find_end
    monkeypatch.setattr(
        journal_runs, "_find_end", lambda handle, _: real(handle, os.fstat(handle).st_size)
    )
    stories = (read_while_written(reading, seed) for seed in range(STORIES))
    assert any(read != wrote for read, wrote in stories)


def test_a_look_takes_one_piece_and_says_that_there_is_more(
    reading: tuple[JournalRuns, Path],
) -> None:
    runs, path = reading
    path.write_bytes(b"".join(story(random.Random(3))) + line(e="remark", at=1.0, message=LONG))
    offset, sizes = 0, []
    while True:
        seen = runs.read(UID, RUN, offset)
        assert seen is not None
        sizes.append(seen.offset - offset)
        offset = seen.offset
        if not seen.more:
            break
        assert seen.ending is None
    assert max(sizes) > 5000  # a line is never cut
    assert sorted(sizes)[len(sizes) // 2] <= 300


def test_a_look_at_a_flood_is_bounded_and_elsewhere_than_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one object reports delays no other: bytes that are read and reports that are taken in a
    look are bounded, however many there are, and the loop reads none of them.
    """
    runs = JournalRuns(tmp_path, "local")
    path = runs.directory(UID) / f"{RUN}.jsonl"
    path.parent.mkdir(parents=True)
    report = line(e="metric", seq=0, step=0, at=2.0, values={"loss": 1.0})
    count = 12 * journal_runs.PIECE_BYTES // len(report)
    path.write_bytes(STARTED + report * count + RESULT + ENDED)
    read: list[tuple[int, int]] = []  # (thread, bytes) of each call

    class System:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def pread(self, handle: int, length: int, offset: int) -> bytes:
            data = os.pread(handle, length, offset)
            read.append((threading.get_ident(), len(data)))
            return data

    monkeypatch.setattr(journal_runs, "os", System())
    offset, looks, taken = 0, 0, 0
    while True:
        read.clear()
        seen = asyncio.run(runs.look(UID, RUN, offset))
        assert seen is not None
        looks, taken, offset = looks + 1, taken + len(seen.metrics), seen.offset
        assert len(seen.metrics) <= journal_runs.PIECE_BYTES // len(report)
        assert threading.get_ident() not in {thread for thread, _ in read}
        if seen.ending is not None:
            break  # the whole is looked through once more here, for lines of guests without Python
        assert sum(size for _, size in read) <= journal_runs.PIECE_BYTES
    assert (taken, looks) == (count, 13)


def test_an_end_is_told_again_behind_it_with_what_became_of_its_sandbox(
    reading: tuple[JournalRuns, Path],
) -> None:
    runs, path = reading
    whole = STARTED + RESULT + ENDED
    path.write_bytes(whole)
    first = runs.read(UID, RUN, len(whole))
    assert first is not None and first.ending is not None and first.ending.sandbox_open
    path.write_bytes(whole + CLOSED)
    for offset in (0, len(whole), len(whole + CLOSED)):
        again = runs.read(UID, RUN, offset)
        assert again is not None and again.ending is not None
        assert (again.ending.sandbox_open, again.result) == (False, '{"a":1}')
        assert again.offset == len(whole + CLOSED)
    end = runs.end_of(UID, RUN)
    assert end is not None and end.ending == again.ending
    begun = runs.begun(UID, RUN)
    assert begun is not None and (begun.supervisor, begun.started_at_s) == ("k/1", 1.0)


@pytest.mark.parametrize("table", [b"", TABLE], ids=["one node", "several"])
@pytest.mark.parametrize("length", [10, 20_000, 400_000])
def test_the_result_before_an_end_is_found_however_long_it_is(
    length: int, table: bytes, reading: tuple[JournalRuns, Path]
) -> None:
    runs, path = reading
    text = json.dumps({"a": "x" * length}, separators=(",", ":"))
    result = line(e="result", sha256=sha256(text.encode()).hexdigest(), text=text)
    story = STARTED + result + table + ENDED
    path.write_bytes(story)
    for offset in (len(STARTED + result), len(STARTED + result + table), len(story)):
        seen = runs.read(UID, RUN, offset)
        assert seen is not None and seen.result == text


def test_what_a_guest_without_python_handed_on_is_judged_as_a_whole(
    reading: tuple[JournalRuns, Path],
) -> None:
    runs, path = reading
    raw = [
        line(e="metrics", at=2.0, offset=0, line=0, hex=b'{"loss": 1}\nodd\n'.hex()),
        line(e="metrics", at=2.0, offset=16, line=2, hex=b"odder\n".hex()),
        line(e="result", hex=b'{"a": 1}'.hex()),
    ]
    path.write_bytes(STARTED + b"".join(raw) + ENDED)
    seen = runs.end_of(UID, RUN)
    assert seen is not None and seen.ending is not None
    assert seen.ending.message.startswith("line 2 of $FLEETCTL_METRICS")
    assert seen.ending.message.endswith("(2 lines in all)")
    assert parse_complete(path.read_bytes()).ending == seen.ending


def test_a_result_that_is_no_file_is_said_beside_metrics_as_they_were(
    reading: tuple[JournalRuns, Path],
) -> None:
    runs, path = reading
    metrics = line(e="metrics", at=2.0, offset=0, line=0, hex=b'{"loss": 1}\nodd\n'.hex())
    end = line(e="ended", at=9.0, started_at=1.0, ok=True, reason="Completed", message="a pipe")
    path.write_bytes(STARTED + metrics + end)
    seen = runs.end_of(UID, RUN)
    assert seen is not None and seen.ending is not None
    assert seen.ending.message.startswith("a pipe; line 2 of $FLEETCTL_METRICS")


def test_there_is_no_journal_in_a_directory_or_a_pipe(reading: tuple[JournalRuns, Path]) -> None:
    runs, path = reading
    for seen in (runs.read, runs.begun, runs.end_of):
        assert seen(UID, RUN) is None
    os.mkfifo(path)
    for seen in (runs.read, runs.begun, runs.end_of):
        assert seen(UID, RUN) is None
