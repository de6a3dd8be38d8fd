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
    if not _forks_known:
        _forks_known.append(True)
        # A fork that hangs in a library takes no signal that Python handles.
        os.register_at_fork(before=_before_fork, after_in_parent=_unblock, after_in_child=_in_fork)
    unwound = False

    def unwind(_number: int, _frame: Any) -> None:
        nonlocal unwound
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
    if _is_heeded():
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)


def end_by_term() -> NoReturn:
    """End as what the signal has ended, with all output written."""
    for stream in (sys.stdout, sys.stderr):
        flush_stream(stream)
    _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
    os.kill(os.getpid(), _signal.SIGTERM)
    os._exit(128 + _signal.SIGTERM)  # where it is blocked


def flush_stream(stream: Any) -> None:
    """A task may have put anything there, closed or of its own making."""
    try:
        stream.flush()
    except Exception:
        return  # it cannot be written, and is the task's loss


def _before_fork() -> None:
    """Python forgets in a fork what signals had come: one that comes now waits in the kernel."""
    if _is_heeded():
        _masks.append(_signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGTERM}))


def _in_fork() -> None:
    heed_term_no_more()
    _unblock()


def _unblock() -> None:
    if _masks:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, _masks.pop())


def _is_heeded() -> bool:
    return getattr(_signal.getsignal(_signal.SIGTERM), "__name__", "") == UNWIND


UNWIND = "unwind_task"
_forks_known: list[bool] = []
_masks: list[Any] = []
