"""Python texts are parsed by several threads of a controller, one at a time."""

from __future__ import annotations

import ast
import gc
import threading
import time
from collections.abc import Iterator

import pytest

from fleetctl.common.program import tree_of

TEXT = "\n".join(f"x{n} = [[(1, {{'a': {n}}})], lambda a, b: (a + b) * 2]" for n in range(40))
THREADS, TIMES, CIRCLES = 4, 60, 5


class Circle:
    """Collected by the collector alone, in the midst of whatever is being made."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(1e-4)  # lets another thread go on


@pytest.fixture
def eager_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)


def _deeper(depth: int) -> None:
    if depth:
        _deeper(depth - 1)
    else:
        tree_of(TEXT)


@pytest.mark.usefixtures("eager_collector")
def test_threads_that_parse_at_once_do_not_disturb_each_other() -> None:
    failed: list[BaseException] = []

    def parse(depth: int) -> None:
        for _ in range(TIMES):
            for _ in range(CIRCLES):
                Circle()
            try:
                _deeper(depth)
            except SystemError as error:
                failed.append(error)

    threads = [threading.Thread(target=parse, args=(3 * n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


class Parser(Circle):
    """Parses when it is collected, as a printed traceback does."""

    def __del__(self) -> None:
        ast.parse("1 + 2")


@pytest.mark.usefixtures("eager_collector")
def test_a_finalizer_that_parses_does_not_disturb_a_parse() -> None:
    for depth in range(TIMES):
        for _ in range(CIRCLES):
            Parser()
        _deeper(depth)
    assert gc.isenabled()
