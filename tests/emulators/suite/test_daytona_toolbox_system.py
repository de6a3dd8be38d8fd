"""A sandbox as a whole through the SDK: its places, environment, volumes, desktop and its end."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from daytona import (
    CreateSandboxFromSnapshotParams,
    Daytona,
    Sandbox,
    SessionExecuteRequest,
    VolumeMount,
)
from daytona.common.computer_use import ScreenshotOptions, ScreenshotRegion
from daytona.common.errors import (
    DaytonaBadRequestError,
    DaytonaError,
    DaytonaNotFoundError,
)

from tests.emulators.suite.daytona_toolbox_world import PATIENCE_S, Place, place, until


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("daytona")) as here:
        yield here


@pytest.fixture(scope="module")
def client(emulator: Place) -> Daytona:
    return emulator.client()


@pytest.fixture(scope="module")
def sandbox(client: Daytona) -> Sandbox:
    return client.create(CreateSandboxFromSnapshotParams(env_vars={"GIVEN": "1"}), timeout=60)


def test_the_sandbox_begins_in_its_users_home(sandbox: Sandbox) -> None:
    assert sandbox.get_user_home_dir() == "/home/daytona"
    assert sandbox.get_work_dir() == "/home/daytona"
    assert sandbox.process.exec("echo $HOME $USER $GIVEN").result == "/home/daytona daytona 1\n"


def test_the_environment_changes_for_processes_that_start_later(sandbox: Sandbox) -> None:
    sandbox.process.create_session("before")
    sandbox.update_env({"ADDED": "yes"}, unset=["GIVEN"])
    ask = SessionExecuteRequest(command='echo "[$ADDED] [$GIVEN]"')
    assert sandbox.process.execute_session_command("before", ask).stdout == "[] [1]\n"
    sandbox.process.create_session("after")
    assert sandbox.process.execute_session_command("after", ask).stdout == "[yes] []\n"
    assert sandbox.process.exec('echo "[$ADDED] [$GIVEN]"').result == "[yes] []\n"
    assert sandbox.process.exec("echo $ADDED", env={"ADDED": "other"}).result == "other\n"


def test_metrics_are_those_of_the_resources_that_were_asked_for(sandbox: Sandbox) -> None:
    metrics = sandbox.get_metrics_latest()
    assert metrics.cpu_count == sandbox.cpu
    assert metrics.mem_total == sandbox.memory * 1024**3
    assert 0 <= metrics.disk_used <= metrics.disk_total == sandbox.disk * 1024**3
    assert abs(metrics.timestamp.timestamp() - time.time()) < 60
    sandbox.process.create_session("resident")
    assert sandbox.get_metrics_latest().mem_used > 0


def test_ports_are_known_while_something_listens(sandbox: Sandbox) -> None:
    with _listener() as listener:
        wanted = listener.getsockname()[1]
        assert wanted in _toolbox(sandbox, "/port")["ports"]
        assert _toolbox(sandbox, f"/port/{wanted}/in-use") == {"isInUse": True}
    assert _toolbox(sandbox, f"/port/{wanted}/in-use") == {"isInUse": False}
    assert _toolbox(sandbox, "/version")["version"]


def test_a_volume_is_the_same_directory_in_every_sandbox_that_mounts_it(
    emulator: Place, client: Daytona
) -> None:
    volume = client.volume.create("shared-data")
    until(lambda: _state(client, "shared-data") == "ready", "the volume")
    mounts = [VolumeMount(volume_id=volume.id, mount_path="/home/daytona/memory")]
    part = [VolumeMount(volume_id=volume.id, mount_path="/data/part", subpath="inner")]
    one = client.create(CreateSandboxFromSnapshotParams(volumes=mounts), timeout=60)
    two = client.create(CreateSandboxFromSnapshotParams(volumes=part), timeout=60)
    one.process.exec("mkdir -p memory/inner && echo by-process > memory/inner/file")
    assert two.fs.download_file("/data/part/file") == b"by-process\n"
    two.fs.upload_file(b"by-api", "/data/part/other")
    assert one.process.exec("cat memory/inner/other").result == "by-api"
    assert [file.name for file in one.fs.list_files("memory/inner")] == ["file", "other"]
    truth = emulator.world.volumes[volume.id].directory
    assert sorted(file.name for file in (truth / "inner").iterdir()) == ["file", "other"]
    client.delete(one)
    assert two.process.exec("cat /data/part/file").result == "by-process\n"
    client.delete(two)


def test_a_stop_ends_processes_and_sessions_and_keeps_files(
    emulator: Place, client: Daytona
) -> None:
    sandbox = client.create(timeout=60)
    sandbox.process.create_session("kept")
    sandbox.process.create_pty_session("terminal").disconnect()
    sandbox.code_interpreter.run_code("x = 1")
    sandbox.fs.upload_file(b"kept", "file")
    sandbox.stop()
    assert emulator.commands(sandbox) == []
    for ask in (
        lambda: sandbox.process.exec("true"),
        lambda: sandbox.process.list_sessions(),
        lambda: sandbox.git.status("."),
    ):
        with pytest.raises(DaytonaBadRequestError, match="Is the Sandbox started"):
            ask()
    with pytest.raises(DaytonaError, match="400 Bad Request"):
        sandbox.fs.download_file("file")
    sandbox.start()
    assert sandbox.fs.download_file("file") == b"kept"
    assert sandbox.process.list_sessions() == []
    assert sandbox.process.list_pty_sessions() == []
    assert sandbox.code_interpreter.run_code("print(x)").error is not None
    client.delete(sandbox)
    with pytest.raises((DaytonaNotFoundError, DaytonaBadRequestError)):
        sandbox.process.exec("true")


def test_nothing_of_the_toolbox_is_left_on_the_machine_after_a_stop(
    emulator: Place, client: Daytona
) -> None:
    def used(count: int) -> None:
        for _ in range(count):
            sandbox = client.create(timeout=60)
            _use(sandbox)
            client.delete(sandbox, wait=True)

    used(2)  # the client's own connections are open from now on
    before = _descriptors()
    used(10)
    until(lambda: _descriptors() < before + 8, "the end of open descriptors")


def test_a_desktop_must_be_started_and_remembers_the_pointer(sandbox: Sandbox) -> None:
    computer = sandbox.computer_use
    with pytest.raises(DaytonaError, match="not running"):
        computer.mouse.get_position()
    assert computer.get_status().status == "inactive"
    assert "started" in (computer.start().message or "")
    assert computer.get_status().status == "active"
    assert computer.get_process_status("xvfb").running is True
    assert computer.restart_process("novnc").process_name == "novnc"
    with pytest.raises(DaytonaNotFoundError):
        computer.get_process_logs("notepad")
    computer.mouse.move(5, 6)
    position = computer.mouse.get_position()
    assert (position.x, position.y) == (5, 6)
    assert (computer.mouse.drag(1, 2, 30, 40).x, computer.mouse.click(7, 8).y) == (30, 8)
    assert computer.mouse.scroll(1, 1, "down") is True
    computer.keyboard.type("text")
    computer.keyboard.press("a", ["ctrl"])
    computer.keyboard.hotkey("ctrl+c")
    assert "stopped" in (computer.stop().message or "")


def test_screenshots_are_pictures_of_the_size_that_was_asked_for(sandbox: Sandbox) -> None:
    computer = sandbox.computer_use
    computer.start()
    (display,) = computer.display.get_info().displays or []
    region = ScreenshotRegion(x=1, y=2, width=30, height=20)
    half = ScreenshotOptions(scale=0.5)
    shots = {
        (display.width, display.height): computer.screenshot.take_full_screen(show_cursor=True),
        (30, 20): computer.screenshot.take_region(region),
        (512, 384): computer.screenshot.take_compressed(half),
        (15, 10): computer.screenshot.take_compressed_region(region, half),
    }
    for size, shot in shots.items():
        picture = base64.b64decode(shot.screenshot or "")
        assert picture.startswith(b"\x89PNG\r\n")
        assert struct.unpack("!II", picture[16:24]) == size
        assert shot.size_bytes == len(picture)
    computer.stop()


def test_recordings_are_files_of_the_sandbox(
    emulator: Place, sandbox: Sandbox, tmp_path: Path
) -> None:
    recording = sandbox.computer_use.recording
    made = recording.start("demo")
    file = emulator.host(sandbox, made.file_path)
    assert file.exists() and made.status == "recording"
    with pytest.raises(DaytonaError, match="still active"):
        recording.delete(made.id)
    assert recording.stop(made.id).status == "completed"
    assert [one.id for one in recording.list().recordings] == [made.id]
    recording.download(made.id, str(tmp_path / "copy.mp4"))
    assert (tmp_path / "copy.mp4").read_bytes() == file.read_bytes()
    recording.delete(made.id)
    assert not file.exists()
    with pytest.raises(DaytonaNotFoundError):
        recording.get(made.id)


def test_the_desktop_has_no_windows_to_find(sandbox: Sandbox) -> None:
    accessibility = sandbox.computer_use.accessibility
    root = accessibility.get_tree().root
    assert root is not None and root.children == []
    assert accessibility.find_nodes(name="button").matches == []
    with pytest.raises(DaytonaNotFoundError):
        accessibility.focus_node("button")


def test_language_servers_are_said_to_be_missing(sandbox: Sandbox) -> None:
    with pytest.raises(DaytonaError) as caught:
        sandbox.create_lsp_server("python", ".").start()
    assert caught.value.status_code == 400


def _use(sandbox: Sandbox) -> None:
    sandbox.process.create_session("used")
    request = SessionExecuteRequest(command="sleep 86411", run_async=True)
    sandbox.process.execute_session_command("used", request)
    sandbox.process.create_pty_session("used").disconnect()
    sandbox.code_interpreter.run_code("x = 1")


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _state(client: Daytona, name: str) -> str:
    return str(getattr(client.volume.get(name).state, "value", ""))


def _listener() -> socket.socket:
    """At the first port that is free, of those that Daytona looks at."""
    for port in range(3000, 10_000):
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
    raise AssertionError("every port is taken")


def _toolbox(sandbox: Sandbox, path: str) -> dict[str, object]:
    """For what the SDK has no method."""
    url = f"{sandbox.toolbox_proxy_url}/{sandbox.id}{path}"
    key = sandbox._toolbox_api.default_headers["Authorization"]
    request = urllib.request.Request(url, headers={"Authorization": key})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return dict(json.loads(answer.read()))
