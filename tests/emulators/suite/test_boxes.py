"""The boxes in which emulated sandboxes run: what is inside is apart, and ends with the box."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.emulators.boxes import Box, Nursery
from tests.emulators.driving.boxes import HANG_S, output, run


def new_mark() -> str:
    """Seconds to sleep that are in no other command line of this machine."""
    return str(10**15 + secrets.randbelow(10**15))


def pids_with(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line:
                found.append(int(entry.name))
    return found


def test_a_mount_is_the_hosts_directory_at_an_absolute_path(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()

    async def body() -> None:
        box = Box(tmp_path / "box", mounts={"/deep/data": shared}, env={"WHO": "me"})
        await box.start()
        code, said = await output(box, "sh", "-c", "echo $WHO > /deep/data/x; pwd", cwd="/deep")
        assert (code, said) == (0, "/deep\n")
        await box.kill()
        assert box.host_path("/deep/data/x").read_text() == "me\n"

    run(body())
    assert (shared / "x").read_text() == "me\n"


def test_what_a_box_writes_stays_in_its_own_root(tmp_path):
    async def body() -> None:
        box = Box(tmp_path / "box", files={"/etc/own": Path(__file__)})
        await box.start()
        command = "echo a > /root/a; echo b > /usr/local/b; echo c > /etc/own"
        code, _said = await output(box, "sh", "-c", command)
        assert code != 0, "a read-only file was written"
        await box.kill()

    run(body())
    assert (tmp_path / "box/root/root/a").read_text() == "a\n"
    assert (tmp_path / "box/root/usr/local/b").read_text() == "b\n"
    assert not Path("/usr/local/b").exists()


def test_a_base_is_shown_and_never_changed(tmp_path):
    async def body() -> None:
        first = Box(tmp_path / "first")
        await first.start()
        await output(first, "sh", "-c", "echo old > /usr/local/file; echo old > /srv/file")
        await first.kill()
        second = Box(tmp_path / "second", base=[first.root])
        await second.start()
        both = "/usr/local/file /srv/file"
        seen = await output(second, "sh", "-c", f"cat {both}; echo new | tee {both}")
        assert seen == (0, "old\nold\nnew\n")
        await second.kill()
        assert (first.root / "usr/local/file").read_text() == "old\n"
        assert (first.root / "srv/file").read_text() == "old\n"

    run(body())


def test_exit_codes_signals_and_missing_programs_are_told(tmp_path):
    async def body() -> None:
        box = Box(tmp_path / "box")
        await box.start()
        assert (await output(box, "sh", "-c", "exit 7"))[0] == 7
        assert (await output(box, "sh", "-c", "kill -TERM $$"))[0] == -signal.SIGTERM
        with pytest.raises(OSError, match="No such file") as missing:
            await box.spawn(["no-such-program"])
        assert missing.value.errno == 2
        sleeper = await box.spawn(["sleep", "100"])
        sleeper.kill()
        assert await sleeper.wait() == -signal.SIGKILL
        assert box.alive
        await box.kill()

    run(body())


def all_of(terminal: int) -> str:
    """What was printed on a terminal whose processes have ended: one read need not have it all."""
    said = b""
    while True:
        try:
            said += os.read(terminal, 4096)
        except OSError:  # EIO: nothing more will come
            return said.decode()


def test_a_terminal_has_a_size_and_a_name(tmp_path):
    async def body() -> None:
        box = Box(tmp_path / "box")
        await box.start()
        process = await box.spawn(["sh", "-c", "read x; tty; stty size; echo $x"], pty=True)
        process.resize(33, 99)
        assert process.terminal is not None
        os.write(process.terminal, b"typed\n")
        assert await process.wait() == 0
        said = all_of(process.terminal)
        process.close_terminal()
        assert "/dev/pts/" in said
        assert said.endswith("33 99\r\ntyped\r\n")
        await box.kill()

    run(body())


@pytest.mark.parametrize("plain", [False, True], ids=["isolated", "plain"])
def test_killing_a_box_ends_everything_that_came_from_it(tmp_path, plain):
    mark = new_mark()

    async def body() -> None:
        nursery = await Nursery.started(plain=plain)
        box = Box(tmp_path / "box", nursery=nursery)
        await box.start()
        shell = f"(setsid sleep {mark} &) ; sleep {mark} & wait"
        process = await box.spawn(["sh", "-c", shell])
        while len(pids_with(mark)) < 3:
            await asyncio.sleep(0.01)
        assert process.pid in pids_with(mark)
        await box.kill()
        assert pids_with(mark) == []
        assert await process.wait() == -signal.SIGKILL
        assert not box.alive
        nursery.stop()

    run(body())


def test_all_boxes_die_when_the_process_that_made_them_is_killed(tmp_path):
    mark = new_mark()
    program = f"""
import asyncio, sys
from pathlib import Path
from tests.emulators.boxes import Box
async def main():
    for n in "ab":
        box = Box(Path(sys.argv[1]) / n)
        await box.start()
        await box.spawn(["setsid", "sleep", "{mark}"])
    print("started", flush=True)
    await asyncio.sleep(100)
asyncio.run(main())
"""
    maker = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert maker.stdout is not None
    assert maker.stdout.readline() == "started\n"
    maker.kill()
    maker.wait()
    maker.stdout.close()
    deadline = time.monotonic() + HANG_S
    while pids_with(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pids_with(mark) == []


def test_a_message_larger_than_a_socket_buffer_arrives(tmp_path):
    async def body() -> None:
        box = Box(tmp_path / "box")
        await box.start()
        big = {f"V{n}": "x" * 100_000 for n in range(8)}
        code, said = await output(box, "sh", "-c", "echo ${#V7}", env=big)
        assert (code, said) == (0, "100000\n")
        await box.kill()

    run(body())
