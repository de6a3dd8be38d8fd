"""A follower brings all of a run's journal and log home, whatever its streams do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.providers.remote.runs.follower import FollowEnd, Follower, FollowPace, SandboxOver
from fleetctl.providers.remote.runs.run_mirror import RunMirror
from tests.unit.providers.remote import frames

JOURNAL = frames.started() + frames.ended()
LOG = b"one\ntwo\nthree\nfour\n"
QUICK = FollowPace(silence_s=30.0, retry_initial_s=0.001, retry_max_s=0.01)


class Line:
    """Streams of one guest. `script`: what each stream does; the last one says everything."""

    def __init__(self, *script: object) -> None:
        self.script = list(script)
        self.offsets: list[tuple[int, int]] = []
        self.over_answers: list[bool | Exception] = []

    async def open(self, journal_at: int, log_at: int) -> AsyncGenerator[bytes, None]:
        self.offsets.append((journal_at, log_at))
        act = self.script.pop(0) if self.script else None
        data = frames.stream(JOURNAL, LOG, journal_at, log_at)
        if isinstance(act, Exception):
            raise act
        if isinstance(act, bytes):
            yield act
            return
        cut = act if isinstance(act, int) else len(data)
        for at in range(0, cut, 9):
            yield data[at : min(at + 9, cut)]
        if act == 0:
            await asyncio.sleep(3600)  # silence

    async def over(self) -> bool:
        answer = self.over_answers.pop(0) if self.over_answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer


def follow(
    tmp_path: Path, line: Line, pace: FollowPace = QUICK
) -> tuple[FollowEnd, Follower, list[int]]:
    changes: list[int] = []

    async def play() -> tuple[FollowEnd, Follower]:
        follower = Follower(
            RunMirror(tmp_path, "run-0"),
            line.open,
            over=line.over,
            changed=lambda: changes.append(1),
            pace=pace,
        )
        return await follower.run(), follower

    end, follower = asyncio.run(play())
    return end, follower, changes


def whole(tmp_path: Path) -> bool:
    return (tmp_path / "run-0.jsonl").read_bytes() == JOURNAL and (
        tmp_path / "run-0.log"
    ).read_bytes() == LOG


def test_one_stream_brings_everything_and_says_when_it_began(tmp_path: Path) -> None:
    line = Line()
    end, follower, changes = follow(tmp_path, line)
    assert (end, follower.began.is_set()) == (FollowEnd.EOF, True)
    assert changes
    assert whole(tmp_path)
    assert line.offsets == [(0, 0)]


@pytest.mark.parametrize("cut", [1, 30, 70, 120, 200])
def test_a_stream_that_drops_is_opened_again_where_the_mirror_ends(
    tmp_path: Path, cut: int
) -> None:
    line = Line(cut, ConnectionError("reset"), Unavailable("no answer"), cut)
    end, _, _ = follow(tmp_path, line)
    assert end is FollowEnd.EOF
    assert whole(tmp_path)
    assert line.offsets == sorted(line.offsets)
    assert len(line.offsets) >= 4


def test_a_service_that_takes_no_calls_is_asked_nothing_as_long_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    real = asyncio.sleep

    async def sleep(delay_s: float) -> None:
        waits.append(delay_s)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    refused = Unavailable("no", reason="RateLimited", retry_after_s=60.0)
    line = Line(refused, 30, ConnectionError("reset"))
    # Asked after the two streams that broke, not after the one that was refused.
    line.over_answers = [refused, False, False]
    end, _, _ = follow(tmp_path, line)
    assert (end, whole(tmp_path), line.over_answers) == (FollowEnd.EOF, True, [False])
    assert [wait_s >= 60 for wait_s in waits] == [True, True, False]


def test_a_stream_that_says_nothing_for_too_long_is_opened_again(tmp_path: Path) -> None:
    end, _, _ = follow(
        tmp_path, Line(0, 0), FollowPace(silence_s=0.02, retry_initial_s=0.001, retry_max_s=0.01)
    )
    assert end is FollowEnd.EOF
    assert whole(tmp_path)


def test_a_garbled_stream_is_opened_again(tmp_path: Path) -> None:
    end, _, _ = follow(tmp_path, Line(b'{"e":"log","at":"x"}\n', b"\n"[:0]))
    assert end is FollowEnd.EOF
    assert whole(tmp_path)


def test_a_disk_that_refuses_costs_patience_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = RunMirror.feed, []

    def feed(self: RunMirror, data: bytes) -> object:
        if len(refused) < 3:
            refused.append(data)
            raise OSError(28, "no space left on device")
        return real(self, data)

    monkeypatch.setattr(RunMirror, "feed", feed)
    end, _, _ = follow(tmp_path, Line())
    assert end is FollowEnd.EOF
    assert whole(tmp_path)


@pytest.mark.parametrize(
    ("frame", "end"),
    [
        (b'{"e":"lost","message":"the supervisor was killed"}\n', FollowEnd.LOST),
        (b'{"e":"unbegun"}\n', FollowEnd.UNBEGUN),
    ],
)
def test_what_the_guest_says_of_the_run_ends_the_following(
    tmp_path: Path, frame: bytes, end: FollowEnd
) -> None:
    seen, follower, _ = follow(tmp_path, Line(frame))
    assert seen is end
    assert follower.message == ("the supervisor was killed" if end is FollowEnd.LOST else "")


def test_a_sandbox_that_is_over_ends_the_following_and_a_question_without_answer_does_not(
    tmp_path: Path,
) -> None:
    line = Line(40, 10, 10, 10)
    line.over_answers = [False, Unavailable("no answer"), TimeoutError(), True]
    end, follower, _ = follow(tmp_path, line)
    assert end is FollowEnd.OVER
    assert len(line.offsets) == 4
    assert not follower.never_reached


def test_a_sandbox_that_was_over_before_the_first_stream_was_never_reached(tmp_path: Path) -> None:
    line = Line(SandboxOver("sb-1"))
    line.over_answers = [True]
    end, follower, _ = follow(tmp_path, line)
    assert (end, follower.never_reached, follower.began.is_set()) == (FollowEnd.OVER, True, False)


def test_a_sandbox_that_was_reached_once_is_not_called_never_reached(tmp_path: Path) -> None:
    line = Line(0, SandboxOver("sb-1"))
    line.over_answers = [False, True]
    end, follower, _ = follow(
        tmp_path, line, FollowPace(silence_s=0.02, retry_initial_s=0.001, retry_max_s=0.01)
    )
    assert (end, follower.never_reached) == (FollowEnd.OVER, False)


def test_a_bug_of_ours_is_not_taken_for_a_dropped_stream(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        follow(tmp_path, Line(ZeroDivisionError()))
