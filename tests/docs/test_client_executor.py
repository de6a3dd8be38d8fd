"""`Executor` against the rules of `concurrent.futures`: each test states one of them, on a real
controller. Calls that have to be held in a state wait for a file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    as_completed,
    wait,
)
from pathlib import Path
from types import ModuleType

import pytest

from fleetctl import Executor, RemoteError
from fleetctl import Fleet as Client
from fleetctl.client import executor as executors
from fleetctl.common.errors import UsageError
from tests.docs.fleet import Fleet

HANG_S = 600.0
WORK = """\
import time
from pathlib import Path


def echo(*args, **kwargs):
    return [list(args), kwargs]


def divide(x, y):
    return x / y


def held(path, value):
    while not Path(path).exists():
        time.sleep(0.01)
    return value


if __name__ == "__main__":
    from fleetctl import Executor

    Executor().submit(divide, 4, 2)
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    project = tmp_path / "project"
    project.mkdir()
    (project / "rules_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(project))
    monkeypatch.chdir(project)
    sys.modules.pop("rules_work", None)
    return __import__("rules_work")


@pytest.fixture
def gate() -> Iterator[Path]:
    """A file that does not exist yet, which tasks of this machine see: they have a /tmp of their
    own.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory) / "gate"


@pytest.fixture
def executor(empty: Fleet) -> Iterator[Executor]:
    with Executor(Client(empty.home), parallelism=4) as made:
        yield made


@pytest.fixture
def pending(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> Executor:
    """An executor whose calls stay without a job until it is shut down."""
    monkeypatch.setattr(executors, "GATHER_S", HANG_S)
    return executor


def test_arguments_reach_the_call_whatever_they_are_called(
    executor: Executor, work: ModuleType
) -> None:
    first = executor.submit(work.echo, 1, key=2)
    second = executor.submit(work.echo, self=1, fn=2, call=3)
    assert first.result(HANG_S) == [[1], {"key": 2}]
    assert second.result(HANG_S) == [[], {"self": 1, "fn": 2, "call": 3}]
    with pytest.raises(TypeError):
        executor.submit()  # type: ignore[call-arg]


def test_map_yields_in_order_and_raises_at_the_call_that_failed(
    executor: Executor, work: ModuleType
) -> None:
    found = executor.map(work.divide, [6, 4, 1, 9], [2, 2, 0, 3], chunksize=2)
    assert [next(found), next(found)] == [3.0, 2.0]
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert list(executor.map(work.divide, [6, 4], [2])) == [3.0]


def test_map_raises_when_its_time_is_over(executor: Executor, work: ModuleType, gate: Path) -> None:
    try:
        with pytest.raises(TimeoutError):
            list(executor.map(work.held, [str(gate)], ["late"], timeout=0.05))
    finally:
        gate.touch()


def test_results_of_map_can_be_taken_after_a_shutdown(executor: Executor, work: ModuleType) -> None:
    found = executor.map(work.divide, [6, 4], [2, 2])
    executor.shutdown()
    assert list(found) == [3.0, 2.0]


def test_an_exception_has_its_type_its_text_and_its_traceback(
    executor: Executor, work: ModuleType
) -> None:
    failed, fine = executor.submit(work.divide, 1, 0), executor.submit(work.divide, 1, 1)
    error = failed.exception(HANG_S)
    assert type(error) is ZeroDivisionError
    assert isinstance(error.__cause__, RemoteError)
    assert "in divide\n    return x / y" in str(error.__cause__)
    assert fine.exception(HANG_S) is None
    with pytest.raises(ZeroDivisionError):
        failed.result()


def test_an_argument_that_cannot_travel_fails_its_own_call(
    executor: Executor, work: ModuleType
) -> None:
    before = executor.submit(work.divide, 4, 2)
    wrong = executor.submit(work.echo, object())
    after = executor.submit(work.divide, 9, 3)
    assert isinstance(wrong.exception(HANG_S), UsageError)
    assert (before.result(HANG_S), after.result(HANG_S)) == (2.0, 3.0)


def test_a_call_goes_from_pending_to_running_to_done(
    executor: Executor, work: ModuleType, gate: Path
) -> None:
    future = executor.submit(work.held, str(gate), "late")
    try:
        with pytest.raises(TimeoutError):
            future.result(timeout=0)
        with pytest.raises(TimeoutError):
            future.exception(timeout=0)
        assert not future.done()
        executor.shutdown(wait=False)  # its job is made now
        wait_until_running(future)
        assert not future.cancel()
    finally:
        gate.touch()
    assert future.result(HANG_S) == "late"
    assert future.done() and not future.running() and not future.cancelled()


def wait_until_running(future: Future[object]) -> None:
    ready = threading.Event()
    while not future.running():
        ready.wait(0.01)


def test_callbacks_are_called_with_the_future_and_their_errors_are_kept_apart(
    executor: Executor, work: ModuleType
) -> None:
    seen: list[object] = []
    called = threading.Event()

    def note(future: Future[object]) -> None:
        seen.append(future.result())
        called.set()

    def fail(_: Future[object]) -> None:
        raise LookupError("of the callback")

    future = executor.submit(work.divide, 4, 2)
    future.add_done_callback(fail)
    future.add_done_callback(note)
    assert called.wait(HANG_S)
    future.add_done_callback(note)  # it is done: called at once
    assert seen == [2.0, 2.0]


def test_wait_returns_at_the_first_at_an_error_or_when_all_are_done(
    executor: Executor, work: ModuleType, gate: Path
) -> None:
    late = executor.submit(work.held, str(gate), "late")
    try:
        fine = executor.submit(work.divide, 4, 2)
        done, left = wait([late, fine], HANG_S, FIRST_COMPLETED)
        assert (done, left) == ({fine}, {late})
        failed = executor.submit(work.divide, 1, 0)
        done, left = wait([late, failed], HANG_S, FIRST_EXCEPTION)
        assert (done, left) == ({failed}, {late})
        assert wait([late], timeout=0).not_done == {late}
    finally:
        gate.touch()
    assert wait([late, fine, failed], HANG_S, ALL_COMPLETED).not_done == set()


def test_as_completed_yields_each_future_once_as_it_ends(
    executor: Executor, work: ModuleType, gate: Path
) -> None:
    late, fine = executor.submit(work.held, str(gate), 1), executor.submit(work.divide, 4, 2)
    try:
        found = as_completed([late, fine, fine], HANG_S)
        assert next(found) is fine
        with pytest.raises(TimeoutError):
            list(as_completed([late, fine], timeout=0))
    finally:
        gate.touch()
    assert list(found) == [late]
    assert set(as_completed([late, fine], timeout=0)) == {late, fine}


def test_a_call_without_a_job_can_be_cancelled_and_no_other_is(
    pending: Executor, work: ModuleType
) -> None:
    kept, dropped = pending.submit(work.divide, 4, 2), pending.submit(work.divide, 9, 3)
    assert dropped.cancel() and dropped.cancelled()
    assert wait([kept, dropped], timeout=0).done == set()  # nobody has noticed it yet
    pending.shutdown()
    assert kept.result() == 2.0
    with pytest.raises(CancelledError):
        dropped.result()
    assert set(as_completed([kept, dropped], timeout=0)) == {kept, dropped}


def test_a_shutdown_cancels_calls_without_a_job_and_lets_the_others_end(
    executor: Executor, work: ModuleType, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = executor.submit(work.held, str(gate), "late")
    wait_until_running(running)
    monkeypatch.setattr(executors, "GATHER_S", HANG_S)
    waiting = [executor.submit(work.divide, 4, 2) for _ in range(3)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(it.cancelled() for it in waiting)
    assert wait(waiting, timeout=0).not_done == set()
    gate.touch()
    assert running.result(HANG_S) == "late"
    executor.shutdown()  # once more changes nothing
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(work.divide, 4, 2)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.map(work.divide, [4], [2])


def test_calls_from_several_threads_all_get_their_own_results(
    executor: Executor, work: ModuleType
) -> None:
    found: dict[int, float] = {}

    def submit(number: int) -> None:
        found[number] = executor.submit(work.divide, number, 1).result(HANG_S)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: float(number) for number in range(8)}


def test_a_program_that_ends_without_a_shutdown_still_makes_its_calls(
    empty: Fleet, work: ModuleType
) -> None:
    program = [sys.executable, "rules_work.py"]
    done = subprocess.run(program, env=empty.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    client = Client(empty.home)
    (job,) = client.list("jobs")
    assert [row.state for row in client.results(f"job/{job.name}")] == ["Succeeded"]
