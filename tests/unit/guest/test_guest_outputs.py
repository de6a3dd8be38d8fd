"""The files of an attempt that are kept: which ones, once each, whole or not at all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.guest.outputs.keeping import (
    KeepLimits,
    OutputKeeper,
    TooMuchNow,
    count_left,
    judge_outputs,
)
from fleetctl.guest.outputs.pack import PackWriter, pack_name, read_index
from fleetctl.guest.outputs.selection import OutputPatterns
from fleetctl.guest.outputs.walk import file_clock_ns
from fleetctl.providers.remote.runs.run_mirror import OutputsMirror
from fleetctl.providers.rundir.kept_outputs import find_outputs

LIMITS = {"file_bytes_max": 1 << 20, "bytes_max": 2 << 20, "files_max": 1000}


@pytest.mark.parametrize(
    ("patterns", "taken", "left"),
    [
        (["model.pt"], ["model.pt"], ["sub/model.pt", "model.pt.tmp", "xmodel.pt"]),
        (["out/**"], ["out/a", "out/b/c"], ["out", "sub/out/a"]),
        (["out"], ["out", "out/a", "out/b/c"], ["output"]),
        (["./out/"], ["out/a"], ["a"]),
        (["*.pt"], ["a.pt", "dir.pt/inside"], ["a/b.pt"]),
        (["**/*.pt"], ["a.pt", "a/b/c.pt"], ["a.pth"]),
        (["**", "!**/.*"], ["a", "a/b"], [".a", "b/.c", ".d/e"]),
        (["**", "!*.log", "keep.log"], ["a", "keep.log"], ["a.log"]),
        (["run [0-9]/x"], ["run 1/x"], ["run a/x"]),
        (["[z-a]"], [], ["z", "a", "[z-a]"]),
        (["caf\udce9"], ["caf\udce9"], ["cafe"]),
        (["a\nb*"], ["a\nbc"], ["a"]),
    ],
)
def test_patterns_begin_at_the_top_and_take_directories_whole(
    patterns: list[str], taken: list[str], left: list[str]
) -> None:
    found = OutputPatterns(patterns)
    assert [path for path in taken if not found.takes(path)] == []
    assert [path for path in left if found.takes(path)] == []


@given(
    st.lists(st.sampled_from("ab*?[]/!.\\"), min_size=1, max_size=12), st.text("ab/.", max_size=9)
)
def test_a_directory_is_entered_for_every_file_that_is_taken(letters: list[str], path: str) -> None:
    pattern = "".join(letters)
    found = OutputPatterns([pattern])
    parts = [it for it in path.split("/") if it]
    if found.takes("/".join(parts)):
        for depth in range(1, len(parts)):
            assert found.enters("/".join(parts[:depth])), (pattern, parts)


def _keep(
    top: Path,
    runs: Path,
    patterns: list[str],
    *,
    since_ns: int = 0,
    quick: bool = False,
    **limits: int,
) -> dict[str, Any]:
    keeper = OutputKeeper(
        KeepLimits({**LIMITS, **limits}), OutputPatterns(patterns), str(top), since_ns, quick=quick
    )
    directory = os.open(runs, os.O_RDONLY)
    try:
        return keeper.keep(directory, "r", blobs=True)
    finally:
        os.close(directory)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "runs").mkdir()
    return tmp_path / "work"


def _contents(top: Path) -> dict[str, bytes]:
    kept = find_outputs(top.parent / "runs", "r")
    assert kept is not None
    return {it.path: b"".join(kept.contents(it)) for it in kept.files}


def test_only_what_was_written_since_the_work_began_is_kept(top: Path) -> None:
    (top / "old").write_text("from the source")
    (top / "moved").write_text("from the source")
    since_ns = file_clock_ns(str(top), past=True)
    (top / "new").write_text("n")
    os.utime(top / "new", (0, 0))  # as `tar` and `cp -p` do
    (top / "moved").rename(top / "to")
    assert _keep(top, top.parent / "runs", ["**"], since_ns=since_ns)["count"] == 2
    assert _contents(top) == {"new": b"n", "to": b"from the source"}


def test_no_link_and_no_directory_leads_out(top: Path) -> None:
    secret = top.parent / "secret"
    secret.mkdir()
    (secret / "key").write_text("k")
    (top / "a").symlink_to(secret / "key")
    (top / "b").symlink_to(secret)
    (top / "c").symlink_to("../secret/key")
    os.mkfifo(top / "pipe")
    (top / "real").write_text("r")
    (top / "d").symlink_to("real")
    said = _keep(top, top.parent / "runs", ["**"])
    assert _contents(top) == {"real": b"r", "d": b"r"}
    assert said["remarks"] == ["links that lead out of its directory are not kept: 3"]


@pytest.mark.parametrize(
    ("limits", "kept", "said"),
    [
        ({"file_bytes_max": 10}, ["b", "c"], "`a` has 100 B, and at most 10 B of a file are kept"),
        ({"bytes_max": 105}, ["a", "b"], "`c` would make it more than 105 B in all"),
        ({"files_max": 2}, ["a", "b"], "there are more than 2 files"),
    ],
)
def test_a_limit_is_said_in_words_and_the_rest_is_kept(
    top: Path, limits: dict[str, int], kept: list[str], said: str
) -> None:
    for name, size in {"a": 100, "b": 5, "c": 6}.items():
        (top / name).write_bytes(b"x" * size)
    found = _keep(top, top.parent / "runs", ["**"], **limits)
    assert sorted(_contents(top)) == kept
    assert said in found["problem"]
    ended: dict[str, Any] = {"ok": True, "infra": False, "reason": "Completed", "message": ""}
    log: list[str] = []
    judge_outputs(found, ended, log.append)
    assert (ended["ok"], ended["reason"]) == (False, "OutputsTooLarge")
    assert log == [found["problem"]]


def test_equal_contents_are_there_once(top: Path) -> None:
    for name in "abcd":
        (top / name).write_bytes((b"large" if name < "c" else b"s") * 100_000)
    _keep(top, top.parent / "runs", ["**"])
    (top / "a").write_bytes(b"large" * 100_000)
    _keep(top, top.parent / "runs", ["a"])
    assert len(list((top.parent / "runs" / "blobs").iterdir())) == 2
    assert set(_contents(top)) == {"a"}


def test_what_takes_long_is_not_begun_beside_other_runs(top: Path) -> None:
    for number in range(300):
        (top / f"{number}").write_text("x")
    with pytest.raises(TooMuchNow):
        _keep(top, top.parent / "runs", ["**"], quick=True)
    assert list((top.parent / "runs").iterdir()) == []


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from fleetctl.guest.outputs import pack
writes = int(sys.argv[3])
real = os.write
def write(handle, data):
    global writes
    writes -= 1
    if writes < 0:
        os.kill(os.getpid(), 9)
    return real(handle, data)
pack.os.write = write
writer = pack.PackWriter(os.open(sys.argv[1], os.O_RDONLY), "r", blobs=True)
for name in ("a", "b"):
    pieces = [name.encode() * 70_000, b"end", b""]
    writer.add(name, 0o644, 0.0, lambda size: pieces.pop(0) if pieces else b"")
writer.add("c", 0o644, 0.0, lambda size: b"")
writer.finish({})
print("whole")
"""


def test_a_kill_at_any_write_leaves_the_whole_or_nothing(top: Path) -> None:
    runs = top.parent / "runs"
    for writes in range(12):
        argv = [sys.executable, "-c", KILLED, str(runs), os.getcwd(), str(writes)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        kept = find_outputs(runs, "r")
        if done.stdout != "whole\n":
            assert done.returncode == -9, done.stderr
            assert kept is None, writes
            continue
        assert kept is not None
        assert [it.path for it in kept.files] == ["a", "b", "c"]
        break
    else:
        raise AssertionError("it was never whole")


def test_a_file_that_is_cut_is_no_pack(top: Path) -> None:
    (top / "a").write_text("a")
    runs = top.parent / "runs"
    _keep(top, runs, ["**"])
    whole = (runs / pack_name("r")).read_bytes()
    for size in range(len(whole)):
        (runs / pack_name("r")).write_bytes(whole[:size])
        assert find_outputs(runs, "r") is None


def test_a_pack_cannot_write_outside(top: Path) -> None:
    runs = top.parent / "runs"
    for path in ("../x", "/etc/x", "a/../../x", "a//b", "", "."):
        directory = os.open(runs, os.O_RDONLY)
        writer = PackWriter(directory, "r", blobs=True)
        writer.add(path, 0o644, 0.0, lambda _: b"")
        writer.finish({})
        os.close(directory)
        assert find_outputs(runs, "r") is None, path


def test_pieces_become_a_pack_once_all_are_here(top: Path) -> None:
    (top / "model").write_bytes(os.urandom(200_000))
    (top / "small").write_text("s")
    runs, here = top.parent / "runs", top.parent / "here"
    here.mkdir()
    keeper = OutputKeeper(KeepLimits(LIMITS), OutputPatterns(["**"]), str(top), 0, quick=False)
    keeper.keep(os.open(runs, os.O_RDONLY), "r", blobs=False)
    data = (runs / pack_name("r")).read_bytes()
    mirror = OutputsMirror(here, "r", fresh=True)
    mirror.write(0, data[:1000])
    mirror.settle()
    assert find_outputs(here, "r") is None
    again = OutputsMirror(here, "r", fresh=False)  # the next controller
    assert again.at == 1000
    again.write(500, data[500:150_000])
    again.write(170_000, data[170_000:])  # not the next piece
    again.write(150_000, data[150_000:])
    again.settle()
    kept = find_outputs(here, "r")
    assert kept is not None
    assert {it.path: b"".join(kept.contents(it)) for it in kept.files} == {
        "model": (top / "model").read_bytes(),
        "small": b"s",
    }
    assert sorted(it.name for it in here.iterdir()) == ["blobs", "r.outputs"]
    assert read_index(str(here / "r.outputs"))["bytes"] == 200_001


def test_what_is_not_kept_is_counted_within_bounds(top: Path) -> None:
    assert count_left(str(top), 0) == ""
    (top / ".cache").mkdir()
    (top / ".cache" / "x").write_text("x")
    (top / "__pycache__").mkdir()
    (top / "__pycache__" / "y.pyc").write_text("y")
    assert count_left(str(top), 0) == ""
    (top / "new\nline").write_text("12345")
    assert count_left(str(top), 0).startswith("1 file was not kept, 5 B: new\\nline (")
    for number in range(5):
        (top / f"f{number}").write_bytes(b"x" * 1024)
    said = count_left(str(top), 0)
    assert said.startswith("6 files were not kept, 5.0 KiB: f0, f1, f2, ... (")
    for number in range(2100):
        (top / f"g{number}").touch()
    # A file system lists them in an order of its own, and what is hidden takes part in the bound.
    assert re.match(r"more than (1[0-9]{3}|2000) files were not kept, ", count_left(str(top), 0))
