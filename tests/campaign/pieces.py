"""Plays the pieces of a part, each in a process of its own, in the order of their numbers: one that
hangs or dies is a finding and ends no other.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tests.campaign.parts import Part

# Of a piece: nets under one that never ends. A piece that waits for ever takes no CPU.
CPU_MAX_S = 1800
WAIT_MAX_S = 2 * 60 * 60.0


@dataclass(frozen=True, slots=True)
class Piece:
    number: int
    done: int
    findings: list[str]
    cpu_s: float


def play(
    part: Part, first: int, is_wanted: Callable[[int], bool], *, workers: int
) -> Iterator[Piece]:
    """From piece `first` on, as long as is_wanted(number of the next one)."""
    context = multiprocessing.get_context("fork")
    running: list[tuple[int, multiprocessing.process.BaseProcess, Connection]] = []
    number = first
    try:
        while True:
            while len(running) < workers and is_wanted(number):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_play, args=(part, number, theirs))
                process.start()
                theirs.close()
                running.append((number, process, ours))
                number += 1
            if not running:
                return
            oldest, process, connection = running.pop(0)
            yield _end_of(oldest, process, connection)
    finally:
        for _, process, _ in running:
            process.terminate()
            process.join()


def _play(part: Part, number: int, connection: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_MAX_S, CPU_MAX_S))
    done, findings = part.run(number)
    used = [resource.getrusage(it) for it in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(it.ru_utime + it.ru_stime for it in used)
    connection.send(Piece(number, done, findings, cpu_s))


def _end_of(
    number: int, process: multiprocessing.process.BaseProcess, connection: Connection
) -> Piece:
    if not connection.poll(WAIT_MAX_S):
        process.kill()
        process.join()
        return Piece(number, 0, [f"piece {number} did not end within {WAIT_MAX_S:g} s"], 0.0)
    try:
        piece: Piece = connection.recv()
    except EOFError:
        process.join()
        return Piece(number, 0, [f"piece {number} ended with {process.exitcode}"], 0.0)
    process.join()
    return piece
