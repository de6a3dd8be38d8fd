"""The clock by which a file system dates changes, which is some milliseconds behind `time.time`.
Called when the work of a run begins.
"""

from __future__ import annotations

import os
import time

TICK_S, TICKS_MAX = 0.001, 50  # it goes on every 10 ms at the latest


def file_clock_ns(path: str, *, past: bool) -> int:
    """Returns the time of the file system's clock, by a change of the file at `path`.

    past: no file that is there already has this time; waits for it, some milliseconds.
    """
    first = now = _touch_status(path)
    for _ in range(TICKS_MAX if past else 0):
        if now != first:
            break
        time.sleep(TICK_S)
        now = _touch_status(path)
    return now


def _touch_status(path: str) -> int:
    """Changes a file's status alone, and returns when: by its other times others see whether it was
    read.
    """
    known = os.stat(path)
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
    return os.stat(path).st_ctime_ns
