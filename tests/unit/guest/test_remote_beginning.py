"""Beginning once and being told from any moment on: what both guests of remote sandboxes do."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.living import alive
from tests.unit.guest.remote_world import FOR_EVER_S, Box, Story, read_text, wait_for

# It has lost environment, session and mark of its run, and has a line break in its name.
HIDDEN = """
import ctypes, os, resource, time
os.setsid()
resource.setrlimit(10, (0, 0))
ctypes.CDLL(None).prctl(15, b"a\\nb) c", 0, 0, 0)
print("begun", os.getpid(), flush=True)
time.sleep(600)
"""
GOES_ON = "echo begun; while :; do sleep 0.05; done"


def begun(story: Story) -> bool:
    return b"begun" in story.log


def test_two_attaches_that_race_begin_the_work_once(box: Box) -> None:
    order = box.order(argv=["sh", "-c", "echo once; sleep 0.2"])
    racing = [box.attach(order) for _ in range(4)]
    stories = [one.rest() for one in racing]
    assert [story.log for story in stories] == [b"once\n"] * 4
    assert len({story.journal for story in stories}) == 1
    assert all(story.kinds[-1] == "eof" and story.code == 0 for story in stories)


def test_an_order_for_a_run_that_ended_only_tells_its_story(box: Box) -> None:
    order = box.order(argv=["sh", "-c", "echo once"], linger_s=0.0)
    first = box.told(order)
    again = box.told(order)
    assert (again.journal, again.log) == (first.journal, first.log)
    assert again.log == b"once\n"


@pytest.mark.parametrize("locked", [True, False])
def test_an_order_waits_for_a_supervisor_that_is_about_to_listen(
    python_box: Box, *, locked: bool
) -> None:
    directory = python_box.directory
    (directory / "runs").mkdir(parents=True)
    with (directory / "supervisor").open("w") as lock, socket.socket(socket.AF_UNIX) as listener:
        if locked:
            fcntl.flock(lock, fcntl.LOCK_EX)
        attached = python_box.attach(python_box.order())
        wait_for(lambda: (directory / "runs/run-0.begun").exists())
        time.sleep(0.1)
        listener.bind(str(directory / "sock"))
        listener.listen()
        listener.settimeout(FOR_EVER_S)
        line, _ = listener.accept()
        with line, line.makefile() as words:
            assert json.loads(words.readline())["op"] == "run"
        attached.kill()


def test_a_run_that_never_began_here_is_said_to_be_unbegun(box: Box) -> None:
    story = box.attach().rest()
    assert (story.kinds, story.code) == (["unbegun"], 4)
    assert not (box.directory / "runs" / "run-0.begun").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_losing_the_attach_that_began_it_never_touches_the_work(box: Box, number: int) -> None:
    attached = box.attach(box.order(argv=["sh", "-c", GOES_ON]))
    attached.until(begun)
    attached.process.send_signal(number)
    attached.process.wait()
    following = box.attach()
    story = following.until(begun)
    assert "ended" not in story.kinds
    box.stop(grace_s=0)
    assert following.rest().ended["reason"] == "Stopped"


def test_an_attach_whose_reader_is_gone_leaves_at_once(python_box: Box) -> None:
    box = python_box
    attached = box.attach(box.order(argv=["sh", "-c", GOES_ON]))
    attached.until(begun)
    assert attached.process.stdout is not None
    attached.process.stdout.close()
    attached.process.wait(FOR_EVER_S)
    box.stop(grace_s=0)


def test_a_run_whose_supervisor_was_killed_is_lost(box: Box) -> None:
    attached = box.attach(box.order(argv=["sh", "-c", GOES_ON]))
    attached.until(begun)
    os.kill(box.supervisor, signal.SIGKILL)
    story = attached.rest()
    assert (story.kinds[-1], story.code) == ("lost", 3)
    assert "ended" not in story.kinds
    assert "eof" not in story.kinds
    again = box.attach().rest()
    assert (again.kinds[-1], again.code) == ("lost", 3)


def test_a_lost_run_does_not_begin_a_second_time(box: Box) -> None:
    order = box.order(argv=["sh", "-c", GOES_ON])
    attached = box.attach(order)
    attached.until(begun)
    os.kill(box.supervisor, signal.SIGKILL)
    attached.rest()
    again = box.told(order)
    assert (again.kinds[-1], again.code, again.log) == ("lost", 3, b"begun\n")


def test_what_a_killed_supervisor_left_running_ends_with_a_stop(box: Box) -> None:
    attached = box.attach(box.order(argv=["sh", "-c", "echo begun $$; exec sleep 600"]))
    attached.until(lambda story: story.log.endswith(b"\n"))
    pid = int(attached.story.log.split()[1])
    os.kill(box.supervisor, signal.SIGKILL)
    attached.rest()
    box.stop(grace_s=0)
    wait_for(lambda: not alive(pid))


def test_a_child_whose_name_has_a_line_break_ends_with_a_stop(box: Box) -> None:
    argv = ["sh", "-c", 'env -i "$@"; :', "sh", sys.executable, "-c", HIDDEN]
    attached = box.attach(box.order(argv=argv))
    attached.until(lambda story: story.log.endswith(b"\n"))
    pid = int(attached.story.log.split()[1])
    box.stop(grace_s=0)
    wait_for(lambda: not alive(pid))


def test_a_latch_without_a_supervisor_ends_the_run_unbegun(box: Box) -> None:
    box.attach().rest()
    (box.directory / "runs" / "run-0.begun").touch()  # and whoever took it died
    story = box.told(box.order(argv=["sh", "-c", "echo work"]))
    assert (story.ended["infra"], story.ended["reason"]) == (True, "SandboxClosed")
    assert story.log == b""
    assert box.attach().rest().journal == story.journal


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_offsets_tell_the_same_bytes(box: Box, data: st.DataObject) -> None:
    whole = box.told(box.order(argv=["sh", "-c", TELLING]))
    ends = [0]
    for line in whole.journal.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    journal = data.draw(st.sampled_from(ends), label="journal")
    log = data.draw(st.integers(0, len(whole.log)), label="log")
    story = box.attach(journal=journal, log=log).rest()
    assert story.code == 0
    assert story.kinds[-1] == "eof"
    assert whole.journal[journal:] == story.journal
    assert whole.log[:log] + story.log[log:] == whole.log


TELLING = (
    "for i in 1 2 3; do echo line $i; echo '{\"step\": '$i', \"loss\": 0.5}' >> $FLEETCTL_METRICS;"
    " done; printf '\\0\\377 end'; echo '{\"a\": 1}' > $FLEETCTL_RESULT"
)


def test_a_stream_that_is_cut_anywhere_goes_on_from_its_offsets(box: Box) -> None:
    text = "i=0; while [ $i -lt 30 ]; do echo $i; i=$((i+1)); sleep 0.01; done"
    order = box.order(argv=["sh", "-c", text])
    journal, log = b"", b""
    for _ in range(200):
        attached = box.attach(order, journal=len(journal), log=len(log))
        attached.until(lambda story: bool(story.frames))
        attached.kill()
        journal += attached.story.journal
        log = log + attached.story.log[len(log) :]
        if attached.story.kinds[-1] == "eof":
            break
    assert log == b"".join(b"%d\n" % i for i in range(30))
    assert journal.count(b'{"e":"ended"') == 1


def test_the_exit_code_alone_never_says_that_a_run_has_ended(box: Box) -> None:
    """Exit 0 without `eof` is a reader that went, and `eof` never comes without `ended`."""
    attached = box.attach(box.order(argv=["sh", "-c", GOES_ON]))
    attached.until(begun)
    attached.kill()
    assert "eof" not in attached.story.kinds
    box.stop(grace_s=0)
    story = box.attach().rest()
    assert story.kinds[-2:] == ["ended", "eof"]


def test_the_sandbox_may_end_once_its_run_was_told(box: Box) -> None:
    idle = box.verb("idle", "--begin-s", "600")
    wait_for(lambda: read_text(box.directory.with_name("state.idle")))
    box.told(box.order(linger_s=600.0))
    supervisor = box.supervisor
    assert idle.poll() is None
    box.leave()
    assert idle.wait(FOR_EVER_S) == 0
    wait_for(lambda: not alive(supervisor))
    box.leave()


def test_an_entrypoint_ends_by_itself_when_nothing_begins(box: Box) -> None:
    assert box.verb("idle", "--begin-s", "0.3").wait(FOR_EVER_S) == 0


def test_an_entrypoint_waits_for_what_has_begun(box: Box) -> None:
    attached = box.attach(box.order(argv=["sh", "-c", GOES_ON], linger_s=0.0))
    attached.until(begun)
    idle = box.verb("idle", "--begin-s", "0.1")
    wait_for(lambda: read_text(box.directory.with_name("state.idle")))
    time.sleep(0.5)
    assert idle.poll() is None
    box.stop(grace_s=0)
    attached.rest()
    assert idle.wait(FOR_EVER_S) == 0


def test_an_entrypoint_ends_when_it_is_told_to(box: Box) -> None:
    idle = box.verb("idle", "--begin-s", "600")
    wait_for(lambda: read_text(box.directory.with_name("state.idle")))
    idle.terminate()
    assert idle.wait(FOR_EVER_S) == 0


def test_a_stop_that_overtakes_the_order_keeps_the_run_from_beginning(box: Box) -> None:
    first = box.order(argv=["true"], reusable=True, linger_s=60.0)
    box.told(first)
    box.stop(grace_s=5.0, run="run-1")
    mark = box.directory / "it-ran"
    late = box.told(box.order(run="run-1", argv=["touch", str(mark)], reusable=True, linger_s=0.1))
    assert b"it was stopped before" in late.journal
    assert not mark.exists()
    # What is asked for next has nothing to do with it.
    again = box.told(box.order(run="run-2", argv=["touch", str(mark)]))
    assert again.kinds[-1] == "eof"
    assert mark.exists()
