"""One run's log as lines: prefixes, tails, lines without an end, and what a terminal is spared."""

from __future__ import annotations

import argparse
import io
import re
import signal
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.command.flags import parse_moment
from fleetctl.cli.follow.logs_stream import (
    LINE_BYTES_MAX,
    UNDATED,
    LogStream,
    NodeStreams,
    TimestampOptions,
)
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.read.rows import RunRow
from fleetctl.stores.sqlite.store import open_store

RUN = RunRow(
    index=3, attempt=2, state="Running", name="r", provider="local", sandbox="r", handle="h",
    created_at_s=0.0, started_at_s=0.0, ended_at_s=None, exit_code=None, reason="", message="",
    sandbox_open=False, params="{}",
)  # fmt: skip


class World:
    """A home with one run's log, and what was printed of it."""

    def __init__(self, home: Path, *, terminal: bool = False) -> None:
        self.home = home
        self.raw = io.BytesIO()
        out = io.TextIOWrapper(self.raw, encoding="utf-8", newline="")
        self.screen = Screen(out, io.StringIO(), out_is_terminal=terminal)
        self.log = home / "local" / "jobs" / "u" / "runs" / "r.log"
        self.log.parent.mkdir(parents=True)

    def stream(
        self,
        *,
        tail: int | None = None,
        prefixed: bool = True,
        dating: TimestampOptions = UNDATED,
        grep: re.Pattern[str] | None = None,
    ) -> LogStream:
        how: dict[str, Any] = {"prefixed": prefixed, "dating": dating, "grep": grep}
        return LogStream(self.home, "u", RUN, self.screen, tail=tail, **how)

    def append(self, data: bytes) -> None:
        with self.log.open("ab") as log:
            log.write(data)

    def printed(self) -> bytes:
        self.screen.flush()
        return self.raw.getvalue()


def test_lines_are_printed_once_as_they_become_whole(tmp_path: Path) -> None:
    world = World(tmp_path)
    stream = world.stream()
    world.append(b"one\ntw")
    stream.drain()
    assert world.printed() == b"[3/2] one\n"
    world.append(b"o\nthree")
    stream.drain()
    stream.drain()
    assert world.printed() == b"[3/2] one\n[3/2] two\n"
    stream.finish()
    assert world.printed() == b"[3/2] one\n[3/2] two\n[3/2] three\n"


def test_a_log_that_is_not_there_yet_is_empty_and_no_error(tmp_path: Path) -> None:
    world = World(tmp_path)
    stream = world.stream()
    stream.drain()
    stream.finish()
    assert stream.empty
    assert world.printed() == b""


@pytest.mark.parametrize(
    ("log", "tail", "shown"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc\n"),
        (b"a\n", 5, b"a\n"),
        (b"a\nb\n", 0, b""),
        (b"\n\n\n", 1, b"\n"),
    ],
)
def test_a_tail_is_the_last_lines(tmp_path: Path, log: bytes, tail: int, shown: bytes) -> None:
    world = World(tmp_path)
    world.append(log)
    stream = world.stream(tail=tail, prefixed=False)
    stream.drain()
    stream.finish()
    assert world.printed() == shown


def test_what_comes_after_a_tail_is_printed_whole(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(b"a\nb\nc\n")
    stream = world.stream(tail=1, prefixed=False)
    stream.drain()
    world.append(b"d\ne\n")
    stream.drain()
    assert world.printed() == b"c\nd\ne\n"


def test_on_a_terminal_a_line_without_end_is_cut_between_letters(tmp_path: Path) -> None:
    world = World(tmp_path, terminal=True)
    endless = "é" * LINE_BYTES_MAX
    world.append(b"x" + endless.encode())
    stream = world.stream(prefixed=False)
    stream.drain()
    stream.finish()
    lines = world.printed().decode().split("\n")[:-1]
    assert len(lines) > 1
    assert "".join(lines) == "x" + endless


@pytest.mark.parametrize("tail", [None, 1])
def test_a_program_gets_a_long_line_whole(tmp_path: Path, tail: int | None) -> None:
    line = b"x" + "é".encode() * 10 * LINE_BYTES_MAX + b"\n"
    for prefix in (b"", b"[3/2] "):
        world = World(tmp_path / str(len(prefix)))
        stream = world.stream(prefixed=bool(prefix), tail=tail)
        for at in range(0, len(line), 100_001):
            world.append(line[at : at + 100_001])
            if tail is None:
                stream.drain()
        stream.drain()
        assert world.printed() == prefix + line


def test_bars_and_dots_reach_a_program_as_they_grow(tmp_path: Path) -> None:
    world = World(tmp_path)
    stream = world.stream()
    for data, printed in (
        (b"one\n\r1/9", b"[3/2] one\n[3/2] \r1/9"),
        (b"\r2/9\xc3", b"[3/2] one\n[3/2] \r1/9\r2/9"),
        (b"\xa9\nend", b"[3/2] one\n[3/2] \r1/9\r2/9\xc3\xa9\n[3/2] end"),
    ):
        world.append(data)
        stream.drain()
        stream.show_unfinished(alone=True)
        assert world.printed() == printed
    stream.finish()
    assert world.printed() == printed + b"\n"


def test_a_terminal_shows_the_newest_state_of_a_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    world = World(tmp_path, terminal=True)
    stream = world.stream()
    world.append(b"\r1/9\r2/9")
    stream.drain()
    stream.show_unfinished(alone=False)
    stream.show_unfinished(alone=False)
    assert world.printed() == b"\r\x1b[2K[3/2] 2/9"
    world.append(b"\r" + b"." * 20 + b"!")
    stream.drain()
    stream.show_unfinished(alone=False)
    assert world.printed().decode().endswith("\r\x1b[2K[3/2] …...........!")
    world.append(b"\rdone\n")
    stream.drain()
    assert world.printed().endswith(b"\r\x1b[2K[3/2] done\n")


@pytest.mark.parametrize(
    ("prefixed", "seen"),
    [(False, b".....\nother\n"), (True, b"[3/2] ...\n[3/2] other\n[3/2] ..\n")],
)
def test_lines_of_others_do_not_break_one_that_has_no_prefix(
    tmp_path: Path, prefixed: bool, seen: bytes
) -> None:
    world, other = World(tmp_path / "a"), World(tmp_path / "b")
    other.screen = world.screen
    logs = [world.stream(prefixed=prefixed), other.stream(prefixed=prefixed)]
    streams = [NodeStreams(lambda *_, log=log, **__: log, only=0) for log in logs]

    def turn() -> None:
        for one in [it for it in streams if not it.waits(world.screen)]:
            one.drain()
            one.show_unfinished(alone=True)

    world.append(b"...")
    turn()
    other.append(b"other\n")
    turn()
    world.append(b"..\n")
    turn()
    turn()
    assert world.printed() == seen


def test_of_several_without_a_prefix_whole_lines_alone_are_printed(tmp_path: Path) -> None:
    world = World(tmp_path)
    stream = world.stream(prefixed=False)
    world.append(b"one\ntw")
    stream.drain()
    stream.show_unfinished(alone=False)
    assert world.printed() == b"one\n"


def test_grep_shows_the_lines_that_have_the_expression(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(b"epoch 1 loss=0.5\nsaving\nepoch 2 loss=nan")
    stream = world.stream(prefixed=False, grep=re.compile(r"loss=(nan|0)"))
    stream.drain()
    stream.show_unfinished(alone=True)
    stream.finish()
    assert world.printed() == b"epoch 1 loss=0.5\nepoch 2 loss=nan\n"


@pytest.mark.parametrize("ends", [True, False])
def test_an_expression_that_would_try_for_ever_is_refused(tmp_path: Path, ends: bool) -> None:
    world = World(tmp_path)
    world.append(b"loss=0.5 a\n" + b"a" * 60 + b"!" + b"\n" * ends)
    stream = world.stream(prefixed=False, grep=re.compile(r"(a+)+$"))
    with pytest.raises(UsageError, match="takes too long for a line of 61 characters"):
        stream.drain()
        stream.finish()
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert world.printed() == b"loss=0.5 a\n"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-01", "2026-11-01T00:00:00+00:00"),
        ("2026-11-01T18:30", "2026-11-01T18:30:00+00:00"),
        ("2026-11-01T18:30:05+02:00", "2026-11-01T16:30:05+00:00"),
        ("today", "2026-11-28T00:00:00+00:00"),
        ("yesterday", "2026-11-27T00:00:00+00:00"),
        ("2h", "2026-11-28T08:00:00+00:00"),
    ],
)
def test_since_takes_a_time_ago_or_a_date(text: str, at: str) -> None:
    now_s = datetime.fromisoformat("2026-11-28T10:00:00+00:00").timestamp()
    assert parse_moment(text)(now_s) == datetime.fromisoformat(at).timestamp()


@pytest.mark.parametrize("text", ["2026-13-01", "2026-1", "noon", "5x"])
def test_since_refuses_what_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time"):
        parse_moment(text)


def test_lines_are_dated_by_the_marks_beside_the_log(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(b"at once\nlater\n")
    world.log.with_suffix(".times").write_bytes(b"8 60.250\n14 3600.000\n20 99")
    dated = world.stream(prefixed=False, dating=TimestampOptions(timestamps=True))
    dated.drain()
    world.append(b"last\n")  # byte 14
    dated.drain()
    assert world.printed().decode().splitlines() == [
        "1970-01-01T00:00:00Z at once",
        "1970-01-01T00:01:00Z later",
        "1970-01-01T01:00:00Z last",
    ]


def test_since_leaves_out_what_came_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(b"at once\nlater\nlast\n")
    world.log.with_suffix(".times").write_bytes(b"8 60.250\n14 3600.000\n")
    stream = world.stream(prefixed=False, tail=2, dating=TimestampOptions(since_s=60.0))
    stream.drain()
    assert world.printed() == b"later\nlast\n"


@pytest.mark.parametrize(
    ("drawn", "seen"),
    [
        (b"\rprogress   0%\rprogress  10%\x1b[K\rprogress 100%\r\n", "progress 100%"),
        (b"\x1b[1;31mred\x1b[0m and plain\n", "red and plain"),
        (b"\x1b[Aup\r\n", "up"),
        (b"\r\n", ""),
    ],
)
def test_a_terminal_gets_what_it_would_show_in_the_end(
    tmp_path: Path, drawn: bytes, seen: str
) -> None:
    for terminal, expected in ((True, seen.encode() + b"\n"), (False, drawn)):
        world = World(tmp_path / str(terminal), terminal=terminal)
        world.append(drawn)
        world.stream(prefixed=False).drain()
        assert world.printed() == expected


def test_of_a_bar_without_end_a_terminal_gets_the_last_state(tmp_path: Path) -> None:
    world = World(tmp_path, terminal=True)
    world.append(b"".join(b"\rstep %6d" % step for step in range(20_000)))
    stream = world.stream(prefixed=False)
    stream.drain()
    stream.finish()
    assert world.printed() == b"step  19999\n"


def test_a_program_gets_the_bytes_and_a_terminal_gets_escapes(tmp_path: Path) -> None:
    evil = b"\x1b[2J\xff\x9b2J \xe2\x80\xae tab\there\r\n"
    for terminal, expected in (
        (False, b"[3/2] " + evil),
        (True, "[3/2] \\x1b[2J��2J \\u202e tab  here\n".encode()),
    ):
        world = World(tmp_path / str(terminal), terminal=terminal)
        world.append(evil)
        stream = world.stream()
        stream.drain()
        assert world.printed() == expected


@pytest.mark.parametrize("flags", [(), ("-f",), ("--index", "1")])
def test_a_cached_task_has_no_log_and_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    world = World(tmp_path)
    world.append(b"ran here\n")
    over = '{"phase": "Succeeded", "observedGeneration": 1}'
    row = Resource("u", "BatchJob", "x", 1, 0, "{}", over, {}, {}, 5.0)
    ran = Run("r", "u", 0, 1, RunState.STARTING, "local", "r", "t", "{}", "p", 5.0)
    reused = replace(ran, name="c", index=1, provider="", sandbox="c", reason="Cached")
    store = open_store(tmp_path, SystemClock())  # held open, so that `-f` starts no controller
    with store.transaction():
        store.resources.put(row, expected_version=None)
        store.runs.begin([ran, reused])
        for run in (ran, reused):
            store.runs.advance(replace(run, state=RunState.SUCCEEDED))
    assert run_guarded(["logs", "job/x", *flags], world.screen) == 0
    store.close()
    assert world.printed() == (b"" if "1" in flags else b"[0/1] ran here\n")
    talk = world.screen.talk_stream
    assert isinstance(talk, io.StringIO)
    assert ("1 task cached" in talk.getvalue()) is ("-f" not in flags)
