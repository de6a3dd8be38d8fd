"""Streams a run's frames to stdout, from any offset, live, until its end.

Called by attach.py. Reads files alone; the line to the supervisor only says when to look.
"""

from __future__ import annotations

import os
import select
import time

from fleetctl.guest.remote import place
from fleetctl.guest.remote.story.frames import ALIVE, ALIVE_S, Story

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Optional

    from fleetctl.guest.remote.story.frames import Offsets

LOOK_S = 0.1  # between two looks while there is no line to the supervisor
BEGINNING_S = 5.0  # between a latch and the journal; longer means that the latch's owner died
LOST = 3  # the exit code of a run whose supervisor died without an end record


def follow(
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
        supervised = line is not None or place.supervised()
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
            from fleetctl.guest.remote.story.unbegun import write_unbegun_run

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
    """Waits until there may be news; returns the line to the supervisor after that."""
    poll = select.poll()
    poll.register(1, 0)  # reports that the reader has closed the pipe
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
