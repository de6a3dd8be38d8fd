"""The outputs of a run in a sandbox: kept before its end, streamed from any offset, or reported."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from fleetctl.providers.remote.runs.run_mirror import OutputsMirror
from fleetctl.providers.rundir.kept_outputs import find_outputs
from tests.unit.guest.remote_world import Attached, Box, Story

LIMITS = {"file_bytes_max": 8 << 20, "bytes_max": 16 << 20, "files_max": 5000}


def outputs(*patterns: str, **limits: int) -> dict[str, Any]:
    return {"patterns": list(patterns), **LIMITS, **limits}


def pieces(story: Story) -> list[tuple[int, bytes]]:
    return [
        (frame["at"], base64.b64decode(frame["b64"]))
        for frame in story.frames
        if frame["e"] == "outputs"
    ]


def contents(story: Story, here: Path) -> dict[str, bytes]:
    here.mkdir(exist_ok=True)
    mirror = OutputsMirror(here, "run-0", fresh=True)
    for at, data in pieces(story):
        mirror.write(at, data)
    mirror.settle()
    kept = find_outputs(here, "run-0")
    return {} if kept is None else {it.path: b"".join(kept.contents(it)) for it in kept.files}


def test_outputs_come_before_the_end_and_from_any_offset(python_box: Box, tmp_path: Path) -> None:
    text = (
        "mkdir 'o p'; head -c 700000 /dev/urandom >'o p/large'; echo s >small; cp small 'o p/too'"
    )
    story = python_box.script(text, outputs=outputs("o p/", "small"))
    assert story.kinds[-2:] == ["ended", "eof"]
    assert story.ended["outputs"] == 3
    whole = b"".join(data for _, data in pieces(story))
    large = (python_box.directory / "work" / "o p" / "large").read_bytes()
    assert contents(story, tmp_path / "here") == {
        "o p/large": large,
        "o p/too": b"s\n",
        "small": b"s\n",
    }
    at = len(story.journal)
    for offset in (0, 1, 100_000, len(whole) - 1, len(whole)):
        words = ("--run", "run-0", "--journal", str(at), "--log", "0", "--outputs", str(offset))
        again = Attached(python_box.verb("attach", *words)).rest()
        assert b"".join(data for _, data in pieces(again)) == whole[offset:]


def test_what_the_source_brought_is_no_output(python_box: Box, tmp_path: Path) -> None:
    source = tmp_path / "code"
    source.mkdir()
    (source / "old.txt").write_text("old")
    (source / "touched.txt").write_text("old")
    story = python_box.script(
        "echo new >new.txt; echo new >>touched.txt",
        source={"dir": str(source)},
        outputs=outputs("*.txt"),
    )
    assert contents(story, tmp_path / "here") == {"new.txt": b"new\n", "touched.txt": b"oldnew\n"}


@pytest.mark.parametrize("reusable", [True, False])
def test_more_outputs_than_fit_fail_a_success(
    python_box: Box, tmp_path: Path, reusable: bool
) -> None:
    story = python_box.python(
        "open('big', 'wb').truncate(9 << 20)\nopen('b', 'w').write('b')\nSUBMIT(1)",
        outputs=outputs("*"),
        reusable=reusable,
        linger_s=60.0 if reusable else 0.0,
    )
    ended = story.ended
    assert (ended["ok"], ended["infra"], ended["reason"]) == (False, False, "OutputsTooLarge")
    assert "`big` has 9.0 MiB, and at most 8.0 MiB of a file are kept" in ended["message"]
    assert b"result" not in story.journal
    assert contents(story, tmp_path / "here") == {"b": b"b"}
    assert b"not all outputs are kept" in story.log


def test_what_is_left_in_the_directory_is_the_last_line_of_the_log(python_box: Box) -> None:
    story = python_box.script("echo one; echo x >left")
    assert story.log.splitlines()[-1].startswith(b"fleetctl: 1 file was not kept, 2 B: left (")
    assert story.ended["message"] == ""


def test_a_directory_that_cannot_be_read_is_told(python_box: Box) -> None:
    if os.getuid() == 0:
        text = "rm -rf ../work; mkdir ../gone; mv ../gone ../work; rmdir ../work"
    else:
        text = "mkdir d; echo x >d/x; chmod 0 d"
    story = python_box.script(text, outputs=outputs("d/x"))
    assert story.ended["ok"], story.ended
    assert "could not be read" in story.ended["message"]
