"""`Fleet.map` and `Executor` on a real controller: order, exceptions, cancel and shutdown as of
`concurrent.futures`, and functions by their import path.
"""

from __future__ import annotations

import functools
import math
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, as_completed
from concurrent.futures import Executor as FuturesExecutor
from pathlib import Path
from types import ModuleType

import pytest

from fleetctl import Executor, RemoteError
from fleetctl import Fleet as Client
from fleetctl.client import executor as executors
from fleetctl.client.calls import find_import_path
from fleetctl.common.errors import UsageError
from tests.docs.fleet import Fleet

WORK = """\
import os
from pathlib import Path


class Odd(Exception):
    pass


def square(x, y=0):
    return x * x + y


def boom(x):
    raise ValueError(f"no {x}: never")


def odd(x):
    raise Odd("very odd")


def leave(x):
    os._exit(3)


def beside(x):
    return Path("table.txt").read_text() + x


if __name__ == "__main__":
    from fleetctl import Fleet

    print(Fleet().map(square, [2, 3]))
"""


@pytest.fixture
def client(empty: Fleet) -> Client:
    return Client(empty.home)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    project = tmp_path / "project"
    project.mkdir()
    (project / "own_work.py").write_text(WORK)
    (project / "table.txt").write_text("table of ")
    monkeypatch.syspath_prepend(str(project))
    monkeypatch.chdir(project)
    sys.modules.pop("own_work", None)
    return __import__("own_work")


def test_what_calls_return_comes_in_the_order_of_the_rows(client: Client, work: ModuleType) -> None:
    rows = [{"x": x, "y": 1} for x in range(6)]
    assert client.map(work.square, rows, parallelism=3) == [1, 2, 5, 10, 17, 26]
    assert client.map(work.beside, ["rows"]) == ["table of rows"]
    assert client.map(math.sqrt, [4.0]) == [2.0]
    assert client.map(work.square, []) == []


def test_the_same_map_under_its_name_keeps_what_is_done(client: Client, work: ModuleType) -> None:
    assert client.map(work.square, [1, 2], name="squares") == [1, 4]
    before = [row.content for row in client.results("job/squares")]
    assert client.map(work.square, [1, 2, 3], name="squares") == [1, 4, 9]
    rows = client.results("job/squares")
    assert [row.attempts for row in rows] == [1, 1, 1]
    assert [row.content for row in rows][:2] == before


def test_a_call_raises_what_it_raised_there(client: Client, work: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"^no 7: never$") as raised:
        client.map(work.boom, [7])
    assert isinstance(raised.value.__cause__, RemoteError)
    assert "in boom" in str(raised.value.__cause__)
    with pytest.raises(RemoteError, match=r"own_work\.Odd: very odd"):
        client.map(work.odd, [1])
    with pytest.raises(RemoteError, match="3"):
        client.map(work.leave, [1])


def test_a_program_maps_its_own_functions_and_is_not_run_by_the_tasks(
    empty: Fleet, work: ModuleType
) -> None:
    done = subprocess.run(
        [sys.executable, "own_work.py"], env=empty.env, capture_output=True, text=True
    )
    assert done.stdout == "[4, 9]\n", done.stderr


def test_an_executor_is_one_of_concurrent_futures(client: Client, work: ModuleType) -> None:
    with Executor(client, parallelism=4) as executor:
        assert isinstance(executor, FuturesExecutor)
        futures = [executor.submit(work.square, x) for x in range(5)]
        assert sorted(it.result() for it in as_completed(futures)) == [0, 1, 4, 9, 16]
        assert list(executor.map(work.square, [1, 2], [3, 4])) == [4, 8]
        failed = executor.submit(work.boom, 1)
        assert isinstance(failed.exception(), ValueError)
    assert all(it.done() for it in futures)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(work.square, 1)


def test_calls_that_are_submitted_together_are_one_job(
    client: Client, work: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "GATHER_S", 600.0)
    executor = Executor(client)
    futures = [executor.submit(work.square, x) for x in range(4)]
    executor.shutdown()
    assert [it.result() for it in futures] == [0, 1, 4, 9]
    (job,) = client.list("jobs")
    assert job.status["total"] == 4


def test_a_call_can_be_cancelled_until_its_job_is_made(
    client: Client, work: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "GATHER_S", 600.0)
    executor = Executor(client)
    kept, dropped = executor.submit(work.square, 3), executor.submit(work.square, 4)
    assert dropped.cancel()
    executor.shutdown()
    assert kept.result() == 9
    assert not kept.cancel()
    with pytest.raises(CancelledError):
        dropped.result()


def test_a_shutdown_may_cancel_what_no_job_has(
    client: Client, work: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "GATHER_S", 600.0)
    executor = Executor(client)
    future = executor.submit(work.square, 3)
    executor.shutdown(cancel_futures=True)
    assert future.cancelled()
    assert client.list("jobs") == []
    assert not [it for it in threading.enumerate() if it.name == "fleetctl-calls"]


def outer() -> object:
    def inner() -> None:
        return None

    return inner


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: None, "is a lambda"),
        (outer(), "defined inside another function"),
        (functools.partial(math.pow, 2), "is no plain function"),
        ([].append, "is no plain function"),
    ],
    ids=["lambda", "inner", "partial", "bound"],
)
def test_a_function_without_an_import_path_is_refused(function: object, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        find_import_path(function)  # type: ignore[arg-type]


def test_a_function_outside_of_the_source_is_refused(work: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match="is not below the source"):
        find_import_path(work.square, tmp_path / "other")
    assert find_import_path(work.square, tmp_path).root == "project"


def test_arguments_that_a_task_cannot_be_given_are_refused(
    client: Client, work: ModuleType
) -> None:
    with pytest.raises(UsageError, match="call 1 has an argument"):
        client.map(work.square, [1, object()])
    with pytest.raises(TypeError, match="colour"):
        client.map(work.square, [1], colour="red")
    assert client.list() == []
