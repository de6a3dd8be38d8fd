"""Asks programs of this machine (git, uv, ...), each with a deadline, and leaves none behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ANSWER_S = 30.0  # for a program that only looks something up


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: bytes
    errors: bytes


async def ask(
    argv: Sequence[str],
    *,
    deadline_s: float = ANSWER_S,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    log: int | None = None,
) -> Answer:
    """Run a program to its end. log: a descriptor that takes its output instead.

    Raises OSError when it cannot be started and TimeoutError after deadline_s. Then, and when the
    caller is cancelled, the program and what it started are killed before this returns.
    """
    target = asyncio.subprocess.PIPE if log is None else log
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=target,
        stderr=target,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(deadline_s):
            out, errors = await process.communicate()
    except (TimeoutError, asyncio.CancelledError):
        # It has not been waited for, so the number is still its own, and its group's.
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        raise
    assert process.returncode is not None
    return Answer(process.returncode, out or b"", errors or b"")
