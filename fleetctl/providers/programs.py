"""Runs programs of this machine (git, uv, ...), each with a deadline, and leaves none behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ANSWER_S = 30.0  # for a program that only looks something up

# `Process.wait` also waits for its pipes, which a child that left the group may hold for ever.
EXIT_LOOK_S = 0.005


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    code: int
    out: bytes
    errors: bytes


async def run_program(
    argv: Sequence[str],
    *,
    deadline_s: float = ANSWER_S,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    log: int | None = None,
) -> ProgramOutput:
    """Runs a program to its end. log: a descriptor that takes its output instead.

    Raises OSError when it cannot be started and TimeoutError after deadline_s. Then, and when the
    caller is cancelled, the program and what it started are killed before this returns.
    """
    target = asyncio.subprocess.PIPE if log is None else log
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=target,
            stderr=target,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(spawning)
    except asyncio.CancelledError:
        # Cancelled on its way, asyncio would kill the program alone, and wait for its children.
        await _kill_group(await spawning)
        raise
    try:
        async with asyncio.timeout(deadline_s):
            out, errors = await process.communicate()
    except (TimeoutError, asyncio.CancelledError):
        await _kill_group(process)
        raise
    assert process.returncode is not None
    return ProgramOutput(process.returncode, out or b"", errors or b"")


async def _kill_group(process: asyncio.subprocess.Process) -> None:
    """Kills the process group; returns once the process is gone, even with open output pipes."""
    if process.returncode is None:
        with suppress(ProcessLookupError):  # it ended by itself just now
            os.killpg(process.pid, signal.SIGKILL)
    while process.returncode is None:
        await asyncio.sleep(EXIT_LOOK_S)
