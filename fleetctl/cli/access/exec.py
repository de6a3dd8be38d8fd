"""`fleetctl exec`: a command beside a task that runs, in its sandbox."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.render import Screen
from fleetctl.cli.targets.task import Beside, add_which, beside, which_of
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.home import home
from fleetctl.views.kinds import target

PIECE_BYTES = 64 * 1024


class _Parser(Parser):
    """What follows `--` is the command, whatever it looks like; without it, what follows the
    object.
    """

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        words = list(argv)
        at = words.index("--") if "--" in words else self._after_object(words)
        args = super().parse(words[:at])
        args.command = words[at:][words[at : at + 1] == ["--"] :]
        return args

    def _after_object(self, words: Sequence[str]) -> int:
        """Where the command begins: at the first word after `job/x`, or after `job x`."""
        values = {name for it in self.arguments() if it.nargs != 0 for name in it.option_strings}
        names, skip = 0, False
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
    made = _Parser(verb, PAGE)
    made.add_argument("object", metavar="KIND/NAME", help="whose task")
    add_which(made)
    made.add_argument("-i", "--stdin", action="store_true", help="give it our standard input")
    made.add_argument("-t", "--tty", action="store_true", help="give it a terminal")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if not args.command:
        hint = f"write it after the object: fleetctl exec {args.object} -- ls"
        raise UsageError("there is no command", hint=hint)
    return asyncio.run(_run(args, screen))


async def _run(args: Namespace, screen: Screen) -> int:
    found = beside(target(args.object, args.namespace), which_of(args), home())
    tty = args.tty and _has_terminal(screen)
    if args.tty and not tty:
        screen.warn("there is no terminal here to give to the command")
    if tty and not found.entering.terminal:
        raise Refused("this provider gives a command no terminal", hint="leave `-t` out")
    try:
        with _raw() if tty else _as_it_is():
            return await _execute(found, args, screen, tty=tty)
    finally:
        await found.entering.close()


async def _execute(found: Beside, args: Namespace, screen: Screen, *, tty: bool) -> int:
    from fleetctl.providers.contract.exec import Streams

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
    streams = Streams(
        stdin=typed() if args.stdin else None,
        out=out,
        err=err,
        tty=(size.lines, size.columns) if size is not None else None,
        sizes=_sizes() if tty else None,
    )
    return await found.entering.execute(found.place, tuple(args.command), streams)


async def typed() -> AsyncIterator[bytes]:
    """Our own standard input. Read by a thread that nobody has to wait for at the end."""
    import threading

    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue(maxsize=16)

    def read() -> None:
        while True:
            data = os.read(sys.stdin.fileno(), PIECE_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(pieces.put(data), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the command is over, and the loop with it
            if not data:
                return

    threading.Thread(target=read, daemon=True).start()
    while data := await pieces.get():
        yield data


async def _sizes() -> AsyncIterator[tuple[int, int]]:
    """Rows and columns whenever the window has changed."""
    import signal

    loop, changed = asyncio.get_running_loop(), asyncio.Event()
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
def _raw() -> Iterator[None]:
    """Keys go to the command as they are pressed, Ctrl-C among them."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin.fileno())
    tty.setraw(sys.stdin.fileno(), termios.TCSADRAIN)  # what was typed ahead is kept
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
