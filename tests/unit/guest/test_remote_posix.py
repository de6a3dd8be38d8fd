"""The guest without Python where even more is missing, and the orders that it reads."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from fleetctl.guest.posix.order import posix_order
from fleetctl.guest.ship.assemble import posix_source
from tests.unit.guest.remote_world import Box, Story

NEEDED = "cat dd grep head ln mkdir mkfifo mv od printf rm rmdir sleep sync tail tr wc date"


def begun(story: Story) -> bool:
    return b"begun" in story.log


@pytest.fixture
def bare_box(posix_box: Box, tmp_path: Path) -> Box:
    """Neither `base64` nor `setsid`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in NEEDED.split():
        (tools / name).symlink_to(str(shutil.which(name)))
    posix_box.path = f"{tmp_path}/shell:{tools}"
    return posix_box


def test_output_comes_in_hexadecimal_where_there_is_no_base64(bare_box: Box) -> None:
    story = bare_box.script("printf 'a\\0\\377'; echo '{\"a\": 1}' > $FLEETCTL_RESULT")
    assert story.log == b"a\0\xff"
    assert any("hex" in frame for frame in story.frames)
    assert story.parsed.result == '{"a":1}'
    assert story.ended["ok"]


def test_a_run_is_stopped_and_timed_where_there_is_no_setsid(bare_box: Box, tmp_path: Path) -> None:
    attached = bare_box.attach(bare_box.order(argv=["sh", "-c", "echo begun; exec sleep 600"]))
    attached.until(begun)
    bare_box.stop(grace_s=0.1)
    assert attached.rest().ended["reason"] == "Stopped"


def test_the_locale_of_the_image_reaches_the_task(posix_box: Box) -> None:
    order = posix_box.order(argv=["sh", "-c", 'echo "${LC_ALL-none}"'])
    assert posix_box.told(order, env={"LC_ALL": "C.UTF-8"}).log == b"C.UTF-8\n"


def test_without_a_locale_of_the_image_the_task_has_none(posix_box: Box) -> None:
    assert posix_box.script('echo "${LC_ALL-none}"').log == b"none\n"


def test_variables_with_names_that_no_shell_can_set_reach_the_task(posix_box: Box) -> None:
    story = posix_box.told(posix_box.order(argv=["env"], env={"A-B.c": "it's"}))
    assert b"A-B.c=it's\n" in story.log


def test_an_order_may_come_on_stdin(posix_box: Box) -> None:
    argv = [str(Path(posix_box.path.split(":")[0]) / "sh"), posix_box.program[1], "attach"]
    argv += ["--dir", str(posix_box.directory), "--run", "run-0", "--order", "-"]
    text = posix_order(posix_box.order(argv=["echo", "hi"]))
    told = subprocess.run(argv, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    assert told.endswith(b'{"e":"eof"}\n')


def test_an_order_is_no_place_for_commands_of_others() -> None:
    """Whatever stands in an order, it is a text for the shell and never a command."""
    nasty = "'; touch /tmp/owned; '`touch x`$(touch y)\n\"\\"
    order = Box(("sh",), Path("/nowhere")).order(
        params={nasty: nasty},
        env={"A": nasty, nasty: nasty},
        argv=[nasty],
        workdir=nasty,
        source={"dir": nasty},
        sync=[nasty],
        setup=[[nasty]],
        identity={"keeper": nasty, "note": nasty},
        secret_names=[nasty],
    )
    before = "cd $(mktemp -d)\nsync_one() { :; }; lead() { :; }; state=x alone=true\n"
    calls = "hold_secrets; give_secrets; give_variables; make_links; sync_mounts; (task); (step_0)"
    text = f"{before}{posix_order(order)}\n{calls}; ls -A"
    shell = subprocess.run(["sh", "-eu", "-c", text], capture_output=True)
    assert shell.returncode == 0, shell.stderr
    assert shell.stdout == b""


def test_the_guest_is_one_text_without_comments() -> None:
    assert posix_source() == posix_source.__wrapped__()
    assert not [line for line in posix_source().splitlines()[1:] if line.startswith("#")]


def test_output_that_cannot_be_read_at_first_is_read_again(posix_box: Box, tmp_path: Path) -> None:
    order = posix_box.order(argv=["sh", "-c", "echo once"], linger_s=0.0)
    assert posix_box.told(order).log == b"once\n"
    real, failed = shutil.which("dd"), tmp_path / "failed"
    program = tmp_path / "shell" / "dd"
    program.write_text(f'#!/bin/sh\n[ -e {failed} ] && exec {real} "$@"\n: >{failed}\nexit 1\n')
    program.chmod(0o755)
    again = posix_box.told(order)
    assert failed.exists()
    assert (again.log, again.kinds[-1]) == (b"once\n", "eof")


def test_a_task_gets_its_files_byte_for_byte(posix_box: Box) -> None:
    content = bytes(range(256)) + b"\n100% 'quoted' \"$HOME\" `id` \\n \\101\0end"
    names = ["a/with space.bin", "it's $HOME.bin"]
    files = [{"name": it, "b64": base64.b64encode(content).decode()} for it in names]
    params = {"files": [{"name": it, "sha256": "0"} for it in names], "x": "1"}
    text = (
        'printf "%s\\n" "$TASK_FILES" | while IFS= read -r it; do cat "$it"; echo "$it"; done'
        '; cat "$FLEETCTL_PARAMS"'
    )
    order = posix_box.order(argv=["sh", "-c", text], params=params, files=files)
    inputs = f"{posix_box.directory}/files/inputs"
    paths = [f"{inputs}/{it}" for it in names]
    shown = b"".join(content + f"{it}\n".encode() for it in paths)
    assert posix_box.told(order).log == shown + json.dumps({"files": paths, "x": "1"}).encode()


def test_a_task_of_a_file_in_a_volume_gets_its_path_there(posix_box: Box, tmp_path: Path) -> None:
    (tmp_path / "it's $HOME").write_text("hi\n")
    files = [{"mount": str(tmp_path), "path": "it's $HOME"}]
    params = {"file": {"volume": "texts", "path": "it's $HOME", "bytes": 3}}
    argv = ["sh", "-c", 'cat "$TASK_FILE"; ls "${FLEETCTL_PARAMS%/*}" | grep inputs']
    order = posix_box.order(argv=argv, params=params, files=files)
    assert posix_box.told(order).log == b"hi\n"


def test_a_task_of_one_file_gets_its_path(posix_box: Box) -> None:
    files = [{"name": "file.txt", "b64": base64.b64encode(b"hi\n").decode()}]
    params = {"file": {"name": "file.txt", "sha256": "0"}}
    argv = ["sh", "-c", 'cat "$TASK_FILE"; echo "${TASK_FILE##*/}${TASK_FILES-}"']
    order = posix_box.order(argv=argv, params=params, files=files)
    assert posix_box.told(order).log == b"hi\nfile.txt\n"
