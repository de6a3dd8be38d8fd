"""Further runs of an open sandbox over the stream of its first one; and the quick start."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.ship.assemble import quick_source, quick_table, remote_source
from fleetctl.guest.ship.library import order_argument
from tests.unit.guest.remote_world import Attached, Box, Story, wait_for

COUNTS = "seen = globals().get('seen', 0) + 1\nprint('task', seen)\nSUBMIT(seen)"


@pytest.fixture
def quick_box(tmp_path: Path) -> Iterator[Box]:
    """A sandbox that has the guest as Modal's have it."""
    (tmp_path / "guest.py").write_text(remote_source())
    (tmp_path / "guest.bin").write_bytes(quick_table())
    (tmp_path / "quick.py").write_text(quick_source())
    box = Box((sys.executable, "-I", "-S", str(tmp_path / "quick.py")), tmp_path / "state")
    yield box
    box.clean_up()


def task(box: Box, run: str, code: str = COUNTS, **changes: Any) -> dict[str, Any]:
    changes = {"reusable": True, "linger_s": 600.0, **changes}
    return box.order(mode="python", argv=[], code=code, run=run, **changes)


def opened(box: Box, order: dict[str, Any], **env: str) -> Attached:
    words = ("--run", order["run"], "--order", order_argument(order, posix=False))
    return Attached(box.verb("attach", *words, "--more", "yes", piped=True, env=env))


def hand(attached: Attached, order: dict[str, Any], **secrets: str) -> None:
    assert attached.process.stdin is not None
    request = {"run": order["run"], "order": order, "secrets": secrets}
    attached.process.stdin.write(json.dumps(request).encode() + b"\n")
    attached.process.stdin.flush()


def next_story(attached: Attached) -> Story:
    """Of the run that is followed now."""
    attached.story = Story()
    return attached.until(lambda story: "eof" in story.kinds)


def test_one_run_after_another_begins_and_is_told_over_one_stream(python_box: Box) -> None:
    attached = opened(python_box, task(python_box, "run-0"))
    assert next_story(attached).parsed.result == '{"output":1}'
    for number in (1, 2):
        hand(attached, task(python_box, f"run-{number}"))
        story = next_story(attached)
        assert story.parsed.result == f'{{"output":{number + 1}}}'
        assert story.log == f"task {number + 1}\n".encode()
        assert python_box.attach(run=f"run-{number}").rest().journal == story.journal


def test_a_run_that_has_begun_is_followed_and_not_begun_again(python_box: Box) -> None:
    attached = opened(python_box, task(python_box, "run-0"))
    first = next_story(attached)
    hand(attached, task(python_box, "run-0"))
    assert next_story(attached).journal == first.journal


def test_a_request_that_is_cut_off_begins_nothing(python_box: Box) -> None:
    attached = opened(python_box, task(python_box, "run-0"))
    next_story(attached)
    assert attached.process.stdin is not None
    attached.process.stdin.write(json.dumps({"run": "run-1"}).encode()[:-3])
    attached.process.stdin.close()
    assert attached.rest().code == 0
    assert not (python_box.directory / "runs" / "run-1.begun").exists()


def test_each_run_has_its_own_secrets(python_box: Box) -> None:
    code = "import os; SUBMIT(os.environ.get('KEY', ''))"
    first = task(python_box, "run-0", code, secret_names=["KEY"])
    attached = opened(python_box, first, KEY="one")
    assert next_story(attached).parsed.result == '{"output":"one"}'
    hand(attached, task(python_box, "run-1", code, secret_names=["KEY"]), KEY="two")
    assert next_story(attached).parsed.result == '{"output":"two"}'
    hand(attached, task(python_box, "run-2", code))
    assert next_story(attached).parsed.result == '{"output":""}'


def test_what_loses_its_stream_goes_on_and_is_told_by_another(python_box: Box) -> None:
    attached = opened(python_box, task(python_box, "run-0"))
    next_story(attached)
    code = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.05)"
    hand(attached, task(python_box, "run-1", code))
    begun = python_box.directory / "runs" / "run-1.log"
    wait_for(begun.exists)
    attached.kill()
    python_box.stop(grace_s=0, run="run-1")
    assert python_box.attach(run="run-1").rest().ended["reason"] == "Stopped"


def test_the_quick_start_runs_the_same_guest(quick_box: Box) -> None:
    story = quick_box.told(task(quick_box, "run-0", reusable=False))
    assert (story.parsed.result, story.log) == ('{"output":1}', b"task 1\n")


@pytest.mark.parametrize("table", [b"", b"cpython-27 little 00\n", None])
def test_without_a_table_of_its_own_python_the_one_file_runs(
    quick_box: Box, table: bytes | None
) -> None:
    path = quick_box.directory.with_name("guest.bin")
    path.unlink() if table is None else path.write_bytes(table)
    assert quick_box.told(task(quick_box, "run-0")).parsed.result == '{"output":1}'
