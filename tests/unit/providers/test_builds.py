"""Logs of image builds: who finds them, how a reader sees that more is to come, and what stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from fleetctl.providers.rundir.build_logs import (
    TAIL_BYTES,
    BuildLog,
    is_building,
    link_log,
    logs_of,
)


def job(home: Path, provider: str = "local", uid: str = "u") -> Path:
    return home / provider / "jobs" / uid


def test_a_log_is_found_from_every_resource_that_uses_the_image(tmp_path: Path) -> None:
    log = tmp_path / "modal" / "builds" / "k.log"
    for uid in ("a", "b"):
        link_log(job(tmp_path, "modal", uid), log)
        link_log(job(tmp_path, "modal", uid), log)
    assert logs_of(tmp_path, "a") == []
    with BuildLog(log) as written:
        written.write("x\n")
    for uid in ("a", "b"):
        assert [one.read_text() for one in logs_of(tmp_path, uid)] == ["x\n"]
    assert logs_of(tmp_path, "c") == []


def test_a_state_directory_that_moves_keeps_its_links(tmp_path: Path) -> None:
    link_log(job(tmp_path / "old"), tmp_path / "old" / "local" / "envs" / "k.log")
    with BuildLog(tmp_path / "old" / "local" / "envs" / "k.log") as written:
        written.write("x\n")
    (tmp_path / "old").rename(tmp_path / "new")
    assert [one.read_text() for one in logs_of(tmp_path / "new", "u")] == ["x\n"]


def test_a_reader_sees_that_a_build_goes_on_and_when_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "k.log"
    assert not is_building(path)
    with BuildLog(path) as written:
        written.write("one\n")
        assert is_building(path)
        assert path.read_text() == "one\n"
    assert not is_building(path)


def test_a_builder_that_was_killed_builds_no_more(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from fleetctl.providers.rundir.build_logs import BuildLog\n"
        "with BuildLog(Path(sys.argv[1])) as log:\n"
        "    log.write('begun')\n    print(flush=True)\n    time.sleep(600)\n"
    )
    path = tmp_path / "k.log"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as builder:
        assert builder.stdout is not None
        builder.stdout.readline()
        assert is_building(path)
        os.kill(builder.pid, signal.SIGKILL)
        builder.wait()
    assert not is_building(path)
    assert path.read_text() == "begun"


def test_a_build_that_says_something_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "k.log"
    for text in ("first\n", "second\n"):
        with BuildLog(path) as written:
            written.write(text)
            written.settle("nothing to do\n")
            assert written.tail() == text.strip()
    assert path.read_text() == "second\n"


def test_a_build_without_words_leaves_the_log_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "k.log"
    for _ in range(2):
        with BuildLog(path) as written:
            written.settle("built before\n")
    with BuildLog(path) as written:
        assert written.tail() == ""
    assert path.read_text() == "built before\n"


def test_a_long_log_has_a_short_end(tmp_path: Path) -> None:
    with BuildLog(tmp_path / "k.log") as written:
        written.write("x" * 3 * TAIL_BYTES + "\nthe end\n")
        assert len(written.tail()) <= TAIL_BYTES
        assert written.tail().endswith("the end")


def test_of_two_that_build_the_same_image_one_writes_and_neither_waits(tmp_path: Path) -> None:
    path = tmp_path / "k.log"
    with BuildLog(path) as first, BuildLog(path) as second:
        first.write("one\n")
        second.write("two\n")
        second.settle("two\n")
        assert (path.read_text(), second.tail()) == ("one\n", "one")
    assert not is_building(path)
