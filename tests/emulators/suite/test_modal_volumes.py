"""The emulator's volumes, driven by the real SDK; what they say is compared with the files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import modal
import pytest

from tests.emulators.driving.modal import Driver, eventually
from tests.emulators.modal.running import ModalEmulator

VERSIONS = [1, 2]


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with ModalEmulator() as running:
        yield running


@pytest.fixture
def driver(emulator: ModalEmulator, request: pytest.FixtureRequest) -> Iterator[Driver]:
    with Driver(emulator, request.node.name) as driver:
        yield driver


def committed(emulator: ModalEmulator, volume: modal.Volume) -> dict[str, bytes]:
    """The truth: the bytes that the volume holds, by path."""
    found = next(one for one in emulator.state()["volumes"] if one["volume_id"] == volume.object_id)
    directory = Path(found["directory"])
    return {name: (directory / name).read_bytes() for name in found["files"]}


def names(volume: modal.Volume, path: str = "/", **options: Any) -> list[str]:
    return sorted(entry.path for entry in volume.listdir(path, **options))


def put(volume: modal.Volume, files: dict[str, bytes], *, force: bool = False) -> None:
    with volume.batch_upload(force=force) as batch:
        for name, data in files.items():
            batch.put_file(io.BytesIO(data), name)


def read(volume: modal.Volume, path: str) -> bytes:
    return b"".join(volume.read_file(path))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_put_comes_back_byte_for_byte(
    emulator: ModalEmulator, driver: Driver, version: int, tmp_path: Path
) -> None:
    volume = driver.volume("bytes", version=version)
    files = {
        "a.txt": b"hello",
        "empty": b"",
        "deep/er/b.bin": bytes(range(256)) * 20,
        # Two blocks; the second is shorter than what it says, as its end is zeros.
        "zeros.bin": b"x" * (8 * 1024 * 1024 + 5) + b"\0" * 100_000,
    }
    put(volume, {"/" + name: data for name, data in files.items()})
    assert committed(emulator, volume) == files
    assert {name: read(volume, name) for name in files} == files
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    with volume.batch_upload() as batch:
        batch.put_file(script, "/bin/run.sh")
        batch.put_directory(tmp_path, "/all")
    assert read(volume, "all/run.sh") == b"#!/bin/sh\n"
    directory = next(
        one["directory"]
        for one in emulator.state()["volumes"]
        if one["volume_id"] == volume.object_id
    )
    assert (Path(directory) / "bin/run.sh").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("version", VERSIONS)
def test_listings_name_what_is_there_and_missing_paths_are_not_found(
    driver: Driver, version: int
) -> None:
    volume = driver.volume("lists", version=version)
    assert names(volume) == []
    put(volume, {"/a": b"1", "/d/b": b"22", "/d/e/c": b"333"})
    assert names(volume) == ["a", "d"]
    assert names(volume, "/", recursive=True) == ["a", "d", "d/b", "d/e", "d/e/c"]
    assert names(volume, "d") == ["d/b", "d/e"]
    (entry,) = volume.listdir("/d/b")
    assert (entry.path, entry.size, entry.type.name) == ("d/b", 2, "FILE")
    with pytest.raises(modal.exception.NotFoundError):
        volume.listdir("nowhere")
    with pytest.raises(FileNotFoundError):
        read(volume, "nowhere")
    with pytest.raises(FileNotFoundError):
        volume.remove_file("nowhere")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_is_overwritten_only_by_force_and_a_directory_never(
    emulator: ModalEmulator, driver: Driver, version: int
) -> None:
    volume = driver.volume("force", version=version)
    put(volume, {"/a": b"old", "/d/b": b"kept"})
    with pytest.raises(FileExistsError):
        put(volume, {"/a": b"new", "/c": b"also"})
    assert committed(emulator, volume) == {"a": b"old", "d/b": b"kept"}
    put(volume, {"/a": b"new"}, force=True)
    with pytest.raises(FileExistsError):
        put(volume, {"/d": b"no"}, force=True)
    assert committed(emulator, volume) == {"a": b"new", "d/b": b"kept"}


@pytest.mark.parametrize("version", VERSIONS)
def test_files_are_copied_and_removed(
    emulator: ModalEmulator, driver: Driver, version: int
) -> None:
    volume = driver.volume("moves", version=version)
    put(volume, {"/a": b"1", "/d/b": b"2"})
    volume.copy_files(["a"], "copy")
    volume.copy_files(["a", "copy"], "d")
    assert committed(emulator, volume) == {
        "a": b"1", "copy": b"1", "d/a": b"1", "d/b": b"2", "d/copy": b"1",
    }  # fmt: skip
    volume.remove_file("a")
    with pytest.raises(modal.exception.InvalidError):
        volume.remove_file("d")
    volume.remove_file("d", recursive=True)
    assert committed(emulator, volume) == {"copy": b"1"}


def test_names_lead_to_volumes_and_versions_are_checked(
    emulator: ModalEmulator, driver: Driver
) -> None:
    manager = modal.Volume.objects
    with pytest.raises(modal.exception.NotFoundError):
        modal.Volume.from_name("absent", client=driver.client).hydrate()
    manager.create("mine", version=2, client=driver.client)
    with pytest.raises(modal.exception.AlreadyExistsError):
        manager.create("mine", client=driver.client)
    manager.create("mine", allow_existing=True, client=driver.client)
    with pytest.raises(modal.exception.InvalidError):
        modal.Volume.from_name("mine", version=1, client=driver.client).hydrate()
    volume = modal.Volume.from_name("mine", client=driver.client).hydrate()
    assert modal.Volume.from_id(volume.object_id, client=driver.client).info().name == "mine"
    modal.Volume.rename("mine", "yours", client=driver.client)
    assert "yours" in [one.name for one in manager.list(client=driver.client)]
    manager.delete("yours", client=driver.client)
    with pytest.raises(modal.exception.NotFoundError):
        volume.listdir("/")
    assert volume.object_id not in [one["volume_id"] for one in emulator.state()["volumes"]]


def test_an_ephemeral_volume_has_no_name(driver: Driver) -> None:
    with modal.Volume.ephemeral(client=driver.client, version=2) as volume:
        put(volume, {"/a": b"1"})
        assert names(volume) == ["a"]
        ids = [one.object_id for one in modal.Volume.objects.list(client=driver.client)]
        assert volume.object_id not in ids


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_sandbox_writes_reaches_the_volume_when_it_ends(
    emulator: ModalEmulator, driver: Driver, version: int
) -> None:
    volume = driver.volume("ends", version=version)
    put(volume, {"/old": b"old", "/gone": b"gone"})
    sandbox = driver.sandbox(
        "sh", "-c", "cat /data/old; echo new > /data/new; rm /data/gone; read line",
        volumes={"/data": volume},
    )  # fmt: skip
    eventually(lambda: sandbox.exec("test", "-e", "/data/new", timeout=120).wait() == 0)
    assert committed(emulator, volume) == {"old": b"old", "gone": b"gone"}
    sandbox.stdin.write("\n")
    sandbox.stdin.drain()
    assert sandbox.wait() is None
    assert sandbox.stdout.read() == "old"
    assert committed(emulator, volume) == {"old": b"old", "new": b"new\n"}


def test_sync_commits_a_volume_of_version_two_and_not_one_of_version_one(
    emulator: ModalEmulator, driver: Driver
) -> None:
    one, two = driver.volume("one", version=1), driver.volume("two", version=2)
    sandbox = driver.sandbox("sleep", "100", volumes={"/one": one, "/two": two})
    script = "echo a > /one/a; echo b > /two/b; ln -s /two /link; sync /one; sync /link"
    assert sandbox.exec("sh", "-c", script, timeout=120).wait() == 0
    assert committed(emulator, one) == {}
    assert committed(emulator, two) == {"b": b"b\n"}
    sandbox.terminate(wait=True)
    eventually(lambda: committed(emulator, one) == {"a": b"a\n"})


def test_a_preempted_sandbox_loses_what_it_did_not_sync(
    emulator: ModalEmulator, driver: Driver
) -> None:
    volume = driver.volume("lost", version=2)
    sandbox = driver.sandbox("sleep", "100", volumes={"/data": volume})
    script = "echo 1 > /data/saved; sync /data; echo 2 > /data/saved; echo 3 > /data/more"
    assert sandbox.exec("sh", "-c", script, timeout=120).wait() == 0
    emulator.do("preempt", sandbox_id=sandbox.object_id)
    eventually(lambda: sandbox.poll() is not None)
    assert committed(emulator, volume) == {"saved": b"1\n"}


def test_the_last_writer_of_a_file_wins_and_other_files_are_merged(
    emulator: ModalEmulator, driver: Driver
) -> None:
    volume = driver.volume("merge", version=2)
    put(volume, {"/base": b"base"})
    first, second = (driver.sandbox("sleep", "100", volumes={"/v": volume}) for _ in range(2))
    for sandbox, word in ((first, "first"), (second, "second")):
        script = f"echo {word} > /v/same; echo {word} > /v/{word}; sync /v"
        assert sandbox.exec("sh", "-c", script, timeout=120).wait() == 0
    assert committed(emulator, volume) == {
        "base": b"base", "same": b"second\n", "first": b"first\n", "second": b"second\n",
    }  # fmt: skip
    look = "cat /v/same; ls /v"
    assert first.exec("sh", "-c", look, timeout=120).stdout.read() == "first\nbase\nfirst\nsame\n"
    first.reload_volumes()
    seen = first.exec("sh", "-c", look, timeout=120).stdout.read()
    assert seen == "second\nbase\nfirst\nsame\nsecond\n"


@pytest.mark.parametrize(
    "holds",
    ["exec 3< /v/base; sleep 100", "exec 3> /v/own; sleep 100", "cd /v; sleep 100"],
    ids=["reads", "writes", "is in it"],
)
def test_a_volume_with_open_files_is_not_reloaded(driver: Driver, holds: str) -> None:
    volume = driver.volume("open", version=2)
    put(volume, {"/base": b"base"})
    sandbox = driver.sandbox("sh", "-c", f"read line; {holds}", volumes={"/v": volume})
    put(volume, {"/more": b"more"})
    sandbox.reload_volumes()
    sandbox.stdin.write("\n")
    sandbox.stdin.drain()
    eventually(lambda: sandbox.exec("pgrep", "sleep", timeout=120).wait() == 0, pause_s=0.2)
    put(volume, {"/most": b"most"})
    with pytest.raises(modal.exception.ConflictError, match="there are open files preventing"):
        sandbox.reload_volumes()
    assert "most" not in sandbox.exec("ls", "/v", timeout=120).stdout.read()
    sandbox.terminate(wait=True)


def test_mount_options_make_a_volume_read_only_and_show_a_part_of_it(
    emulator: ModalEmulator, driver: Driver
) -> None:
    volume = driver.volume("parts", version=2)
    put(volume, {"/a": b"1", "/sub/b": b"2"})
    sandbox = driver.sandbox(
        "sh", "-c", "ls /part; echo 3 > /part/c; exit 4",
        volumes={"/part": volume.with_mount_options(sub_path="/sub")},
    )  # fmt: skip
    sandbox.wait(raise_on_termination=False)
    assert (sandbox.returncode, sandbox.stdout.read()) == (4, "b\n")
    assert committed(emulator, volume) == {"a": b"1", "sub/b": b"2", "sub/c": b"3\n"}
    reader = driver.sandbox(
        "sh", "-c", "cat /ro/a; echo no > /ro/a",
        volumes={"/ro": volume.with_mount_options(read_only=True)},
    )  # fmt: skip
    reader.wait(raise_on_termination=False)
    assert (reader.returncode, reader.stdout.read()) != (0, "1")
    assert committed(emulator, volume)["a"] == b"1"
