"""An emulator in a process of its own, forked from one that has imported them all: to import what
they need takes most of a second, and dozens of test files start one.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import TextIO

REPOSITORY = Path(__file__).resolve().parents[2]
EMULATORS = tuple(
    f"tests.emulators.{it}.__main__" for it in ("modal", "daytona", "wandb", "kubernetes")
)
FREEZES = "tests.emulators.frozen"
# Modules that others add before the first start, for what they fork from the same process.
imported_too: list[str] = []
STOP_S_MAX = 120.0  # against a hang alone: what is killed leaves its files


class Program:
    """`python -m MODULE ARGV` with pipes at stdin and stdout. Its stdin ends with this process.

    log: where its stderr goes, else where ours does.
    """

    def __init__(self, module: str, argv: Sequence[str], *, log: Path | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        preload(context)
        stdin, self._stdin = context.Pipe(duplex=False)
        said, stdout = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(module, [*argv], dict(os.environ), stdin, stdout, log), daemon=True
        )
        self._process.start()
        stdin.close()
        stdout.close()
        self.stdout: TextIO = os.fdopen(os.dup(said.fileno()), encoding="utf-8")
        said.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def stop(self) -> None:
        """End its stdin, and wait until it has ended, which is asked for once at most politely."""
        self._stdin.close()
        self._process.join(STOP_S_MAX)
        self.kill()
        self.stdout.close()

    def kill(self) -> None:
        """As a crash: nothing is said or saved. Idempotent."""
        self._process.kill()
        self._process.join()


def preload(context: ForkServerContext) -> None:
    """Says what the one process imports that all are forked from; it starts with the first."""
    context.set_forkserver_preload([*EMULATORS, *imported_too, FREEZES])


def _run(
    module: str,
    argv: list[str],
    variables: dict[str, str],
    stdin: Connection,
    stdout: Connection,
    log: Path | None,
) -> None:
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(REPOSITORY)
    for handle, one in ((0, stdin), (1, stdout)):
        os.dup2(one.fileno(), handle)
        one.close()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as we live
    if log is not None:
        with log.open("a") as file:
            os.dup2(file.fileno(), 2)
    sys.argv = [module, *argv]
    importlib.import_module(module).main()
