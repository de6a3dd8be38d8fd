"""The ways to get at outputs: copying them, bringing them back, deleting them with their object."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.fleet import Fleet

KEEPS = """
kind: BatchJob
name: keeps
tasks: {items: [{x: a}, {x: b}]}
outputs: [out, "*.bin"]
script: |
  mkdir -p out/deep
  echo "$TASK_X" > "out/deep/a file.txt"
  head -c 100000 /dev/zero > same.bin
"""
CHANGES = """
import pathlib, sys, time
pathlib.Path("log.txt").open("a").write("of the program\\n")
pathlib.Path("same.txt").write_text("same")
pathlib.Path("new").mkdir()
pathlib.Path("new/model.bin").write_bytes(b"m" * 70_000)
pathlib.Path(".hidden").write_text("h")
if "wait" in sys.argv:
    print("written", flush=True)
    while not pathlib.Path(sys.argv[2]).exists():
        time.sleep(0.05)
sys.exit(int(sys.argv[1] == "fails"))
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    found = Fleet(tmp_path / "home")
    yield found
    found.close()


def _let_rest(file: Path) -> None:
    """Waits until a command that starts now cannot take the file for one that changes beside it."""
    while time.time() - file.stat().st_ctime < 1.0:
        time.sleep(0.05)


def _in(directory: Path, line: str) -> str:
    return f"cd {shlex.quote(str(directory))} || exit\n{line}"


def test_outputs_are_copied_as_docker_cp_copies(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "keeps.yaml").write_text(KEEPS)
    here = tmp_path / "here"
    here.mkdir()
    assert fleet.shell(_in(tmp_path, "fleetctl apply -f keeps.yaml --wait")).code == 0
    answer = fleet.shell(
        _in(here, "fleetctl cp job/keeps:1/out . && fleetctl cp job/keeps:0/. all")
    )
    assert answer.code == 0, answer.talk
    assert (here / "out/deep/a file.txt").read_text() == "b\n"
    assert sorted(str(it.relative_to(here / "all")) for it in (here / "all").rglob("*.*")) == [
        "out/deep/a file.txt",
        "same.bin",
    ]
    answer = fleet.shell(_in(here, "fleetctl cp job/keeps:0/nix ."))
    assert (answer.code, "fleetctl ls batchjob/keeps:0" in answer.talk) == (3, True)
    answer = fleet.shell(_in(here, "fleetctl results job/keeps --to got"))
    assert "wrote 0 results and 4 outputs to got" in answer.out
    assert (here / "got/1/out/deep/a file.txt").read_text() == "b\n"
    (blob,) = (tmp_path / "home").glob("local/jobs/*/runs/blobs/*")  # both tasks wrote it
    assert blob.stat().st_size == 100_000
    assert fleet.shell("fleetctl delete job/keeps --yes").code == 0
    assert not blob.exists()


def test_a_command_brings_back_what_it_wrote_unless_it_changed_here(
    fleet: Fleet, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "work.py").write_text(CHANGES)
    (here / "log.txt").write_text("first\n")
    (here / "same.txt").write_text("other")
    _let_rest(here / "same.txt")
    answer = fleet.shell(_in(here, "fleetctl run --name one -- python work.py fails"))
    assert answer.code == 1
    assert (here / "log.txt").read_text() == "first\nof the program\n"
    assert (here / "same.txt").read_text() == "same"
    assert (here / "new/model.bin").read_bytes() == b"m" * 70_000
    assert not (here / ".hidden").exists()
    assert "3 files brought back" in answer.talk
    answer = fleet.shell(_in(here, "rm -r new; fleetctl run --no-outputs -- python work.py no"))
    assert (answer.code, (here / "new").exists()) == (0, False)


MEANWHILE = """
fleetctl run --name two -- python work.py wait gate >../said 2>&1 &
until grep -q written ../said; do sleep 0.1; done
echo mine >>log.txt
touch ../open
fleetctl cp ../open job/two:0/gate && wait $!
"""


def test_a_file_that_changed_here_meanwhile_is_named_and_stays(
    fleet: Fleet, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "work.py").write_text(CHANGES)
    (here / "log.txt").write_text("first\n")
    _let_rest(here / "log.txt")
    answer = fleet.shell(_in(here, MEANWHILE))
    said = (tmp_path / "said").read_text()
    assert answer.code == 0, (answer.talk, said)
    assert (here / "log.txt").read_text() == "first\nmine\n"
    assert "not brought back: job/two:0/log.txt (the file here changed meanwhile)" in said
    assert (here / "new/model.bin").exists()
    answer = fleet.shell(_in(here, "fleetctl cp job/two:0/log.txt theirs.txt"))
    assert answer.code == 0, answer.talk
    assert (here / "theirs.txt").read_text() == "first\nof the program\n"
