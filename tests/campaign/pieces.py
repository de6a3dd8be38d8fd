"""Plays pieces side by side, each in a process of its own: one that hangs or dies is a finding and
ends no other.
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType

from tests.campaign.parts import Part

# Of a piece: nets under one that never ends. A piece that waits for ever takes no CPU.
CPU_MAX_S = 3600
WAIT_MAX_S = 4 * 60 * 60.0
STOP_WAIT_S = 120.0  # for a piece that is interrupted to end its own processes
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Piece:
    """cpu_s: of the process of the piece and all that it waited for."""

    part: str
    number: int
    done: int
    findings: list[str]
    seconds: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Running:
    part: Part
    number: int
    process: BaseProcess
    reply: Connection
    began_s: float


Choose = Callable[[Sequence[Running]], tuple[Part, int] | None]


def play(choose: Choose) -> Iterator[Piece]:
    """Yields pieces as they end. choose: the next one beside those that run, None for none now."""
    running: list[Running] = []
    try:
        while True:
            while (chosen := choose(running)) is not None:
                running.append(_start(*chosen))
            if not running:
                return
            for one in _wait_for_ends(running):
                running.remove(one)
                yield _end_of(one)
    finally:
        for one in running:
            one.process.terminate()
        for one in running:
            one.process.join(STOP_WAIT_S)
            one.process.kill()


def _start(part: Part, number: int) -> Running:
    import_module(part.module)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_play, args=(part, number, theirs))
    process.start()
    theirs.close()
    return Running(part, number, process, ours, time.monotonic())


def _wait_for_ends(running: Sequence[Running]) -> list[Running]:
    """Returns the pieces that ended or took too long, at least one."""
    while True:
        ready = wait([one.reply for one in running], LOOK_S)
        now_s = time.monotonic()
        ended = [one for one in running if one.reply in ready or now_s - one.began_s > WAIT_MAX_S]
        if ended:
            return ended


def _play(part: Part, number: int, reply: Connection) -> None:
    signal.signal(signal.SIGTERM, _leave)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_MAX_S, CPU_MAX_S))
    began_s = time.monotonic()
    done, findings = part.run(number)
    used = [resource.getrusage(it) for it in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(it.ru_utime + it.ru_stime for it in used)
    reply.send(Piece(part.name, number, done, findings, time.monotonic() - began_s, cpu_s))


def _leave(number: int, frame: FrameType | None) -> None:
    """Ends a piece by way of its `finally` blocks, which end its own processes."""
    raise SystemExit(128 + number)


def _end_of(one: Running) -> Piece:
    seconds = time.monotonic() - one.began_s
    if not one.reply.poll():
        one.process.kill()
        one.process.join()
        sentence = f"piece {one.number} did not end within {WAIT_MAX_S:g} s"
        return Piece(one.part.name, one.number, 0, [sentence], seconds, 0.0)
    try:
        piece: Piece = one.reply.recv()
    except EOFError:
        one.process.join()
        sentence = f"piece {one.number} ended with {one.process.exitcode}"
        return Piece(one.part.name, one.number, 0, [sentence], seconds, 0.0)
    one.process.join()
    return piece
