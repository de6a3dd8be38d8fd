"""Runs in the box: one Python namespace that lives as long as its context.

Takes one JSON object a line on standard input, `{"code", "envs"}`, and answers with JSON lines on
the descriptor that was standard output at the start: `stdout` and `stderr` texts, at most one
`error`, and `done`. What child processes print goes to standard error, which is read there too.
Standard library only; started with `python3 -c <this text>`.
"""

import io
import json
import os
import signal
import sys
import traceback

WIRE = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogateescape")
os.dup2(2, 1)


class Stream(io.TextIOBase):
    def __init__(self, kind):
        self.kind = kind

    def writable(self):
        return True

    def write(self, text):
        if text:
            tell(type=self.kind, text=text)
        return len(text)


def tell(**message):
    WIRE.write(json.dumps(message) + "\n")
    WIRE.flush()


def heed_interrupts(now):
    """Code that is slow to begin is interrupted once it has begun: before, that would end us."""
    change = signal.SIG_UNBLOCK if now else signal.SIG_BLOCK
    signal.pthread_sigmask(change, {signal.SIGINT})


def run(code, namespace):
    try:
        heed_interrupts(True)
        exec(compile(code, "<code>", "exec"), namespace)
    except SystemExit as end:
        if end.code not in (None, 0):
            tell(type="error", name="SystemExit", value=str(end.code), traceback="")
    except BaseException as error:
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        text = "".join(traceback.format_exception(type(error), error, frames))
        tell(type="error", name=type(error).__name__, value=str(error), traceback=text)


def main():
    sys.stdout, sys.stderr = Stream("stdout"), Stream("stderr")
    heed_interrupts(False)
    namespace = {"__name__": "__main__", "__builtins__": __builtins__}
    stdin = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in stdin:
        desired = json.loads(line)
        before = dict(os.environ)
        os.environ.update(desired["envs"])
        run(desired["code"], namespace)
        heed_interrupts(False)
        os.environ.clear()
        os.environ.update(before)
        tell(type="done")


main()
