"""Makes TERM unwind a Python task, so that its `finally` blocks run within its grace.

Called by task.py around the task's program. The process still ends by the signal, and a program's
own handler has priority.
"""

from __future__ import annotations

import _signal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class Terminated(BaseException):
    """Unwinds a task after TERM. No Exception, so that `except Exception` in a task does not hold
    it up.
    """


def heed_term() -> None:
    """Installs the handler, unless the signal has another one or this thread may not."""
    if not _forks_known:
        _forks_known.append(True)
        # A fork that hangs in a library takes no signal that Python handles.
        os.register_at_fork(
            before=_block_before_fork,
            after_in_parent=_unblock_signals,
            after_in_child=_unheed_in_fork,
        )
    unwound = False

    def unwind(_number: int, _frame: Any) -> None:
        nonlocal unwound
        if not unwound:  # the process and its group get a signal each, and the task unwinds once
            unwound = True
            raise Terminated

    unwind.__name__ = UNWIND
    if _signal.getsignal(_signal.SIGTERM) == _signal.SIG_DFL:
        try:
            _signal.signal(_signal.SIGTERM, unwind)
        except ValueError:
            return  # a thread that is not the main one


def heed_term_no_more() -> None:
    """Makes the signal end the process at once again, unless the task has its own handler."""
    if _is_heeded():
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)


def end_by_term() -> NoReturn:
    """Ends as after the bare signal, with all output written."""
    for stream in (sys.stdout, sys.stderr):
        flush_stream(stream)
    _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
    os.kill(os.getpid(), _signal.SIGTERM)
    os._exit(128 + _signal.SIGTERM)  # where it is blocked


def flush_stream(stream: Any) -> None:
    """Flushes a stream, which a task may have replaced or closed."""
    try:
        stream.flush()
    except Exception:  # a stream of the task's may raise anything
        return  # its bytes are the task's loss


def _block_before_fork() -> None:
    """Blocks the signal: Python forgets earlier ones in a fork; a new one waits in the kernel."""
    if _is_heeded():
        _masks.append(_signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGTERM}))


def _unheed_in_fork() -> None:
    heed_term_no_more()
    _unblock_signals()


def _unblock_signals() -> None:
    if _masks:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, _masks.pop())


def _is_heeded() -> bool:
    return getattr(_signal.getsignal(_signal.SIGTERM), "__name__", "") == UNWIND


UNWIND = "unwind_task"
_forks_known: list[bool] = []
_masks: list[Any] = []
