"""Samples of what a run's processes use: both guests take them, in the same form."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.guest.supervision.pace import Load
from tests.unit.guest.remote_world import Attached, Box, Story

CPU, MEMORY = "system/cpu.percent", "system/memory_mib"
# Uses a core for a moment, and then none, in a child with a session of its own.
BUSY = "import time\nend = time.process_time() + {s}\nwhile time.process_time() < end: pass\n"
IDLE = "import sys, time\nprint('idle', flush=True)\ntime.sleep(600)\n"


def is_sampled(story: Story) -> bool:
    return any(it["e"] == "load" for it in story.frames)


def values_of(story: Story) -> list[dict[str, float]]:
    """The samples as a provider parses them, each by its names."""
    found: dict[int, dict[str, float]] = {}
    for index, it in enumerate(story.parsed.samples):
        found.setdefault(index // 2, {})[it.name] = it.value
    assert all(set(it) == {CPU, MEMORY} for it in found.values())
    return list(found.values())


def end(box: Box, attached: Attached) -> Story:
    box.stop(grace_s=0.1)
    return attached.rest()


def program(text: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", text]


def test_what_the_processes_of_a_run_use_is_sampled(box: Box) -> None:
    begun_s = time.monotonic()
    attached = box.attach(box.order(argv=program(BUSY.format(s=0.6) + IDLE)))
    attached.until(is_sampled)
    assert time.monotonic() - begun_s >= 10  # it is cheap
    (first, *_) = values_of(end(box, attached))
    assert 0 < first[CPU] < 60  # of 15 s, on a machine of any load
    assert 2 < first[MEMORY] < 200


@pytest.fixture
def quick_box(posix_box: Box) -> Iterator[Box]:
    """A guest in shell that takes a sample each second."""
    guest = Path(posix_box.program[1])
    text = guest.read_text()
    assert "load_every=15" in text
    guest.write_text(text.replace("load_every=15", "load_every=1"))
    yield posix_box


def test_a_child_with_a_session_of_its_own_counts(quick_box: Box) -> None:
    child = program("x = bytearray(64 << 20)\n" + BUSY.format(s=0.3) + IDLE)
    code = f"import subprocess\nsubprocess.run({child!r}, start_new_session=True)"
    attached = quick_box.attach(quick_box.order(argv=program(code)))
    attached.until(lambda it: any(one[MEMORY] > 64 for one in values_of(it)))
    story = end(quick_box, attached)
    assert max(one[CPU] for one in values_of(story)) > 5


def test_a_nearly_constant_sample_is_recorded_once(quick_box: Box) -> None:
    attached = quick_box.attach(quick_box.order(argv=program(IDLE)))
    attached.until(is_sampled)
    # Five more are taken meanwhile; the first may have been before the program had begun.
    time.sleep(5)
    story = end(quick_box, attached)
    assert 1 <= len(values_of(story)) <= 3
    assert "Illegal" not in story.log.decode() and story.log == b"idle\n"


def test_both_guests_measure_the_same(quick_box: Box) -> None:
    """On the same processes, at about the same time."""
    attached = quick_box.attach(quick_box.order(argv=program("x = bytearray(90 << 20)\n" + IDLE)))
    attached.until(lambda it: any(one[MEMORY] > 90 for one in values_of(it)))
    pid = int((quick_box.directory / "runs" / "run-0.pid").read_text())
    seen: dict[str, float] = {}

    class Noted:
        def note(self, sort: str, values: dict[str, float]) -> bool:
            seen.update(values)
            return bool(sort)

    Load(time.monotonic() - 1).take([pid], Noted())  # type: ignore[arg-type]
    found = values_of(end(quick_box, attached))
    assert min(abs(one[MEMORY] - seen["memory_mib"]) for one in found) < 2


def test_names_of_processes_are_no_numbers_for_the_shell(quick_box: Box, tmp_path: Path) -> None:
    """A name may have spaces, brackets and line breaks."""
    odd = tmp_path / "a) S 1 (b\n) x"
    odd.symlink_to("/bin/sleep")
    code = f"import os\nos.execv({str(odd)!r}, ['sleep', '600'])"
    attached = quick_box.attach(quick_box.order(argv=program(code)))
    attached.until(is_sampled)
    name = Path("/proc") / (quick_box.directory / "runs" / "run-0.pid").read_text().strip()
    assert b"\n" in (name / "comm").read_bytes().rstrip(b"\n")
    time.sleep(2)
    assert end(quick_box, attached).ended["reason"] == "Stopped"
    assert os.path.exists(odd)
