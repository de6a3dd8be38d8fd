"""The process that evaluates expressions: `python -m fleetctl.apply.policies.evaluator`. Started by
evaluation.py; reads a line of JSON for each expression and writes one for its value. The kernel
ends it where an expression exceeds its limits, so that a bound holds inside of the library too; it
ends by itself without requests.
"""

from __future__ import annotations

import json
import resource
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fleetctl.apply.policies.expressions import (
    ExpressionData,
    ExpressionError,
    compile_expression,
    evaluate_expression,
)
from fleetctl.common.errors import Refused

CPU_S = 0.05
MEMORY_BYTES = 16 * 1024 * 1024
IDLE_S = 30.0
TEXT_CHARS_MAX = 4096  # of a text; messages show fewer


def main() -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    data = ExpressionData({})
    while select.select([sys.stdin.buffer], [], [], IDLE_S)[0]:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        request = json.loads(line)
        if "values" in request:  # else it reads the same data as the one before
            data = ExpressionData(request["values"])
        sys.stdout.write(json.dumps(_evaluate_text(request["text"], data)) + "\n")
        sys.stdout.flush()


def _evaluate_text(text: str, data: ExpressionData) -> dict[str, Any]:
    """Returns `value` for a truth value or a text, else the name of its `type`; or the error as
    `wrong`."""
    try:
        found = compile_expression(text)
        # The conversion of the data, done once, is no cost of the expression.
        _ = data.context
        with _bound_memory():
            value = evaluate_expression(found, data)
    except ExpressionError as error:
        return {"wrong": str(error), "hint": error.hint}
    except Refused as error:
        return {"refused": str(error), "hint": error.hint}
    except MemoryError:
        return {"memory": True}
    if isinstance(value, bool):
        return {"value": value}
    if isinstance(value, str):
        return {"value": value[:TEXT_CHARS_MAX]}
    return {"type": type(value).__name__}


@contextmanager
def _bound_memory() -> Iterator[None]:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    with suppress(OSError):  # without /proc only the time is bounded
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[0])
        most = pages * resource.getpagesize() + MEMORY_BYTES
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


if __name__ == "__main__":
    main()
