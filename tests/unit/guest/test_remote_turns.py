"""Sandboxes that take one command after another, with both guests of remote sandboxes."""

from __future__ import annotations

from typing import Any

from tests.living import alive
from tests.unit.guest.remote_world import Box, Story, wait_for

SHARES = 'cat note; echo "$TASK_WORD" > note; test $TASK_WORD = bye || echo {} > $FLEETCTL_RESULT'
GOES_ON = "echo begun; while :; do sleep 0.05; done"


def order(box: Box, text: str, run: str = "run-0", **changes: Any) -> dict[str, Any]:
    changes = {"reusable": True, "linger_s": 600.0, **changes}
    return box.order(argv=["sh", "-c", text], run=run, **changes)


def begun(story: Story) -> bool:
    return b"begun" in story.log


def closed(box: Box, run: str = "run-0") -> bool:
    return b'{"e":"closed"' in (box.directory / "runs" / f"{run}.jsonl").read_bytes()


def test_commands_of_one_sandbox_share_its_directory_but_no_result(box: Box) -> None:
    first = box.told(order(box, SHARES, params={"word": "hello"}))
    assert (first.parsed.result, first.ended["open"]) == ("{}", True)
    second = box.told(order(box, SHARES, "run-1", params={"word": "bye"}, reusable=False))
    assert (second.ended["open"], second.parsed.result) == (False, None)
    assert second.log.startswith(b"hello\n")  # and what it left there, which goes with the sandbox
    assert b"not kept" not in first.log  # the next task finds it
    assert box.attach().rest().journal == first.journal


def test_a_failed_command_leaves_the_sandbox_open(box: Box) -> None:
    assert box.told(order(box, "exit 3")).ended["open"]
    assert box.told(order(box, "echo next", "run-1")).log == b"next\n"


def test_a_sandbox_that_is_not_to_be_used_again_takes_no_run(box: Box) -> None:
    assert not box.told(order(box, "true", reusable=False)).ended["open"]
    story = box.told(order(box, "echo work", "run-1"))
    assert (story.ended["infra"], story.ended["reason"]) == (True, "SandboxClosed")
    assert story.log == b""


def test_a_stop_of_the_last_run_closes_an_open_sandbox(box: Box) -> None:
    box.told(order(box, "true"))
    box.stop(grace_s=0)
    wait_for(lambda: closed(box))
    story = box.told(order(box, "echo work", "run-1"))
    assert (story.ended["reason"], story.log) == ("SandboxClosed", b"")


def test_a_stop_of_an_earlier_run_leaves_the_sandbox_open(box: Box) -> None:
    box.told(order(box, "true"))
    box.told(order(box, "true", "run-1"))
    box.stop(grace_s=0, run="run-0")
    assert box.told(order(box, "echo next", "run-2")).log == b"next\n"


def test_a_stopped_or_late_command_closes_the_sandbox(box: Box) -> None:
    attached = box.attach(order(box, GOES_ON))
    attached.until(begun)
    box.stop(grace_s=0)
    ended = attached.rest().ended
    assert (ended["reason"], ended["open"]) == ("Stopped", False)
    assert box.told(order(box, "echo work", "run-1")).ended["reason"] == "SandboxClosed"


def test_a_busy_sandbox_takes_no_second_run(box: Box) -> None:
    attached = box.attach(order(box, GOES_ON))
    attached.until(begun)
    other = box.told(order(box, "echo work", "run-1"))
    assert (other.ended["reason"], other.log) == ("SandboxClosed", b"")
    box.stop(grace_s=0)
    assert attached.rest().ended["reason"] == "Stopped"


def test_an_open_sandbox_that_gets_no_more_runs_closes_by_itself(box: Box) -> None:
    assert box.told(order(box, "true", linger_s=0.2)).ended["open"]
    wait_for(lambda: closed(box))
    assert box.told(order(box, "echo work", "run-1")).ended["reason"] == "SandboxClosed"


def test_two_attaches_that_race_begin_the_next_run_once(box: Box) -> None:
    box.told(order(box, "true"))
    racing = [box.attach(order(box, "echo once; sleep 0.2", "run-1")) for _ in range(4)]
    stories = [one.rest() for one in racing]
    assert [story.log for story in stories] == [b"once\n"] * 4
    assert len({story.journal for story in stories}) == 1


def test_what_a_command_leaves_behind_does_not_live_on_in_an_open_sandbox(box: Box) -> None:
    story = box.told(order(box, "setsid sleep 600 >/dev/null 2>&1 & echo $!"))
    assert story.ended["open"]
    wait_for(lambda: not alive(int(story.log)))  # it was killed by then, which takes a moment


def test_leaving_ends_what_still_runs(box: Box) -> None:
    attached = box.attach(order(box, GOES_ON, grace_s=0.1))
    attached.until(begun)
    box.leave()
    ended = attached.rest().ended
    assert (ended["reason"], ended["open"]) == ("Stopped", False)
