"""Has TERM unwind a Python task, so that its `finally` blocks run within its grace.

Called by task.py around the task's program. The process still ends by the signal, and what a
program does with the signal itself goes before.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class Terminated(BaseException):
    """Unwinds a task that was told to end. No Exception, so that `except Exception` in a task does
    not hold it up.
    """


def heed_term() -> None:
    """Begin, where nothing else takes the signal and this thread may."""
    owner = os.getpid()
    unwound = False

    def unwind(number: int, _: Any) -> None:
        nonlocal unwound
        if os.getpid() != owner:
            _end_by(number)  # a fork of the task
        if not unwound:  # the process and its group are told, and it unwinds once
            unwound = True
            raise Terminated

    unwind.__name__ = UNWIND
    if _signal.getsignal(_signal.SIGTERM) == _signal.SIG_DFL:
        try:
            _signal.signal(_signal.SIGTERM, unwind)
        except ValueError:
            return  # a thread that is not the main one


def heed_term_no_more() -> None:
    """Let the signal end the process at once again, unless the task has taken it over."""
    if getattr(_signal.getsignal(_signal.SIGTERM), "__name__", "") == UNWIND:
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)


def end_by_term() -> NoReturn:
    """End as what the signal has ended, with all output written."""
    for stream in (sys.stdout, sys.stderr):
        flush_stream(stream)
    _end_by(_signal.SIGTERM)


def flush_stream(stream: Any) -> None:
    """A task may have put anything there, closed or of its own making."""
    try:
        stream.flush()
    except Exception:
        return  # it cannot be written, and is the task's loss


def _end_by(number: int) -> NoReturn:
    _signal.signal(number, _signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # where it is blocked


UNWIND = "unwind_task"
