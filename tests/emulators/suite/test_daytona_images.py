"""Images that are really built, their logs, snapshots of them, and contexts that are uploaded."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from daytona import (
    AsyncDaytona,
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    CreateSnapshotParams,
    Daytona,
    Image,
    Resources,
    SandboxState,
)
from daytona.common.errors import (
    DaytonaBadRequestError,
    DaytonaConflictError,
    DaytonaError,
    DaytonaNotFoundError,
)

from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.driving.daytona import delete_failed, failed, wait_until


@pytest.fixture(scope="module")
def daytona(server: DaytonaEmulator) -> Daytona:
    return Daytona()


def from_image(name: str, image: Image | str) -> CreateSandboxFromImageParams:
    return CreateSandboxFromImageParams(name=name, image=image)


def from_snapshot(name: str, snapshot: str) -> CreateSandboxFromSnapshotParams:
    return CreateSandboxFromSnapshotParams(name=name, snapshot=snapshot)


def test_commands_of_an_image_are_run_and_their_output_is_streamed(daytona: Daytona) -> None:
    image = (
        Image.base("debian:12")
        .env({"GREETING": "hello there"})
        .workdir("/srv/app")
        .run_commands("echo building $((6 * 7))", "echo $GREETING > made; mkdir -p /usr/local/x")
        .run_commands("touch /usr/local/x/deep")
    )
    logs: list[str] = []
    sandbox = daytona.create(from_image("built", image), on_snapshot_create_logs=logs.append)
    assert "building 42" in "".join(logs)
    listed = "pwd; cat made; echo $GREETING; ls /usr/local/x"
    assert sandbox.process.exec(f"cd /srv/app; {listed}").result == (
        "/srv/app\nhello there\nhello there\ndeep\n"
    )
    assert sandbox.get_work_dir() == "/srv/app"
    sandbox.delete(wait=True)


def test_a_failing_command_fails_the_build_with_its_output(daytona: Daytona) -> None:
    image = Image.base("debian:12").run_commands("echo the reason is here; exit 3")
    with pytest.raises(DaytonaError):
        daytona.create(from_image("fails-to-build", image))
    state, reason = failed(daytona, "fails-to-build")
    assert state == SandboxState.BUILD_FAILED
    assert "non-zero code: 3" in reason
    assert "the reason is here" in reason
    delete_failed(daytona, "fails-to-build")


def test_an_image_that_no_registry_has_fails_the_build(daytona: Daytona) -> None:
    with pytest.raises(DaytonaError):
        daytona.create(from_image("no-image", "example/does-not-exist:1"))
    assert "not found" in failed(daytona, "no-image")[1]
    delete_failed(daytona, "no-image")


def test_the_same_dockerfile_is_built_once(daytona: Daytona, emulator: DaytonaEmulator) -> None:
    image = Image.base("debian:12").run_commands("date +%N > /home/stamp")
    one = daytona.create(from_image("once-1", image))
    two = daytona.create(from_image("once-2", image))
    stamp = "cat /home/stamp"
    assert one.process.exec(stamp).result == two.process.exec(stamp).result
    states = [state for state, _at_s in emulator.sandbox("once-2")["history"]]
    assert states[0] == "creating"
    one.delete(wait=True)
    two.delete(wait=True)


def test_pip_packages_of_an_image_are_installed(daytona: Daytona, tmp_path: Path) -> None:
    wheel = _wheel(tmp_path)
    image = Image.debian_slim("3.12").pip_install(str(wheel))
    sandbox = daytona.create(from_image("with-pip", image), timeout=120)
    result = sandbox.process.exec('python -c "import greeting; print(greeting.WORD)"')
    assert (result.exit_code, result.result) == (0, "good day\n")
    assert sandbox.process.code_run("import greeting; print(greeting.WORD)").result == "good day\n"
    sandbox.delete(wait=True)


def test_a_snapshot_of_a_dockerfile_is_built_with_logs(daytona: Daytona) -> None:
    logs: list[str] = []
    image = Image.base("debian:12").run_commands("echo for a snapshot; echo it > /home/made")
    params = CreateSnapshotParams(name="mine", image=image, resources=Resources(cpu=2, memory=2))
    snapshot = daytona.snapshot.create(params, on_logs=logs.append)
    assert (snapshot.state, snapshot.cpu, snapshot.mem) == ("active", 2, 2)
    assert any("Created snapshot mine" in line for line in logs)
    sandbox = daytona.create(from_snapshot("of-mine", "mine"))
    assert (sandbox.cpu, sandbox.snapshot) == (2, "mine")
    assert sandbox.process.exec("cat /home/made").result == "it\n"
    sandbox.delete(wait=True)
    with pytest.raises(DaytonaConflictError):
        daytona.snapshot.create(params)
    daytona.snapshot.delete(snapshot)
    wait_until(lambda: "mine" not in [one.name for one in daytona.snapshot.list().items])
    with pytest.raises(DaytonaBadRequestError, match="not found"):
        daytona.create(from_snapshot("of-nothing", "mine"))


def test_a_snapshot_of_an_image_is_pulled_or_says_why_not(daytona: Daytona) -> None:
    pulled = daytona.snapshot.create(CreateSnapshotParams(name="pulled", image="debian:12"))
    assert (pulled.state, pulled.image_name) == ("active", "debian:12")
    with pytest.raises(DaytonaError, match="Failed to pull"):
        daytona.snapshot.create(CreateSnapshotParams(name="unpulled", image="x/does-not-exist:1"))
    assert daytona.snapshot.get("unpulled").state == "error"
    for image in ("debian", "debian:latest"):
        with pytest.raises(DaytonaBadRequestError):
            daytona.snapshot.create(CreateSnapshotParams(name="untagged", image=image))
    daytona.snapshot.delete(pulled)
    daytona.snapshot.delete("unpulled")


def test_snapshots_are_listed_in_pages_and_found_by_name(daytona: Daytona) -> None:
    wait_until(lambda: daytona.snapshot.list().total == 4, what="the end of the others")
    page = daytona.snapshot.list(page=1, limit=2)
    assert (len(page.items), page.page, page.total) == (2, 1, 4)
    assert daytona.snapshot.get(page.items[0].name).id == page.items[0].id
    with pytest.raises(DaytonaNotFoundError):
        daytona.snapshot.get("nowhere")


def test_an_inactive_snapshot_begins_nothing_until_it_is_activated(
    daytona: Daytona,
    emulator: DaytonaEmulator,
) -> None:
    import daytona_api_client as api

    made = daytona.snapshot.create(CreateSnapshotParams(name="sleeps", image="debian:12"))
    api.SnapshotsApi(daytona._api_client).deactivate_snapshot(made.id)
    with pytest.raises(DaytonaBadRequestError, match="inactive"):
        daytona.create(from_snapshot("too-early", "sleeps"))
    assert daytona.snapshot.activate("sleeps").state == "active"
    daytona.create(from_snapshot("in-time", "sleeps")).delete(wait=True)
    daytona.snapshot.delete("sleeps")


UPLOADING = """
    import asyncio, sys
    from daytona import AsyncDaytona, CreateSandboxFromImageParams, Daytona, Image

    here = sys.argv[1]
    image = Image.base("debian:12").add_local_dir(f"{here}/tree", "/srv/tree")
    image = image.add_local_file(f"{here}/note", "/srv/note").run_commands("cat /srv/note")
    daytona = Daytona()
    sandbox = daytona.create(CreateSandboxFromImageParams(image=image))
    print(sandbox.process.exec("cat /srv/note /srv/tree/deep/leaf").result)
    sandbox.delete(wait=True)

    async def again():
        async with AsyncDaytona() as daytona:
            params = CreateSandboxFromImageParams(image=image.run_commands("true"))
            sandbox = await daytona.create(params)
            print((await sandbox.process.exec("cat /srv/note")).result)
            await sandbox.delete(wait=True)

    asyncio.run(again())
"""


def test_local_files_are_uploaded_and_copied_into_the_image(
    server: DaytonaEmulator,
    tmp_path: Path,
) -> None:
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/deep/leaf").write_text("a leaf\n")
    (tmp_path / "note").write_text("a note\n")
    script = tmp_path / "upload.py"
    script.write_text(textwrap.dedent(UPLOADING))
    argv = server.trusting([sys.executable, str(script), str(tmp_path)], tmp_path)
    done = subprocess.run(
        argv, env={**os.environ, **server.env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "a note\na leaf\n\na note\n\n"
    assert server.state()["live"] == []


async def _async_build() -> list[str]:
    logs: list[str] = []
    image = Image.base("debian:12").run_commands("echo asynchronous")
    async with AsyncDaytona() as daytona:
        params = from_image("async-built", image)
        sandbox = await daytona.create(params, on_snapshot_create_logs=logs.append)
        await sandbox.delete(wait=True)
    return logs


def test_the_asynchronous_sdk_streams_build_logs_as_well(server: DaytonaEmulator) -> None:
    import asyncio

    assert "asynchronous" in "".join(asyncio.run(_async_build()))


def _wheel(directory: Path) -> Path:
    """A package that needs no registry."""
    path = directory / "greeting-1.0-py3-none-any.whl"
    about = "greeting-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("greeting.py", "WORD = 'good day'\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        tag = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{about}/WHEEL", tag)
        wheel.writestr(f"{about}/RECORD", "")
    return path
