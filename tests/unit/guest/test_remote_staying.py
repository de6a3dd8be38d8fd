"""An attach that stays: the supervisor itself, which must never wait for who reads its frames."""

from __future__ import annotations

import os
import signal

import pytest

from fleetctl.guest.remote.stream import LOG_READ_BYTES
from tests.living import alive
from tests.unit.guest.remote_world import FOR_EVER_S, Box, wait_for

MUCH_BYTES = 20 * LOG_READ_BYTES + 7  # far more than a pipe holds


def test_the_one_process_looks_after_the_run_and_tells_it(python_box: Box) -> None:
    attached = python_box.attach(python_box.order(argv=["sh", "-c", "echo one"]), stay=True)
    assert python_box.supervisor == attached.process.pid
    story = attached.rest()
    assert (story.code, story.log, story.kinds[-2:]) == (0, b"one\n", ["ended", "eof"])
    again = python_box.attach().rest()
    assert (again.journal, again.log, again.kinds) == (story.journal, story.log, story.kinds)


def test_a_python_task_says_its_result_and_metrics_as_it_does_elsewhere(python_box: Box) -> None:
    order = python_box.order(
        mode="python", argv=[], code="report(loss=0.5)\nprint('said')\nSUBMIT(n=n)", params={"n": 3}
    )
    story = python_box.attach(order, stay=True).rest()
    assert (story.parsed.result, story.log) == ('{"n":3}', b"said\n")
    assert [frame["values"] for frame in story.frames if frame["e"] == "metric"] == [{"loss": 0.5}]


def test_a_run_ends_though_nobody_reads_and_all_of_it_is_told_later(python_box: Box) -> None:
    text = f"head -c {MUCH_BYTES} /dev/zero | tr '\\0' x"
    attached = python_box.attach(python_box.order(argv=["sh", "-c", text]), stay=True)
    journal = python_box.directory / "runs/run-0.jsonl"
    wait_for(lambda: journal.exists() and b'"ended"' in journal.read_bytes())
    story = attached.rest()
    assert (len(story.log), story.kinds[-1], story.code) == (MUCH_BYTES, "eof", 0)


def test_a_reader_that_leaves_takes_nothing_with_it(python_box: Box) -> None:
    directory = python_box.directory
    text = f"echo one; while [ ! -e {directory}/go ]; do sleep 0.02; done; echo two; sleep 0.1"
    attached = python_box.attach(python_box.order(argv=["sh", "-c", text]), stay=True)
    attached.until(lambda story: story.log == b"one\n")
    assert attached.process.stdout is not None
    attached.process.stdout.close()
    (directory / "go").touch()
    following = python_box.attach()
    assert following.rest().log == b"one\ntwo\n"
    assert following.story.ended["ok"]
    assert attached.process.wait(FOR_EVER_S) == 0


def test_others_may_follow_beside_it_and_stop_it(python_box: Box) -> None:
    order = python_box.order(argv=["sh", "-c", "echo begun; exec sleep 600"])
    attached = python_box.attach(order, stay=True)
    attached.until(lambda story: story.log == b"begun\n")
    second = python_box.attach(order, stay=True)
    second.until(lambda story: story.log == b"begun\n")
    assert python_box.supervisor == attached.process.pid
    python_box.stop(grace_s=0)
    assert attached.rest().ended["reason"] == second.rest().ended["reason"] == "Stopped"


def test_an_order_for_a_sandbox_with_a_supervisor_goes_to_that_one(python_box: Box) -> None:
    order = python_box.order(argv=["true"], reusable=True, linger_s=600.0)
    first = python_box.attach(order, stay=True)
    first.until(lambda story: story.kinds[-1:] == ["eof"])
    second = python_box.attach({**order, "run": "run-1"}, stay=True)
    assert second.rest().ended["ok"]
    assert python_box.supervisor == first.process.pid
    python_box.leave()


def test_an_end_of_the_sandbox_ends_the_run_by_the_rules(python_box: Box) -> None:
    attached = python_box.attach(python_box.order(argv=["sleep", "600"]), stay=True)
    attached.until(lambda story: "started" in story.kinds)
    attached.process.send_signal(signal.SIGTERM)
    assert attached.rest().ended["reason"] == "SandboxEnded"


@pytest.mark.parametrize("after", ["eof", "nothing"])
def test_its_death_is_told_by_the_next_one(python_box: Box, after: str) -> None:
    text = "echo $$; exec sleep 600" if after == "nothing" else "echo $$"
    order = python_box.order(argv=["sh", "-c", text], linger_s=600.0)
    attached = python_box.attach(order, stay=True)
    last = "log" if after == "nothing" else "eof"
    pid = int(attached.until(lambda story: story.kinds[-1:] == [last]).log)
    os.kill(attached.process.pid, signal.SIGKILL)
    attached.process.wait(FOR_EVER_S)
    story = python_box.attach().rest()
    assert (story.kinds[-1], story.code) == (("lost", 3) if after == "nothing" else ("eof", 0))
    python_box.stop(grace_s=0)
    wait_for(lambda: not alive(pid))
