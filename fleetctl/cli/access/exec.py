"""`fleetctl exec`: runs a command beside a running task, in its sandbox."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.task import TaskAccess, add_which, find_task_access, parse_task_choice
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.views.kinds import parse_target

PIECE_BYTES = 64 * 1024


class _ExecParser(Parser):
    """A parser that takes all words after `--` as the command; without `--`, all words after the
    object.
    """

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        words = list(argv)
        at = words.index("--") if "--" in words else self._after_object(words)
        args = super().parse(words[:at])
        args.command = words[at:][words[at : at + 1] == ["--"] :]
        return args

    def _after_object(self, words: Sequence[str]) -> int:
        """Returns the index of the command's first word: after `job/x`, or after `job x`."""
        values = {name for it in self.arguments() if it.nargs != 0 for name in it.option_strings}
        names = 0
        skip = False
        for at, word in enumerate(words):
            if skip:
                skip = False
            elif word.startswith("-"):
                skip = word in values
            elif names >= 2:
                return at
            else:
                names += 2 if names or "/" in word else 1
        return len(words)


PAGE = """\
KIND/NAME [--index N | --stage NAME] [--node N] [-i] [-t]
    [--] COMMAND [ARG ...]

Run a command beside a task that runs, in its sandbox: its files, variables and
limits. The exit code is the command's. It ends with the task, and the task does
not notice. At Daytona a command without a terminal gets its input as a whole.

examples:
  fleetctl exec job/chunks ls -l
  fleetctl exec job/chunks --index 3 -- python -c 'print(1)'
  fleetctl exec tr/pretrain -it -- bash
  tar -c lib | fleetctl exec tr/pretrain -i -- tar -x

exit codes:
  0 ok, else that of the command; of fleetctl itself: 2 wrong usage,
  3 the task does not run, 4 no such object or task
"""


def parser(verb: str) -> Parser:
    made = _ExecParser(verb, PAGE)
    made.add_argument("object", metavar="KIND/NAME", help="whose task")
    add_which(made)
    made.add_argument("-i", "--stdin", action="store_true", help="give it our standard input")
    made.add_argument("-t", "--tty", action="store_true", help="give it a terminal")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if not args.command:
        hint = f"write it after the object: fleetctl exec {args.object} -- ls"
        raise UsageError("there is no command", hint=hint)
    return asyncio.run(_exec_in_task(args, screen))


async def _exec_in_task(args: Namespace, screen: Screen) -> int:
    found = find_task_access(
        parse_target(args.object, args.namespace), parse_task_choice(args), find_state_dir()
    )
    tty = args.tty and _has_terminal(screen)
    if args.tty and not tty:
        screen.warn("there is no terminal here to give to the command")
    if tty and not found.entering.terminal:
        raise Refused("this provider gives a command no terminal", hint="leave `-t` out")
    try:
        with _raw_terminal() if tty else _keep_terminal():
            return await _execute_command(found, args, screen, tty=tty)
    finally:
        await found.entering.close()


async def _execute_command(
    found: TaskAccess,
    args: Namespace,
    screen: Screen,
    *,
    tty: bool,
) -> int:
    from fleetctl.providers.contract.sandbox_access import ExecStreams

    def out(data: bytes) -> None:
        screen.raw(data)
        screen.flush()

    def err(data: bytes) -> None:
        buffer = getattr(screen.talk_stream, "buffer", None)
        if buffer is None:
            screen.talk_stream.write(data.decode("utf-8", "replace"))
        else:
            buffer.write(data)
        screen.talk_stream.flush()

    size = os.get_terminal_size() if tty else None
    streams = ExecStreams(
        stdin=read_stdin() if args.stdin else None,
        out=out,
        err=err,
        tty=(size.lines, size.columns) if size is not None else None,
        sizes=_watch_window_size() if tty else None,
    )
    return await found.entering.execute(found.place, tuple(args.command), streams)


async def read_stdin() -> AsyncIterator[bytes]:
    """Yields our own standard input. Read by a thread that does not delay the exit."""
    import threading

    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue(maxsize=16)

    def read() -> None:
        while True:
            data = os.read(sys.stdin.fileno(), PIECE_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(pieces.put(data), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the command has ended, and the loop with it
            if not data:
                return

    threading.Thread(target=read, daemon=True).start()
    while data := await pieces.get():
        yield data


async def _watch_window_size() -> AsyncIterator[tuple[int, int]]:
    """Yields rows and columns whenever the window has changed."""
    import signal

    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            size = os.get_terminal_size()
            yield size.lines, size.columns
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def _has_terminal(screen: Screen) -> bool:
    return sys.stdin.isatty() and screen.out_is_terminal


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Sends keys to the command as they are pressed, Ctrl-C among them."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin.fileno())
    tty.setraw(sys.stdin.fileno(), termios.TCSADRAIN)  # keys that were typed ahead are kept
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


@contextmanager
def _keep_terminal() -> Iterator[None]:
    yield
