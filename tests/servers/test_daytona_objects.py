"""Golden case 19: a volume of Daytona is a bucket of whole files, written from their first byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.emulators.boxes import Box
from tests.emulators.driving.boxes import output, run
from tests.servers.daytona_fleet import Fleet, Play

TRIES = r"""
import errno, json, os
found = {}

def attempt(name, act):
    try:
        found[name] = act()
    except OSError as error:
        found[name] = errno.errorcode[error.errno]

def middle():
    with open("c", "wb", buffering=0) as file:
        file.write(b"0123456789")
        file.seek(2)
        file.write(b"x")

os.chdir("/v")
attempt("write", lambda: open("a", "w").write("hello"))
attempt("rename", lambda: os.rename("a", "b"))
attempt("append", lambda: open("a", "a"))
attempt("middle", middle)
attempt("in place", lambda: open("a", "r+"))
attempt("link", lambda: os.link("a", "l"))
attempt("chmod", lambda: os.chmod("a", 0o600))
attempt("utime", lambda: os.utime("a"))
attempt("truncate", lambda: os.truncate("a", 1))
attempt("overwrite", lambda: open("a", "w").write("hi" * 200_000))
os.makedirs("empty/inner")
half = open("half", "w")
half.write("part")
half.flush()
attempt("unfinished", lambda: open("half").read())
found["listed"] = sorted(os.listdir())
half.close()
print(json.dumps(found))
"""


def test_a_bucket_takes_whole_files_from_their_first_byte_on(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()

    async def body() -> None:
        box = Box(tmp_path / "box", objects={"/v": bucket})
        await box.start()
        if not box.objects:
            await box.kill()
            pytest.skip("this kernel lets nobody mount by FUSE")
        code, said = await output(box, "python3", "-c", TRIES)
        assert (code, json.loads(said)) == (
            0,
            {
                "write": 5,
                "rename": "ENOSYS",
                "append": "EPERM",
                "middle": "EINVAL",
                "in place": "EPERM",
                "link": "EPERM",
                "chmod": "EPERM",
                "utime": "EPERM",
                "truncate": "EPERM",
                "overwrite": 400_000,
                "unfinished": "EPERM",
                "listed": ["a", "c", "empty", "half"],
            },
        )
        assert sorted(one.name for one in bucket.rglob("*")) == ["a", "c", "half"]
        code, said = await output(box, "sh", "-c", "rmdir /v/empty/inner; rm -r /v/*; ls -A /v")
        assert (code, said) == (0, "")
        # The emulator looks at the directory itself, past the mount.
        assert list(bucket.iterdir()) == []
        await box.kill()

    run(body())


def test_another_mount_sees_a_file_when_it_is_closed(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    writes = (
        "import os; f = open('/v/f', 'w'); f.write('whole'); f.flush()\n"
        "print(os.listdir('/w')); f.close(); print(open('/w/f').read())"
    )

    async def body() -> None:
        box = Box(tmp_path / "box", objects={"/v": bucket, "/w": bucket})
        await box.start()
        if box.objects:
            assert await output(box, "python3", "-c", writes) == (0, "[]\nwhole\n")
        await box.kill()

    run(body())


HELPED = """
paths = [save_to_volume("out/a.json", "one"), save_to_volume("out/a.json", "two")]
paths += [workspace_append("log.txt", "x"), workspace_append("log.txt", "y")]
SUBMIT(paths=paths, saved=load_from_volume("out/a.json"), log=workspace_read("log.txt"))
"""


def test_case_19_what_the_helpers_say_is_saved_is_in_a_volume_that_cannot_rename(
    on_daytona: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply_kind("Volume", "kept", {"provider": "daytona", "deletionPolicy": "Delete"})
        volumes = [{"name": "kept", "mountPath": "/data"}]
        fleet.apply({"python": HELPED, "volumes": volumes})
        await fleet.phase("Succeeded")
        paths = ["/data/out/a.json"] * 2 + ["/data/workspace/log.txt"] * 2
        assert fleet.results() == {0: {"paths": paths, "saved": "two", "log": "xy"}}
        fleet.delete()
        await fleet.gone()
        fleet.delete_kind("Volume", "kept")
        await fleet.gone("kept")

    on_daytona(tale)
