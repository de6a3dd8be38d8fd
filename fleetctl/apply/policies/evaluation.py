"""Evaluates expressions in a process of its own (evaluator.py) that the kernel bounds: 50 ms of CPU
time and 16 MB each. Called by judge.py.

A caller that must not wait puts its questions off, has them evaluated in a thread, and judges
again: values are cached by expression and data.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from fleetctl.apply.policies.evaluator import CPU_S, MEMORY_BYTES
from fleetctl.apply.policies.expressions import ExpressionError
from fleetctl.common.errors import Refused

KNOWN_MAX = 20_000
ENDED_MAX = 3  # processes that one expression ends before it is refused
ANSWER_S = 30.0  # the machine may be busy
_SHORTER = "look at less of the object, or ask for `size(...)`"


class Value(NamedTuple):
    """The value of an expression: a truth value or a text, or the name of another type."""

    value: bool | str | None
    type: str


class Subject:
    """The data that expressions read. name: the same for the same values."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.text = json.dumps(values, default=str)
        self.name = sha256(self.text.encode()).hexdigest()


class Question(NamedTuple):
    expression: str
    subject: Subject

    @property
    def key(self) -> tuple[str, str]:
        return self.expression, self.subject.name


# The results, oldest first: a value, or the exception that has the reason why there is none.
_known: OrderedDict[tuple[str, str], Value | ExpressionError | Refused] = OrderedDict()
_alone = threading.Lock()
_put_off: ContextVar[dict[tuple[str, str], Question] | None] = ContextVar("put_off", default=None)


@contextmanager
def put_off() -> Iterator[dict[tuple[str, str], Question]]:
    """Avoids waiting in the block; the mapping holds its questions without a known value, and if
    there are any, no verdict from the block counts.
    """
    questions: dict[tuple[str, str], Question] = {}
    before = _put_off.set(questions)
    try:
        yield questions
    finally:
        _put_off.reset(before)


def look_up(questions: Iterable[Question]) -> None:
    """Evaluates the questions; for use in a thread: it waits for a process."""
    with _alone:
        _process.answer([it for it in questions if it.key not in _known])


def value_of(expression: str, subject: Subject) -> Value:
    """Returns the value. Raises ExpressionError without one, and Refused without the library."""
    question = Question(expression, subject)
    questions = _put_off.get()
    found = _known.get(question.key)
    if found is None and questions is not None:
        questions[question.key] = question
        return Value(value=True, type="bool")
    if found is None:
        look_up([question])
        found = _known[question.key]
    if isinstance(found, Value):
        return found
    raise found


@dataclass(slots=True)
class _Process:
    """The process, while there is one. shown: the subject that it has; ended: how many processes
    each expression has ended.
    """

    child: subprocess.Popen[bytes] | None = None
    shown: str = ""
    ended: Counter[str] = field(default_factory=Counter)

    def answer(self, questions: list[Question]) -> None:
        self.ended.clear()
        for question in questions:
            _known[question.key] = self._answer(question)
        while len(_known) > max(KNOWN_MAX, len(questions)):
            _known.popitem(last=False)

    def _answer(self, question: Question) -> Value | ExpressionError | Refused:
        if self.ended[question.expression] >= ENDED_MAX:
            return ExpressionError(
                "it takes too long, or too much memory, also for other objects", _SHORTER
            )
        reply = self._ask(question)
        if "wrong" in reply:
            return ExpressionError(reply["wrong"], reply["hint"])
        if "refused" in reply:
            return Refused(reply["refused"], hint=reply["hint"])
        if "value" in reply:
            return Value(reply["value"], type(reply["value"]).__name__)
        if "type" in reply:
            return Value(None, reply["type"])
        self.ended[question.expression] += 1
        if reply.get("time"):
            return ExpressionError(
                f"it takes more than {CPU_S * 1000:.0f} ms of CPU time", _SHORTER
            )
        return ExpressionError(f"it takes more than {MEMORY_BYTES >> 20} MB of memory", _SHORTER)

    def _ask(self, question: Question) -> Mapping[str, Any]:
        """Returns the reply of the process; `time` or `memory` for the limit that it exceeded."""
        while True:
            fresh = self.child is None or self.child.poll() is not None
            if fresh:
                self._start()
            line = self._line(question)
            if line:
                reply: Mapping[str, Any] = json.loads(line)
                return reply
            code = self._end()
            if code == -signal.SIGPROF or code == -signal.SIGKILL:
                return {"time": True}
            if code or fresh:
                return {"memory": True}
            # The process had ended by itself, for want of requests.

    def _line(self, question: Question) -> bytes:
        """Returns the reply's line; empty where the process has ended, or sends no reply."""
        assert self.child is not None and self.child.stdin is not None
        assert self.child.stdout is not None
        text = json.dumps(question.expression)
        if self.shown != question.subject.name:
            self.shown = question.subject.name
            text = f'{text},"values":{question.subject.text}'
        try:
            self.child.stdin.write(f'{{"text":{text}}}\n'.encode())
            self.child.stdin.flush()
        except OSError:
            return b""
        if not self._answers():
            return b""
        line = self.child.stdout.readline()
        if line.endswith(b"\n"):
            return line
        return b""

    def _answers(self) -> bool:
        """Waits for the reply, by `poll`: `select` takes no descriptor above 1,023."""
        assert self.child is not None and self.child.stdout is not None
        poller = select.poll()
        poller.register(self.child.stdout, select.POLLIN)
        return bool(poller.poll(ANSWER_S * 1000))

    def _start(self) -> None:
        self._end()
        # -P: the directory that it starts in must not shadow modules of ours.
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-m", "fleetctl.apply.policies.evaluator"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,
        )

    def _end(self) -> int:
        """Ends the process and returns its exit code; an unresponsive one is killed."""
        child, self.child, self.shown = self.child, None, ""
        if child is None:
            return 0
        assert child.stdin is not None and child.stdout is not None
        with suppress(OSError):
            child.stdin.close()
        child.stdout.close()
        try:
            return child.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()


_process = _Process()
