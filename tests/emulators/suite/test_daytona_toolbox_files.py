"""Files through the SDK, compared with the files of the sandbox as they lie on this machine."""

from __future__ import annotations

import io
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from daytona import FileDownloadRequest, FileUpload, Sandbox
from daytona.common.errors import (
    DaytonaBadRequestError,
    DaytonaConflictError,
    DaytonaError,
    DaytonaFileNotFoundError,
)

from tests.emulators.suite.daytona_toolbox_world import PATIENCE_S, Place, place

MEGABYTES = bytes(range(256)) * 4096 * 3
NAMES = (
    "plain.txt",
    "sp ace.txt",
    'qu"ote.txt',
    "back\\slash.txt",
    "ünïcödé 日本.txt",
    "a=b;c.txt",
)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("daytona")) as here:
        yield here


@pytest.fixture(scope="module")
def sandbox(emulator: Place) -> Sandbox:
    return emulator.client().create(timeout=60)


@pytest.fixture
def home(emulator: Place, sandbox: Sandbox, request: pytest.FixtureRequest) -> Path:
    """A directory of the sandbox, from outside; from inside it is `test/`."""
    sandbox.process.exec("rm -rf test && mkdir test")
    return emulator.host(sandbox, "test")


def test_what_is_uploaded_is_there_byte_for_byte_and_comes_back(
    sandbox: Sandbox, home: Path
) -> None:
    for content in (b"hello", b"", MEGABYTES):
        sandbox.fs.upload_file(content, "test/new/deep/file.bin")
        assert (home / "new/deep/file.bin").read_bytes() == content
        assert sandbox.fs.download_file("test/new/deep/file.bin") == content
    assert sandbox.process.exec("stat -c %s test/new/deep/file.bin").result == f"{len(MEGABYTES)}\n"


def test_files_go_from_disk_to_disk(sandbox: Sandbox, home: Path, tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(MEGABYTES)
    sandbox.fs.upload_file(str(tmp_path / "here"), "/tmp/there")
    sandbox.fs.download_file("/tmp/there", str(tmp_path / "back" / "again"))
    assert (tmp_path / "back" / "again").read_bytes() == MEGABYTES


def test_many_files_travel_at_once_and_a_missing_one_spoils_no_other(
    sandbox: Sandbox, home: Path
) -> None:
    sandbox.fs.upload_files([FileUpload(name.encode(), f"test/{name}") for name in NAMES])
    assert sorted(os.listdir(home)) == sorted(NAMES)
    wanted = [*(f"test/{name}" for name in NAMES), "test/missing", "/tmp"]
    *found, missing, folder = sandbox.fs.download_files([FileDownloadRequest(p) for p in wanted])
    assert [one.result for one in found] == [name.encode() for name in NAMES]
    assert missing.result is None and missing.error_details is not None
    assert missing.error_details.status_code == 404
    assert missing.error_details.code == "FILE_NOT_FOUND"
    assert folder.error is not None and "directory" in folder.error


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_can_be_streamed(sandbox: Sandbox, home: Path, name: str) -> None:
    (home / name).write_bytes(b"content of " + name.encode())
    assert (
        b"".join(sandbox.fs.download_file_stream(f"test/{name}")) == b"content of " + name.encode()
    )


def test_streams_tell_how_far_they_are(sandbox: Sandbox, home: Path) -> None:
    sent: list[int] = []
    sandbox.fs.upload_file_stream(
        io.BytesIO(MEGABYTES), "test/stream", on_progress=lambda at: sent.append(at.bytes_sent)
    )
    assert (home / "stream").read_bytes() == MEGABYTES
    got: list[tuple[int, int | None]] = []
    content = sandbox.fs.download_file_stream(
        "test/stream", on_progress=lambda at: got.append((at.bytes_received, at.total_bytes))
    )
    assert b"".join(content) == MEGABYTES
    assert sent[-1] == len(MEGABYTES)
    assert got[-1] == (len(MEGABYTES), len(MEGABYTES))
    assert got == sorted(got)


def test_a_file_that_is_not_there_is_not_found(sandbox: Sandbox, home: Path) -> None:
    for ask in (
        lambda: sandbox.fs.download_file("test/none"),
        lambda: list(sandbox.fs.download_file_stream("test/none")),
        lambda: sandbox.fs.get_file_info("test/none"),
        lambda: sandbox.fs.list_files("test/none"),
        lambda: sandbox.fs.delete_file("test/none"),
        lambda: sandbox.fs.move_files("test/none", "test/some"),
        lambda: sandbox.fs.set_file_permissions("test/none", mode="600"),
    ):
        with pytest.raises(DaytonaFileNotFoundError) as caught:
            ask()
        assert (caught.value.status_code, caught.value.code) == (404, "FILE_NOT_FOUND")


def test_a_file_cannot_be_uploaded_over_a_directory(sandbox: Sandbox, home: Path) -> None:
    (home / "folder").mkdir()
    with pytest.raises(DaytonaError) as caught:
        sandbox.fs.upload_file(b"x", "test/folder")
    assert caught.value.status_code == 400
    assert "test/folder: is a directory" in str(caught.value)


def test_info_is_what_the_machine_says(sandbox: Sandbox, home: Path) -> None:
    (home / "file").write_bytes(b"12345")
    (home / "file").chmod(0o640)
    (home / "link").symlink_to("file")
    os.utime(home / "file", ns=(10**9, 1_700_000_000_123_000_000))
    info = sandbox.fs.get_file_info("test/file")
    assert (info.name, info.path, info.size) == ("file", "/home/daytona/test/file", 5)
    assert (info.is_dir, info.mode, info.permissions) == (False, "-rw-r-----", "0640")
    assert info.mod_time == "2023-11-14 22:13:20.123 +0000 UTC"
    assert info.modified_at == "2023-11-14T22:13:20.123000Z"
    assert (info.owner, info.group) == ("root", "root")
    assert sandbox.fs.get_file_info("test/link").size == 5, "a link was not followed"
    assert sandbox.fs.get_file_info("/usr/bin/env").size == os.stat("/usr/bin/env").st_size
    assert sandbox.fs.get_file_info("test").is_dir


def test_lists_are_as_deep_as_they_are_asked_to_be(sandbox: Sandbox, home: Path) -> None:
    (home / "a" / "b" / "c").mkdir(parents=True)
    (home / "a" / "file").touch()

    def listed(depth: int | None = None) -> list[str]:
        return [one.path or "" for one in sandbox.fs.list_files("test", depth=depth)]

    top = "/home/daytona/test"
    assert listed() == listed(1) == [f"{top}/a"]
    assert listed(2) == [f"{top}/a", f"{top}/a/b", f"{top}/a/file"]
    assert listed(9) == [f"{top}/a", f"{top}/a/b", f"{top}/a/b/c", f"{top}/a/file"]


def test_folders_are_made_with_their_mode_and_removed_only_on_demand(
    sandbox: Sandbox, home: Path
) -> None:
    sandbox.fs.create_folder("test/one/two", "700")
    assert (home / "one/two").stat().st_mode & 0o777 == 0o700
    sandbox.fs.create_folder("test/one/two", "755")  # already there: not a mistake
    with pytest.raises(DaytonaBadRequestError, match="recursive"):
        sandbox.fs.delete_file("test/one")
    assert (home / "one/two").is_dir()
    sandbox.fs.delete_file("test/one", recursive=True)
    assert not (home / "one").exists()
    with pytest.raises(DaytonaBadRequestError, match="invalid mode"):
        sandbox.fs.create_folder("test/three", "worldwide")


def test_deleting_a_link_leaves_what_it_points_to(sandbox: Sandbox, home: Path) -> None:
    (home / "kept").mkdir()
    (home / "kept" / "file").touch()
    (home / "link").symlink_to("/home/daytona/test/kept")
    sandbox.fs.delete_file("test/link")
    assert (home / "kept" / "file").exists()
    assert not (home / "link").is_symlink()


def test_a_link_to_an_absolute_path_stays_inside_the_sandbox(
    sandbox: Sandbox, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("of the host")
    (home / "link").symlink_to(tmp_path / "outside")
    (home / "round").symlink_to("round")
    with pytest.raises(DaytonaFileNotFoundError):
        sandbox.fs.download_file("test/link")
    with pytest.raises(DaytonaFileNotFoundError):
        sandbox.fs.download_file(f"test/../../../../../..{tmp_path}/outside")
    with pytest.raises(DaytonaError):
        sandbox.fs.get_file_info("test/round")


def test_files_move_but_never_over_others(sandbox: Sandbox, home: Path) -> None:
    (home / "from").write_text("moved")
    (home / "other").write_text("kept")
    with pytest.raises(DaytonaConflictError, match="already exists"):
        sandbox.fs.move_files("test/from", "test/other")
    with pytest.raises(DaytonaFileNotFoundError):
        sandbox.fs.move_files("test/from", "test/no/such/folder")
    sandbox.fs.move_files("test/from", "test/to")
    assert (home / "to").read_text() == "moved"
    assert not (home / "from").exists()
    assert (home / "other").read_text() == "kept"


def test_permissions_and_owners_are_set(sandbox: Sandbox, home: Path) -> None:
    (home / "file").touch()
    sandbox.fs.set_file_permissions("test/file", mode="741", owner="root", group="0")
    assert (home / "file").stat().st_mode & 0o777 == 0o741
    with pytest.raises(DaytonaBadRequestError, match="unknown user"):
        sandbox.fs.set_file_permissions("test/file", owner="nobody-of-this-name")


def test_text_is_found_with_its_line_and_files_by_their_names(sandbox: Sandbox, home: Path) -> None:
    (home / "sub").mkdir()
    (home / "one.py").write_text("first\n# TO[D]O: second\n")
    (home / "sub" / "two.py").write_text("# TO[D]O: third")
    (home / "binary.bin").write_bytes(b"\0# TO[D]O: not text")
    found = sandbox.fs.find_files("test", "TO[D]O:")
    assert [(one.file, one.line, one.content) for one in found] == [
        ("test/one.py", 2, "# TO[D]O: second"),
        ("test/sub/two.py", 1, "# TO[D]O: third"),
    ]
    assert sandbox.fs.search_files("test", "*.py").files == ["test/one.py", "test/sub/two.py"]
    assert sandbox.fs.search_files("/home/daytona/test", "s?b").files == ["/home/daytona/test/sub"]
    assert sandbox.fs.search_files("test", "*.rs").files == []


def test_text_is_replaced_in_each_file_that_is_there(sandbox: Sandbox, home: Path) -> None:
    (home / "one").write_text("a.b and a.b")
    (home / "two").write_text("axb")
    (home / "one").chmod(0o755)
    results = sandbox.fs.replace_in_files(["test/one", "test/two", "test/none"], "a.b", "")
    assert [(one.file, one.success) for one in results] == [
        ("test/one", True),
        ("test/two", True),
        ("test/none", False),
    ]
    assert "no such file" in (results[2].error or "")
    assert ((home / "one").read_text(), (home / "two").read_text()) == (" and ", "axb")
    assert (home / "one").stat().st_mode & 0o777 == 0o755


def test_signed_urls_open_one_file_for_one_method_until_the_key_is_rotated(
    sandbox: Sandbox, home: Path
) -> None:
    (home / "file").write_bytes(MEGABYTES)
    url = sandbox.download_url("test/file", ttl_seconds=60)
    assert _read(url) == (200, MEGABYTES)
    assert _read(url.replace("test%2Ffile", "test%2Fother"))[0] == 401
    assert _read(url + "0")[0] == 401
    assert _read(url.partition("?")[0] + "?path=test%2Ffile")[0] == 401
    sandbox.rotate_signing_key()
    status, body = _read(url)
    assert (status, json.loads(body)["source"]) == (401, "DAYTONA_PROXY")
    assert _read(sandbox.download_url("test/file"))[0] == 200
    assert _read(sandbox.download_url("test/none"))[0] == 404


def test_signed_urls_expire_on_the_clock_of_the_platform(
    emulator: Place, sandbox: Sandbox, home: Path
) -> None:
    (home / "file").write_text("x")
    soon, never = (sandbox.download_url("test/file", ttl_seconds=ttl) for ttl in (60, 0))

    async def later() -> None:
        emulator.world.clock.advance(61)

    emulator.run(later())
    assert _read(soon)[0] == 401
    assert _read(never) == (200, b"x")


def test_a_signed_url_takes_a_form_or_a_plain_body(sandbox: Sandbox, home: Path) -> None:
    url = sandbox.upload_url("test/new/up")
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    form = head + b"by form\r\n--b--\r\n"
    status, _body = _read(url, form, "multipart/form-data; boundary=b")
    assert (status, (home / "new/up").read_bytes()) == (200, b"by form")
    status, body = _read(url, b"plain", "application/octet-stream")
    assert (status, (home / "new/up").read_bytes()) == (200, b"plain")
    assert json.loads(body) == {"name": "up", "path": "test/new/up", "type": "file"}


def _read(url: str, data: bytes | None = None, kind: str = "text/plain") -> tuple[int, bytes]:
    request = urllib.request.Request(url, data=data, headers={"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
